"""Batch norm with what often follows it, as one op: y = relu(batch_norm(x) + z), z being a residual block's shortcut.

Compiled graphs have these ops in place of two or three: the normalized array, and its sum with z, are never written to
memory. Eager mode does not use them.
"""

from __future__ import annotations

from miniflow.dispatch import Op
from miniflow.ops.norm import BatchNorm, BatchNormGrad, BatchNormInference


class BatchNormRelu(Op):
    """y = relu((x - mean) / sqrt(var + eps) * weight + bias + z) for each channel, with the statistics of the batch.

    z has the shape of x, or is None for 0.
    """

    made_by_passes = True

    outputs = BatchNorm.outputs

    def infer(x, weight, bias, z, *, eps):
        return BatchNorm.infer(x, weight, bias, eps=eps)


class BatchNormReluInference(Op):
    """The same with given statistics."""

    made_by_passes = True

    def infer(x, mean, var, weight, bias, z, *, eps):
        return BatchNormInference.infer(x, mean, var, weight, bias, eps=eps)


class BatchNormReluGrad(Op):
    """The gradients of x, weight and bias: those of batch norm for dy where y > 0, and 0 elsewhere."""

    made_by_passes = True

    outputs = BatchNormGrad.outputs

    def infer(dy, y, x, weight, mean, var, *, eps, training):
        return BatchNormGrad.infer(dy, x, weight, mean, var, eps=eps, training=training)
