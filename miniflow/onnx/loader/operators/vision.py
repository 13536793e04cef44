"""Images: in other sizes, sampled at points, regions of them, and boxes.

A resize goes dim by dim: each is a product with a matrix of interpolation weights.
"""

from __future__ import annotations

from functools import partial

import numpy as np

import miniflow as flow
import miniflow.nn.functional as F
from miniflow.errors import OnnxError
from miniflow.onnx.loader.body import Node
from miniflow.onnx.loader.registry import Array, Ints, operator
from miniflow.ops.vision import along_dim, cubic_kernel, linear_kernel, resampling
from miniflow.tensor import Tensor, constant_like

MODES = {"linear": "bilinear", "cubic": "bicubic"}
NEAREST = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5), "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor, "ceil": np.ceil,
}  # fmt: skip


@operator("Upsample", "Resize")
def resize(
    x, roi: Array = None, scales: Array = None, sizes: Ints = None, *, node: Node, antialias: int = 0,
    axes: Ints = None, coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0, extrapolation_value: float = 0.0, keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest", nearest_mode: str = "round_prefer_floor",
) -> Tensor:  # fmt: skip
    if node.opset < 11:  # there were only scales, the second input or an attribute
        scales = np.float32(roi if scales is None else scales)
        coordinate_transformation_mode, nearest_mode = "asymmetric", "floor" if min(scales) >= 1 else "ceil"
    axes = axes or list(range(x.ndim))
    old = np.array([x.shape[axis] for axis in axes])
    if sizes:
        scales = np.array(sizes) / old
        if keep_aspect_ratio_policy != "stretch":
            scales[:] = scales.min() if keep_aspect_ratio_policy == "not_larger" else scales.max()
            sizes = np.floor(scales * old + 0.5)
    else:
        sizes = np.floor(np.float32(old) * scales)
    crop = coordinate_transformation_mode == "tf_crop_and_resize"
    ends = np.ravel(roi).reshape(2, -1).T if crop else [(0.0, 1.0)] * len(axes)
    kernels = {"linear": (linear_kernel, 1), "cubic": (partial(cubic_kernel, a=cubic_coeff_a), 2)}
    kernel, reach = kernels.get(mode, (None, 0))
    dims = zip(axes, old.tolist(), map(int, sizes), map(float, scales), ends, strict=True)
    for axis, n, m, scale, (start, end) in dims:
        if n == m and scale == 1 and not crop:
            continue
        at = places(coordinate_transformation_mode, n, m, scale)
        if crop:
            at = (n - 1) * (np.linspace(start, end, m) if m > 1 else np.full(1, (start + end) / 2))
        if mode == "nearest":
            index = NEAREST[nearest_mode](np.float32(at)).clip(0, n - 1).astype(int)
            x = x.index_select(axis, constant_like(x, index))
        else:
            weights = resampling(n, at, kernel, reach, max(1, 1 / scale) if antialias else 1, not exclude_outside)
            x = along_dim(x, axis % x.ndim, constant_like(x, weights.astype(x._array.dtype)))
        if crop:
            outside = ((at < 0) | (at > n - 1)).reshape([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)])
            x = flow.where(constant_like(x, outside), extrapolation_value, x)
    return x


def places(mode: str, n: int, m: int, scale: float) -> np.ndarray:
    """Where among n elements the m new ones are, by the coordinate transformation mode."""
    new, span = np.arange(m), n * scale - 1
    if mode == "align_corners":
        return new * ((n - 1) / span if span else 0.0)
    if mode == "asymmetric" or (mode == "pytorch_half_pixel" and m == 1):
        return new / scale
    return (new + 0.5) / scale - 0.5 + ((n - m / scale) / 2 if mode == "half_pixel_symmetric" else 0)


@operator("GridSample")
def grid_sample(x, grid, *, align_corners: int, mode: str, padding_mode: str) -> Tensor:
    return F.grid_sample(x, grid, MODES.get(mode, mode), padding_mode, bool(align_corners)).to(x.dtype)


@operator("RoiAlign")
def roi_align(
    x, rois, batch_indices, *, coordinate_transformation_mode: str = "", mode: str, output_height: int,
    output_width: int, sampling_ratio: int, spatial_scale: float,
) -> Tensor:  # fmt: skip
    if mode != "avg":
        raise OnnxError(f"got mode={mode!r}; expected 'avg'")
    rois = flow.cat([batch_indices[:, None].to(rois.dtype), rois], 1)
    aligned = coordinate_transformation_mode == "half_pixel"
    return flow.roi_align(x, rois, spatial_scale, output_height, output_width, sampling_ratio, aligned)


@operator("NonMaxSuppression")
def non_max_suppression(
    boxes: Array, scores: Array, max_output_boxes_per_class: Ints = (0,), iou_threshold: Array = 0.0,
    score_threshold: Array = -np.inf, *, center_point_box: int = 0,
) -> np.ndarray:  # fmt: skip
    """Rows of (image, class, box)."""
    first, last = boxes[..., :2], boxes[..., 2:]
    if center_point_box:
        first, last = first - last / 2, first + last / 2
    boxes = flow.tensor(np.concatenate([np.minimum(first, last), np.maximum(first, last)], -1))
    threshold = np.ravel(iou_threshold)[0].item()
    rows = [np.zeros((0, 3), np.int64)]
    for image, class_index in np.ndindex(scores.shape[:2]):
        chosen = np.flatnonzero(scores[image, class_index] > score_threshold)
        selected = flow.nms(boxes[image][chosen], flow.tensor(scores[image, class_index, chosen]), threshold).numpy()
        rows += [np.array([(image, class_index, chosen[i])]) for i in selected[: max_output_boxes_per_class[0]]]
    return np.concatenate(rows)
