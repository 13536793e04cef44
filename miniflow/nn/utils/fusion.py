"""Batch normalization in evaluation, put into the layer before it."""

from __future__ import annotations

import copy

from miniflow.dispatch.tape import no_grad
from miniflow.errors import ArgumentError
from miniflow.nn.modules.module import Module
from miniflow.nn.modules.norm import BatchNorm
from miniflow.nn.parameter import Parameter
from miniflow.tensor import Tensor


def fuse_conv_bn_eval(conv: Module, bn: BatchNorm, transpose: bool = False) -> Module:
    """A new convolution that computes bn(conv(x)), both in evaluation.

        weight <- weight * f,  bias <- (bias - running_mean) * f + bn.bias,  f = bn.weight / sqrt(running_var + eps)

    Args:
        conv: a convolution, of any number of dims.
        bn: the batch normalization of its results, with running statistics.
        transpose: whether it is a transposed convolution of one group, whose weight has the channels in dim 1.

    Raises:
        ArgumentError: if one of them is in training, or there are no running statistics.

    >>> import miniflow as flow
    >>> conv, bn = flow.nn.Conv2d(1, 2, 3).eval(), flow.nn.BatchNorm2d(2).eval()
    >>> x = flow.ones(1, 1, 3, 3)
    >>> flow.allclose(fuse_conv_bn_eval(conv, bn)(x), bn(conv(x)), atol=1e-6)
    True

    Source: `torch.nn.utils.fuse_conv_bn_eval`.
    """
    return _fused("fuse_conv_bn_eval", conv, bn, transpose)


def fuse_linear_bn_eval(linear: Module, bn: BatchNorm) -> Module:
    """A new linear layer that computes bn(linear(x)), both in evaluation; see `fuse_conv_bn_eval`.

    Raises:
        ArgumentError: also if the numbers of features differ, and `bn` has not one.

    Source: `torch.nn.utils.fuse_linear_bn_eval`.
    """
    if bn.num_features not in (1, linear.out_features):
        raise ArgumentError(
            f"fuse_linear_bn_eval: got {linear.out_features} and {bn.num_features} features; expected as many, or one"
        )
    return _fused("fuse_linear_bn_eval", linear, bn, False)


def _fused(name: str, layer: Module, bn: BatchNorm, transpose: bool) -> Module:
    if layer.training or bn.training or bn.running_mean is None:
        raise ArgumentError(f"{name}: expected both layers after .eval(), and running statistics of the second")
    fused = copy.deepcopy(layer)
    statistics = bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    fused.weight, fused.bias = fuse_conv_bn_weights(layer.weight, layer.bias, *statistics, transpose)
    return fused


@no_grad()
def fuse_conv_bn_weights(
    conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor | None,
    bn_b: Tensor | None, transpose: bool = False,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """Weight and bias for `fuse_conv_bn_eval`: w <- w f, b <- (b - mean) f + bn_b with f = bn_w / sqrt(var + eps).

    Args:
        conv_w, conv_b: of the convolution, (C_out, ...) and (C_out,); no bias counts as 0.
        bn_rm, bn_rv: the running mean and variance, (C_out,).
        bn_eps: is added to the variance.
        bn_w, bn_b: of the normalization, (C_out,); None for 1 and 0.
        transpose: whether the weight is that of a transposed convolution, (C_in, C_out, ...).

    Source: `torch.nn.utils.fuse_conv_bn_weights`.
    """
    factor = (bn_rv + bn_eps).rsqrt()
    factor = factor if bn_w is None else factor * bn_w
    shape = [1] * conv_w.ndim
    shape[1 if transpose else 0] = -1
    bias = -bn_rm * factor if conv_b is None else (conv_b - bn_rm) * factor
    bias = (bias if bn_b is None else bias + bn_b).to(conv_w.dtype if conv_b is None else conv_b.dtype)
    weight = (conv_w * factor.reshape(shape)).to(conv_w.dtype)
    return Parameter(weight, conv_w.requires_grad), Parameter(bias, conv_b is not None and conv_b.requires_grad)


def fuse_linear_bn_weights(
    linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """Weight and bias for `fuse_linear_bn_eval`. `torch.nn.utils.fuse_linear_bn_weights`.

    Args:
        linear_w, linear_b: of the linear layer, (out_features, in_features) and (out_features,); no bias counts as 0.
        bn_rm, bn_rv, bn_eps, bn_w, bn_b: as of `fuse_conv_bn_weights`.
    """
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
