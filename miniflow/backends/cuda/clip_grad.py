"""Clipping of gradients: a launch for each few of them, and nothing that the host has to wait for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from miniflow.backends.cuda.array import DeviceArray, contiguous, empty
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.launch import launch
from miniflow.backends.registry import register
from miniflow.kernels import clip_grad as kernels
from miniflow.kernels.clip_grad import PART, THREADS

TOGETHER = 8  # arrays in a launch: they are arguments, of which CUDA takes 4 KB
REALS = (np.float32, np.float64)
NORMS = {1.0: kernels.MAGNITUDES, 2.0: kernels.SQUARES, math.inf: kernels.LARGEST}


def real_of(x: DeviceArray) -> type:
    """The dtype in which the elements are computed."""
    return np.float64 if x.dtype == np.float64 else np.float32


def together(arrays: Sequence[DeviceArray], each: int) -> Iterator[tuple[list[int], list[DeviceArray], tuple]]:
    """Arrays as launches take them: the indices of some, they flat and in one dtype, and where their blocks start.

    A launch has always the same number of arrays, so that it is compiled once; the last of them have no blocks.

    Args:
        each: elements of a block.
    """
    for real in REALS:
        mine = [i for i, x in enumerate(arrays) if x.size and real_of(x) is real]
        for first in range(0, len(mine), TOGETHER):
            some = mine[first : first + TOGETHER]
            plain = [arrays[i] if arrays[i].dtype == real else arrays[i].astype(real) for i in some]
            flat = [contiguous(x).reshape(-1) for x in plain]
            missing = TOGETHER - len(some)
            blocks = [-(-x.size // each) for x in flat] + [0] * missing
            yield some, flat + flat[:1] * missing, tuple(accumulate(blocks, initial=0))


@register("cuda", "TotalNorm", half="native")
def total_norm(*gradients: DeviceArray, norm_type: float) -> DeviceArray:
    p, index = float(norm_type), gradients[0].device_index
    norm = NORMS.get(p, kernels.POWERS)
    launches = list(together(gradients, PART))
    partials = empty((sum([starts[-1] for _, _, starts in launches]),), np.float64, index)
    done = 0
    for _, flat, starts in launches:
        launch(norm.partial, starts[-1], THREADS, starts, tuple(flat), p, done, partials)
        done += starts[-1]
    total = empty((1,), np.float64 if any(g.dtype == np.float64 for g in gradients) else np.float32, index)
    launch(norm.finish, 1, THREADS, partials, p, total)
    return total.reshape(())


@register("cuda", "ClipGradNorm", half="native")
def clip_grad_norm(gradients: Sequence[DeviceArray], norms: Sequence[DeviceArray], *, max_norm: float) -> None:
    for some, flat, starts in together(gradients, THREADS):
        bounds = [norms[i].reshape((1,)) for i in some]
        bounds += bounds[:1] * (TOGETHER - len(bounds))
        launch(kernels.scale, starts[-1], THREADS, starts, tuple(flat), tuple(bounds), float(max_norm))
        write_back([gradients[i] for i in some], flat)


@register("cuda", "ClipGradValue", half="native")
def clip_grad_value(gradients: Sequence[DeviceArray], *, clip_value: float) -> None:
    for some, flat, starts in together(gradients, THREADS):
        launch(kernels.clamp, starts[-1], THREADS, starts, tuple(flat), flat[0].dtype.type(clip_value))
        write_back([gradients[i] for i in some], flat)


def write_back(arrays: Sequence[DeviceArray], flat: Sequence[DeviceArray]) -> None:
    """Copy what was computed in other memory than that of the arrays."""
    for x, changed in zip(arrays, flat, strict=False):
        if x.address != changed.address:
            copy_into(x, changed.reshape(x.shape))
