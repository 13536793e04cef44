"""Convolution by Winograd's minimal filtering, for kernels 3x3 and 5x5 at stride 1 in float32.

The image is cut into windows d of 6x6 that overlap; each gives a tile of m x m outputs, m = 4 for 3x3 kernels g, m = 2 for 5x5:
    y = A^T [(G g G^T) * (B^T d B)] A            per pair of channels,
so that the sum over channels is a matrix product at each of the 36 points. 36 multiplications do the work of 144 (3x3) or
100 (5x5). The matrices evaluate polynomials at 0, a, -a, b, -b and infinity. a = 2/3, b = 3/2 keep rounding errors at eight
times those of the direct sum; the usual 1, 2 are three times worse. Transposing the formula gives the gradients:
    dg = G^T [(A dy A^T) * (B^T d B)] G          dx = the convolution of dy with the turned kernel.

Points lie in arrays (36, tiles, channels). Inner loops run over LANES channels, which vector instructions do at once.
Lavin and Gray 2016, "Fast algorithms for convolutional neural networks"; for the choice of points Barabasz et al. 2018,
"Error analysis and improving the accuracy of Winograd convolution for deep neural networks".
"""

from __future__ import annotations

import functools

import numpy as np
from numba import njit, prange

from miniflow.backends.cpu.loops import loop
from miniflow.backends.cpu.windows import Pair, Windows

LINE = 16  # float32 in a cache line
LANES = 64  # so many channels are transformed together
WINDOW = 6
ROW = WINDOW * LANES  # a window of LANES channels lies in a flat array, (i, j, lane) at i * ROW + j * LANES + lane
HALF = WINDOW * ROW
TILES_PER_GROUP = 196  # so many tiles share the matrix products

A, B = np.float32(2 / 3), np.float32(3 / 2)
AA, BB = A * A, B * B
AAA, BBB = AA * A, BB * B
ABB, BAA, AABB, SUM = A * BB, B * AA, AA * BB, AA + BB


def suits(x_shape: tuple[int, ...], weight_shape: tuple[int, ...], windows: Windows, dtype: np.dtype) -> bool:
    """Whether this method can do the convolution, and faster than matrix products over columns."""
    o, c = weight_shape[:2]
    return (
        dtype == np.float32
        and windows.kernel in ((3, 3), (5, 5))
        and windows.stride == windows.dilation == (1, 1)
        and min(c, o) >= LINE
        and max(max(p) for p in windows.padding) < windows.kernel[0]
    )


@functools.cache
def kernel_points(kernel: int) -> np.ndarray:
    """The matrix (36, kernel * kernel) that takes a kernel to its points: G on both of its dimensions."""
    points = [0.0, 2 / 3, -2 / 3, 3 / 2, -3 / 2]
    rows = [[p**k / np.prod([p - q for q in points if q != p]) for k in range(kernel)] for p in points]
    rows.append([0.0] * (kernel - 1) + [1.0])
    return np.kron(rows, rows).astype(np.float32)


def forward(x: np.ndarray, weight: np.ndarray, windows: Windows) -> np.ndarray:
    """x (N, C, H, W), weight (O, C, K, K) -> y (N, O, OH, OW)"""
    o, c, k, _ = weight.shape
    (top, _), (left, _) = windows.padding
    matrix = np.matmul(kernel_points(k), weight.transpose(2, 3, 1, 0).reshape(k * k, c * o)).reshape(-1, c, o)
    y = np.empty((len(x), o, *windows.counts(x.shape[2:])), x.dtype)
    x, m = np.ascontiguousarray(x), WINDOW + 1 - k
    tiles, groups = _tiling(y, m)
    points, products = _Points(tiles, groups, c), _Points(tiles, groups, o)
    for group in groups:
        _input_to_points(x[group], points.flat, top, left, m, tiles)
        np.matmul(points.of(group), matrix, out=products.of(group))
        _outputs_from_points(y[group], products.flat, m, tiles)
    return y


