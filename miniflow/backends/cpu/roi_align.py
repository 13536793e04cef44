"""Regions of images: each bin is a weighted sum of pixels. The weights are products of one along each side.

Threads share the channels, so that no two of them add to one element of the gradient.
"""

from __future__ import annotations

import numpy as np

from miniflow.backends.cpu.threads import compiled, share, unlocked
from miniflow.backends.registry import kernel
from miniflow.formulas.regions import bins_along, pixels_around


@kernel("cpu")
def roi_align(y, x, rois, *, output_size, spatial_scale, sampling_ratio, aligned):
    arrays = np.ascontiguousarray(x), np.ascontiguousarray(rois), y
    share(_roi_align, x.shape[1], 16 * y.size, *arrays, float(spatial_scale), sampling_ratio, aligned)


@kernel("cpu")
def roi_align_grad(dx, dy, rois, *, image, spatial_scale, sampling_ratio, aligned):
    dx[...] = 0
    arrays = dx, np.ascontiguousarray(rois), np.ascontiguousarray(dy)
    share(_roi_align_grad, dx.shape[1], 16 * dy.size, *arrays, float(spatial_scale), sampling_ratio, aligned)


@compiled
def _taps(first, last, n, bins, scale, ratio, aligned, dtype):
    """(bins, taps): the pixels along one side of a region that the bins see, and their weights, two for each point."""
    start, length, count = bins_along(first, last, scale, bins, ratio, aligned)
    pixels, weights = np.empty((bins, 2 * count), np.uint64), np.empty((bins, 2 * count), dtype)
    for b in range(bins):
        for i in range(count):
            before, behind, weight, weight_behind = pixels_around(start + (b + (i + 0.5) / count) * length, n)
            pixels[b, 2 * i], pixels[b, 2 * i + 1] = before, behind
            weights[b, 2 * i], weights[b, 2 * i + 1] = weight / count, weight_behind / count
    return pixels, weights


@unlocked()
def _roi_align(start, stop, x, rois, y, scale, ratio, aligned):
    """Channels from start to stop of x (N, C, H, W), rois (K, 5), y (K, C, P, Q)."""
    real = x.dtype.type
    for k in range(len(rois)):
        if not -1 < rois[k, 0] < len(x):  # `infer` has refused it, unless the array comes from elsewhere
            y[k, start:stop] = 0
            continue
        image = x[int(rois[k, 0])]
        rows, row_weights = _taps(rois[k, 2], rois[k, 4], x.shape[2], y.shape[2], scale, ratio, aligned, x.dtype)
        columns, column_weights = _taps(rois[k, 1], rois[k, 3], x.shape[3], y.shape[3], scale, ratio, aligned, x.dtype)
        for c in range(start, stop):
            for p in range(y.shape[2]):
                for q in range(y.shape[3]):
                    total = real(0)
                    for i in range(rows.shape[1]):
                        row, along = image[c, rows[p, i]], real(0)
                        for j in range(columns.shape[1]):
                            along += column_weights[q, j] * row[columns[q, j]]
                        total += row_weights[p, i] * along
                    y[k, c, p, q] = total


@unlocked()
def _roi_align_grad(start, stop, dx, rois, dy, scale, ratio, aligned):
    """Channels from start to stop of dx (N, C, H, W), zeros, rois (K, 5), dy (K, C, P, Q)."""
    for k in range(len(rois)):
        if not -1 < rois[k, 0] < len(dx):
            continue
        image = dx[int(rois[k, 0])]
        rows, row_weights = _taps(rois[k, 2], rois[k, 4], dx.shape[2], dy.shape[2], scale, ratio, aligned, dx.dtype)
        columns, column_weights = _taps(
            rois[k, 1], rois[k, 3], dx.shape[3], dy.shape[3], scale, ratio, aligned, dx.dtype
        )
        for c in range(start, stop):
            for p in range(dy.shape[2]):
                for q in range(dy.shape[3]):
                    for i in range(rows.shape[1]):
                        row, share_of_row = image[c, rows[p, i]], row_weights[p, i] * dy[k, c, p, q]
                        for j in range(columns.shape[1]):
                            row[columns[q, j]] += column_weights[q, j] * share_of_row
