"""Convolution as matrix products over columns (im2col).

The columns of an image are a matrix (C*KH*KW, OH*OW): what each tap of each window sees. With the weight as a matrix
(O, C*KH*KW), for each image
    y = weight @ columns            dweight = sum dy @ columns^T            dcolumns = weight^T @ dy,
and dx adds up dcolumns where windows overlap (col2im). Kernels 1x1 at stride 1 need no copy: the columns are the image.

Small images would make products too narrow for a BLAS, and rows too short to be copied quickly. Several of them share a
product, with the batch as the last axis; they change their order by the transpose of a matrix (N, C*H*W). So a part of
the batch is an array (B, C, H, W, L), either B large images, L = 1, or L small ones, B = 1.

Chellapilla, Puri, Simard 2006, "High performance convolutional neural networks for document processing".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from miniflow.backends.cpu.threads import SERIAL_PRODUCT, copy_in_threads, share, sum_of_parts, unlocked
from miniflow.backends.cpu.transpose import BLOCK, transpose_into
from miniflow.backends.windows import Pair, Windows

SMALL = 144  # windows of an image
WINDOWS = 1024  # of small images that share a product
BUFFER = 131_072  # elements of the columns of large images that are taken at a time: 0.5 MB

Copy = Callable[[np.ndarray, np.ndarray], None]  # target, source


def _parts(images: int, inner: int, counts: Pair) -> tuple[list[slice], bool]:
    """Images that are taken at a time, and whether they are small ones; `inner` is C*KH*KW."""
    windows = counts[0] * counts[1]
    small = images > 1 and windows <= SMALL
    step = max(BLOCK, WINDOWS // windows // BLOCK * BLOCK) if small else max(1, BUFFER // (inner * windows))
    return list(map(slice, range(0, images, step), [*range(step, images, step), images])), small


def _ordered(x: np.ndarray, small: bool) -> np.ndarray:
    """Images (N, C, H, W) as (N, C, H, W, 1) or, if they are small, as (1, C, H, W, N)."""
    if not small:
        return x[..., None]
    result = np.empty((1, *x.shape[1:], len(x)), x.dtype)
    transpose_into(x.reshape(len(x), -1), result.reshape(-1, len(x)))
    return result


def _is_pointwise(windows: Windows) -> bool:
    return windows.kernel == (1, 1) and windows.padding == ((0, 0), (0, 0))


def _bordered(shape: tuple[int, ...], windows: Windows, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Zeros for images (B, C, H, W, L) and a border around them, and a view of what lies inside the border."""
    b, c, h, w, lanes = shape
    (top, bottom), (left, right) = windows.padding
    bordered = np.zeros((b, c, h + top + bottom, w + left + right, lanes), dtype)
    return bordered, bordered[:, :, top : top + h, left : left + w]


def _columns(x: np.ndarray, windows: Windows, counts: Pair, small: bool, copy: Copy) -> np.ndarray:
    """The columns (B, C*KH*KW, OH*OW*L) of images (N, C, H, W)."""
    (kh, kw), (sh, sw), (dh, dw) = windows.kernel, windows.stride, windows.dilation
    if _is_pointwise(windows):
        x = _ordered(x[:, :, ::sh, ::sw], small)
        return x.reshape(*x.shape[:2], -1)
    x = _ordered(x, small)
    if any(map(any, windows.padding)):
        bordered, inside = _bordered(x.shape, windows, x.dtype)
        np.copyto(inside, x)
        x = bordered
    b, c, row, column, lane = x.strides
    steps = (b, c, row * dh, column * dw, row * sh, column * sw, lane)
    taps = np.lib.stride_tricks.as_strided(x, (*x.shape[:2], kh, kw, *counts, x.shape[4]), steps)
    columns = np.empty(taps.shape, x.dtype)
    copy(columns, taps)
    return columns.reshape(len(x), taps.shape[1] * kh * kw, -1)


def _share(work: Callable[[int, int, Copy], None], parts: int, columns: int, product: int) -> None:
    """Run `work(start, stop, copy)` on the parts: in threads, unless OpenBLAS itself shares out such a product.

    If it does, threads share out the copying.
    """
    if product <= SERIAL_PRODUCT:
        share(work, parts, 2 * columns, np.copyto)
    else:
        work(0, parts, copy_in_threads)