def data_grad(dy: np.ndarray, weight: np.ndarray, windows: Windows, size: Pair) -> np.ndarray:
    """dy (N, O, OH, OW), weight (O, C, K, K) -> dx (N, C, *size): the convolution of dy with the turned kernel."""
    k = weight.shape[2]
    (top, bottom), (left, right) = windows.padding
    turned = weight[:, :, ::-1, ::-1].swapaxes(0, 1)
    opposite = ((k - 1 - top, k - 1 - bottom), (k - 1 - left, k - 1 - right))
    return forward(dy, turned, windows._replace(padding=opposite))


def weight_grad(dy: np.ndarray, x: np.ndarray, windows: Windows) -> np.ndarray:
    """dy (N, O, OH, OW), x (N, C, H, W) -> dweight (O, C, K, K)"""
    o, c, k = dy.shape[1], x.shape[1], windows.kernel[0]
    (top, _), (left, _) = windows.padding
    x, dy, m = np.ascontiguousarray(x), np.ascontiguousarray(dy), WINDOW + 1 - k
    tiles, groups = _tiling(dy, m)
    points, cotangents = _Points(tiles, groups, c), _Points(tiles, groups, o)
    matrix, part = np.zeros((2, WINDOW * WINDOW, o, c), x.dtype)
    for group in groups:
        _input_to_points(x[group], points.flat, top, left, m, tiles)
        _cotangent_to_points(dy[group], cotangents.flat, m, tiles)
        matrix += np.matmul(cotangents.of(group).swapaxes(1, 2), points.of(group), out=part)
    dweight = np.matmul(kernel_points(k).T, matrix.reshape(-1, o * c))
    return np.ascontiguousarray(dweight.reshape(k, k, o, c).transpose(2, 3, 0, 1))


