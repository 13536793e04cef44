"""Convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from miniflow.onnx.exporter.handlers.shape import squeeze, unsqueeze
from miniflow.onnx.exporter.registry import handler
from miniflow.onnx.exporter.writer import Value, Writer
from miniflow.ops.conv import borders


def batched(g: Writer, x: Value, ndim: int, function: Callable[[Any], Any]) -> Any:
    """A function of a batch, of one sample or of a batch."""
    return function(x) if len(x.shape) == ndim else squeeze(g, function(unsqueeze(g, x, 0)), 0)


def each(n: int | Sequence[int], dims: int) -> tuple[int, ...]:
    """One number for all dims, or one for each."""
    return (n,) * dims if isinstance(n, int) else tuple(n) * (dims // len(n))


def around(padding: Sequence[tuple[int, int]]) -> list[int]:
    """Widths (before, after) of each dim, as ONNX orders them: before all dims, and then after them."""
    return [before for before, _ in padding] + [after for _, after in padding]


@handler("conv2d")
def conv2d(g: Writer, x: Any, weight: Value, bias: Value | None, *, stride, padding, dilation, groups) -> str:
    windows = {"strides": stride, "pads": around(padding), "dilations": dilation, "group": groups}
    return g("Conv", x, weight, bias, kernel_shape=weight.shape[2:], **windows)


@handler("conv1d", "conv3d")
def conv(g: Writer, input: Value, weight: Value, bias: Value | None, stride, padding, dilation, groups) -> str:
    dims = len(weight.shape) - 2
    given = {"stride": each(stride, dims), "dilation": each(dilation, dims), "groups": groups}
    given["padding"] = borders("conv", padding, weight.shape[2:], given["stride"], given["dilation"])
    return batched(g, input, dims + 2, lambda x: conv2d(g, x, weight, bias, **given))


@handler("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(
    g: Writer, input: Value, weight: Value, bias: Value | None, stride, padding, output_padding, groups, dilation
) -> str:
    shape, dims = weight.shape[2:], len(weight.shape) - 2
    given = {"strides": stride, "dilations": dilation, "output_padding": output_padding}
    windows = {name: each(n, dims) for name, n in given.items()} | {"pads": each(padding, dims) * 2, "group": groups}
    return batched(g, input, dims + 2, lambda x: g("ConvTranspose", x, weight, bias, kernel_shape=shape, **windows))
