"""Convolution kernels: the choice of the method.

    conv_direct     groups of few channels, such as depthwise: loops
    conv_winograd   kernels 3x3 and 5x5 at stride 1 in float32: a third to a quarter of the multiplications
    conv_columns    all others: matrix products over columns (im2col)

Each method has the functions `forward`, `data_grad` and `weight_grad`; groups of more channels are computed one by one.
Which one is fastest is guessed from the shapes, or measured: see `search`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from miniflow.backends.cpu import conv_columns, conv_direct, conv_winograd
from miniflow.backends.cpu.threads import share, unlocked
from miniflow.backends.registry import kernel
from miniflow.backends.windows import Windows

DIRECT_UP_TO = 16  # input and output channels of a group
DIRECT_IN_SEARCH = 2048  # pairs of them: with more, loops only take long to measure
REPEATS = 3
GAIN = 0.9


@kernel("cpu")
def conv2d(y, x, weight, bias, **geometry):
    convolve("forward", y, x, weight, x, weight, **geometry)
    if bias is not None:
        planes = y.reshape(-1, y.shape[2] * y.shape[3])
        share(_add_bias, len(planes), planes.size, planes, np.ascontiguousarray(bias))


@kernel("cpu")
def conv2d_data_grad(dx, dy, weight, *, size, **geometry):
    convolve("data_grad", dx, dy, weight, dx, weight, **geometry)


@kernel("cpu")
def conv2d_weight_grad(dweight, dy, x, *, size, **geometry):
    convolve("weight_grad", dweight, dy, x, x, dweight, **geometry)


def convolve(direction: str, out, first, second, x, weight, *, stride, padding, dilation, groups) -> None:
    """Compute `out` from `first` and `second` by the function `direction` of the fastest method.

    `x` and `weight` are those of the three that have the shapes of the images (N, C, H, W) and of the weight.
    """
    windows = Windows(weight.shape[2:], stride, padding, dilation)
    if 0 in first.shape or 0 in second.shape:
        out[...] = 0
        return
    case = x.shape, weight.shape, windows, groups, x.dtype
    method = usual(*case)
    if fastest or searching.get():
        if searching.get() and (direction, case) not in fastest:
            arrays = out, first, second, x, weight, windows, groups
            fastest[direction, case] = measured(direction, methods(*case), arrays)
        method = fastest.get((direction, case), method)
    method(direction, out, first, second, x, weight, windows, groups)


def usual(x: tuple[int, ...], weight: tuple[int, ...], windows: Windows, groups: int, dtype: np.dtype) -> Callable:
    """What is the fastest for most convolutions of such shapes."""
    if groups == 1:
        return winograd if conv_winograd.suits(x, weight, windows, dtype) else columns
    return direct if few_channels(weight, groups) else one_by_one


def methods(
    x: tuple[int, ...], weight: tuple[int, ...], windows: Windows, groups: int, dtype: np.dtype
) -> list[Callable]:
    """What can compute a convolution of these shapes; first what is usual."""
    candidates = [usual(x, weight, windows, groups, dtype), columns if groups == 1 else one_by_one]
    if groups == 1 and conv_winograd.applies(weight, windows, dtype):
        candidates.append(winograd)
    if weight[1] * weight[0] // groups <= DIRECT_IN_SEARCH:
        candidates.append(direct)
    return list(dict.fromkeys(candidates))


def columns(direction, out, first, second, x, weight, windows, groups):
    getattr(conv_columns, direction)(first, second, windows, out)


def winograd(direction, out, first, second, x, weight, windows, groups):
    getattr(conv_winograd, direction)(first, second, windows, out)


def direct(direction, out, first, second, x, weight, windows, groups):
    getattr(conv_direct, direction)(first, second, windows, groups, out)


def one_by_one(direction, out, first, second, x, weight, windows, groups):
    geometry = {"stride": windows.stride, "padding": windows.padding, "dilation": windows.dilation, "groups": 1}
    for g in range(groups):
        target, *others = [_group(array, g, groups, array is weight) for array in (out, first, second, x, weight)]
        result = np.empty(target.shape, out.dtype)
        convolve(direction, result, *others, **geometry)
        np.copyto(target, result)


fastest: dict[tuple, Callable] = {}  # (direction, shapes, windows, groups, dtype) -> the method that was the fastest
searching: ContextVar[bool] = ContextVar("searching", default=False)


@contextmanager
def search() -> Iterator[None]:
    """Time all methods in the first convolution of each geometry. Later ones of it, everywhere, take the fastest."""
    token = searching.set(True)
    try:
        yield
    finally:
        searching.reset(token)


def measured(direction: str, candidates: Sequence[Callable], arrays: tuple) -> Callable:
    """The fastest of some methods; the first unless another one takes a tenth less."""
    times: dict[Callable, float] = {}
    for method in candidates:
        method(direction, *arrays)  # compiles
        for _ in range(REPEATS):
            start = time.perf_counter()
            method(direction, *arrays)
            times[method] = min(time.perf_counter() - start, times.get(method, np.inf))
    best = min(times, key=times.__getitem__)
    return best if times[best] < GAIN * times[candidates[0]] else candidates[0]


@unlocked()
def _add_bias(start, stop, planes, bias):
    """planes[p] += bias[p % C], for the planes (N*C, OH*OW) from start to stop. NumPy is slow for short rows."""
    for p in range(start, stop):
        plane, term = planes[p], bias[p % len(bias)]
        for k in range(plane.size):
            plane[k] += term


def few_channels(weight: tuple[int, ...], groups: int) -> bool:
    """Whether the groups are so narrow that loops are faster than matrix products."""
    return groups > 1 and weight[1] <= DIRECT_UP_TO and weight[0] // groups <= DIRECT_UP_TO


def _group(array: np.ndarray, g: int, groups: int, is_weight: bool) -> np.ndarray:
    """The channels of group g: a view."""
    channels = array.shape[0 if is_weight else 1] // groups
    part = slice(g * channels, (g + 1) * channels)
    return array[part] if is_weight else array[:, part]