def _tiling(y: np.ndarray, m: int) -> tuple[Pair, list[slice]]:
    """How many tiles cover an image of outputs (N, O, OH, OW), in rows and columns; and the images in groups."""
    tiles = -(-y.shape[2] // m), -(-y.shape[3] // m)
    together = max(1, TILES_PER_GROUP // max(1, tiles[0] * tiles[1]))
    return tiles, [slice(start, min(start + together, len(y))) for start in range(0, len(y), together)]


class _Points:
    """A buffer (36, tiles, channels) for the points of a group of images.

    The 36 planes are an odd number of cache lines apart: at a distance of a power of two they would share a few cache sets,
    and every tile writes to all of them.
    """

    def __init__(self, tiles: Pair, groups: list[slice], channels: int):
        self.tiles, self.channels = tiles[0] * tiles[1], channels
        lines = max((group.stop - group.start for group in groups), default=0) * self.tiles * channels // LINE  # rounded down
        self.flat = np.empty((WINDOW * WINDOW, ((lines | 1) + 2) * LINE), np.float32)

    def of(self, group: slice) -> np.ndarray:
        """The points (36, tiles, channels) of one group."""
        count = (group.stop - group.start) * self.tiles
        return self.flat[:, : count * self.channels].reshape(WINDOW * WINDOW, count, self.channels)


compiled = njit(fastmath={"contract"}, error_model="numpy")


@compiled
def _of_input(d0, d1, d2, d3, d4, d5):
    """B^T d: one window's values to its points."""
    even, odd = d4 - BB * d2, A * d3 - ABB * d1
    even_b, odd_b = d4 - AA * d2, B * d3 - BAA * d1
    return (
        AABB * d0 - SUM * d2 + d4,
        even + odd,
        even - odd,
        even_b + odd_b,
        even_b - odd_b,
        AABB * d1 - SUM * d3 + d5,
    )


@compiled
def _of_cotangent(y0, y1, y2, y3):
    """A dy: the cotangents of one tile's outputs to those of its points, without infinity: there it is the last output's."""
    even, odd = y0 + AA * y2, A * y1 + AAA * y3
    even_b, odd_b = y0 + BB * y2, B * y1 + BBB * y3
    return y0, even + odd, even - odd, even_b + odd_b, even_b - odd_b


@compiled
def _to_outputs(p0, p1, p2, p3, p4):
    """A^T p for four outputs, without the point at infinity, which belongs to the last output alone."""
    even, odd = p1 + p2, p1 - p2
    even_b, odd_b = p3 + p4, p3 - p4
    return p0 + even + even_b, A * odd + B * odd_b, AA * even + BB * even_b, AAA * odd + BBB * odd_b


@compiled
def _to_points_of_tile(scratch, lanes, cotangent, m):
    """Transform the columns of a window whose rows are transformed: (i, j) lies at (i * WINDOW + j) * LANES.

    Source and target are halves of one array, at distances that the compiler knows: so it sees that they do not overlap.
    """
    for i in range(WINDOW):
        row = i * WINDOW * LANES
        if cotangent:
            for lane in range(lanes):
                s = row + lane
                v = _of_cotangent(scratch[s], scratch[s + LANES], scratch[s + 2 * LANES], scratch[s + 3 * LANES])
                t = HALF + s
                scratch[t], scratch[t + LANES], scratch[t + 2 * LANES] = v[0], v[1], v[2]
                scratch[t + 3 * LANES], scratch[t + 4 * LANES] = v[3], v[4]
            for lane in range(lanes):
                scratch[HALF + row + 5 * LANES + lane] = scratch[row + (m - 1) * LANES + lane]
        else:
            for lane in range(lanes):
                s = row + lane
                d0, d1, d2 = scratch[s], scratch[s + LANES], scratch[s + 2 * LANES]
                v = _of_input(d0, d1, d2, scratch[s + 3 * LANES], scratch[s + 4 * LANES], scratch[s + 5 * LANES])
                t = HALF + s
                scratch[t], scratch[t + LANES], scratch[t + 2 * LANES] = v[0], v[1], v[2]
                scratch[t + 3 * LANES], scratch[t + 4 * LANES], scratch[t + 5 * LANES] = v[3], v[4], v[5]


@compiled
def _turn(x, turned, top, left):
    """(C, H, W) -> (rows, columns, C), inside a border of zeros"""
    channels, height, width = x.shape
    for h in range(height):
        for c in range(channels):
            for w in range(width):
                turned[h + top, w + left, c] = x[c, h, w]


@loop()
def _input_to_points(x, points, top, left, m, tiles):
    """One iteration owns image x[b] and turns its windows to points.

    The image is first turned to (rows, columns, channels) with zeros around it, so that all later loads are contiguous.
    """
    images, channels, height, width = x.shape
    rows, columns = tiles
    for b in prange(images):
        turned = np.zeros((rows * m + WINDOW - m, columns * m + WINDOW - m, channels), x.dtype)
        _turn(x[b], turned, top, left)
        scratch = np.empty(2 * HALF, x.dtype)
        for tile in range(rows * columns):
            t = (b * rows * columns + tile) * channels
            h, w = tile // columns * m, tile % columns * m
            for block in range(0, channels, LANES):
                lanes = min(LANES, channels - block)
                for j in range(WINDOW):
                    for lane in range(lanes):
                        c = block + lane
                        d0, d1, d2 = turned[h, w + j, c], turned[h + 1, w + j, c], turned[h + 2, w + j, c]
                        d3, d4, d5 = turned[h + 3, w + j, c], turned[h + 4, w + j, c], turned[h + 5, w + j, c]
                        v = _of_input(d0, d1, d2, d3, d4, d5)
                        s = j * LANES + lane
                        scratch[s], scratch[s + ROW], scratch[s + 2 * ROW] = v[0], v[1], v[2]
                        scratch[s + 3 * ROW], scratch[s + 4 * ROW], scratch[s + 5 * ROW] = v[3], v[4], v[5]
                _to_points_of_tile(scratch, lanes, False, m)
                for p in range(WINDOW * WINDOW):
                    for lane in range(lanes):
                        points[p, t + block + lane] = scratch[HALF + p * LANES + lane]


@loop()
def _cotangent_to_points(dy, points, m, tiles):
    """One iteration owns image dy[b] and turns its tiles of m x m to points."""
    images, channels, height, width = dy.shape
    rows, columns = tiles
    for b in prange(images):
        turned = np.zeros((rows * m, columns * m, channels), dy.dtype)
        _turn(dy[b], turned, 0, 0)
        scratch = np.zeros(2 * HALF, dy.dtype)
        for tile in range(rows * columns):
            t = (b * rows * columns + tile) * channels
            h, w = tile // columns * m, tile % columns * m
            for block in range(0, channels, LANES):
                lanes = min(LANES, channels - block)
                for j in range(m):
                    for lane in range(lanes):
                        c = block + lane
                        d0, d1 = turned[h, w + j, c], turned[h + 1, w + j, c]
                        d2, d3 = np.float32(0), np.float32(0)
                        if m == 4:
                            d2, d3 = turned[h + 2, w + j, c], turned[h + 3, w + j, c]
                        v = _of_cotangent(d0, d1, d2, d3)
                        s = j * LANES + lane
                        scratch[s], scratch[s + ROW], scratch[s + 2 * ROW] = v[0], v[1], v[2]
                        scratch[s + 3 * ROW], scratch[s + 4 * ROW], scratch[s + 5 * ROW] = v[3], v[4], d3 if m == 4 else d1
                _to_points_of_tile(scratch, lanes, True, m)
                for p in range(WINDOW * WINDOW):
                    for lane in range(lanes):
                        points[p, t + block + lane] = scratch[HALF + p * LANES + lane]


@loop()
def _outputs_from_points(y, points, m, tiles):
    """One iteration owns image y[b]: its points become tiles of m x m outputs, cut off at the image's border."""
    images, channels, height, width = y.shape
    rows, columns = tiles
    for b in prange(images):
        strip = np.empty((m, columns * m, channels), y.dtype)
        scratch = np.empty(2 * HALF, y.dtype)
        for tile_row in range(rows):
            for tile_column in range(columns):
                t = (b * rows * columns + tile_row * columns + tile_column) * channels
                for block in range(0, channels, LANES):
                    lanes = min(LANES, channels - block)
                    _outputs_of_tile(points, t + block, scratch, lanes, m)
                    for i in range(m):
                        for j in range(m):
                            for lane in range(lanes):
                                strip[i, tile_column * m + j, block + lane] = scratch[HALF + i * ROW + j * LANES + lane]
            h = tile_row * m
            for c in range(channels):
                for i in range(min(m, height - h)):
                    for w in range(width):
                        y[b, c, h + i, w] = strip[i, w, c]


@compiled
def _outputs_of_tile(points, t, scratch, lanes, m):
    """A^T p A for `lanes` channels of one tile; the result is left in the second half of `scratch`."""
    for q in range(WINDOW):
        for lane in range(lanes):
            c = t + lane
            p0, p1, p2 = points[q, c], points[q + 6, c], points[q + 12, c]
            v = _to_outputs(p0, p1, p2, points[q + 18, c], points[q + 24, c])
            s = q * LANES + lane
            scratch[s], scratch[s + ROW], scratch[s + 2 * ROW], scratch[s + 3 * ROW] = v
        for lane in range(lanes):
            scratch[(m - 1) * ROW + q * LANES + lane] += points[q + 30, t + lane]
    for i in range(m):
        for lane in range(lanes):
            s = i * ROW + lane
            p0, p1, p2 = scratch[s], scratch[s + LANES], scratch[s + 2 * LANES]
            v = _to_outputs(p0, p1, p2, scratch[s + 3 * LANES], scratch[s + 4 * LANES])
            r = HALF + s
            scratch[r], scratch[r + LANES], scratch[r + 2 * LANES], scratch[r + 3 * LANES] = v
        for lane in range(lanes):
            scratch[HALF + i * ROW + (m - 1) * LANES + lane] += scratch[i * ROW + 5 * LANES + lane]
