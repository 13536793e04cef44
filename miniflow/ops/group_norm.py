"""Normalization over groups of channels, over each channel of a sample, by the root mean square, and by neighbours.

All are composed: of layer norm over the rows that groups are, and of batch norm with a channel for each sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from miniflow.composite import composite
from miniflow.dispatch import call
from miniflow.dtype import float32, promote_types
from miniflow.errors import ArgumentError, ShapeError, refusal
from miniflow.operands import takes_tensors
from miniflow.ops.creation import ones_like
from miniflow.ops.norm import LayerNorm, batch_norm, check_parameters
from miniflow.ops.pad import pad
from miniflow.ops.promotion import cast, require_floating
from miniflow.tape import no_grad
from miniflow.tensor import Tensor


@composite
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalize each group of channels of each sample: (x - mean) / sqrt(var + eps) * weight + bias.

    Args:
        input: (N, C, ...), floating.
        num_groups: into how many groups of neighbours the channels are divided.
        weight, bias: (C,).
        eps: added to the biased variance.

    Raises:
        ShapeError: if the shapes do not fit together, or the channels cannot be divided.

    Source: Wu, He, "Group Normalization", 2018; `torch.nn.functional.group_norm`.
    """
    shape = tuple(input.shape)
    if len(shape) < 2 or num_groups < 1 or shape[1] % num_groups:
        raise refusal(ShapeError, "group_norm", "(N, C, ...), C divisible", input=input, num_groups=num_groups)
    parameters = {"weight": weight, "bias": bias}
    arrays = {name: None if p is None else p._array for name, p in parameters.items()}
    check_parameters("group_norm", input._array, shape[1:2], **arrays)
    groups = num_groups, shape[1] // num_groups
    if weight is None and bias is not None:
        weight = ones_like(bias)
    parameters = [None if p is None else p.reshape((*groups, 1)) for p in (weight, bias)]
    planes = input.reshape((shape[0], *groups, prod(shape[2:])))
    return call(LayerNorm, planes, *parameters, dims=2, eps=float(eps))[0].reshape(shape)


@composite
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel of each sample: (x - mean) / sqrt(var + eps) * weight + bias.

    Args:
        input: (N, C, ...), floating.
        running_mean, running_var: (C,), updated in place with the mean over the samples of their statistics.
        weight, bias: (C,).
        use_input_stats: whether to use the statistics of the input; otherwise the running ones.
        momentum: the share of the input in the new running statistics.
        eps: added to the biased variance.

    Raises:
        ShapeError: if the shapes do not fit together, or there is one value for each channel only.
        ArgumentError: if the running statistics are missing where they are to be used.

    Source: Ulyanov et al., "Instance Normalization", 2016; `torch.nn.functional.instance_norm`.
    """
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if input.ndim < 3:
        raise ShapeError(f"instance_norm: got input {tuple(input.shape)}; expected (N, C, ...) with dims to normalize")
    samples, channels = input.shape[:2]
    given = (running_mean, running_var, weight, bias)
    mean_, var_, weight, bias = (None if p is None else p.tile((samples,)) for p in given)
    one_batch = input.reshape((1, samples * channels, *input.shape[2:]))
    y = batch_norm(one_batch, mean_, var_, weight, bias, True, momentum, eps)
    with no_grad():
        for running, updated in ((running_mean, mean_), (running_var, var_)):
            if running is not None:
                running.copy_(updated.reshape((samples, channels)).mean(0))
    return y.reshape(input.shape)


@takes_tensors
def rms_norm(
    input: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight, the mean over the last dims; half precision is computed in float32.

    Args:
        input: (*, normalized_shape), floating.
        normalized_shape: the sizes of the last dims.
        weight: normalized_shape.
        eps: added to the mean; None for the precision of the dtype.

    Raises:
        ShapeError: if the shapes do not fit together.

    >>> import miniflow as flow
    >>> flow.nn.functional.rms_norm(flow.tensor([1.0, 7.0]), 2).tolist()
    [0.20000000298023224, 1.399999976158142]

    Source: Zhang, Sennrich, "Root Mean Square Layer Normalization", 2019; `torch.nn.functional.rms_norm`.
    """
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape or tuple(input.shape[-len(shape) :]) != shape:
        raise ShapeError(f"rms_norm: got input {tuple(input.shape)}; expected (*, {', '.join(map(str, shape))})")
    check_parameters("rms_norm", input._array, shape, weight=None if weight is None else weight._array)
    x = cast(input, promote_types(input.dtype, float32))
    eps = float(np.finfo(x.dtype.numpy).eps) if eps is None else eps
    x = x * ((x * x).mean(tuple(range(-len(shape), 0)), True) + eps).rsqrt()
    return cast(x if weight is None else x * weight, input.dtype)


@takes_tensors
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x / (k + alpha mean(x^2))^beta, the mean over `size` neighbouring channels, beyond the first and last ones zeros.

    Args:
        input: (N, C, ...), floating.
        size: how many channels.
        alpha, beta, k: of the formula.

    Raises:
        ShapeError: for fewer than 3 dims.
        ArgumentError: for a size below 1.

    Source: Krizhevsky et al., "ImageNet Classification with Deep Convolutional Neural Networks", 2012;
    `torch.nn.functional.local_response_norm`.
    """
    require_floating("local_response_norm", input._array)
    if input.ndim < 3:
        raise ShapeError(f"local_response_norm: got input {tuple(input.shape)}; expected (N, C, ...), 3 dims or more")
    if size < 1:
        raise ArgumentError(f"local_response_norm: got size={size}; expected at least 1")
    squares = pad(input * input, (0, 0) * (input.ndim - 2) + (size // 2, (size - 1) // 2))
    return input / (squares.unfold(1, size, 1).mean(-1) * alpha + k) ** beta
