"""Normalization."""

from __future__ import annotations

import miniflow as flow
import miniflow.nn.functional as F
from miniflow.errors import OnnxError
from miniflow.onnx.loader.body import Node
from miniflow.onnx.loader.registry import Buffer, operator
from miniflow.tensor import Tensor

operator("InstanceNormalization")(lambda x, w, b, *, epsilon: F.instance_norm(x, weight=w, bias=b, eps=epsilon))
operator("GroupNormalization")(lambda x, w, b, *, num_groups, epsilon: F.group_norm(x, num_groups, w, b, epsilon))
operator("LpNormalization")(lambda x, *, axis, p: F.normalize(x, p, axis))


@operator("BatchNormalization")
def batch_normalization(
    x, scale, b, mean: Buffer, var: Buffer, *, node: Node, epsilon: float, momentum: float, training_mode: int = 0
) -> Tensor | tuple[Tensor, ...]:
    """In training, which before opset 14 further outputs ask for, also the new mean and variance (biased)."""
    if not training_mode and (node.opset >= 14 or len(node.outputs) == 1):
        return F.batch_norm(x, mean, var, scale, b, False, 0.0, epsilon)
    y = F.batch_norm(x, None, None, scale, b, True, 0.0, epsilon)
    dims = [d for d in range(x.ndim) if d != 1]
    batch = flow.mean(x, dims), flow.var(x, dims, unbiased=False)
    return (y, *[old * momentum + new * (1 - momentum) for old, new in zip((mean, var), batch, strict=True)])


@operator("LayerNormalization")
def layer_normalization(
    x, scale, b=None, *, node: Node, axis: int, epsilon: float, stash_type: int
) -> Tensor | tuple[Tensor, ...]:
    """With further outputs also the mean and 1 / standard deviation."""
    shape = tuple(x.shape[axis:])
    y = F.layer_norm(x, shape, expanded(scale, shape), expanded(b, shape), epsilon)
    if len(node.outputs) == 1:
        return y
    dims = list(range(axis % x.ndim, x.ndim))
    x = x.float() if stash_type == 1 else x
    variance = flow.var(x, dims, unbiased=False, keepdim=True)
    return y, flow.mean(x, dims, keepdim=True), flow.rsqrt(variance + epsilon)


def expanded(weight: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    """A weight of this shape."""
    return weight if weight is None or weight.shape == shape else weight.expand(*shape)


@operator("LRN")
def lrn(x, *, size: int, alpha: float, beta: float, bias: float) -> Tensor:
    if size % 2 == 0:
        raise OnnxError(f"got size={size}; expected an odd number of channels")
    return F.local_response_norm(x, size, alpha, beta, bias)
