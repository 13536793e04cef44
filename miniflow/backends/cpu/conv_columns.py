"""Convolution as matrix products over columns (im2col).

The columns of an image are a matrix (C*KH*KW, OH*OW): what each tap of each window sees. With the weight as a matrix
(O, C*KH*KW), for each image
    y = weight @ columns            dweight = sum dy @ columns^T            dcolumns = weight^T @ dy,
and dx adds up dcolumns where windows overlap (col2im). Several images are taken at a time, so that threads seldom ask
for the interpreter's lock. One buffer of columns serves the whole batch.
Chellapilla, Puri, Simard 2006, "High performance convolutional neural networks for document processing".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from miniflow.backends.cpu.threads import SERIAL_PRODUCT, copy_in_threads, share, sum_of_parts, unlocked
from miniflow.backends.cpu.windows import bordered, inside, pad, taps
from miniflow.backends.windows import Windows

Copy = Callable[[np.ndarray, np.ndarray], None]  # target, source

BUFFER = 131_072  # elements of the columns of images that are taken at a time: 0.5 MB


def _at_a_time(images: int, size: int) -> int:
    """How many images with `size` elements of columns are taken at a time."""
    return max(1, min(images, BUFFER // max(1, size)))


def _share(work: Callable[[int, int, Copy], None], view: np.ndarray, outputs: int) -> None:
    """Run `work(start, stop, copy)` on the images of a view of taps, in threads if the BLAS does not use them itself.

    If it does, they share out the copying.
    """
    images, c, kh, kw, oh, ow = view.shape
    if outputs * c * kh * kw * oh * ow <= SERIAL_PRODUCT:
        share(work, images, 2 * view.size, np.copyto)
    else:
        work(0, images, copy_in_threads)


def _columns(view: np.ndarray, buffer: np.ndarray, copy: Copy) -> np.ndarray:
    """Copy the taps (B, C, KH, KW, OH, OW) of a few images into `buffer`; returns them as (B, C*KH*KW, OH*OW)."""
    b, c, kh, kw, oh, ow = view.shape
    columns = buffer[: view.size].reshape(view.shape)
    copy(columns, view)
    return columns.reshape(b, c * kh * kw, oh * ow)


def forward(x: np.ndarray, weight: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """x (N, C, H, W), weight (O, C, KH, KW) -> out (N, O, OH, OW)"""
    (n, c), o = x.shape[:2], len(weight)
    counts = windows.counts(x.shape[2:])
    view = taps(pad(x, windows.padding), windows, counts)
    matrix = weight.reshape(o, c * windows.kernel[0] * windows.kernel[1])
    y = out.reshape(n, o, counts[0] * counts[1])

    def convolve(start: int, stop: int, copy: Copy) -> None:
        size = matrix.shape[1] * y.shape[2]
        step = _at_a_time(stop - start, size)
        buffer = np.empty(step * size, x.dtype)
        for first in range(start, stop, step):
            images = slice(first, min(first + step, stop))
            np.matmul(matrix, _columns(view[images], buffer, copy), out=y[images])

    _share(convolve, view, o)


def weight_grad(dy: np.ndarray, x: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """dy (N, O, OH, OW), x (N, C, H, W) -> out (O, C, KH, KW)"""
    n, o, oh, ow = dy.shape
    view = taps(pad(x, windows.padding), windows, (oh, ow))
    dy = dy.reshape(n, o, oh * ow)
    inner = x.shape[1] * windows.kernel[0] * windows.kernel[1]
    totals: dict[int, np.ndarray] = {}

    def add_up(start: int, stop: int, copy: Copy) -> None:
        step = _at_a_time(stop - start, inner * oh * ow)
        buffer = np.empty(step * inner * oh * ow, x.dtype)
        total = np.zeros((o, inner), x.dtype)
        for first in range(start, stop, step):
            images = slice(first, min(first + step, stop))
            columns = _columns(view[images], buffer, copy)
            total += np.matmul(dy[images], columns.swapaxes(1, 2)).sum(0)
        totals[start] = total

    _share(add_up, view, o)
    np.copyto(out.reshape(o, inner), sum_of_parts(totals))


def data_grad(dy: np.ndarray, weight: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """dy (N, O, OH, OW), weight (O, C, KH, KW) -> out (N, C, H, W)"""
    n, o, oh, ow = dy.shape
    c = weight.shape[1]
    matrix = weight.reshape(o, c * windows.kernel[0] * windows.kernel[1]).T
    dy = dy.reshape(n, o, oh * ow)
    padded = bordered(out, windows.padding)
    padded[...] = 0
    for image, target in zip(dy, padded, strict=True):
        columns = np.matmul(matrix, image).reshape(c, *windows.kernel, oh, ow)
        share(_add_columns, c, columns.size, columns, target, *windows.stride, *windows.dilation)
    if padded is not out:
        np.copyto(out, inside(padded, windows.padding))


@unlocked()
def _add_columns(start, stop, columns, x, sh, sw, dh, dw):
    """col2im: add the columns (C, KH, KW, OH, OW) to the channels of x (C, H, W) from start to stop."""
    _, kernel_h, kernel_w, oh, ow = columns.shape
    for c in range(start, stop):
        for kh in range(kernel_h):
            for kw in range(kernel_w):
                for i in range(oh):
                    source = columns[c, kh, kw, i]
                    row = x[c, i * sh + kh * dh, kw * dw :]
                    if sw == 1:
                        for j in range(ow):
                            row[j] += source[j]
                    else:
                        for j in range(ow):
                            row[j * sw] += source[j]
