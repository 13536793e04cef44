"""Images in other sizes, read at other places, and as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from miniflow.errors import OnnxError
from miniflow.onnx.exporter.handlers.conv import batched, each
from miniflow.onnx.exporter.registry import handler
from miniflow.onnx.exporter.writer import Value, Writer, onnx_type

RESIZE = {
    "nearest": {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    "nearest-exact": {"nearest_mode": "round_prefer_ceil"},
    "bicubic": {"mode": "cubic", "cubic_coeff_a": -0.75},
} | dict.fromkeys(("linear", "bilinear", "trilinear"), {"mode": "linear"})


@handler("resize", since=11)
def resize(g: Writer, input: Value, new: Sequence[Any], factors: Sequence[Any], mode: str, align_corners: bool) -> str:
    given = {"coordinate_transformation_mode": "align_corners" if align_corners else "half_pixel"} | RESIZE[mode]
    empty = None if g.opset >= 13 else np.zeros(0, np.float32)
    if None in factors:
        return g("Resize", input, empty, empty, g.sizes([*input.shape[:2], *new]), **given)
    return g("Resize", input, empty, np.array([1, 1, *factors], np.float32), **given)


@handler("grid_sample", since=16)
def grid_sample(g: Writer, input: Value, grid: Value, mode: str, padding_mode: str, align_corners: Any) -> str:
    if len(input.shape) > 4 and g.opset < 20:
        raise OnnxError("grid_sample of volumes needs opset 20")
    names = {"bilinear": "linear", "bicubic": "cubic"} if g.opset >= 20 else {}
    given = {"mode": names.get(mode, mode), "padding_mode": padding_mode, "align_corners": int(bool(align_corners))}
    return g("GridSample", input, grid, **given)


@handler("roi_align", since=10)
def roi_align(g: Writer, input, rois, spatial_scale, pooled_h, pooled_w, sampling_ratio, aligned) -> str:
    if g.opset < 16 and aligned:
        raise OnnxError("roi_align with aligned=True needs opset 16")
    mode = {"coordinate_transformation_mode": "half_pixel" if aligned else "output_half_pixel"}
    given = {"output_height": pooled_h, "output_width": pooled_w, "sampling_ratio": max(sampling_ratio, 0)}
    corners, image = g("Gather", rois, g.ints(1, 2, 3, 4), axis=1), g("Gather", rois, np.int64(0), axis=1)
    image = g("Cast", image, to=onnx_type(np.int64))
    given |= {"spatial_scale": float(spatial_scale), **(mode if g.opset >= 16 else {})}
    return g("RoiAlign", input, corners, image, **given)


@handler("pixel_shuffle", since=11)
def pixel_shuffle(g: Writer, input: Value, upscale_factor: int) -> str:
    return batched(g, input, 4, lambda x: g("DepthToSpace", x, blocksize=upscale_factor, mode="CRD"))


@handler("fold", since=18)
def fold(g: Writer, input: Value, output_size, kernel_size, dilation, padding, stride) -> str:
    size, kernel = (g.ints(*each(n, 2)) for n in (output_size, kernel_size))
    windows = {"dilations": each(dilation, 2), "pads": each(padding, 2) * 2, "strides": each(stride, 2)}
    return batched(g, input, 3, lambda x: g("Col2Im", x, size, kernel, **windows))
