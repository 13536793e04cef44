"""Convolution in groups of few channels, by one long loop for all windows of a plane.

With one channel a group (depthwise) a matrix product would have a single row, and the BLAS nothing to gain. Each plane
is copied with its border into a grid, cut into phases: pixels that lie a stride apart become neighbours.

    a plane with its border, stride 2        its grid: 2 x 2 phases of (rows, pitch) elements
        a b a b a b                              a a a   b b b
        c d c d c d              ->              a a a   b b b
        a b a b a b                              c c c   d d d
        c d c d c d                              c c c   d d d

Tap (a, b) of window (i, j) sees row i * stride + a, column j * stride + b: always the same phase, and there the element
that is at[a, b] behind element i * pitch + j. So a tap is one shift for all windows, and the convolution is
    wide[k] = sum over channels and taps of weight[c, t] * grid[c][at[t] + k],
where wide is y with rows of `pitch` elements, the last few of which no window has. The gradients walk the same arrays:
    grid[c][phase of t][k] = sum over outputs and taps of that phase of weight[o, t] * wide[o][k - shift[t]]
    dweight[o, c, t] = sum over k of wide[o][k] * grid[c][at[t] + k]
Where the zeros behind the rows of dy meet an infinity, the sum is taken again row by row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from miniflow.backends.cpu.threads import SUMS, compiled, inlined, share, unlocked
from miniflow.backends.windows import Pair, Windows

unsigned = np.uint64  # an index that cannot be negative: numba does not ask
BLOCK = 2048  # elements of an output at a time, which with all that their taps see stay in the L1 cache


def forward(x: np.ndarray, weight: np.ndarray, windows: Windows, groups: int, y: np.ndarray) -> None:
    """x (N, C, H, W), weight (O, C / groups, KH, KW) -> y (N, O, OH, OW)"""
    layout = _layout(x.shape[2:], y.shape[2:], windows)
    _share(_forward, len(x) * groups, x, _by_phase(weight, groups, layout), y, groups, layout)


def data_grad(dy: np.ndarray, weight: np.ndarray, windows: Windows, groups: int, dx: np.ndarray) -> None:
    """dy (N, O, OH, OW), weight (O, C / groups, KH, KW) -> dx (N, C, H, W)"""
    layout = _layout(dx.shape[2:], dy.shape[2:], windows)
    _share(_data_grad, len(dx) * groups, dx, _by_phase(weight, groups, layout), dy, groups, layout)


def weight_grad(dy: np.ndarray, x: np.ndarray, windows: Windows, groups: int, dweight: np.ndarray) -> None:
    """dy (N, O, OH, OW), x (N, C, H, W) -> dweight (O, C / groups, KH, KW)"""
    layout = _layout(x.shape[2:], dy.shape[2:], windows)
    by_phase = np.zeros_like(_by_phase(dweight, groups, layout))
    _share(_weight_grad, groups, x, by_phase, dy, groups, layout)
    dweight.reshape(by_phase.shape)[..., layout[2][0]] = by_phase


def _by_phase(weight: np.ndarray, groups: int, layout: tuple) -> np.ndarray:
    """The weight as (G, O / G, C / G, taps), its taps in the order of their phases."""
    return weight.reshape(groups, len(weight) // groups, weight.shape[1], -1).take(layout[2][0], -1)


def _share(
    work: Callable, items: int, x: np.ndarray, weight: np.ndarray, y: np.ndarray, groups: int, layout: tuple
) -> None:
    """Run `work` in threads, on x (N, G, C / G, H W) and y (N, G, O / G, OH OW)."""
    planes, outputs = (np.ascontiguousarray(a).reshape(len(a), groups, a.shape[1] // groups, -1) for a in (x, y))
    share(work, items, y.size * weight[0, 0].size // 4, planes, weight, outputs, *layout)


@functools.lru_cache(256)
def _layout(size: Pair, out: Pair, windows: Windows) -> tuple[tuple, tuple, np.ndarray, tuple]:
    """What `_copy` takes for the planes of x, and for those of y; of the taps, sorted by phase, their positions in the
    kernel, phases and shifts; and the sizes of a grid, of a phase, and of y with rows of `pitch` elements."""
    (kh, kw), (sh, sw), ((top, bottom), (left, right)), (dh, dw) = windows[:4]
    rows, pitch = -(-(size[0] + top + bottom) // sh), -(-(size[1] + left + right) // sw)
    a, b = np.repeat(np.arange(kh) * dh, kw), np.tile(np.arange(kw) * dw, kh)
    phase, shift = a % sh * sw + b % sw, a // sh * pitch + b // sw
    order = np.argsort(phase, kind="stable")
    taps = np.stack([order, phase[order], shift[order]])
    sizes = sh * sw * rows * pitch, rows * pitch, (out[0] - 1) * pitch + out[1]
    return (*size, top, left, sh, sw, rows, pitch), (*out, 0, 0, 1, 1, out[0], pitch), taps, sizes


@inlined
def _copy(plane, grid, layout, into_grid):
    """Copy a plane into its grid, whose border stays as it is, or back.

    Args:
        layout: height and width of the plane; the border above and on the left; strides; rows and pitch of a phase.
    """
    height, width, top, left, sh, sw, rows, pitch = layout
    for p in range(sh):
        for q in range(sw):
            row, column = (p - top) % sh, (q - left) % sw  # the first of the plane in this phase
            start, to = row * width + column, ((p * sw + q) * rows + (row + top) // sh) * pitch + (column + left) // sw
            for _ in range(row, height, sh):
                source, target = unsigned(start), unsigned(to)
                for j in range(unsigned((width - column + sw - 1) // sw)):
                    if into_grid:
                        grid[target + unsigned(j)] = plane[source + unsigned(j) * unsigned(sw)]
                    else:
                        plane[source + unsigned(j) * unsigned(sw)] = grid[target + unsigned(j)]
                start, to = start + sh * width, to + pitch


@compiled
def _add_taps(out, source, shifts, weight):
    """out[k] += sum over t of weight[t] * source[at[t] + k], three taps at a time"""
    for begin in range(0, out.size, BLOCK):
        part, window, t = out[begin : begin + BLOCK], source[begin:], 0
        while t + 3 <= shifts.size:
            s0, s1, s2 = window[shifts[t] :], window[shifts[t + 1] :], window[shifts[t + 2] :]
            w0, w1, w2 = weight[t], weight[t + 1], weight[t + 2]
            for k in range(part.size):
                part[k] += w0 * s0[k] + w1 * s1[k] + w2 * s2[k]
            t += 3
        for last in range(t, shifts.size):
            s0, w0 = window[shifts[last] :], weight[last]
            for k in range(part.size):
                part[k] += w0 * s0[k]


@unlocked()
def _forward(start, stop, x, weight, y, layout, wide_layout, taps, sizes):
    """Images and groups from start to stop."""
    (_, outputs, inputs, count), (grid_size, phase, size) = weight.shape, sizes
    grids, wide = np.zeros(inputs * grid_size, x.dtype), np.empty(size, x.dtype)
    shifts = (np.arange(inputs).reshape(inputs, 1) * grid_size + (taps[1] * phase + taps[2])).reshape(inputs * count)
    for item in range(start, stop):
        n, g = divmod(item, len(weight))
        for c in range(inputs):
            _copy(x[n, g, c], grids[c * grid_size :], layout, True)
        for o in range(outputs):
            wide[:] = 0
            _add_taps(wide, grids, shifts, weight[g, o].reshape(inputs * count))
            _copy(y[n, g, o], wide, wide_layout, False)


@unlocked()
def _data_grad(start, stop, dx, weight, dy, layout, wide_layout, taps, sizes):
    """Images and groups from start to stop."""
    (_, outputs, inputs, _), (grid_size, phase, _), front = weight.shape, sizes, taps[2].max()
    grid, wides = np.empty(grid_size, dx.dtype), np.zeros((outputs, front + phase), dx.dtype)
    shifts, first = front - taps[2], np.searchsorted(taps[1], np.arange(grid_size // phase + 1))
    for item in range(start, stop):
        n, g = divmod(item, len(weight))
        for o in range(outputs):
            _copy(dy[n, g, o], wides[o, front:], wide_layout, True)
        for c in range(inputs):
            grid[:] = 0
            for p in range(grid_size // phase):
                part, begin, end = grid[p * phase : (p + 1) * phase], first[p], first[p + 1]
                for o in range(outputs):
                    _add_taps(part, wides[o], shifts[begin:end], weight[g, o, c, begin:end])
            _copy(dx[n, g, c], grid, layout, False)


@inlined
def _products(wide, grid, shifts):
    """The sums over k of wide[k] * grid[at[t] + k] for up to three taps t."""
    last = shifts.size - 1
    s0, s1, s2, zero = grid[shifts[0] :], grid[shifts[min(1, last)] :], grid[shifts[last] :], wide.dtype.type(0)
    t0, t1, t2 = zero, zero, zero
    for k in range(wide.size):
        y = wide[k]
        t0, t1, t2 = t0 + y * s0[k], t1 + y * s1[k], t2 + y * s2[k]
    return t0, t1, t2


@compiled
def _product_by_rows(wide, window, layout):
    """The same for one tap without the elements behind the rows."""
    total = wide.dtype.type(0)
    for k in range(wide.size):
        if k % layout[-1] < layout[1]:
            total += wide[k] * window[k]
    return total


@unlocked(SUMS)
def _weight_grad(start, stop, x, dweight, dy, layout, wide_layout, taps, sizes):
    """Groups from start to stop."""
    (_, outputs, inputs, count), (grid_size, phase, size) = dweight.shape, sizes
    grids, wide, shifts = np.zeros((inputs, grid_size), x.dtype), np.zeros(size, x.dtype), taps[1] * phase + taps[2]
    for g in range(start, stop):
        for n in range(len(x)):
            for c in range(inputs):
                _copy(x[n, g, c], grids[c], layout, True)
            for o in range(outputs):
                _copy(dy[n, g, o], wide, wide_layout, True)
                for c in range(inputs):
                    for first in range(0, count, 3):
                        totals = _products(wide, grids[c], shifts[first : first + 3])
                        for t in range(first, min(first + 3, count)):
                            total = totals[t - first]
                            if total != total:
                                total = _product_by_rows(wide, grids[c, shifts[t] :], wide_layout)
                            dweight[g, o, c, t] += total
