"""Clipping of gradients: a launch for each few of them, and nothing that the host has to wait for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from miniflow.backends.cuda.array import DeviceArray, empty
from miniflow.backends.cuda.launch import launch
from miniflow.backends.cuda.together import padded, plain, real_of, together, write_back
from miniflow.backends.registry import kernel
from miniflow.kernels import clip_grad as kernels
from miniflow.kernels.clip_grad import PART, THREADS

NORMS = {1.0: kernels.MAGNITUDES, 2.0: kernels.SQUARES, math.inf: kernels.LARGEST}


@kernel("cuda", half="native")
def total_norm(norm: DeviceArray, *gradients: DeviceArray, norm_type: float) -> None:
    p = float(norm_type)
    partial, finish = NORMS.get(p, kernels.POWERS)
    launches = list(together(gradients, PART, real_of))
    partials = empty((sum([starts[-1] for _, _, starts in launches]),), np.float64, norm.device_index)
    done = 0
    for real, some, starts in launches:
        flat = padded([plain(gradients[i], real).reshape(-1) for i in some])
        launch(partial, starts[-1], THREADS, starts, flat, PART, p, done, partials)
        done += starts[-1]
    launch(finish, 1, THREADS, (0, 1), (partials,), done, p, 0, norm.reshape((1,)))


@kernel("cuda", returns=True)
def clip_grad_norm(gradients: Sequence[DeviceArray], norms: Sequence[DeviceArray], *, max_norm: float) -> None:
    for _, some, starts in together(gradients, THREADS, real_of):
        bounds = padded([norms[i].reshape((1,)) for i in some])
        in_place(kernels.scale, [gradients[i] for i in some], starts, bounds, float(max_norm))


@kernel("cuda", returns=True)
def clip_grad_value(gradients: Sequence[DeviceArray], *, clip_value: float) -> None:
    for real, some, starts in together(gradients, THREADS, real_of):
        in_place(kernels.clamp, [gradients[i] for i in some], starts, real(clip_value))


def in_place(on_device: Callable, gradients: list[DeviceArray], starts: tuple[int, ...], *args: Any) -> None:
    """One launch that changes all elements of some gradients."""
    working = [plain(x, real_of(x)) for x in gradients]
    launch(on_device, starts[-1], THREADS, starts, padded([x.reshape(-1) for x in working]), *args)
    write_back(gradients, working)
