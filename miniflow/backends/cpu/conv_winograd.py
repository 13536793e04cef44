"""Convolution by Winograd's minimal filtering, for kernels 3x3 and 5x5 at stride 1 in float32.

The image is cut into windows d of 6x6 that overlap; each gives a tile of m x m outputs, m = 4 for 3x3 kernels g and 2
for 5x5. For each pair of channels
    y = A^T [(G g G^T) * (B^T d B)] A,
so that the sum over channels is a matrix product at each of the 36 points. 36 multiplications do the work of 144 (3x3)
or 100 (5x5). The matrices evaluate polynomials at 0, a, -a, b, -b and infinity: a = 2/3, b = 3/2 keep rounding errors
at eight times those of the direct sum, the usual 1, 2 at 25 times. Transposing the formula gives the gradients:
    dg = G^T [(A dy A^T) * (B^T d B)] G          dx = the convolution of dy with the turned kernel.
An infinity in the image makes all outputs of its tile NaN, not only those that see it.

Points lie in arrays (36, tiles, channels), which the loops see as (36, tiles * blocks, LANES): LANES channels are
transformed at once by vector instructions. A few images are taken at a time, so that their points stay in the cache.
The inner loops are written out where they are used, and index by `lane` alone: only so does LLVM see that no index is
negative and that sources and targets do not overlap, and uses vectors.

Lavin and Gray 2016, "Fast algorithms for convolutional neural networks"; for the choice of points Barabasz et al. 2018,
"Error analysis and improving the accuracy of Winograd convolution for deep neural networks".
"""

from __future__ import annotations

import functools

import numpy as np

from miniflow.backends.cpu.products import by_columns
from miniflow.backends.cpu.threads import SERIAL_PRODUCT, compiled, share, sum_of_parts, unlocked
from miniflow.backends.cpu.transpose import transpose, transpose_into
from miniflow.backends.windows import Pair, Windows

LANES = 16  # one 512-bit vector of float32, one cache line
WINDOW = 6
POINTS = WINDOW * WINDOW

TILES_TOGETHER = 128  # so many share the matrix products, that their points stay in the cache
TILES_AT_LEAST = 32  # fewer do not repay transforming the kernels

A, B = np.float32(2 / 3), np.float32(3 / 2)
AA, BB = A * A, B * B
AAA, BBB = AA * A, BB * B
ABB, BAA, AABB, SUM = A * BB, B * AA, AA * BB, AA + BB


def suits(x_shape: tuple[int, ...], weight_shape: tuple[int, ...], windows: Windows, dtype: np.dtype) -> bool:
    """Whether this method can do the convolution, and faster than matrix products over columns."""
    o, c, kernel, _ = weight_shape
    if dtype != np.float32 or windows.kernel not in ((3, 3), (5, 5)) or c % LANES or o % LANES or not (c and o):
        return False
    if windows.stride != (1, 1) or windows.dilation != (1, 1) or max(map(max, windows.padding)) >= kernel:
        return False
    rows, columns = _tiles(windows.counts(x_shape[2:]), kernel)
    return x_shape[0] * rows * columns >= TILES_AT_LEAST


