"""Convolution by Winograd's minimal filtering, for kernels 3x3 and 5x5 at stride 1 in float32.

The image is cut into windows d of 6x6 that overlap; each gives a tile of m x m outputs, m = 4 for 3x3 kernels g and 2
for 5x5. For each pair of channels
    y = A^T [(G g G^T) * (B^T d B)] A,
so that the sum over channels is a matrix product at each of the 36 points. 36 multiplications do the work of 144 (3x3)
or 100 (5x5). The matrices evaluate polynomials at 0, a, -a, b, -b and infinity: a = 2/3, b = 3/2 keep rounding errors
at eight times those of the direct sum, the usual 1, 2 at 25 times. Transposing the formula gives the gradients:
    dg = G^T [(A dy A^T) * (B^T d B)] G          dx = the convolution of dy with the flipped kernel.
An infinity in the image makes all outputs of its tile NaN, not only those that see it.

Points lie in arrays (36, tiles, channels). All transforms are sums of six rows of numbers, over all tiles and channels
of a line of tiles at once: long loops that LLVM vectorizes. So images are laid out with channels last, column w as
(w % m, w // m): what column j of the windows sees is then contiguous. A few images are taken at a time, so that their
points stay in the cache.

Lavin and Gray 2016, "Fast algorithms for convolutional neural networks"; for the choice of points Barabasz et al. 2018,
"Error analysis and improving the accuracy of Winograd convolution for deep neural networks".
"""

from __future__ import annotations

import functools

import numpy as np

from miniflow.backends.cpu.matmul import by_columns
from miniflow.backends.cpu.threads import SERIAL_PRODUCT, compiled, share, sum_of_parts, unlocked
from miniflow.backends.cpu.transpose import transpose, transpose_into
from miniflow.backends.windows import Pair, Windows

LINE = 16  # float32 in a cache line
WINDOW = 6
POINTS = WINDOW * WINDOW

TILES_TOGETHER = 128  # so many share the matrix products, that their points stay in the cache
TILES_AT_LEAST = 32  # fewer do not repay transforming the kernels

A, B = 2 / 3, 3 / 2
FINITE = (0.0, A, -A, B, -B)  # and infinity


def suits(x_shape: tuple[int, ...], weight_shape: tuple[int, ...], windows: Windows, dtype: np.dtype) -> bool:
    """Whether this method can do the convolution, and faster than matrix products over columns."""
    if not applies(weight_shape, windows, dtype):
        return False
    rows, columns = _tiles(windows.counts(x_shape[2:]), weight_shape[2])
    return x_shape[0] * rows * columns >= TILES_AT_LEAST


def applies(weight_shape: tuple[int, ...], windows: Windows, dtype: np.dtype) -> bool:
    """Whether this method can do the convolution."""
    o, c, kernel, _ = weight_shape
    if dtype != np.float32 or windows.kernel not in ((3, 3), (5, 5)) or c % LINE or o % LINE or not (c and o):
        return False
    return windows.stride == (1, 1) == windows.dilation and max(map(max, windows.padding)) < kernel


