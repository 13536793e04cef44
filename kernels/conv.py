"""Convolution over images as a matrix product whose right factor is never stored (implicit GEMM).

    y[n, o, i, j] = sum over c, a, b of weight[o, c, a, b] * x[n, c, h, w],   h = i * step + first + a * spread

and w likewise from j and b. It is a product: rows o, columns (n, i, j), and the inner dim k = (c, a, b) flattened. What
the windows see of x is gathered while it is loaded into shared memory; what lies off the image counts as zero.

    the convolution        step = stride, first = -padding, spread = dilation
    its gradient in x      the convolution of dy with the weight whose channels are flipped; for stride 1 with step = 1,
                           first = padding, spread = -dilation. With a stride, neighbouring pixels see other taps: each
                           class of pixels h mod stride is a convolution with its part of the taps

so `convolve` serves both. `weight_gradient` has the same form with the roles changed: rows o, columns (c, a, b), and
the inner dim is (n, i, j).

Blocks have 32 x 8 threads and make 64 x 64 outputs, 8 x 2 a thread, as `register_tiled` of matmul.py does: the inner
loop is explained there. Arrays have a dim for the groups, which share nothing: group g is computed by the blocks with
its blockIdx.z. Chetlur et al. 2014, "cuDNN: efficient primitives for deep learning".
"""

import numpy as np

from miniflow.hostcuda import cuda
from miniflow.kernels.matmul import ALIGNED, DEPTH, EACH, HALF, PADDED, SIDE, add_scaled, eight_of, eight_times

OUTSIDE = -(1 << 30)  # a row that is off every image, wherever the tap is


@cuda.jit(device=True)
def find_window(place, p, pixel, images, area, width, step, first):
    """place[:, p] = image, row and column where the window of a pixel begins; pixels are numbered over all images."""
    image, within = pixel // area, pixel % area
    place[0, p] = image
    place[1, p] = within // width * step[0] + first[0] if image < images else OUTSIDE
    place[2, p] = within % width * step[1] + first[1]


@cuda.jit(device=True)
def find_tap(tap, t, k, inner, window, spread):
    """tap[:, t] = channel of tap k = (c, a, b), and its distance from where a window begins, in rows and columns."""
    tap[0, t] = k // (window[0] * window[1])
    tap[1, t] = k // window[1] % window[0] * spread[0] if k < inner else OUTSIDE
    tap[2, t] = k % window[1] * spread[1]


@cuda.jit(device=True)
def load(left, right, x, weight, group, top, begin, place, tap):
    """left[k, o] = weight[group, top + o, begin + k], and right[k, p] = what tap k of the window of pixel p sees."""
    cuda.syncthreads()  # the taps are known, and nobody reads the last tiles any more
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    thread = ty * HALF + tx
    zero = x.dtype.type(0)
    for part in range(4):
        k, o = thread % DEPTH, thread // DEPTH + part * DEPTH
        inside = top + o < weight.shape[1] and begin + k < weight.shape[2]
        left[k, o] = weight[group, top + o, begin + k] if inside else zero  # two lanes share a bank: see PADDED
    for part in range(2):
        k = ty + part * 8
        for half in range(2):
            p = tx + half * HALF
            h, w = place[1, p] + tap[1, k], place[2, p] + tap[2, k]
            value = zero
            if h >= 0 and h < x.shape[3] and w >= 0 and w < x.shape[4]:
                value = x[place[0, p], group, tap[0, k], h, w]
            right[k, p] = value


@cuda.jit(device=True)
def put_channel(y, bias, group, row, image, i, j, value):
    """Write an output, unless its channel lies beyond the edge; with the bias of the channel, if there is one."""
    if row < y.shape[2]:
        if bias.shape[0] > 0:
            value += bias[group * y.shape[2] + row]
        y[image, group, row, i, j] = value


@cuda.jit(device=True)
def put(y, bias, group, row, image, i, j, sums):
    """Write 8 channels of a pixel that do not lie beyond the edge."""
    if image < y.shape[0]:
        for o in range(EACH):
            put_channel(y, bias, group, row + o, image, i, j, sums[o])


@cuda.jit
def convolve(x, weight, bias, y, window, step, first, spread):
    """Block (bx, by, g) owns 64 pixels of y, numbered over all images, and 64 of its channels, in group g.

    For each 16 of k = (c, a, b) the block loads a tile of the weight and gathers one of x. The places of its 64 windows
    are found once and kept in shared memory, the 16 taps again for each tile: so the divisions that take numbers apart
    are few. Neighbouring threads gather neighbouring pixels. Global reads for each output: 2 K / 64.

    Args:
        x: (N, G, C, H, W).
        weight: (G, O, K) with K = C * window[0] * window[1].
        bias: (G * O,), or (0,) for none.
        y: (N, G, O, OH, OW).
        window, step, first, spread: pairs, for rows and columns; see the head of this file.
    """
    left = cuda.shared.array((DEPTH, PADDED), x.dtype, ALIGNED)  # [k, o]
    right = cuda.shared.array((DEPTH, SIDE), x.dtype, ALIGNED)  # [k, pixel]
    place = cuda.shared.array((3, SIDE), np.int32)  # image, row and column where the window of a pixel begins
    tap = cuda.shared.array((3, DEPTH), np.int32)  # channel, and distance from there
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    group = cuda.blockIdx.z
    top, start = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    inner = weight.shape[2]
    thread = ty * HALF + tx
    area = y.shape[3] * y.shape[4]
    if thread < SIDE:
        find_window(place, thread, start + thread, x.shape[0], area, y.shape[4], step, first)
    a = b = eight_times(x.dtype.type(0))
    for begin in range(0, inner, DEPTH):
        if thread < DEPTH:
            find_tap(tap, thread, begin + thread, inner, window, spread)
        load(left, right, x, weight, group, top, begin, place, tap)
        cuda.syncthreads()  # the tiles are complete
        if top + ty * EACH < weight.shape[1]:  # a warp whose rows lie beyond the edge has nothing to do
            for four in range(0, DEPTH, 4):  # short loops are unrolled
                for k in range(four, four + 4):
                    factors = eight_of(left, k, ty * EACH)
                    a = add_scaled(a, factors, right[k, tx])
                    b = add_scaled(b, factors, right[k, tx + HALF])
    row, pixel = top + ty * EACH, start + tx
    image, i, j = pixel // area, pixel % area // y.shape[4], pixel % y.shape[4]
    put(y, bias, group, row, image, i, j, a)
    pixel += HALF
    image, i, j = pixel // area, pixel % area // y.shape[4], pixel % y.shape[4]
    put(y, bias, group, row, image, i, j, b)


