"""Regions of images (RoIAlign): each bin of a region is the mean of points, each between four pixels.

    thread (x, y) of the grid  ->  region k = y, and x = (c P + p) Q + q: channel c, row p and column q of its bins

Neighbouring threads own neighbouring bins: they write neighbours, and read pixels near each other. The corners of the
region are read by all threads of a block. A bin of m points reads 4 m pixels and is written once; its gradient is read
once and added to 4 m pixels by atomics, since regions overlap.
"""

from miniflow.formulas.regions import bins_along, pixels_around
from miniflow.hostcuda import cuda

bins_along, pixels_around = cuda.jit(device=True)(bins_along), cuda.jit(device=True)(pixels_around)


@cuda.jit
def roi_align(x, rois, y, scale, ratio, aligned):
    """y = the means of the bins; 0 for a region of an image that there is not.

    Args:
        x: (N, C, H, W).
        rois: (K, 5), the index of an image, and the corners x1, y1, x2, y2.
        y: (K, C, P, Q).
        scale: what the corners are multiplied by.
        ratio: points along each side of a bin; 0 or less for one a pixel.
        aligned: whether pixels are centred at half-integer positions.
    """
    real = x.dtype.type
    bin, k, _ = cuda.grid(3)
    bins_y, bins_x = y.shape[2], y.shape[3]
    if k < y.shape[0] and bin < y.shape[1] * bins_y * bins_x:
        c, p, q = bin // (bins_y * bins_x), bin // bins_x % bins_y, bin % bins_x
        total = real(0)
        if rois[k, 0] > -1 and rois[k, 0] < x.shape[0]:
            image, height, width = int(rois[k, 0]), x.shape[2], x.shape[3]
            top, bin_height, rows = bins_along(rois[k, 2], rois[k, 4], scale, bins_y, ratio, aligned)
            left, bin_width, columns = bins_along(rois[k, 1], rois[k, 3], scale, bins_x, ratio, aligned)
            for i in range(rows):
                h0, h1, u0, u1 = pixels_around(top + (p + (i + 0.5) / rows) * bin_height, height)
                for j in range(columns):
                    w0, w1, v0, v1 = pixels_around(left + (q + (j + 0.5) / columns) * bin_width, width)
                    upper = real(v0) * x[image, c, h0, w0] + real(v1) * x[image, c, h0, w1]
                    lower = real(v0) * x[image, c, h1, w0] + real(v1) * x[image, c, h1, w1]
                    total += real(u0) * upper + real(u1) * lower
            total /= real(max(rows * columns, 1))
        y[k, c, p, q] = total


@cuda.jit
def roi_align_grad(dy, rois, dx, scale, ratio, aligned):
    """dx += the cotangent of each bin times the weights of its pixels, into zeros (N, C, H, W); else as above."""
    real = dx.dtype.type
    bin, k, _ = cuda.grid(3)
    bins_y, bins_x = dy.shape[2], dy.shape[3]
    if k < dy.shape[0] and bin < dy.shape[1] * bins_y * bins_x:
        c, p, q = bin // (bins_y * bins_x), bin // bins_x % bins_y, bin % bins_x
        if rois[k, 0] > -1 and rois[k, 0] < dx.shape[0]:
            image, height, width = int(rois[k, 0]), dx.shape[2], dx.shape[3]
            top, bin_height, rows = bins_along(rois[k, 2], rois[k, 4], scale, bins_y, ratio, aligned)
            left, bin_width, columns = bins_along(rois[k, 1], rois[k, 3], scale, bins_x, ratio, aligned)
            share = dy[k, c, p, q] / real(max(rows * columns, 1))
            for i in range(rows):
                h0, h1, u0, u1 = pixels_around(top + (p + (i + 0.5) / rows) * bin_height, height)
                upper, lower = real(u0) * share, real(u1) * share
                for j in range(columns):
                    w0, w1, v0, v1 = pixels_around(left + (q + (j + 0.5) / columns) * bin_width, width)
                    cuda.atomic.add(dx, (image, c, h0, w0), real(v0) * upper)
                    cuda.atomic.add(dx, (image, c, h0, w1), real(v1) * upper)
                    cuda.atomic.add(dx, (image, c, h1, w0), real(v0) * lower)
                    cuda.atomic.add(dx, (image, c, h1, w1), real(v1) * lower)
