"""Convolution of many small images: matrix products over columns (im2col) in which the batch comes last.

The columns of one small image make a product too narrow for a BLAS, and its rows are too short to be copied quickly.
With the batch as the last axis the images, (C, H, W, N), share their products, and a row of W * N elements is copied at
once. Images and results change their order by the transpose of a matrix (N, C*H*W):
    y = weight @ columns            dweight = sum dy @ columns^T            dcolumns = weight^T @ dy,
with columns (C*KH*KW, OH*OW*N), weight (O, C*KH*KW), y and dy (O, OH*OW*N); dx adds up dcolumns where windows overlap
(col2im).
Chellapilla, Puri, Simard 2006, "High performance convolutional neural networks for document processing".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from miniflow.backends.cpu import conv_pointwise
from miniflow.backends.cpu.threads import copy_in_threads, share, unlocked
from miniflow.backends.cpu.transpose import BLOCK, transpose_into
from miniflow.backends.cpu.windows import taps
from miniflow.backends.windows import Pair, Windows

WINDOWS = 144  # of an image; with more, one image is enough for a product
COLUMNS = 1024  # of a product


def suits(x_shape: tuple[int, ...], windows: Windows) -> bool:
    """Whether there are several images, with few windows."""
    rows, columns = windows.counts(x_shape[2:])
    return x_shape[0] > 1 and 0 < rows * columns <= WINDOWS


def _parts(images: int, windows: int) -> Iterator[slice]:
    """Images that share a product."""
    step = max(BLOCK, COLUMNS // windows // BLOCK * BLOCK)
    return (slice(first, min(first + step, images)) for first in range(0, images, step))


def _batch_last(x: np.ndarray) -> np.ndarray:
    """x (N, A, H, W) -> (A, H, W, N)"""
    turned = np.empty((*x.shape[1:], len(x)), x.dtype)
    transpose_into(x.reshape(len(x), -1), turned.reshape(-1, len(x)))
    return turned


def _bordered(x: np.ndarray, windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Zeros for `x` (N, C, H, W) and a border around it, as (C, H, W, N); and a view of what lies inside the border."""
    n, c, h, w = x.shape
    (top, bottom), (left, right) = windows.padding
    bordered = np.zeros((c, h + top + bottom, w + left + right, n), x.dtype)
    return bordered, bordered[:, top : top + h, left : left + w]


def _columns(x: np.ndarray, windows: Windows, counts: Pair) -> np.ndarray:
    """The columns (C*KH*KW, OH*OW*N) of images (N, C, H, W)."""
    n, c = x.shape[:2]
    if conv_pointwise.suits(windows):
        return _batch_last(x[:, :, :: windows.stride[0], :: windows.stride[1]]).reshape(c, -1)
    bordered, inside = _bordered(x, windows)
    np.copyto(inside, _batch_last(x))
    seen = taps(bordered.transpose(3, 0, 1, 2), windows, counts).transpose(1, 2, 3, 4, 5, 0)
    columns = np.empty(seen.shape, x.dtype)
    copy_in_threads(columns, seen)
    return columns.reshape(c * windows.kernel[0] * windows.kernel[1], counts[0] * counts[1] * n)


def forward(x: np.ndarray, weight: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """x (N, C, H, W), weight (O, C, KH, KW) -> out (N, O, OH, OW)"""
    n, o, oh, ow = out.shape
    matrix, y = weight.reshape(o, -1), out.reshape(n, o * oh * ow)
    for images in _parts(n, oh * ow):
        products = np.matmul(matrix, _columns(x[images], windows, (oh, ow)))
        transpose_into(products.reshape(y.shape[1], -1), y[images])


def weight_grad(dy: np.ndarray, x: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """dy (N, O, OH, OW), x (N, C, H, W) -> out (O, C, KH, KW)"""
    n, o, oh, ow = dy.shape
    total = out.reshape(o, -1)
    for images in _parts(n, oh * ow):
        cotangents = _batch_last(dy[images]).reshape(o, -1)
        columns = _columns(x[images], windows, (oh, ow))
        if images.start == 0:
            np.matmul(cotangents, columns.T, out=total)
        else:
            total += np.matmul(cotangents, columns.T)


def data_grad(dy: np.ndarray, weight: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """dy (N, O, OH, OW), weight (O, C, KH, KW) -> out (N, C, H, W)"""
    n, o, oh, ow = dy.shape
    c = weight.shape[1]
    matrix = weight.reshape(o, -1).T
    for images in _parts(n, oh * ow):
        dx = out[images]
        columns = np.matmul(matrix, _batch_last(dy[images]).reshape(o, -1))
        if conv_pointwise.suits(windows):
            dx[...] = 0
            seen = dx[:, :, :: windows.stride[0], :: windows.stride[1]]
            np.copyto(seen, columns.reshape(c, oh, ow, len(dx)).transpose(3, 0, 1, 2))
            continue
        bordered, inside = _bordered(dx, windows)
        columns = columns.reshape(c, *windows.kernel, oh, ow, len(dx))
        share(_add_columns, c, columns.size, columns, bordered, *windows.stride, *windows.dilation)
        transpose_into(inside.reshape(-1, len(dx)), dx.reshape(len(dx), -1))


@unlocked()
def _add_columns(start, stop, columns, x, sh, sw, dh, dw):
    """col2im: add the columns (C, KH, KW, OH, OW, N) to the channels of x (C, H, W, N) from start to stop."""
    _, kernel_h, kernel_w, oh, ow, n = columns.shape
    for c in range(start, stop):
        for kh in range(kernel_h):
            for kw in range(kernel_w):
                for i in range(oh):
                    for j in range(ow):
                        target, source = x[c, i * sh + kh * dh, j * sw + kw * dw], columns[c, kh, kw, i, j]
                        for k in range(n):
                            target[k] += source[k]
