"""Convolution in groups of few channels, by long loops over whole planes.

With one channel a group (depthwise) a matrix product would have a single row, and the BLAS nothing to gain. An image is
laid out with its border and cut into phases, for strides (s, t) the s t images of every s-th row and t-th column, so
that what a tap sees lies in one phase, without gaps:
    y[i * width + j] = sum over taps of weight[tap] * phase(tap)[offset(tap) + i * width + j],
where `width` is that of a phase: a loop over rows of `width` instead of OW elements, with few useless ones at their
ends. Gradients go the same way. The loops take CHUNK elements at a time, which stay in the L1 cache.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from miniflow.backends.cpu.loops import SUMS
from miniflow.backends.cpu.threads import compiled, share, unlocked
from miniflow.backends.windows import Windows

LANES = 32  # the loops' lengths are multiples of it, so that vector instructions do all of their work
CHUNK = 2048


def forward(x: np.ndarray, weight: np.ndarray, windows: Windows, groups: int, y: np.ndarray) -> None:
    """x (N, C, H, W), weight (O, C / groups, KH, KW) -> y (N, O, OH, OW)"""
    _share(_forward, len(x) * groups, x, weight, y, windows, groups)


def data_grad(dy: np.ndarray, weight: np.ndarray, windows: Windows, groups: int, dx: np.ndarray) -> None:
    """dy (N, O, OH, OW), weight (O, C / groups, KH, KW) -> dx (N, C, H, W)"""
    _share(_data_grad, len(dx) * groups, dx, weight, dy, windows, groups)


def weight_grad(dy: np.ndarray, x: np.ndarray, windows: Windows, groups: int, dweight: np.ndarray) -> None:
    """dy (N, O, OH, OW), x (N, C, H, W) -> dweight (O, C / groups, KH, KW)"""
    _share(_weight_grad, groups, x, dweight, dy, windows, groups)


def _share(work: Callable, items: int, x: np.ndarray, weight: np.ndarray, y: np.ndarray, windows: Windows, groups: int):
    """Run `work` in threads, on arrays (N, G, C / G, H, W), (G, O / G, C / G, taps) and (N, G, O / G, OH, OW)."""
    (_, _, oh, ow), ((top, _), (left, _)) = y.shape, windows.padding
    (kh, kw), (sh, sw), (dh, dw) = windows.kernel, windows.stride, windows.dilation
    width, height = ow + (kw - 1) * dw // sw, oh + (kh - 1) * dh // sh
    rows, columns = np.arange(0, kh * dh, dh)[:, None], np.arange(0, kw * dw, dw)
    seen = (rows % sh * sw + columns % sw) * (height * width) + rows // sh * width + columns // sw
    x, y = (np.ascontiguousarray(a).reshape(len(a), groups, a.shape[1] // groups, *a.shape[2:]) for a in (x, y))
    weight = np.ascontiguousarray(weight).reshape(groups, -1, weight.shape[1], kh * kw)
    phases = (x.shape[2], sh * sw, height, width)
    runs = _runs(x.shape[3], height, sh, top), _runs(x.shape[4], width, sw, left)
    share(work, items, y.size * weight[0, 0].size // 4, x, weight, y, seen.ravel(), phases, runs)


def _runs(size: int, length: int, stride: int, border: int) -> np.ndarray:
    """Along one dim of an image: for each phase the first place in it and in the image, and how many follow."""
    phase = np.arange(stride)
    place = np.maximum(0, -((phase - border) // stride))
    first = place * stride + phase - border
    return np.stack([place, first, np.minimum(length - place, -((first - size) // stride))], 1)


@compiled
def _buffers(shape, rows, dtype):
    """Zeros for the phases of a group's channels and for a plane of results, each with its view; see LANES."""
    size, results = shape[0] * shape[1] * shape[2] * shape[3], rows * shape[3]
    memory, plane = np.zeros(size + LANES, dtype), np.zeros(-(-results // LANES) * LANES, dtype)
    return memory, memory[:size].reshape(shape), plane[:results].reshape(rows, shape[3]), plane


@compiled
def _move(image, phases, rows, columns, back):
    """Copy an image (C, H, W) into its phases (C, s * t, height, width), or `back`; see `_runs`."""
    for c in range(len(image)):
        for p in range(len(rows)):
            for q in range(len(columns)):
                (i, h, height), (j, w, width) = rows[p], columns[q]
                for n in range(height):
                    row, source = phases[c, p * len(columns) + q, i + n, j:], image[c, h + n * len(rows), w:]
                    if back:
                        for k in range(width):
                            source[k * len(columns)] = row[k]
                    else:
                        for k in range(width):
                            row[k] = source[k * len(columns)]


@compiled
def _copy_rows(source, target):
    """Copy what both have of each row."""
    for i in range(len(source)):
        row, out = source[i], target[i]
        for j in range(min(row.size, out.size)):
            out[j] = row[j]


@unlocked()
def _forward(start, stop, x, weight, y, offsets, shape, runs):
    """Images and groups from start to stop."""
    groups, outputs, inputs, taps = weight.shape
    oh = y.shape[3]
    memory, phases, rows, sums = _buffers(shape, oh, x.dtype)
    size = phases[0].size
    for item in range(start, stop):
        n, g = item // groups, item % groups
        _move(x[n, g], phases, *runs, False)
        for o in range(outputs):
            for first in range(0, sums.size, CHUNK):
                part = sums[first : first + CHUNK]
                part[:] = 0
                for c in range(inputs):
                    for t in range(0, taps - 2, 3):
                        w0, w1, w2 = weight[g, o, c, t], weight[g, o, c, t + 1], weight[g, o, c, t + 2]
                        seen_0, seen_1 = (
                            memory[c * size + offsets[t] + first :],
                            memory[c * size + offsets[t + 1] + first :],
                        )
                        seen_2 = memory[c * size + offsets[t + 2] + first :]
                        for k in range(part.size):
                            part[k] += w0 * seen_0[k] + w1 * seen_1[k] + w2 * seen_2[k]
                    for t in range(taps - taps % 3, taps):
                        w0, seen = weight[g, o, c, t], memory[c * size + offsets[t] + first :]
                        for k in range(part.size):
                            part[k] += w0 * seen[k]
            _copy_rows(rows, y[n, g, o])


@unlocked()
def _data_grad(start, stop, dx, weight, dy, offsets, shape, runs):
    """Images and groups from start to stop."""
    groups, outputs, inputs, taps = weight.shape
    oh = dy.shape[3]
    memory, phases, rows, cotangents = _buffers(shape, oh, dx.dtype)
    size = phases[0].size
    for item in range(start, stop):
        n, g = item // groups, item % groups
        memory[:] = 0
        for o in range(outputs):
            _copy_rows(dy[n, g, o], rows)
            for first in range(0, cotangents.size, CHUNK):
                part = cotangents[first : first + CHUNK]
                for c in range(inputs):
                    for t in range(taps):
                        w0, seen = weight[g, o, c, t], memory[c * size + offsets[t] + first :]
                        for k in range(part.size):
                            seen[k] += w0 * part[k]
        dx[n, g] = 0
        _move(dx[n, g], phases, *runs, True)


@unlocked(SUMS)
def _weight_grad(start, stop, x, dweight, dy, offsets, shape, runs):
    """Groups from start to stop."""
    groups, outputs, inputs, taps = dweight.shape
    oh = dy.shape[3]
    memory, phases, rows, cotangents = _buffers(shape, oh, x.dtype)
    size = phases[0].size
    dweight[start:stop] = 0
    for g in range(start, stop):
        for n in range(len(x)):
            _move(x[n, g], phases, *runs, False)
            for o in range(outputs):
                _copy_rows(dy[n, g, o], rows)
                for first in range(0, cotangents.size, CHUNK):
                    part = cotangents[first : first + CHUNK]
                    for c in range(inputs):
                        for t in range(taps):
                            seen, total = memory[c * size + offsets[t] + first :], x.dtype.type(0)
                            for k in range(part.size):
                                total += part[k] * seen[k]
                            dweight[g, o, c, t] += total
