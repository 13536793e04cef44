"""Convolution in groups of few channels, by long loops over whole planes.

With one channel a group (depthwise) a matrix product would have a single row, and the BLAS nothing to gain. An image is
copied into a grid, once for every column b of taps: what that column sees, with zeros outside of the image. The rows
are cut into phases by the stride: in phase p the row below is `stride` rows further in the image.
    grid[b, p, i, j] = image[i * stride + p - top, j * stride + b * dilation - left]
Rows of the grid are as long as those of y, so that one loop without gaps runs over many rows of y:
    y[k] = sum over channels and taps of weight[c, a, b] * grid[at[c, a, b] + k]
It takes nine taps and up to two outputs at a time, and so many rows that all it touches stays in the L1 cache. Taps are
filled up to nines by weights of zero, which see zeros behind the grid.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numba.np.unsafe.ndarray import to_fixed_tuple

from miniflow.backends.cpu.loops import SUMS
from miniflow.backends.cpu.threads import inlined, share, unlocked
from miniflow.backends.windows import Pair, Windows

unsigned = np.uint64  # an index that cannot be negative: numba does not ask
IN_L1 = 8192  # elements


def forward(
    x: np.ndarray, weight: np.ndarray, windows: Windows, groups: int, y: np.ndarray, bias: np.ndarray | None = None
) -> None:
    """x (N, C, H, W), weight (O, C / groups, KH, KW), bias (O,) -> y (N, O, OH, OW)"""
    bias = np.zeros(len(weight), x.dtype) if bias is None else np.ascontiguousarray(bias)
    taps = weight[0].size
    nines = np.zeros((groups, len(weight) // groups, taps + -taps % 9), x.dtype)
    nines[..., :taps] = weight.reshape(*nines.shape[:2], taps)
    _share(_forward, len(x) * groups, x, nines, y, windows, groups, bias.reshape(groups, -1))


def data_grad(dy: np.ndarray, weight: np.ndarray, windows: Windows, groups: int, dx: np.ndarray) -> None:
    """dy (N, O, OH, OW), weight (O, C / groups, KH, KW) -> dx (N, C, H, W)

    Each phase of dx is the convolution of dy, at stride 1, with the taps that see it, flipped, and input and output
    channels exchanged. Shi et al. 2016, "Is the deconvolution layer the same as a convolutional layer?" Taps beyond
    dy meet a border of zeros: a weight that is not finite makes NaN there.
    """
    outputs = len(weight) // groups
    exchanged = (
        weight.reshape(groups, outputs, -1, *windows.kernel).swapaxes(1, 2).reshape(-1, outputs, *windows.kernel)
    )
    dims = (_phases(*dim) for dim in zip(*windows[:4], strict=True))
    for (rows, a, down, top), (columns, b, across, left) in itertools.product(*dims):
        target = dx[:, :, rows, columns]
        if not a or not b:
            target[...] = 0
        elif target.size:
            part = Windows((len(a), len(b)), (1, 1), ((top, 0), (left, 0)), (down, across))
            result = target if target.flags.c_contiguous else np.empty(target.shape, dx.dtype)
            forward(dy, exchanged[:, :, a][..., b], part, groups, result)
            if result is not target:
                np.copyto(target, result)


def _phases(kernel: int, stride: int, padding: tuple[int, int], dilation: int) -> Iterator[tuple]:
    """The phases of a dim: pixels, the taps that see them, flipped, dilation and border of their convolution."""
    for phase in range(stride):
        taps = [t for t in range(kernel) if t * dilation % stride == phase][::-1]
        first = (phase - padding[0]) % stride
        border = (max(taps, default=0) * dilation - first - padding[0]) // stride
        yield slice(first, None, stride), taps, (taps[0] - taps[1]) * dilation // stride if taps[1:] else 1, border


def weight_grad(dy: np.ndarray, x: np.ndarray, windows: Windows, groups: int, dweight: np.ndarray) -> None:
    """dy (N, O, OH, OW), x (N, C, H, W) -> dweight (O, C / groups, KH, KW)"""
    taps = dweight[0].size
    nines = np.empty((groups, len(dweight) // groups, taps + -taps % 9), x.dtype)
    _share(_weight_grad, groups, x, nines, dy, windows, groups)
    dweight[...] = nines[..., :taps].reshape(dweight.shape)


def _share(
    work: Callable,
    items: int,
    x: np.ndarray,
    weight: np.ndarray,
    y: np.ndarray,
    windows: Windows,
    groups: int,
    *rest: Any,
) -> None:
    """Run `work` in threads, on arrays (N G, C / G, H W), (G, O / G, taps) and (N G, O / G, OH OW)."""
    inputs = x.shape[1] // groups
    place, at, each, part = _layout(x.shape[2:], y.shape[2:], windows, inputs)
    x = np.ascontiguousarray(x).reshape(len(x) * groups, inputs, -1)
    y = np.ascontiguousarray(y).reshape(len(x), -1, y.shape[2] * y.shape[3])
    share(work, items, y.size * weight.shape[2] // 4, x, weight, y, at, place, each, part, *rest)


@functools.lru_cache(256)
def _layout(size: Pair, out: Pair, windows: Windows, inputs: int) -> tuple[tuple, np.ndarray, int, int]:
    """`place` as `_lay_out` takes it, `at`, the size of a channel's grid, and the part of y's plane that it gives."""
    (kh, kw), (sh, sw), ((top, _), (left, _)), (dh, dw) = windows[:4]
    bands = -(-out[0] // max(1, IN_L1 // ((kw + 2) * out[1])))
    band = -(-out[0] // bands)
    rows = band + (kh - 1) * dh // sh
    each = kw * sh * rows * out[1]
    at = [((b * sh + a * dh % sh) * rows + a * dh // sh) * out[1] for a in range(kh) for b in range(kw)]
    at = [c * each + k for c in range(inputs) for k in at]
    lines = [_seen(phase - top, sh, size[0]) for phase in range(sh)]
    columns = [_seen(b * dw - left, sw, size[1]) for b in range(kw)]
    place = size[1], out[1], rows, sw, band == out[0], np.array(lines), np.array(columns)
    return place, np.array(at + [inputs * each] * (-len(at) % 9)), each, band * out[1]


def _seen(start: int, stride: int, size: int) -> tuple[int, int, int]:
    """Start, and the first and the end of the k for which there is a pixel start + k * stride; they may be negative."""
    return start, -(start // stride), -((start - size) // stride)


@inlined
def _lay_out(image, grid, place, top):
    """Fill the grid of an image, from a row of y on; what no pixel is copied to is zero before.

    Args:
        place: lengths of a row of the image and of one of the grid; rows of the grid; stride along rows; whether one
            grid has all rows of y; what `_seen` says of each phase and of each column of taps.
    """
    width, pitch, rows, stride, whole, lines, columns = place
    for p in range(len(lines)):
        low, high = min(max(lines[p, 1] - top, 0), rows), min(max(lines[p, 2] - top, 0), rows)
        line = lines[p, 0] + top * len(lines)
        for b in range(len(columns)):
            shift, first = columns[b, 0], min(max(columns[b, 1], 0), pitch)
            end = min(max(columns[b, 2], first), pitch)
            base = (b * len(lines) + p) * rows * pitch
            if not whole:
                grid[base : base + low * pitch] = 0
                grid[base + high * pitch : base + rows * pitch] = 0
            if len(lines) == 1 and stride == 1 and pitch == width and low < high:  # all rows at once
                offset = line * width + shift  # of the image against the grid
                begin, after = max(low * width, -offset), min(high * width, image.size - offset)
                _copy_part(image, begin + offset, 1, grid, base + begin, max(0, after - begin))
                for j in range(end - pitch, first):
                    k = base + low * pitch + (j if j >= 0 else j + pitch)
                    while k < base + high * pitch:  # a range would become scattered stores of vectors, which are slow
                        grid[unsigned(k)] = 0
                        k += pitch
            else:
                for i in range(low, high):
                    at, to = (i * len(lines) + line) * width + shift + first * stride, base + i * pitch + first
                    if stride == 2:  # which LLVM makes vectors of
                        _copy_part(image, at, 2, grid, to, end - first)
                    else:
                        _copy_part(image, at, stride, grid, to, end - first)


@inlined
def _copy_part(source, at, stride, target, to, count):
    """Copy so many elements from one place to another."""
    at, to = unsigned(at), unsigned(to)
    for k in range(unsigned(count)):
        target[to + unsigned(k)] = source[at + unsigned(k) * unsigned(stride)]


@inlined
def _add_nine(first, second, seen, at, w, v):
    """first[k] += sum over nine taps t of w[t] seen[at[t] + k], and if there is a second output with its weights v"""
    s0, s1, s2, s3, s4 = seen[at[0] :], seen[at[1] :], seen[at[2] :], seen[at[3] :], seen[at[4] :]
    s5, s6, s7, s8 = seen[at[5] :], seen[at[6] :], seen[at[7] :], seen[at[8] :]
    w0, w1, w2, w3, w4, w5, w6, w7, w8 = to_fixed_tuple(w, 9)
    v0, v1, v2, v3, v4, v5, v6, v7, v8 = to_fixed_tuple(v, 9)
    if second.size == 0:
        for k in range(first.size):
            first[k] += (
                w0 * s0[k] + w1 * s1[k] + w2 * s2[k] + w3 * s3[k] + w4 * s4[k]
                + w5 * s5[k] + w6 * s6[k] + w7 * s7[k] + w8 * s8[k]
            )  # fmt: skip
    for k in range(second.size):
        x0, x1, x2, x3, x4, x5, x6, x7, x8 = s0[k], s1[k], s2[k], s3[k], s4[k], s5[k], s6[k], s7[k], s8[k]
        first[k] += w0 * x0 + w1 * x1 + w2 * x2 + w3 * x3 + w4 * x4 + w5 * x5 + w6 * x6 + w7 * x7 + w8 * x8
        second[k] += v0 * x0 + v1 * x1 + v2 * x2 + v3 * x3 + v4 * x4 + v5 * x5 + v6 * x6 + v7 * x7 + v8 * x8


@unlocked()
def _forward(start, stop, x, weight, y, at, place, each, part, bias):
    """Images and groups from start to stop."""
    (groups, outputs, taps), size, inputs = weight.shape, y.shape[2], x.shape[1]
    grid = np.zeros(inputs * each + part, x.dtype)
    for item in range(start, stop):
        g = item % groups
        for begin in range(0, size, part):
            end = min(begin + part, size)
            for c in range(inputs):
                _lay_out(x[item, c], grid[c * each :], place, begin // place[1])
            for o in range(0, outputs, 2):
                last = min(o + 1, outputs - 1)
                first, second = y[item, o, begin:end], y[item, last, begin : begin + (end - begin) * (last - o)]
                first[:], second[:] = bias[g, o], bias[g, last]
                for t in range(0, taps, 9):
                    _add_nine(first, second, grid, at[t:], weight[g, o, t:], weight[g, last, t:])


@inlined
def _add_products(part, seen, at, total):
    """total[t] += sum over k of part[k] seen[at[t] + k], for nine taps t"""
    s0, s1, s2, s3, s4 = seen[at[0] :], seen[at[1] :], seen[at[2] :], seen[at[3] :], seen[at[4] :]
    s5, s6, s7, s8, zero = seen[at[5] :], seen[at[6] :], seen[at[7] :], seen[at[8] :], part.dtype.type(0)
    t0, t1, t2, t3, t4, t5, t6, t7, t8 = zero, zero, zero, zero, zero, zero, zero, zero, zero
    for k in range(part.size):
        y = part[k]
        t0, t1, t2 = t0 + y * s0[k], t1 + y * s1[k], t2 + y * s2[k]
        t3, t4, t5 = t3 + y * s3[k], t4 + y * s4[k], t5 + y * s5[k]
        t6, t7, t8 = t6 + y * s6[k], t7 + y * s7[k], t8 + y * s8[k]
    total[0] += t0
    total[1] += t1
    total[2] += t2
    total[3] += t3
    total[4] += t4
    total[5] += t5
    total[6] += t6
    total[7] += t7
    total[8] += t8


@unlocked(SUMS)
def _weight_grad(start, stop, x, dweight, dy, at, place, each, part):
    """Groups from start to stop."""
    (groups, outputs, taps), size, inputs = dweight.shape, dy.shape[2], x.shape[1]
    grid = np.zeros(inputs * each + part, x.dtype)
    dweight[start:stop] = 0
    for g in range(start, stop):
        for item in range(g, len(x), groups):
            for begin in range(0, size, part):
                for c in range(inputs):
                    _lay_out(x[item, c], grid[c * each :], place, begin // place[1])
                for o in range(outputs):
                    for t in range(0, taps, 9):
                        _add_products(dy[item, o, begin : begin + part], grid, at[t:], dweight[g, o, t:])
