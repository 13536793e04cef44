"""Convolution in groups of few channels, by long loops over whole planes.

With one channel a group (depthwise) a matrix product would have a single row, and the BLAS nothing to gain. For each
column b of the kernel the image is laid out as that column sees it, the border filled with zeros: view r, b holds in
row i and column j the pixel (i * stride + r, j * stride + b * dilation). What a tap (a, b) sees lies then in one view
without gaps, as long as the result:
    y[k] = sum over taps of weight[a, b] * view(a % stride, b)[a // stride * OW + k]      (for a dilation of 1)
The loops take so many elements at a time that what they read stays in the L1 cache, and up to nine taps. Depthwise
kernels that halve an image (`halved`) read its rows as they are, which takes half of that time at stride 2.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from miniflow.backends.cpu.loops import SUMS
from miniflow.backends.cpu.threads import compiled, share, unlocked
from miniflow.backends.windows import Windows

IN_L2 = 65_536  # elements of the views that are laid out at a time
IN_L1 = 12_288  # elements of the views that a loop reads before it reads them for the next output


def forward(
    x: np.ndarray, weight: np.ndarray, windows: Windows, groups: int, y: np.ndarray, bias: np.ndarray | None = None
) -> None:
    """x (N, C, H, W), weight (O, C / groups, KH, KW), bias (O,) -> y (N, O, OH, OW)"""
    bias = np.zeros(len(weight), x.dtype) if bias is None else np.ascontiguousarray(bias)
    kernel = windows.kernel[0]
    if weight[0].size == kernel * kernel and len(weight) == groups and halves(windows):
        planes, (top, left) = y.reshape(-1, *y.shape[2:]), (first for first, _ in windows.padding)
        images = np.ascontiguousarray(x).reshape(-1, *x.shape[2:])
        taps = np.ascontiguousarray(weight).reshape(groups, kernel, kernel)
        share(HALVED[kernel], len(planes), y.size * taps[0].size // 4, images, taps, planes, bias, top, left)
        return
    _share(_forward, len(x) * groups, x, weight, y, windows, groups, bias.reshape(groups, -1))


def halves(windows: Windows) -> bool:
    """Whether each dim is halved by windows for which `halved` has been made."""
    return (windows.stride, windows.dilation) == ((2, 2), (1, 1)) and windows.kernel in ((3, 3), (5, 5))


def data_grad(dy: np.ndarray, weight: np.ndarray, windows: Windows, groups: int, dx: np.ndarray) -> None:
    """dy (N, O, OH, OW), weight (O, C / groups, KH, KW) -> dx (N, C, H, W)"""
    if windows.stride != (1, 1):
        _share(_data_grad, len(dx) * groups, dx, weight, dy, windows, groups)
        return
    # at stride 1 it is the convolution with the kernel turned by half, and input and output channels exchanged
    turned = weight.reshape(groups, -1, *weight.shape[1:])[..., ::-1, ::-1].swapaxes(1, 2)
    reach = [(k - 1) * d for k, d in zip(windows.kernel, windows.dilation, strict=True)]
    padding = tuple((r - first, r - last) for r, (first, last) in zip(reach, windows.padding, strict=True))
    forward(dy, turned.reshape(-1, *turned.shape[2:]), windows._replace(padding=padding), groups, dx)


def weight_grad(dy: np.ndarray, x: np.ndarray, windows: Windows, groups: int, dweight: np.ndarray) -> None:
    """dy (N, O, OH, OW), x (N, C, H, W) -> dweight (O, C / groups, KH, KW)"""
    _share(_weight_grad, groups, x, dweight, dy, windows, groups)


def _share(
    work: Callable,
    items: int,
    x: np.ndarray,
    weight: np.ndarray,
    y: np.ndarray,
    windows: Windows,
    groups: int,
    *rest: np.ndarray,
) -> None:
    """Run `work` in threads, on arrays (N G, C / G, H, W), (G, O / G, C / G, taps) and (N G, O / G, OH OW)."""
    (_, _, oh, ow), ((top, _), (left, _)) = y.shape, windows.padding
    (kh, kw), (sh, sw), (dh, dw) = windows.kernel, windows.stride, windows.dilation
    height = oh + (kh - 1) * dh // sh
    rows, columns = np.arange(0, kh * dh, dh)[:, None], np.arange(kw)
    seen = (rows % sh * kw + columns) * (height * ow) + rows // sh * ow
    x = np.require(x, requirements="CW").reshape(len(x) * groups, -1, *x.shape[2:])  # a loop also adds to its images
    weight = np.ascontiguousarray(weight).reshape(groups, -1, weight.shape[1], kh * kw)
    y = np.ascontiguousarray(y).reshape(len(x), -1, oh * ow)
    share(
        work,
        items,
        y.size * weight[0, 0].size // 4,
        x,
        weight,
        y,
        seen.ravel(),
        (sh, kw, height, ow),
        (top, left, sw, dw),
        *rest,
    )


@compiled
def _lay_out(images, memory, shape, place):
    """Copy images (N, C, H, W) into their views, each of `shape` (stride, KW, height, OW); borders are zero already."""
    (phases, columns, height, ow), (top, left, stride, dilation) = shape, place
    count, channels, h, w = images.shape
    if phases == stride == dilation == 1 and ow == w > columns > left >= 0 <= top <= height - h:
        _shift(images, memory, columns, height, place)
    else:
        for n in range(count):
            for c in range(channels):
                for b in range(columns):
                    _move_rows(images[n, c], memory[n, c], b, shape, place, False)


@compiled
def _shift(images, memory, columns, height, place):
    """`_lay_out` where all rows of a view are those of the image, shifted: one copy, and zeros in its last columns."""
    count, channels, h, w = images.shape
    top, left, _, _ = place
    for p in range(count * channels):
        n, c = p // channels, p % channels
        pixels = images[n, c].reshape(h * w)
        for b in range(columns):
            shift = b - left
            view = memory[n, c, (b * height + top) * w : (b * height + top + h) * w]
            target, source = view[max(-shift, 0) :], pixels[max(shift, 0) :]
            for k in range(min(target.size, source.size)):
                target[k] = source[k]
            for j in range(abs(shift)):
                edge = view[j if shift < 0 else w - 1 - j :]
                for i in range(h):
                    edge[i * w] = 0


@compiled
def _move_rows(image, memory, column, shape, place, back):
    """Copy the rows of an image into the views of a column of the kernel; or `back`, adding them up."""
    (phases, columns, height, ow), (top, left, stride, dilation) = shape, place
    h, w = image.shape
    shift = column * dilation - left
    first, last = max(0, -(shift // stride)), min(ow, (w - 1 - shift) // stride + 1)
    for r in range(phases):
        for i in range(max(0, -((r - top) // phases)), min(height, (h - 1 - r + top) // phases + 1)):
            start = ((r * columns + column) * height + i) * ow
            view, pixels = memory[start + first : start + last], image[i * phases + r - top, first * stride + shift :]
            if back:
                for j in range(view.size):
                    pixels[j * stride] += view[j]
            else:
                for j in range(view.size):
                    view[j] = pixels[j * stride]


@compiled
def _add_taps(part, seen, at, w):
    """part[k] += sum over taps t of w[t] seen[at[t] + k]"""
    t = 0
    while t + 9 <= at.size:
        s0, s1, s2, s3, s4 = seen[at[t] :], seen[at[t + 1] :], seen[at[t + 2] :], seen[at[t + 3] :], seen[at[t + 4] :]
        s5, s6, s7, s8 = seen[at[t + 5] :], seen[at[t + 6] :], seen[at[t + 7] :], seen[at[t + 8] :]
        w0, w1, w2, w3, w4, w5, w6, w7, w8 = (
            w[t],
            w[t + 1],
            w[t + 2],
            w[t + 3],
            w[t + 4],
            w[t + 5],
            w[t + 6],
            w[t + 7],
            w[t + 8],
        )
        for k in range(part.size):
            part[k] += (
                w0 * s0[k] + w1 * s1[k] + w2 * s2[k] + w3 * s3[k] + w4 * s4[k]
                + w5 * s5[k] + w6 * s6[k] + w7 * s7[k] + w8 * s8[k]
            )  # fmt: skip
        t += 9
    while t < at.size:
        s, weight = seen[at[t] :], w[t]
        for k in range(part.size):
            part[k] += weight * s[k]
        t += 1


@unlocked()
def _forward(start, stop, x, weight, y, at, shape, place, bias):
    """Images and groups from start to stop, so many at a time that their views stay in the L2 cache."""
    groups, outputs, inputs, _ = weight.shape
    size = shape[0] * shape[1] * shape[2] * shape[3]
    together, chunk = max(1, IN_L2 // (inputs * size)), max(256, IN_L1 // (inputs * shape[1]))
    memory = np.zeros((together, inputs, size), x.dtype)
    for block in range(start, stop, together):
        _lay_out(x[block : min(block + together, stop)], memory, shape, place)
        for item in range(block, min(block + together, stop)):
            g, views = item % groups, memory[item - block]
            for first in range(0, y.shape[2], chunk):
                for o in range(outputs):
                    part = y[item, o, first : first + chunk]
                    part[:] = bias[g, o]
                    for c in range(inputs):
                        _add_taps(part, views[c, first:], at, weight[g, o, c])


def halved(size: int) -> Callable:
    """The depthwise convolution at stride 2 with kernels of this size, a constant with which LLVM vectorizes it."""

    @unlocked()
    def forward(start, stop, images, weight, planes, bias, top, left):
        """Planes from start to stop, one row of taps after the other; without laying out images."""
        (_, h, w), (_, oh, ow), groups = images.shape, planes.shape, len(weight)
        first, last = (left + 1) // 2, min(ow, (w - size + left) // 2 + 1)  # columns whose windows lie inside
        last = max(first, last)
        for p in range(start, stop):
            image, plane, taps = images[p], planes[p], weight[p % groups]
            plane[:] = bias[p % groups]
            for i in range(oh):
                part = plane[i, first:last]
                for a in range(max(0, top - 2 * i), min(size, h + top - 2 * i)):
                    r = 2 * i + a - top
                    seen = image[r, 2 * first - left :]
                    for j in range(part.size):
                        for b in range(size):
                            part[j] += taps[a, b] * seen[2 * j + b]
                    for k in range(ow - part.size):
                        j = k if k < first else k + part.size
                        for b in range(max(0, left - 2 * j), min(size, w + left - 2 * j)):
                            plane[i, j] += taps[a, b] * image[r, 2 * j + b - left]

    return forward


HALVED = {3: halved(3), 5: halved(5)}


@unlocked()
def _data_grad(start, stop, dx, weight, dy, at, shape, place):
    """Images and groups from start to stop."""
    groups, outputs, inputs, taps = weight.shape
    memory = np.zeros((inputs, shape[0] * shape[1] * shape[2] * shape[3]), dx.dtype)
    chunk = max(256, IN_L1 // (inputs * shape[1]))
    for item in range(start, stop):
        memory[:] = 0
        for first in range(0, dy.shape[2], chunk):
            for o in range(outputs):
                part = dy[item, o, first : first + chunk]
                for c in range(inputs):
                    for t in range(taps):
                        w, seen = weight[item % groups, o, c, t], memory[c, first + at[t] :]
                        for k in range(part.size):
                            seen[k] += w * part[k]
        dx[item] = 0
        for c in range(inputs):
            for b in range(shape[1]):
                _move_rows(dx[item, c], memory[c], b, shape, place, True)


@unlocked(SUMS)
def _weight_grad(start, stop, x, dweight, dy, at, shape, place):
    """Groups from start to stop."""
    groups, outputs, inputs, taps = dweight.shape
    memory = np.zeros((1, inputs, shape[0] * shape[1] * shape[2] * shape[3]), x.dtype)
    chunk = max(256, IN_L1 // (inputs * shape[1]))
    dweight[start:stop] = 0
    for g in range(start, stop):
        for item in range(g, len(x), groups):
            _lay_out(x[item : item + 1], memory, shape, place)
            for first in range(0, dy.shape[2], chunk):
                for o in range(outputs):
                    part = dy[item, o, first : first + chunk]
                    for c in range(inputs):
                        for t in range(taps):
                            seen, total = memory[0, c, first + at[t] :], x.dtype.type(0)
                            for k in range(part.size):
                                total += part[k] * seen[k]
                            dweight[g, o, c, t] += total