def _tiles(size: Pair, kernel: int) -> Pair:
    """How many tiles cover an image of outputs, in rows and columns."""
    m = WINDOW + 1 - kernel
    return -(-size[0] // m), -(-size[1] // m)


@functools.cache
def kernel_matrix(kernel: int) -> np.ndarray:
    """(36, kernel * kernel): takes a kernel to its points, G on both of its dimensions."""
    points = [0.0, 2 / 3, -2 / 3, 3 / 2, -3 / 2]
    rows = [[p**k / np.prod([p - q for q in points if q != p]) for k in range(kernel)] for p in points]
    rows.append([0.0] * (kernel - 1) + [1.0])
    return np.kron(rows, rows).astype(np.float32)


INPUT_MATRIX = np.array(
    [
        [AABB, 0, -SUM, 0, 1, 0],
        [0, -ABB, -BB, A, 1, 0],
        [0, ABB, -BB, -A, 1, 0],
        [0, -BAA, -AA, B, 1, 0],
        [0, BAA, -AA, -B, 1, 0],
        [0, AABB, 0, -SUM, 0, 1],
    ],
    np.float32,
)  # B^T


@functools.cache
def output_matrix(m: int) -> np.ndarray:
    """A^T (m, 6)."""
    powers = [[p**k for p in (0.0, 2 / 3, -2 / 3, 3 / 2, -3 / 2)] + [float(k == m - 1)] for k in range(m)]
    return np.array(powers, np.float32)


@functools.cache
def cotangent_matrix(m: int) -> np.ndarray:
    """A, with columns of zeros up to (6, 6)."""
    return np.pad(output_matrix(m).T, ((0, 0), (0, WINDOW - m)))


def forward(x: np.ndarray, weight: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """x (N, C, H, W), weight (O, C, K, K) -> out (N, O, OH, OW)"""
    o, c, k, _ = weight.shape
    turned, kernels = np.empty((c, k * k, o), x.dtype), np.empty((POINTS, c, o), x.dtype)
    transpose_into(weight.reshape(o, c * k * k), turned.reshape(c * k * k, o))
    np.matmul(kernel_matrix(k), turned, out=kernels.swapaxes(0, 1))
    (top, _), (left, _) = windows.padding
    _convolve(x, kernels, k, top, left, out)


def data_grad(dy: np.ndarray, weight: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """dy (N, O, OH, OW), weight (O, C, K, K) -> out (N, C, H, W): the convolution of dy with the turned kernel."""
    o, c, k, _ = weight.shape
    kernels = np.matmul(kernel_matrix(k)[:, ::-1], weight.reshape(o * c, k * k).T)
    (top, _), (left, _) = windows.padding
    _convolve(dy, kernels.reshape(POINTS, o, c), k, k - 1 - top, k - 1 - left, out)


def _convolve(x: np.ndarray, kernels: np.ndarray, k: int, top: int, left: int, y: np.ndarray) -> None:
    """Convolve with kernels that are already points, (36, channels in, channels out), into `y`."""
    m, tiles = WINDOW + 1 - k, _tiles(y.shape[2:], k)
    _, c, o = kernels.shape
    x = np.ascontiguousarray(x)
    together = _images_together(tiles, c * o)

    def convolve(start: int, stop: int) -> None:
        points, products = (_Points(min(together, stop - start), tiles, channels) for channels in (c, o))
        for first in range(start, stop, together):
            images = slice(first, min(first + together, stop))
            _images_to_points(x[images], points.lines, INPUT_MATRIX, top, left, m, tiles)
            by_columns(points.of(images), kernels, products.of(images))
            _points_to_images(y[images], products.lines, output_matrix(m), tiles)

    share(convolve, len(x), 8 * x.size)


def weight_grad(dy: np.ndarray, x: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """dy (N, O, OH, OW), x (N, C, H, W) -> out (O, C, K, K)"""
    o, c, k = dy.shape[1], x.shape[1], windows.kernel[0]
    (top, _), (left, _) = windows.padding
    x, dy, m, tiles = np.ascontiguousarray(x), np.ascontiguousarray(dy), WINDOW + 1 - k, _tiles(dy.shape[2:], k)
    together = _images_together(tiles, c * o)
    totals: dict[int, np.ndarray] = {}

    def add_up(start: int, stop: int) -> None:
        points, cotangents = (_Points(min(together, stop - start), tiles, channels) for channels in (c, o))
        total, product = np.empty((2, POINTS, o, c), x.dtype)
        for first in range(start, stop, together):
            images = slice(first, min(first + together, stop))
            _images_to_points(x[images], points.lines, INPUT_MATRIX, top, left, m, tiles)
            _cotangents_to_points(dy[images], cotangents.lines, cotangent_matrix(m), m, tiles)
            by_columns(cotangents.of(images).swapaxes(1, 2), points.of(images), product if first > start else total)
            if first > start:
                total += product
        totals[start] = total

    share(add_up, len(x), 8 * x.size)
    total = sum_of_parts(totals)
    np.matmul(total.reshape(POINTS, o * c).T, kernel_matrix(k), out=out.reshape(o * c, k * k))


def _images_together(tiles: Pair, pairs: int) -> int:
    """How many images share their matrix products; `pairs` is channels in times channels out."""
    wanted = SERIAL_PRODUCT // pairs
    return max(1, (min(wanted, TILES_TOGETHER) if wanted >= 32 else TILES_TOGETHER) // (tiles[0] * tiles[1]))


class _Points:
    """A buffer (36, tiles, channels) for the points of a few images.

    The 36 planes are an odd number of cache lines apart: at a distance of a power of two they would share a few cache
    sets, and every tile writes to all of them.
    """

    def __init__(self, images: int, tiles: Pair, channels: int):
        self.tiles, self.channels = tiles[0] * tiles[1], channels
        self.lines = np.empty((POINTS, images * self.tiles * channels // LANES | 1, LANES), np.float32)

    def of(self, images: slice) -> np.ndarray:
        """The points (36, tiles, channels) of these images, which lie at the start of the buffer."""
        count = (images.stop - images.start) * self.tiles
        flat = self.lines.reshape(POINTS, -1)[:, : count * self.channels]
        return flat.reshape(POINTS, count, self.channels)


@compiled
def _turn(x, pixels, turned, top, left):
    """(C, H, W) -> (rows, columns, blocks, LANES), inside a border of zeros; `pixels` (H * W, C) is overwritten."""
    channels, height, width = x.shape
    transpose(x.reshape(channels, height * width), pixels)
    lines, sources = turned.reshape(len(turned), -1), pixels.reshape(height, width * channels)
    for h in range(height):
        target, source = lines[h + top, left * channels :], sources[h]
        for i in range(width * channels):
            target[i] = source[i]


@unlocked()
def _images_to_points(x, points, matrix, top, left, m, tiles):
    """B^T d B for the windows d of images x (N, C, H, W); `matrix` is B^T."""
    rows, columns = tiles
    n, blocks = len(matrix), x.shape[1] // LANES  # n is WINDOW, as a variable: loops over it are not unrolled
    turned = np.empty((rows * m + WINDOW - m, columns * m + WINDOW - m, blocks, LANES), x.dtype)
    pixels = np.empty((x.shape[2] * x.shape[3], x.shape[1]), x.dtype)
    half = np.empty((WINDOW, WINDOW, LANES), x.dtype)
    turned[:] = 0
    for b in range(len(x)):
        _turn(x[b], pixels, turned, top, left)
        line = b * rows * columns * blocks
        for tile in range(rows * columns):
            h, w = tile // columns * m, tile % columns * m
            for block in range(blocks):
                for j in range(n):
                    for lane in range(LANES):
                        d0, d1 = turned[h, w + j, block, lane], turned[h + 1, w + j, block, lane]
                        d2, d3 = turned[h + 2, w + j, block, lane], turned[h + 3, w + j, block, lane]
                        d4, d5 = turned[h + 4, w + j, block, lane], turned[h + 5, w + j, block, lane]
                        even, odd = d4 - BB * d2, A * d3 - ABB * d1
                        even_b, odd_b = d4 - AA * d2, B * d3 - BAA * d1
                        half[0, j, lane] = AABB * d0 - SUM * d2 + d4
                        half[1, j, lane] = even + odd
                        half[2, j, lane] = even - odd
                        half[3, j, lane] = even_b + odd_b
                        half[4, j, lane] = even_b - odd_b
                        half[5, j, lane] = AABB * d1 - SUM * d3 + d5
                for i in range(n):
                    for j in range(n):
                        target = points[i * WINDOW + j, line]
                        m0, m1, m2, m3, m4, m5 = (
                            matrix[j, 0],
                            matrix[j, 1],
                            matrix[j, 2],
                            matrix[j, 3],
                            matrix[j, 4],
                            matrix[j, 5],
                        )
                        for lane in range(LANES):
                            first = m0 * half[i, 0, lane] + m1 * half[i, 1, lane] + m2 * half[i, 2, lane]
                            target[lane] = first + (
                                m3 * half[i, 3, lane] + m4 * half[i, 4, lane] + m5 * half[i, 5, lane]
                            )
                line += 1


@unlocked()
def _cotangents_to_points(dy, points, matrix, m, tiles):
    """A dy A^T for the tiles of m x m cotangents of images dy (N, O, OH, OW); `matrix` is A."""
    rows, columns = tiles
    n, blocks = len(matrix), dy.shape[1] // LANES
    turned = np.empty((rows * m, columns * m, blocks, LANES), dy.dtype)
    third, fourth, some = (2, 3, np.float32(1)) if m == 4 else (0, 1, np.float32(0))  # with m = 2 there are two rows
    pixels = np.empty((dy.shape[2] * dy.shape[3], dy.shape[1]), dy.dtype)
    half = np.empty((WINDOW, WINDOW, LANES), dy.dtype)
    half[:] = 0
    turned[:] = 0
    for b in range(len(dy)):
        _turn(dy[b], pixels, turned, 0, 0)
        line = b * rows * columns * blocks
        for tile in range(rows * columns):
            h, w = tile // columns * m, tile % columns * m
            for block in range(blocks):
                for j in range(m):
                    for lane in range(LANES):
                        y0, y1 = turned[h, w + j, block, lane], turned[h + 1, w + j, block, lane]
                        y2, last = turned[h + third, w + j, block, lane], turned[h + fourth, w + j, block, lane]
                        y2, y3 = some * y2, some * last
                        even, odd = y0 + AA * y2, A * y1 + AAA * y3
                        even_b, odd_b = y0 + BB * y2, B * y1 + BBB * y3
                        half[0, j, lane] = y0
                        half[1, j, lane] = even + odd
                        half[2, j, lane] = even - odd
                        half[3, j, lane] = even_b + odd_b
                        half[4, j, lane] = even_b - odd_b
                        half[5, j, lane] = last
                for i in range(n):
                    for j in range(n):
                        target = points[i * WINDOW + j, line]
                        m0, m1, m2, m3, m4, m5 = (
                            matrix[j, 0],
                            matrix[j, 1],
                            matrix[j, 2],
                            matrix[j, 3],
                            matrix[j, 4],
                            matrix[j, 5],
                        )
                        for lane in range(LANES):
                            first = m0 * half[i, 0, lane] + m1 * half[i, 1, lane] + m2 * half[i, 2, lane]
                            target[lane] = first + (
                                m3 * half[i, 3, lane] + m4 * half[i, 4, lane] + m5 * half[i, 5, lane]
                            )
                line += 1


@unlocked()
def _points_to_images(y, points, matrix, tiles):
    """A^T p A into images y (N, O, OH, OW): tiles of m x m, cut off at the border; `matrix` is A^T."""
    _, channels, height, width = y.shape
    rows, columns = tiles
    m, n, blocks = *matrix.shape, channels // LANES
    pixels = np.empty((height, width, blocks, LANES), y.dtype)
    half = np.empty((4, WINDOW, LANES), y.dtype)
    for b in range(len(y)):
        line = b * rows * columns * blocks
        for tile in range(rows * columns):
            row, column = tile // columns, tile % columns
            for block in range(blocks):
                for q in range(n):
                    for lane in range(LANES):
                        p0, p1, p2 = points[q, line, lane], points[q + 6, line, lane], points[q + 12, line, lane]
                        p3, p4 = points[q + 18, line, lane], points[q + 24, line, lane]
                        even, odd = p1 + p2, p1 - p2
                        even_b, odd_b = p3 + p4, p3 - p4
                        half[0, q, lane] = p0 + even + even_b
                        half[1, q, lane] = A * odd + B * odd_b
                        half[2, q, lane] = AA * even + BB * even_b
                        half[3, q, lane] = AAA * odd + BBB * odd_b
                    infinity = points[q + 30, line]
                    for lane in range(LANES):
                        half[m - 1, q, lane] += infinity[lane]
                for i in range(min(m, height - row * m)):
                    for j in range(min(m, width - column * m)):
                        target = pixels[row * m + i, column * m + j, block]
                        m0, m1, m2, m3, m4, m5 = (
                            matrix[j, 0],
                            matrix[j, 1],
                            matrix[j, 2],
                            matrix[j, 3],
                            matrix[j, 4],
                            matrix[j, 5],
                        )
                        for lane in range(LANES):
                            first = m0 * half[i, 0, lane] + m1 * half[i, 1, lane] + m2 * half[i, 2, lane]
                            target[lane] = first + (
                                m3 * half[i, 3, lane] + m4 * half[i, 4, lane] + m5 * half[i, 5, lane]
                            )
                line += 1
        transpose(pixels.reshape(height * width, channels), y[b].reshape(channels, height * width))
