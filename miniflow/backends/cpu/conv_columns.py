"""Convolution as matrix products over columns (im2col).

The columns of an image are a matrix (C*KH*KW, OH*OW): what each tap of each window sees. With the weight as a matrix
(O, C*KH*KW), for each image
    y = weight @ columns            dweight = sum dy @ columns^T            dcolumns = weight^T @ dy,
and dx adds up dcolumns where windows overlap (col2im). Images with few windows share a product, so that it is large
enough for the BLAS; of the others several are taken at a time, so that threads seldom ask for the interpreter's lock.
One buffer of columns serves the whole batch.
Chellapilla, Puri, Simard 2006, "High performance convolutional neural networks for document processing".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from miniflow.backends.cpu.threads import SERIAL_PRODUCT, share, sum_of_parts, unlocked
from miniflow.backends.cpu.windows import bordered, inside, pad, taps
from miniflow.backends.windows import Windows

Copy = Callable[[np.ndarray, np.ndarray], None]  # target, source

PRODUCT_COLUMNS = 784  # images share a product up to this many windows
BUFFER = 131_072  # elements of the columns of images that are taken at a time: 0.5 MB


def _together(images: int, windows: int) -> int:
    """How many images share a matrix product."""
    return max(1, min(images, PRODUCT_COLUMNS // max(1, windows)))


def _at_a_time(images: int, size: int) -> int:
    """How many images with `size` elements of columns are taken at a time, each with a product of its own."""
    return max(1, min(images, BUFFER // max(1, size)))


def _share(work: Callable[[int, int, Copy], None], view: np.ndarray, outputs: int) -> None:
    """Run `work(start, stop, copy)` on the images of a view of taps, in threads if the BLAS does not use them itself.

    If it does, they share out the copying.
    """
    images, c, kh, kw, oh, ow = view.shape
    product = outputs * c * kh * kw * oh * ow * _together(images, oh * ow)
    if product <= SERIAL_PRODUCT:
        share(work, images, 2 * view.size, np.copyto)
    else:
        work(0, images, _copy_in_threads)


def _copy_in_threads(target: np.ndarray, source: np.ndarray) -> None:
    def copy(start: int, stop: int) -> None:
        np.copyto(target[start:stop], source[start:stop])

    share(copy, len(target), target.size)


def _columns(view: np.ndarray, buffer: np.ndarray, copy: Copy) -> np.ndarray:
    """Copy the taps (B, C, KH, KW, OH, OW) of a few images into `buffer`; returns them as (C*KH*KW, B*OH*OW)."""
    b, c, kh, kw, oh, ow = view.shape
    columns = buffer[: view.size].reshape(c, kh, kw, b, oh, ow)
    copy(columns, view.transpose(1, 2, 3, 0, 4, 5))
    return columns.reshape(c * kh * kw, b * oh * ow)


def _stacked_columns(view: np.ndarray, buffer: np.ndarray, copy: Copy) -> np.ndarray:
    """Copy the taps (B, C, KH, KW, OH, OW) of a few images into `buffer`; returns them as (B, C*KH*KW, OH*OW)."""
    b, c, kh, kw, oh, ow = view.shape
    columns = buffer[: view.size].reshape(view.shape)
    copy(columns, view)
    return columns.reshape(b, c * kh * kw, oh * ow)


def _as_rows(y: np.ndarray) -> np.ndarray:
    """(B, O, P) -> (O, B*P): a view for one image, a copy for several."""
    return y[0] if len(y) == 1 else y.swapaxes(0, 1).reshape(y.shape[1], y.shape[0] * y.shape[2])


def forward(x: np.ndarray, weight: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """x (N, C, H, W), weight (O, C, KH, KW) -> out (N, O, OH, OW)"""
    (n, c), o = x.shape[:2], len(weight)
    counts = windows.counts(x.shape[2:])
    view = taps(pad(x, windows.padding), windows, counts)
    matrix = weight.reshape(o, c * windows.kernel[0] * windows.kernel[1])
    y = out.reshape(n, o, counts[0] * counts[1])

    def convolve(start: int, stop: int, copy: Copy) -> None:
        size = matrix.shape[1] * y.shape[2]
        together = _together(stop - start, y.shape[2])
        step = together if together > 1 else _at_a_time(stop - start, size)
        buffer = np.empty(step * size, x.dtype)
        for first in range(start, stop, step):
            images = slice(first, min(first + step, stop))
            if together > 1:
                products = np.matmul(matrix, _columns(view[images], buffer, copy))
                y[images] = products.reshape(o, images.stop - first, y.shape[2]).swapaxes(0, 1)
            else:
                np.matmul(matrix, _stacked_columns(view[images], buffer, copy), out=y[images])

    _share(convolve, view, o)


def weight_grad(dy: np.ndarray, x: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """dy (N, O, OH, OW), x (N, C, H, W) -> out (O, C, KH, KW)"""
    n, o, oh, ow = dy.shape
    view = taps(pad(x, windows.padding), windows, (oh, ow))
    dy = dy.reshape(n, o, oh * ow)
    inner = x.shape[1] * windows.kernel[0] * windows.kernel[1]
    totals = {0: np.zeros((o, inner), x.dtype)}

    def add_up(start: int, stop: int, copy: Copy) -> None:
        together = _together(stop - start, oh * ow)
        step = together if together > 1 else _at_a_time(stop - start, inner * oh * ow)
        buffer = np.empty(step * inner * oh * ow, x.dtype)
        total = np.zeros((o, inner), x.dtype)
        for first in range(start, stop, step):
            images = slice(first, min(first + step, stop))
            if together > 1:
                total += np.matmul(_as_rows(dy[images]), _columns(view[images], buffer, copy).T)
            else:
                columns = _stacked_columns(view[images], buffer, copy)
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
    together = _together(n, oh * ow)
    for first in range(0, n, together):
        images = slice(first, min(first + together, n))
        columns = np.matmul(matrix, _as_rows(dy[images])).reshape(c, *windows.kernel, images.stop - first, oh, ow)
        part = padded[images]
        share(_add_columns, len(part) * c, columns.size, columns, part, *windows.stride, *windows.dilation)
    if padded is not out:
        np.copyto(out, inside(padded, windows.padding))


@unlocked()
def _add_columns(start, stop, columns, x, sh, sw, dh, dw):
    """col2im: add the columns (C, KH, KW, B, OH, OW) to the planes of x (B, C, H, W) from start to stop."""
    channels, kernel_h, kernel_w, _, oh, ow = columns.shape
    for plane in range(start, stop):
        b, c = plane // channels, plane % channels
        for kh in range(kernel_h):
            for kw in range(kernel_w):
                for i in range(oh):
                    source = columns[c, kh, kw, b, i]
                    row = x[b, c, i * sh + kh * dh, kw * dw :]
                    if sw == 1:
                        for j in range(ow):
                            row[j] += source[j]
                    else:
                        for j in range(ow):
                            row[j * sw] += source[j]
