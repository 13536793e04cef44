"""Images and other inputs in other sizes, dim by dim: each is a product with a matrix of interpolation weights."""

from __future__ import annotations

from functools import partial

import numpy as np

import miniflow as flow
from miniflow.onnx.loader.registry import Array, Ints, operator
from miniflow.ops.interpolate import along_dim, cubic_kernel, linear_kernel, resampling
from miniflow.tensor import Tensor, constant_like

NEAREST = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5), "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor, "ceil": np.ceil,
}  # fmt: skip


@operator("Upsample", "Resize")
def upsample(x, scales: Array, *, mode: str = "nearest") -> Tensor:
    nearest_mode = "floor" if min(scales) >= 1 else "ceil"
    keywords = {"mode": mode, "nearest_mode": nearest_mode, "coordinate_transformation_mode": "asymmetric"}
    return resize(x, scales=np.float32(scales), **keywords)


@operator("Resize", since=11)
def resize(
    x, roi: Array = None, scales: Array = None, sizes: Ints = None, *, antialias: int = 0, axes: Ints = None,
    coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75, exclude_outside: int = 0,
    extrapolation_value: float = 0.0, keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:  # fmt: skip
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
    roi = np.ravel(roi).reshape(2, -1).T if crop else [(0.0, 1.0)] * len(axes)
    kernel, reach = {"linear": (linear_kernel, 1), "cubic": (partial(cubic_kernel, a=cubic_coeff_a), 2)}.get(
        mode, (None, 0)
    )
    for axis, n, m, scale, ends in zip(axes, old.tolist(), map(int, sizes), scales.astype(float), roi, strict=True):
        if n == m and scale == 1 and not crop:
            continue
        at = places(coordinate_transformation_mode, n, m, scale, *ends)
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


def places(mode: str, n: int, m: int, scale: float, start: float, end: float) -> np.ndarray:
    """Where among n elements the m new ones are, by the coordinate transformation mode."""
    new, span = np.arange(m), n * scale - 1
    if mode == "align_corners":
        return new * ((n - 1) / span if span else 0.0)
    if mode == "tf_crop_and_resize":
        return (n - 1) * (start + new * (end - start) / (m - 1) if m > 1 else np.full(1, (start + end) / 2))
    if mode == "asymmetric" or (mode == "pytorch_half_pixel" and m == 1):
        return new / scale
    return (new + 0.5) / scale - 0.5 + ((n - m / scale) / 2 if mode == "half_pixel_symmetric" else 0)