@cuda.jit(device=True)
def load_for_weight(left, right, dy, x, group, top, place, tap):
    """left[p, o] = dy of pixel p in channel top + o, and right[p, k] = what tap k of the window of pixel p sees."""
    cuda.syncthreads()  # the places are known, and nobody reads the last tiles any more
    thread = cuda.threadIdx.y * HALF + cuda.threadIdx.x
    p = thread % DEPTH
    zero = x.dtype.type(0)
    for part in range(4):
        o = thread // DEPTH + part * DEPTH
        inside = top + o < dy.shape[2] and place[0, p] < dy.shape[0]
        left[p, o] = dy[place[0, p], group, top + o, place[3, p]] if inside else zero
    for part in range(4):
        k = thread // DEPTH + part * DEPTH
        h, w = place[1, p] + tap[1, k], place[2, p] + tap[2, k]
        value = zero
        if h >= 0 and h < x.shape[3] and w >= 0 and w < x.shape[4]:
            value = x[place[0, p], group, tap[0, k], h, w]
        right[p, k] = value


@cuda.jit(device=True)
def put_part(parts, split, group, row, k, a, b):
    """Write two outputs of a row, HALF columns apart, that do not lie beyond the edge."""
    if row < parts.shape[2]:
        if k < parts.shape[3]:
            parts[split, group, row, k] = a
        if k + HALF < parts.shape[3]:
            parts[split, group, row, k + HALF] = b


@cuda.jit
def weight_gradient(dy, x, parts, count, width, window, step, first, spread):
    """parts[s, g, o, k] = the sum of dy[n, g, o, p] * x[n, g, c, h, w] over part s of the pixels (n, p).

    Block (bx, by, g + G s) owns parts[s, g, 64 by : 64 by + 64, 64 bx : 64 bx + 64]. The taps k = (c, a, b) of its
    columns are found once, the places of the 16 pixels of a tile again for each tile. There are few outputs and many
    pixels: cut into parts they keep the whole GPU busy; `add_parts` adds them up. Threads load along 16 neighbouring
    pixels. Global reads for each output: 2 `count` / 64.

    Args:
        dy: (N, G, O, OH * OW).
        x: (N, G, C, H, W).
        parts: (S, G, O, K) with K = C * window[0] * window[1].
        count: pixels of a part, a multiple of 16.
        width: OW.
        window, step, first, spread: pairs, as those of the convolution.
    """
    left = cuda.shared.array((DEPTH, PADDED), x.dtype, ALIGNED)  # [pixel, o]
    right = cuda.shared.array((DEPTH, PADDED), x.dtype, ALIGNED)  # [pixel, k]
    tap = cuda.shared.array((3, SIDE), np.int32)  # channel, and distance from the place
    place = cuda.shared.array((4, DEPTH), np.int32)  # image, row and column where the window begins, pixel in its image
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    groups, outputs, inner = parts.shape[1], parts.shape[2], parts.shape[3]
    group, split = cuda.blockIdx.z % groups, cuda.blockIdx.z // groups
    top, start = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    images, area = dy.shape[0], dy.shape[3]
    thread = ty * HALF + tx
    if thread < SIDE:
        find_tap(tap, thread, start + thread, inner, window, spread)
    a = b = eight_times(x.dtype.type(0))
    for begin in range(split * count, min((split + 1) * count, images * area), DEPTH):
        if thread < DEPTH:
            find_window(place, thread, begin + thread, images, area, width, step, first)
            place[3, thread] = (begin + thread) % area
        load_for_weight(left, right, dy, x, group, top, place, tap)
        cuda.syncthreads()  # the tiles are complete
        if top + ty * EACH < outputs:  # a warp whose rows lie beyond the edge has nothing to do
            for four in range(0, DEPTH, 4):  # short loops are unrolled
                for p in range(four, four + 4):
                    factors = eight_of(left, p, ty * EACH)
                    a = add_scaled(a, factors, right[p, tx])
                    b = add_scaled(b, factors, right[p, tx + HALF])
    row, k = top + ty * EACH, start + tx
    for i in range(EACH):
        put_part(parts, split, group, row + i, k, a[i], b[i])


@cuda.jit
def add_parts(parts, total):
    """total[i] = sum over s of parts[s, i]: a thread owns one i. Reads S numbers, writes one, both along i."""
    i = cuda.grid(1)
    if i < total.shape[0]:
        value = parts[0, i]
        for s in range(1, parts.shape[0]):
            value += parts[s, i]
        total[i] = value
