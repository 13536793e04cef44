"""Convolution in groups of few channels, by long loops over whole planes.

With one channel a group (depthwise) a matrix product would have a single row, and the BLAS nothing to gain. An image is
copied into a grid that has room for its border of zeros, cut into phases by the stride: row i and column j of the phase
p, q hold the pixel (i * stride + p, j * stride + q) of the image with its border. What a tap (a, b) sees lies then in
one phase, without gaps as long as rows of y have the length of those of the grid, `pitch`:
    y[k] = sum over taps of weight[a, b] * grid[at[a, b] + k]
What that computes for the columns too many is not copied into the result. The loops take so many rows at a time that
what they read stays in the L1 cache, up to nine taps, and two outputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from numba.np.unsafe.ndarray import to_fixed_tuple

from miniflow.backends.cpu.loops import SUMS
from miniflow.backends.cpu.threads import inlined, share, unlocked
from miniflow.backends.windows import Windows

IN_L1 = 8192  # elements that a loop reads before it reads them for the next output


def forward(
    x: np.ndarray, weight: np.ndarray, windows: Windows, groups: int, y: np.ndarray, bias: np.ndarray | None = None
) -> None:
    """x (N, C, H, W), weight (O, C / groups, KH, KW), bias (O,) -> y (N, O, OH, OW)"""
    bias = np.zeros(len(weight), x.dtype) if bias is None else np.ascontiguousarray(bias)
    _share(_forward, len(x) * groups, x, weight, y, windows, groups, bias.reshape(groups, -1))


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
    _share(_weight_grad, groups, x, dweight, dy, windows, groups)
    if not np.isfinite(dweight).all():  # zeros between rows of dy have met infinities of x: take rows one by one
        _share(_weight_grad, groups, x, dweight, dy, windows, groups, rows=1)


def _share(
    work: Callable,
    items: int,
    x: np.ndarray,
    weight: np.ndarray,
    y: np.ndarray,
    windows: Windows,
    groups: int,
    *rest: np.ndarray,
    rows: int | None = None,
) -> None:
    """Run `work` in threads, on arrays (N G, C / G, H, W), (G, O / G, C / G, taps) and (N G, O / G, OH, OW)."""
    (_, _, oh, ow), ((top, _), (left, _)) = y.shape, windows.padding
    (kh, kw), (sh, sw), (dh, dw) = windows.kernel, windows.stride, windows.dilation
    height, pitch = oh + (kh - 1) * dh // sh, ow + (kw - 1) * dw // sw
    a, b = np.arange(0, kh * dh, dh)[:, None], np.arange(0, kw * dw, dw)
    at = ((a % sh * sw + b % sw) * height + a // sh) * pitch + b // sw
    x = np.ascontiguousarray(x).reshape(len(x) * groups, -1, *x.shape[2:])
    weight = np.ascontiguousarray(weight).reshape(groups, -1, weight.shape[1], kh * kw)
    y = np.ascontiguousarray(y).reshape(len(x), -1, oh, ow)
    rows = rows or max(1, min(oh, IN_L1 // ((x.shape[1] + 1) * pitch)))
    elements = y.size * weight[0, 0].size // 4
    share(work, items, elements, x, weight, y, at.ravel(), (sh, sw, height, pitch), (top, left), rows, *rest)


@inlined
def _lay_out(image, grid, top, left):
    """Copy an image (H, W) into a grid (SH, SW, rows, columns), of zeros until then."""
    (height, width), (sh, sw, rows, columns) = image.shape, grid.shape
    up, back = max(0, -top), max(0, -left)  # pixels that no window sees
    for p in range(sh):
        for q in range(sw):
            h, w = up + (p - up - top) % sh, back + (q - back - left) % sw
            i, j = (h + top) // sh, (w + left) // sw
            count = min((width - w + sw - 1) // sw, columns - j)
            for row in range(min((height - h + sh - 1) // sh, rows - i)):
                source, target = image[h + row * sh, w:], grid[p, q, i + row, j:]
                if sw == 1:
                    for k in range(count):
                        target[k] = source[k]
                else:
                    for k in range(count):
                        target[k] = source[k * sw]


@inlined
def _copy(source, target):
    for k in range(target.size):
        target[k] = source[k]


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


@inlined
def _add_tap(part, seen, weight):
    for k in range(part.size):
        part[k] += weight * seen[k]


@unlocked()
def _forward(start, stop, x, weight, y, at, shape, place, rows, bias):
    """Images and groups from start to stop."""
    (groups, outputs, inputs, taps), (oh, ow), (sh, sw, height, pitch) = weight.shape, y.shape[2:], shape
    grid = np.zeros((inputs, sh, sw, height, pitch), x.dtype)
    views, parts = grid.reshape(inputs, grid[0].size), np.empty((2, rows * pitch), x.dtype)
    for item in range(start, stop):
        g = item % groups
        for c in range(inputs):
            _lay_out(x[item, c], grid[c], place[0], place[1])
        for top in range(0, oh, rows):
            size = (min(rows, oh - top) - 1) * pitch + ow
            for o in range(0, outputs, 2):
                last = min(o + 1, outputs - 1)
                first, second = parts[0, :size], parts[1, : size * (last - o)]
                first[:], second[:] = bias[g, o], bias[g, last]
                for c in range(inputs):
                    seen, w, v = views[c, top * pitch :], weight[g, o, c], weight[g, last, c]
                    for t in range(0, taps - 8, 9):
                        _add_nine(first, second, seen, at[t:], w[t:], v[t:])
                    for t in range(taps // 9 * 9, taps):
                        _add_tap(first, seen[at[t] :], w[t])
                        _add_tap(second, seen[at[t] :], v[t])
                for output in range(o, last + 1):
                    for i in range(min(rows, oh - top)):
                        _copy(parts[output - o, i * pitch :], y[item, output, top + i])


@inlined
def _add_products(part, seen, at, total):
    """total[t] += sum over k of part[k] seen[at[t] + k]"""
    for t in range(0, at.size - 2, 3):
        s0, s1, s2, zero = seen[at[t] :], seen[at[t + 1] :], seen[at[t + 2] :], part.dtype.type(0)
        t0, t1, t2 = zero, zero, zero
        for k in range(part.size):
            t0 += part[k] * s0[k]
            t1 += part[k] * s1[k]
            t2 += part[k] * s2[k]
        total[t] += t0
        total[t + 1] += t1
        total[t + 2] += t2
    for t in range(at.size // 3 * 3, at.size):
        s, sum_ = seen[at[t] :], part.dtype.type(0)
        for k in range(part.size):
            sum_ += part[k] * s[k]
        total[t] += sum_


@unlocked(SUMS)
def _weight_grad(start, stop, x, dweight, dy, at, shape, place, rows):
    """Groups from start to stop; the rows of dy are filled up with zeros to the length of those of the grid."""
    (groups, outputs, inputs, _), (oh, ow), (sh, sw, height, pitch) = dweight.shape, dy.shape[2:], shape
    grid, cotangents = np.zeros((inputs, sh, sw, height, pitch), x.dtype), np.zeros((oh, pitch), x.dtype)
    views, flat = grid.reshape(inputs, grid[0].size), cotangents.reshape(oh * pitch)
    dweight[start:stop] = 0
    for g in range(start, stop):
        for item in range(g, len(x), groups):
            for c in range(inputs):
                _lay_out(x[item, c], grid[c], place[0], place[1])
            for o in range(outputs):
                for i in range(oh):
                    _copy(dy[item, o, i], cotangents[i, :ow])
                for top in range(0, oh, rows):
                    part = flat[top * pitch :][: (min(rows, oh - top) - 1) * pitch + ow]
                    for c in range(inputs):
                        _add_products(part, views[c, top * pitch :], at, dweight[g, o, c])
