"""Normalization."""

from __future__ import annotations

import miniflow as flow
import miniflow.nn.functional as F
from miniflow.errors import OnnxError
from miniflow.onnx.loader.body import Node
from miniflow.onnx.loader.registry import Buffer, operator
from miniflow.tensor import Tensor

operator("InstanceNormalization")(
    lambda input, scale, b, *, epsilon=1e-5: F.instance_norm(input, weight=scale, bias=b, eps=epsilon)
)
operator("GroupNormalization")(
    lambda x, scale, bias, *, num_groups, epsilon=1e-5: F.group_norm(x, num_groups, scale, bias, epsilon)
)
operator("LpNormalization")(lambda input, *, axis=-1, p=2: F.normalize(input, p, axis))


@operator("BatchNormalization")
def batch_normalization(
    x, scale, b, mean: Buffer, var: Buffer, *, node: Node,
    epsilon: float = 1e-5, momentum: float = 0.9, spatial: int = 1, training_mode: int = 0,
) -> Tensor | tuple[Tensor, ...]:  # fmt: skip
    """In training, which before opset 14 further outputs ask for, also the new mean and variance (biased)."""
    if not spatial:
        raise OnnxError("got spatial=0; expected statistics for each channel")
    if not training_mode and (node.opset >= 14 or len(node.outputs) == 1):
        return F.batch_norm(x, mean, var, scale, b, False, 0.0, epsilon)
    y = F.batch_norm(x, None, None, scale, b, True, 0.0, epsilon)
    dims = [d for d in range(x.ndim) if d != 1]
    batch = flow.mean(x, dims), flow.var(x, dims, unbiased=False)
    return (y, *[old * momentum + new * (1 - momentum) for old, new in zip((mean, var), batch, strict=True)])


@operator("LayerNormalization")
def layer_normalization(
    x, scale, b=None, *, node: Node, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor | tuple[Tensor, ...]:
    """With further outputs also the mean and 1 / standard deviation."""
    shape = tuple(x.shape[axis:])
    if scale.shape == shape and (b is None or b.shape == shape):
        y = F.layer_norm(x, shape, scale, b, epsilon)
    else:
        y = F.layer_norm(x, shape, eps=epsilon) * scale
        y = y if b is None else y + b
    if len(node.outputs) == 1:
        return y
    dims = list(range(axis % x.ndim, x.ndim))
    x = x.float() if stash_type == 1 else x
    variance = flow.var(x, dims, unbiased=False, keepdim=True)
    return y, flow.mean(x, dims, keepdim=True), flow.rsqrt(variance + epsilon)


@operator("RMSNormalization")
def rms_normalization(x, scale, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Tensor:
    shape = tuple(x.shape[axis:])
    return F.rms_norm(x, shape, scale, epsilon) if scale.shape == shape else F.rms_norm(x, shape, None, epsilon) * scale


@operator("LRN")
def lrn(x, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    if size % 2 == 0:
        raise OnnxError(f"got size={size}; expected an odd number of channels")
    return F.local_response_norm(x, size, alpha, beta, bias)