def _tiles(size: Pair, kernel: int) -> Pair:
    """How many tiles cover an image of outputs, in rows and columns."""
    m = WINDOW + 1 - kernel
    return -(-size[0] // m), -(-size[1] // m)


@functools.cache
def kernel_matrix(kernel: int) -> np.ndarray:
    """(36, kernel * kernel): takes a kernel to its points, G on both of its dimensions."""
    rows = [[p**k / np.prod([p - q for q in FINITE if q != p]) for k in range(kernel)] for p in FINITE]
    rows.append([0.0] * (kernel - 1) + [1.0])
    return np.kron(rows, rows).astype(np.float32)


@functools.cache
def input_matrix() -> np.ndarray:
    """B^T (6, 6): row i holds the coefficients of the polynomial that is zero at all finite points but the i-th."""
    rows = [[*np.poly([q for q in FINITE if q != p])[::-1], 0.0] for p in FINITE]
    return np.array([*rows, np.poly(FINITE)[::-1]], np.float32)


@functools.cache
def output_matrix(m: int) -> np.ndarray:
    """A^T (m, 6)."""
    return np.array([[p**k for p in FINITE] + [float(k == m - 1)] for k in range(m)], np.float32)


def forward(x: np.ndarray, weight: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """x (N, C, H, W), weight (O, C, K, K) -> out (N, O, OH, OW)"""
    o, c, k, _ = weight.shape
    taps, kernels = np.empty((c, k * k, o), x.dtype), np.empty((POINTS, c, o), x.dtype)
    transpose_into(weight.reshape(o, c * k * k), taps.reshape(c * k * k, o))
    np.matmul(kernel_matrix(k), taps, out=kernels.swapaxes(0, 1))
    (top, _), (left, _) = windows.padding
    _convolve(x, kernels, k, top, left, out)


def data_grad(dy: np.ndarray, weight: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """dy (N, O, OH, OW), weight (O, C, K, K) -> out (N, C, H, W): the convolution of dy with the flipped kernel."""
    o, c, k, _ = weight.shape
    kernels = np.matmul(kernel_matrix(k)[:, ::-1], weight.reshape(o * c, k * k).T)
    (top, _), (left, _) = windows.padding
    _convolve(dy, kernels.reshape(POINTS, o, c), k, k - 1 - top, k - 1 - left, out)


def _convolve(x: np.ndarray, kernels: np.ndarray, k: int, top: int, left: int, y: np.ndarray) -> None:
    """Convolve with kernels that are already points, (36, channels in, channels out), into `y`."""
    m, tiles = WINDOW + 1 - k, _tiles(y.shape[2:], k)
    _, c, o = kernels.shape
    x = np.ascontiguousarray(x)
    together, count = _images_together(tiles, c * o), tiles[0] * tiles[1]

    def convolve(start: int, stop: int) -> None:
        points, products = (_points(min(together, stop - start) * count, channels) for channels in (c, o))
        before, after = _buffers_of_windows(x, m, tiles), _buffers_of_tiles(y, m, tiles, products)
        for first in range(start, stop, together):
            images = slice(first, min(first + together, stop))
            used = (images.stop - first) * count
            _to_points(x[images], points, input_matrix(), top, left, m, tiles, *before)
            by_columns(_planes(points, used, c), kernels, _planes(products, used, o))
            _to_images(products, y[images], output_matrix(m), tiles, *after)

    share(convolve, len(x), 8 * x.size)


def weight_grad(dy: np.ndarray, x: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """dy (N, O, OH, OW), x (N, C, H, W) -> out (O, C, K, K)"""
    o, c, k = dy.shape[1], x.shape[1], windows.kernel[0]
    (top, _), (left, _) = windows.padding
    x, dy, m, tiles = np.ascontiguousarray(x), np.ascontiguousarray(dy), WINDOW + 1 - k, _tiles(dy.shape[2:], k)
    together, count = _images_together(tiles, c * o), tiles[0] * tiles[1]
    totals: dict[int, np.ndarray] = {}
    a_matrix = np.zeros((WINDOW, WINDOW), np.float32)  # A, with columns of zeros: windows are larger
    a_matrix[:, :m] = output_matrix(m).T

    def add_up(start: int, stop: int) -> None:
        points, cotangents = (_points(min(together, stop - start) * count, channels) for channels in (c, o))
        total, product = np.empty((2, POINTS, o, c), x.dtype)
        of_x, of_dy = _buffers_of_windows(x, m, tiles), _buffers_of_windows(dy, m, tiles)
        for first in range(start, stop, together):
            images = slice(first, min(first + together, stop))
            used = (images.stop - first) * count
            _to_points(x[images], points, input_matrix(), top, left, m, tiles, *of_x)
            _to_points(dy[images], cotangents, a_matrix, 0, 0, m, tiles, *of_dy)
            of_cotangents = _planes(cotangents, used, o).swapaxes(1, 2)
            by_columns(of_cotangents, _planes(points, used, c), product if first > start else total)
            if first > start:
                total += product
        totals[start] = total

    share(add_up, len(x), 8 * x.size)
    total = sum_of_parts(totals)
    np.matmul(total.reshape(POINTS, o * c).T, kernel_matrix(k), out=out.reshape(o * c, k * k))


def _images_together(tiles: Pair, pairs: int) -> int:
    """How many images share their matrix products; `pairs` is channels in times channels out."""
    count = SERIAL_PRODUCT // pairs
    count = min(count, TILES_TOGETHER) if count >= 32 else TILES_TOGETHER
    return max(1, count // (tiles[0] * tiles[1]))


def _points(tiles: int, channels: int) -> np.ndarray:
    """A buffer for 36 planes (tiles, channels), an odd number of cache lines apart.

    At a distance of a power of two they would share a few cache sets, and every tile writes to all of them.
    """
    return np.empty((POINTS, (tiles * channels // LINE | 1) * LINE), np.float32)


def _planes(buffer: np.ndarray, tiles: int, channels: int) -> np.ndarray:
    """What lies at the start of a buffer, as (36, tiles, channels)."""
    return buffer[:, : tiles * channels].reshape(POINTS, tiles, channels)


# Buffers of kernels: what numba allocates itself takes it half a second to compile.


def _buffers_of_windows(x: np.ndarray, m: int, tiles: Pair) -> tuple[np.ndarray, ...]:
    """For `_to_points`: an image, one with borders of zeros, rows of sums, and where the parts of a window begin."""
    (rows, columns), (_, c, height, width), k = tiles, x.shape, np.arange(WINDOW)
    padded = np.zeros((rows * m + WINDOW - m, m, columns + 2, c), x.dtype)  # column w is (w % m, w // m)
    line = padded[0].size
    half = np.empty((WINDOW, line), x.dtype)
    return np.empty((height * width, c), x.dtype), padded, half, k * line, k % m * (line // m) + k // m * c


def _buffers_of_tiles(y: np.ndarray, m: int, tiles: Pair, points: np.ndarray) -> tuple[np.ndarray, ...]:
    """For `_to_images`: an image, rows of sums, one of pixels, and where the parts of a tile begin."""
    (_, c, height, width), run, k = y.shape, tiles[1] * y.shape[1], np.arange(WINDOW)
    half, line = np.empty(WINDOW * run, y.dtype), np.empty(run, y.dtype)
    return np.empty((height * width, c), y.dtype), half, line, k * WINDOW * points.shape[1], k * run


@compiled
def _combine(factors, source, offsets, target):
    """target = the sum over k < 6 of factors[k] * source[offsets[k] :]"""
    f0, f1, f2, f3, f4, f5 = factors[0], factors[1], factors[2], factors[3], factors[4], factors[5]
    s0, s1, s2 = source[offsets[0] :], source[offsets[1] :], source[offsets[2] :]
    s3, s4, s5 = source[offsets[3] :], source[offsets[4] :], source[offsets[5] :]
    for i in range(target.size):
        target[i] = (f0 * s0[i] + f1 * s1[i] + f2 * s2[i]) + (f3 * s3[i] + f4 * s4[i] + f5 * s5[i])


@compiled
def _copy(source, target):
    for i in range(target.size):
        target[i] = source[i]


@unlocked()
def _to_points(x, points, matrix, top, left, m, tiles, pixels, padded, half, lines, steps):
    """M d M^T for the windows d, m apart, of images x (N, C, H, W) inside a border of zeros."""
    (rows, columns), (_, c, height, width) = tiles, x.shape
    run, line, flat = columns * c, padded[0].size, padded.reshape(padded.size)
    for b in range(len(x)):
        transpose(x[b].reshape(c, height * width), pixels)
        for h in range(height):
            for phase in range(m):
                target, first = padded[h + top, phase], (phase - left) % m
                for i in range((width - first + m - 1) // m):
                    _copy(pixels[h * width + first + i * m], target[(first + left) // m + i])
        for row in range(rows):
            start = (b * rows + row) * run
            for i in range(WINDOW):
                _combine(matrix[i], flat[row * m * line :], lines, half[i])
            for i in range(WINDOW):
                for j in range(WINDOW):
                    _combine(matrix[j], half[i], steps, points[i * WINDOW + j, start : start + run])


@unlocked()
def _to_images(points, y, matrix, tiles, pixels, half, line, rows_of_points, runs):
    """A^T p A into images y (N, O, OH, OW): tiles of m x m, cut off at the border; `matrix` is A^T."""
    (rows, columns), (_, c, height, width) = tiles, y.shape
    run, m, step, flat = columns * c, len(matrix), points.shape[1], points.reshape(points.size)
    for b in range(len(y)):
        for h in range(height):
            for j in range(WINDOW):
                source = flat[(b * rows + h // m) * run + j * step :]
                _combine(matrix[h % m], source, rows_of_points, half[j * run : (j + 1) * run])
            for j in range(m):
                _combine(matrix[j], half, runs, line)
                for i in range((width - j + m - 1) // m):
                    _copy(line[i * c :], pixels[h * width + i * m + j])
        transpose(pixels, y[b].reshape(c, height * width))
