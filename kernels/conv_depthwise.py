"""Convolution in groups of few channels, straight from the formula.

With one channel a group (depthwise) the matrices of conv.py would have a single row: tiles of 64 would be nearly empty.
Here a thread makes one output and reads its few taps itself; neighbouring threads read neighbours, and what windows
share comes from the cache. Geometry and the use of `direct` for the gradient in x are those of conv.py.
"""

from miniflow.hostcuda import cuda
from miniflow.kernels.reduce import SUM

THREADS = 128  # a power of two
add_up = SUM.tree


@cuda.jit
def direct(x, weight, bias, y, step, first, spread):
    """y[n, g, o] = bias + the sum over the channels c of group g and the taps a, b of weight[g, o, c, a, b] * x.

    Thread t of block (bx, by, n) owns pixel 128 bx + t of plane by = (g, o) of image n: the weight is the same for all
    threads of a block. Global reads for each output: C * KH * KW of x, most of them from the cache.

    Args:
        x: (N, G, C, H, W).
        weight: (G, O, C, KH, KW).
        bias: (G * O,), or (0,) for none.
        y: (N, G, O, OH, OW).
        step, first, spread: pairs, for rows and columns; see the head of conv.py.
    """
    pixel = cuda.grid(1)
    if pixel >= y.shape[3] * y.shape[4]:
        return
    image, plane = cuda.blockIdx.z, cuda.blockIdx.y
    group, o = plane // weight.shape[1], plane % weight.shape[1]
    i, j = pixel // y.shape[4], pixel % y.shape[4]
    total = bias[plane] if bias.shape[0] > 0 else x.dtype.type(0)
    for c in range(weight.shape[2]):
        for a in range(weight.shape[3]):
            h = i * step[0] + first[0] + a * spread[0]
            if h >= 0 and h < x.shape[3]:
                for b in range(weight.shape[4]):
                    w = j * step[1] + first[1] + b * spread[1]
                    if w >= 0 and w < x.shape[4]:
                        total += weight[group, o, c, a, b] * x[image, group, c, h, w]
    y[image, group, o, i, j] = total


@cuda.jit
def direct_weight_gradient(dy, x, dweight, step, first, spread):
    """dweight[g, o, c, a, b] = the sum over the images n and the pixels (i, j) of dy[n, g, o, i, j] * x[n, g, c, h, w].

    Block ((g, o, c), a, b) owns one element: its threads take every 128th pixel, along which they read neighbours, and
    a tree in shared memory adds up what they found: 128 values, 64, 32 ... 1. Global reads: 2 for each product.

    Args:
        dy: (N, G, O, OH, OW).
        x: (N, G, C, H, W).
        dweight: (G, O, C, KH, KW).
        step, first, spread: pairs, as those of the convolution.
    """
    sums = cuda.shared.array(THREADS, x.dtype)
    t = cuda.threadIdx.x
    a, b = cuda.blockIdx.y, cuda.blockIdx.z
    outputs, inputs = dweight.shape[1], dweight.shape[2]
    c = cuda.blockIdx.x % inputs
    o = cuda.blockIdx.x // inputs % outputs
    group = cuda.blockIdx.x // (inputs * outputs)
    top, start = first[0] + a * spread[0], first[1] + b * spread[1]
    area, width = dy.shape[3] * dy.shape[4], dy.shape[4]
    total = x.dtype.type(0)
    for image in range(x.shape[0]):
        for pixel in range(t, area, THREADS):
            i, j = pixel // width, pixel % width
            h, w = i * step[0] + top, j * step[1] + start
            if h >= 0 and h < x.shape[3] and w >= 0 and w < x.shape[4]:
                total += dy[image, group, o, i, j] * x[image, group, c, h, w]
    sums[t] = total
    add_up(sums, t, 1)
    if t == 0:
        dweight[group, o, c, a, b] = sums[0]
