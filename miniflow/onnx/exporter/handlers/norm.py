"""Normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from miniflow.errors import OnnxError
from miniflow.onnx.exporter.handlers.reduce import moments
from miniflow.onnx.exporter.handlers.shape import unsqueeze
from miniflow.onnx.exporter.registry import handler
from miniflow.onnx.exporter.writer import Value, Writer


def normalized(g: Writer, x: Value, dims: tuple[int, ...], eps: float, weight: Any, bias: Any) -> str:
    """(x - mean) / sqrt(var + eps) * weight + bias, with the statistics over some dims."""
    deviation, var = moments(g, x, dims, True)
    y = g("Div", deviation, g("Sqrt", g("Add", var, g.scalar(eps, x))))
    y = y if weight is None else g("Mul", y, weight)
    return y if bias is None else g("Add", y, bias)


def given(x: Value, shape: Sequence[int], weight: Any, bias: Any = None) -> tuple[Any, Any]:
    """Weight and bias, ones and zeros where they are absent."""
    return tuple(np.full(shape, n, x.dtype) if p is None else p for p, n in ((weight, 1), (bias, 0)))


@handler("layer_norm", since=17)
def layer_norm(g: Writer, x: Value, weight: Value | None, bias: Value | None, *, dims: int, eps: float) -> Any:
    weight, _ = given(x, x.shape[len(x.shape) - dims :], weight)
    return (g("LayerNormalization", x, weight, bias, axis=-dims, epsilon=eps),)


@handler("layer_norm")
def layer_norm_formula(g: Writer, x: Value, weight: Value | None, bias: Value | None, *, dims: int, eps: float) -> Any:
    return (normalized(g, x, tuple(range(len(x.shape) - dims, len(x.shape))), eps, weight, bias),)


@handler("batch_norm_inference")
def batch_norm(g: Writer, x: Value, mean: Value, var: Value, weight: Any, bias: Any, *, eps: float) -> str:
    return g("BatchNormalization", x, *given(x, mean.shape, weight, bias), mean, var, epsilon=eps)


@handler("batch_norm")
def batch_norm_of_batch(g: Writer, x: Value, weight: Value | None, bias: Value | None, *, eps: float) -> Any:
    behind = range(1, len(x.shape) - 1)
    weight, bias = (p if p is None or not behind else unsqueeze(g, p, *behind) for p in (weight, bias))
    return (normalized(g, x, (0, *range(2, len(x.shape))), eps, weight, bias),)


@handler("instance_norm")
def instance_norm(g: Writer, input: Value, running_mean, running_var, weight, bias, use_input_stats, momentum, eps):
    if not use_input_stats:
        return batch_norm(g, input, running_mean, running_var, weight, bias, eps=eps)
    return g("InstanceNormalization", input, *given(input, input.shape[1:2], weight, bias), epsilon=eps)


@handler("group_norm", since=21)
def group_norm(g: Writer, input: Value, num_groups: int, weight: Any, bias: Any, eps: float) -> str:
    parameters = given(input, input.shape[1:2], weight, bias)
    return g("GroupNormalization", input, *parameters, num_groups=num_groups, epsilon=eps)


@handler("rms_norm", since=23)
def rms_norm(g: Writer, input: Value, normalized_shape: Any, weight: Value | None, eps: float | None) -> str:
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    eps = float(np.finfo(np.result_type(input.dtype, np.float32)).eps) if eps is None else eps
    return g("RMSNormalization", input, given(input, shape, weight)[0], axis=-len(shape), epsilon=eps)


@handler("local_response_norm")
def local_response_norm(g: Writer, input: Value, size: int, alpha: float, beta: float, k: float) -> str:
    if size % 2 == 0:  # ONNX's window then begins one channel later
        raise OnnxError(f"local_response_norm over {size} channels; expected an odd number")
    return g("LRN", input, size=size, alpha=alpha, beta=beta, bias=k)
