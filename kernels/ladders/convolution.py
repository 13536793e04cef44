"""Convolution, a ladder of three: the formula, then the same as a matrix product whose right factor is never stored.

    y[n, o, i, j] = sum over c, a, b of weight[o, c, a, b] * x[n, c, i stride - padding + a, j stride - padding + b]

is the product of the weight, rows o and columns k = (c, a, b), with the matrix that *im2col* makes of the image: row k
and column p = (n, i, j) hold what tap k of the window of pixel p sees, 0 beyond the border. K = C * KH * KW.

                    a thread makes     a block makes      reads of an output     writes
    direct          1                  1 x 128            2 K                    1
    im2col_tiled    1                  16 x 16            2 K / 16               1
    convolve        8 x 2              64 x 64            2 K / 64               1

As a whole, that matrix would be KH * KW times as large as x, to be written once and read once. Taps beyond the border
are not read, so that with padding there are fewer reads. `direct` and `convolve` (*implicit GEMM*) are the library's,
in kernels/conv_depthwise.py and kernels/conv.py. Chetlur et al. 2014, "cuDNN: efficient primitives for deep learning".
"""

import numpy as np

from miniflow.hostcuda import cuda
from miniflow.kernels import conv, conv_depthwise
from miniflow.kernels.ladders import Rung, blocks
from miniflow.kernels.ladders.matmul import TILE
from miniflow.kernels.matmul import SIDE, THREADS


@cuda.jit(device=True)
def seen(x, k, n, h, w, window):
    """What tap k = (c, a, b) of the window that begins at row h and column w of image n sees; 0 beyond the border."""
    h += k // window[1] % window[0]
    w += k % window[1]
    if n < x.shape[0] and h >= 0 and h < x.shape[2] and w >= 0 and w < x.shape[3]:
        return x[n, k // (window[0] * window[1]), h, w]
    return x.dtype.type(0)


@cuda.jit
def im2col_tiled(x, weight, y, window, stride, padding):
    """As `matmul.tiled`, with a right factor that is gathered from the image while it is copied into shared memory.

    Thread (tx, ty) of block (bx, by) owns channel o = 16 by + ty of pixel p = 16 bx + tx, numbered over all images. For
    each 16 of k it loads one weight and one element of the image: 2 K / 16 reads of an output, and one write.

    Args:
        x: (N, C, H, W).
        weight: (O, K).
        y: (N, O, OH, OW).
        window: (KH, KW).
        stride, padding: for rows and columns alike.
    """
    left = cuda.shared.array((TILE, TILE), x.dtype)  # [o, k]
    right = cuda.shared.array((TILE, TILE), x.dtype)  # [k, pixel]
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    pixel, o = cuda.grid(2)
    outputs, inner = weight.shape
    n, i, j = pixel // (y.shape[2] * y.shape[3]), pixel // y.shape[3] % y.shape[2], pixel % y.shape[3]
    zero = x.dtype.type(0)
    total = zero
    for start in range(0, inner, TILE):
        left[ty, tx] = weight[o, start + tx] if o < outputs and start + tx < inner else zero
        right[ty, tx] = zero
        if start + ty < inner:
            right[ty, tx] = seen(x, start + ty, n, i * stride - padding, j * stride - padding, window)
        cuda.syncthreads()  # the tiles are complete
        for k in range(TILE):
            total += left[ty, k] * right[k, tx]
        cuda.syncthreads()  # nobody reads them any more
    if n < y.shape[0] and o < outputs:
        y[n, o, i, j] = total


def rungs(x: np.ndarray, weight: np.ndarray, stride: int = 1, padding: int = 0) -> dict[str, Rung]:
    """The launches for x (N, C, H, W) and weight (O, C, KH, KW): windows fit on the padded image, no size is 0."""
    (images, _, *size), (outputs, _, *window) = x.shape, weight.shape
    counts = [(n + 2 * padding - k) // stride + 1 for n, k in zip(size, window, strict=True)]
    y = [np.full((images, outputs, *counts), np.nan, x.dtype) for _ in range(3)]
    pixels, matrix = counts[0] * counts[1], weight.reshape(outputs, -1)
    geometry = (stride, stride), (-padding, -padding), (1, 1)
    grid = blocks(pixels, conv_depthwise.THREADS), outputs, images
    direct = [x[:, None], weight[None], np.empty(0, x.dtype), y[0][:, None], *geometry]
    tiles, wide_tiles = ((blocks(images * pixels, side), blocks(outputs, side)) for side in (TILE, SIDE))
    implicit = [x[:, None], matrix[None], np.empty(0, x.dtype), y[2][:, None], tuple(window), *geometry]
    return {
        "direct": Rung(conv_depthwise.direct, grid, conv_depthwise.THREADS, direct, y[0]),
        "im2col_tiled": Rung(
            im2col_tiled, tiles, (TILE, TILE), [x, matrix, y[1], tuple(window), stride, padding], y[1]
        ),
        "convolve": Rung(conv.convolve, (*wide_tiles, 1), THREADS, implicit, y[2]),
    }
