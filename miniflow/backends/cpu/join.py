"""Kernels that put tensors together."""

from __future__ import annotations

import numpy as np

from miniflow.backends.registry import register, register_into


@register("cpu", "Cat", half="native")
def cat(*xs: np.ndarray, dim: int, sizes: tuple[int, ...]) -> np.ndarray:
    return np.concatenate(xs, dim)


@register_into("cpu", "Cat", half="native")
def cat_into(out: np.ndarray, *xs: np.ndarray, dim: int, sizes: tuple[int, ...]) -> None:
    np.concatenate(xs, dim, out=out)


@register("cpu", "Stack", half="native")
def stack(*xs: np.ndarray, dim: int) -> np.ndarray:
    return np.stack(xs, dim)


@register_into("cpu", "Stack", half="native")
def stack_into(out: np.ndarray, *xs: np.ndarray, dim: int) -> None:
    np.stack(xs, dim, out=out)
