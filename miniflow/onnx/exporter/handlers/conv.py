"""Convolutions, pooling, images in other sizes or read at other places, and the detection of objects in them."""

from __future__ import annotations

from math import prod

import numpy as np

from miniflow.errors import OnnxError
from miniflow.onnx.exporter.writer import Value, Writer, fixed, handler
from miniflow.ops.convolution import borders

RESIZE = {
    "nearest": {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    "nearest-exact": {"nearest_mode": "round_prefer_ceil"},
    "bicubic": {"mode": "cubic", "cubic_coeff_a": -0.75},
} | dict.fromkeys(("linear", "bilinear", "trilinear"), {"mode": "linear"})


def batched(g: Writer, x: Value, ndim: int, function):
    """`function`, which takes a batch, of `x`, a batch or a single sample."""
    if len(x.shape) == ndim:
        return function(x)
    return g("Squeeze", function(g("Unsqueeze", x, axes=[0])), axes=[0])


def per_dim(n, dims: int) -> tuple[int, ...]:
    """One number for all dims, or one for each."""
    return (n,) * dims if isinstance(n, int) else tuple(n) * (dims // len(n))


def around(padding) -> list[int]:
    """Widths (before, after) of each dim, as ONNX orders them: before all dims, and then after them."""
    return [before for before, _ in padding] + [after for _, after in padding]


@handler("conv1d", "conv2d", "conv3d")
def conv(g: Writer, input: Value, weight: Value, bias: Value | None, stride, padding, dilation, groups) -> str:
    kernel, dims = weight.shape[2:], len(weight.shape) - 2
    attrs = {"strides": per_dim(stride, dims), "dilations": per_dim(dilation, dims)}
    attrs |= {"group": groups, "kernel_shape": kernel}
    if isinstance(padding, int | str) or not isinstance(padding[0], tuple):  # whose padding is a pair for each dim
        padding = borders("conv", padding, kernel, attrs["strides"], attrs["dilations"])
    return batched(g, input, dims + 2, lambda x: g("Conv", x, weight, bias, pads=around(padding), **attrs))


@handler("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(g: Writer, x: Value, weight, bias, stride, padding, output_padding, groups, dilation) -> str:
    dims = len(weight.shape) - 2
    attrs = {"strides": stride, "dilations": dilation, "output_padding": output_padding}
    attrs = {name: per_dim(n, dims) for name, n in attrs.items()}
    attrs |= {"pads": per_dim(padding, dims) * 2, "group": groups}
    return batched(g, x, dims + 2, lambda x: g("ConvTranspose", x, weight, bias, **attrs))


def pool(g: Writer, op: str, x: Value, kernel, stride, padding, ceil_mode, dilation=(), **attrs):
    """A node with its attributes, as far as they are not ONNX's defaults, which opset 9 does not all have."""
    dilations = dilation if set(dilation) - {1} else None
    attrs |= {"ceil_mode": ceil_mode or None, "dilations": dilations, "pads": around(padding)}
    return g(op, x, kernel_shape=kernel, strides=stride, **attrs)


@handler("max_pool2d")
def max_pool2d(g: Writer, x: Value, **windows):
    if not any(g.call.outputs[1] is value for call in g.program.instructions for value in call.inputs):
        return pool(g, "MaxPool", x, **windows)
    y, places = pool(g, "MaxPool", x, **windows, outputs=2)  # counted from the first element of the batch
    size = np.array(prod(fixed(x.shape[2:])))
    return y, g("Cast", g("Sub", places, g("Mul", g("Div", places, size), size)), to=np.int32)


@handler("avg_pool2d")
def avg_pool2d(g: Writer, x: Value, *, kernel, count_include_pad, divisor_override, **windows) -> str:
    counted = count_include_pad and any(map(any, windows["padding"]))
    if windows["ceil_mode"] and (divisor_override or counted and g.opset < 19):
        raise OnnxError("means with ceil_mode that count the border need opset 19, and no other divisor")
    counted = counted or divisor_override is not None
    y = pool(g, "AveragePool", x, kernel, **windows, count_include_pad=counted)
    return y if divisor_override is None else g("Mul", y, g.scalar(prod(kernel) / divisor_override, x))


@handler("adaptive_avg_pool2d")
def adaptive_avg_pool2d(g: Writer, x: Value, *, output_size):
    sizes = x.shape[2:]
    if tuple(output_size) == (1, 1):
        return g("GlobalAveragePool", x)
    if all(n % m == 0 for n, m in zip(fixed(sizes), fixed(output_size), strict=True)):
        window = [n // m for n, m in zip(sizes, output_size, strict=True)]
        return g("AveragePool", x, kernel_shape=window, strides=window)
    rows, columns = (mean_matrix(n, m).astype(x.dtype) for n, m in zip(sizes, output_size, strict=True))
    return g("MatMul", rows, g("MatMul", x, columns.T))


def mean_matrix(n: int, m: int) -> np.ndarray:
    """(m, n): the weights of n elements in the means of m windows that cover them evenly."""
    start, stop = np.arange(m) * n // m, -(-np.arange(1, m + 1) * n // m)
    inside = (np.arange(n) >= start[:, None]) & (np.arange(n) < stop[:, None])
    return inside / (stop - start)[:, None]


@handler("pixel_shuffle", since=11)
def pixel_shuffle(g: Writer, x: Value, upscale_factor: int) -> str:
    return batched(g, x, 4, lambda x: g("DepthToSpace", x, blocksize=upscale_factor, mode="CRD"))


@handler("resize", since=11)
def resize(g: Writer, input: Value, new, factors, mode: str, align_corners: bool) -> str:
    attrs = {"coordinate_transformation_mode": "align_corners" if align_corners else "half_pixel"} | RESIZE[mode]
    empty = None if g.opset >= 13 else np.zeros(0, np.float32)
    if None in factors:
        return g("Resize", input, empty, empty, [*input.shape[:2], *new], **attrs)
    return g("Resize", input, empty, np.array([1, 1, *factors], np.float32), **attrs)


@handler("grid_sample", since=16)
def grid_sample(g: Writer, input: Value, grid: Value, mode: str, padding_mode: str, align_corners) -> str:
    if len(input.shape) > 4 and g.opset < 20:
        raise OnnxError("grid_sample of volumes needs opset 20")
    mode = mode if g.opset < 20 else {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return g("GridSample", input, grid, mode=mode, padding_mode=padding_mode, align_corners=bool(align_corners))


@handler("roi_align")
def roi_align(g: Writer, x: Value, rois: Value, *, output_size, spatial_scale, sampling_ratio, aligned) -> str:
    mode = "half_pixel" if aligned else "output_half_pixel" if g.opset >= 16 else None  # which it always is before
    height, width = output_size
    attrs = {"output_height": height, "output_width": width, "sampling_ratio": max(sampling_ratio, 0)}
    image = g("Cast", g("Gather", rois, np.array(0), axis=1), to=np.int64)
    attrs |= {"spatial_scale": spatial_scale, "coordinate_transformation_mode": mode}
    return g("RoiAlign", x, g("Gather", rois, [1, 2, 3, 4], axis=1), image, **attrs)


@handler("nms")
def nms(g: Writer, boxes: Value, scores: Value, iou_threshold: float) -> str:
    """The last column of (image, class, box)."""
    boxes, scores = (g("Cast", x, to=np.float32) for x in (boxes, scores))
    batch, most = g("Unsqueeze", boxes, axes=[0]), np.array([np.iinfo(np.int64).max])
    selected = g("NonMaxSuppression", batch, g("Unsqueeze", scores, axes=[0, 1]), most, np.array([iou_threshold], "f"))
    return g("Gather", selected, np.array(2), axis=1)
