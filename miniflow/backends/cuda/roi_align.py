"""Regions of images: a launch over (regions, bins of all channels)."""

from __future__ import annotations

from math import prod

from miniflow.backends.cuda import faults
from miniflow.backends.cuda.array import DeviceArray, contiguous
from miniflow.backends.cuda.rows import launch_over_box
from miniflow.backends.registry import kernel
from miniflow.kernels import roi_align as kernels


@kernel("cuda")
def roi_align(y, x, rois, *, output_size, spatial_scale, sampling_ratio, aligned):
    faults.watch("roi_align", contiguous(rois[:, 0]), 0, x.shape[0])
    launch_over_regions(kernels.roi_align, contiguous(x), rois, y, spatial_scale, sampling_ratio, aligned)


@kernel("cuda")
def roi_align_grad(dx, dy, rois, *, image, spatial_scale, sampling_ratio, aligned):
    dx[...] = 0
    launch_over_regions(kernels.roi_align_grad, contiguous(dy), rois, dx, spatial_scale, sampling_ratio, aligned)


def launch_over_regions(kernel, source: DeviceArray, rois: DeviceArray, target: DeviceArray, scale, *options) -> None:
    """A thread for each bin of each region."""
    bins = source if kernel is kernels.roi_align_grad else target
    box = 1, bins.shape[0], prod(bins.shape[1:])
    launch_over_box(kernel, box, source, contiguous(rois), target, float(scale), *options)