def forward(x: np.ndarray, weight: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """x (N, C, H, W), weight (O, C, KH, KW) -> out (N, O, OH, OW)"""
    (n, o, *counts), inner = out.shape, weight[0].size
    if n == 1 and _is_pointwise(windows) and windows.stride == (1, 1):  # the image is its columns
        np.matmul(weight.reshape(o, inner), x.reshape(inner, -1), out=out.reshape(o, -1))
        return
    parts, small = _parts(n, inner, counts)
    matrix, y = weight.reshape(o, inner), out.reshape(n, o, -1)

    def convolve(start: int, stop: int, copy: Copy) -> None:
        for images in parts[start:stop]:
            columns = _columns(x[images], windows, counts, small, copy)
            if small:
                products = np.matmul(matrix, columns)
                transpose_into(products.reshape(-1, products.shape[2] // y.shape[2]), y[images].reshape(-1, y[0].size))
            else:
                np.matmul(matrix, columns, out=y[images])

    _share(convolve, len(parts), inner * y.size // o, inner * y[0].size)


def weight_grad(dy: np.ndarray, x: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """dy (N, O, OH, OW), x (N, C, H, W) -> out (O, C, KH, KW)

    It is added up transposed, columns @ dy^T, where a BLAS takes less time because the first factor has more rows.
    """
    (n, o, *counts), inner = dy.shape, out[0].size
    parts, small = _parts(n, inner, counts)
    transposed = o < inner < dy.size // o  # else it takes longer to transpose the sum
    totals: dict[int, np.ndarray] = {}

    def add_up(start: int, stop: int, copy: Copy) -> None:
        total = None
        for images in parts[start:stop]:
            columns = _columns(x[images], windows, counts, small, copy)
            cotangents = _ordered(dy[images], small).reshape(len(columns), o, -1)
            for a, b in zip(*((columns, cotangents) if transposed else (cotangents, columns)), strict=True):
                if total is None:
                    total, product = np.matmul(a, b.T), None
                else:
                    product = np.matmul(a, b.T, out=product)
                    total += product
        totals[start] = total

    _share(add_up, len(parts), inner * dy.size // o, inner * dy[0].size)
    total = sum_of_parts(totals)
    transpose_into(total if transposed else total.T, out.reshape(o, inner))


def data_grad(dy: np.ndarray, weight: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """dy (N, O, OH, OW), weight (O, C, KH, KW) -> out (N, C, H, W)

    At a stride the columns of large images are (OH, OW, KH, KW, C): what col2im adds, KW * C numbers, is contiguous.
    """
    (n, o, *counts), c, (sh, sw) = dy.shape, out.shape[1], windows.stride
    parts, small = _parts(n, weight[0].size, counts)
    channels_last = not small and sw > 1 and c * windows.kernel[1] >= 16 and not _is_pointwise(windows)
    matrix = (weight.transpose(0, 2, 3, 1) if channels_last else weight).reshape(o, -1)
    if _is_pointwise(windows) and windows.stride != (1, 1):
        out[...] = 0
    for images in parts:
        dx, cotangents = out[images], _ordered(dy[images], small)
        cotangents = cotangents.reshape(len(cotangents), o, -1)
        if channels_last:
            columns = np.matmul(cotangents.swapaxes(1, 2), matrix).reshape(-1, *counts, *windows.kernel, c)
            pixels = _add_up(columns, windows, out.shape[2:], windows.stride, windows.dilation)
            for image, target in zip(pixels, dx, strict=True):
                transpose_into(image.reshape(-1, c), target.reshape(c, -1))
        elif not _is_pointwise(windows):
            columns = np.matmul(matrix.T, cotangents).reshape(len(cotangents) * c, *windows.kernel, *counts, -1)
            pixels = _add_up(columns, windows, out.shape[2:], windows.dilation, windows.stride)
            if small:
                transpose_into(pixels.reshape(-1, len(dx)), dx.reshape(len(dx), -1))
            else:
                np.copyto(dx, pixels[..., 0].reshape(dx.shape))
        elif windows.stride == (1, 1) and not small:
            np.matmul(matrix.T, cotangents, out=dx.reshape(len(dx), c, -1))
        else:
            columns = np.matmul(matrix.T, cotangents).reshape(-1, c, *counts, len(dx) if small else 1)
            np.copyto(dx[:, :, ::sh, ::sw], columns.swapaxes(0, 4)[..., 0] if small else columns[..., 0])


def _add_up(columns: np.ndarray, windows: Windows, size: Pair, outer: Pair, inner: Pair) -> np.ndarray:
    """col2im: images (B, *size, L), the sums of the columns (B, A, A', I, I', L) for places a * outer + i * inner."""
    (top, bottom), (left, right) = windows.padding
    (b, *shape, lanes), (h, w) = columns.shape, size
    x = np.zeros((b, h + top + bottom, w + left + right, lanes), columns.dtype)
    rows, columns = x.reshape(b * x.shape[1], -1), columns.reshape(b, *shape[:3], -1)
    share(_add_columns, len(rows), columns.size, columns, rows, lanes, *outer, *inner)
    return x[:, top : top + h, left : left + w]


@unlocked()
def _add_columns(start, stop, columns, x, lanes, outer_h, outer_w, inner_h, inner_w):
    """Add the columns (B, A, A', I, I' L) to the rows of x (B H, W L) from start to stop."""
    images, outer_rows, outer_columns, inner_rows, width = columns.shape
    for b in range(images):
        for a in range(outer_rows):
            for i in range(inner_rows):
                r = b * (len(x) // images) + a * outer_h + i * inner_h
                for c in range(outer_columns if start <= r < stop else 0):
                    target, source = x[r, c * outer_w * lanes :], columns[b, a, c, i]
                    if inner_w == 1:
                        for k in range(width):
                            target[k] += source[k]
                    else:
                        for j in range(width // lanes):
                            part, terms = target[j * inner_w * lanes :], source[j * lanes :]
                            for k in range(lanes):
                                part[k] += terms[k]
