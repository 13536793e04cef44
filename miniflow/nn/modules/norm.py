"""Normalisation layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from miniflow.errors import ArgumentError, ShapeError
from miniflow.nn import functional as F
from miniflow.nn import init
from miniflow.nn.modules.layer import FunctionModule, Layer
from miniflow.ops.arithmetic import add
from miniflow.ops.creation import ones, tensor, zeros
from miniflow.ops.shape import squeeze, unsqueeze
from miniflow.tensor import Tensor

SHAPES = {2: "(N, C)", 3: "(N, C, L)", 4: "(N, C, H, W)", 5: "(N, C, D, H, W)"}


class Norm(Layer):
    """Base of the normalisation layers, whose parameters are a weight and a bias."""

    def reset_parameters(self) -> None:
        """Set weight to ones and bias to zeros."""
        if self._parameters.get("weight") is not None:
            init.ones_(self.weight)
        if self._parameters.get("bias") is not None:
            init.zeros_(self.bias)


class BatchNorm(Norm):
    """y = (x - mean) / sqrt(var + eps) * weight + bias for each channel, the statistics taken over all other dims.

    In training mean and variance are those of the batch, and running averages of them are kept; in evaluation the
    running averages are used. BatchNorm1d and BatchNorm2d differ in the inputs they accept.

    Args:
        num_features: the number of channels, dim 1 of the input.
        eps: added to the variance.
        momentum: the weight of a new batch in the running averages; None for a plain mean over all batches.
        affine: whether there are weight and bias.
        track_running_stats: whether to keep running averages; without, the batch is used in evaluation too.
        device, dtype: of parameters and buffers.
        bias: whether there is a bias besides the weight; by keyword.

    Attributes:
        weight, bias: (num_features,), initialized to ones and zeros.
        running_mean, running_var: (num_features,) buffers, initialized to zeros and ones.
        num_batches_tracked: int64 buffer, how many batches were seen in training.

    Source: `torch.nn.BatchNorm2d`; Ioffe and Szegedy 2015, "Batch Normalization".
    """

    dims: tuple[int, ...]  # how many dims an input may have

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        weight = (num_features,) if affine else None
        self.add_parameters(device, dtype, weight=weight, bias=weight if bias else None)
        factory_kwargs = {"device": device, "dtype": dtype}
        self.register_buffer("running_mean", zeros(num_features, **factory_kwargs) if track_running_stats else None)
        self.register_buffer("running_var", ones(num_features, **factory_kwargs) if track_running_stats else None)
        self.register_buffer("num_batches_tracked", tensor(0, device=device) if track_running_stats else None)
        self.reset_parameters()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if f"{prefix}running_mean" in state_dict and self.track_running_stats:  # which older states have alone
            state_dict.setdefault(f"{prefix}num_batches_tracked", self.num_batches_tracked)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def reset_running_stats(self) -> None:
        """Reset the running statistics."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Set weight to ones, bias to zeros, and reset the running statistics."""
        self.reset_running_stats()
        super().reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in self.dims:
            expected = " or ".join(SHAPES[d] for d in self.dims)
            raise ShapeError(f"{type(self).__name__}: got shape {tuple(input.shape)}; expected {expected}")
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1 / self.num_batches_tracked.double()
        mean, var = self.running_mean, self.running_var
        if self.training and not self.track_running_stats:
            mean = var = None
        return self.normalize(input, mean, var, self.training or mean is None, momentum)

    def normalize(self, input: Tensor, mean: Any, var: Any, training: bool, momentum: Any) -> Tensor:
        """The result with the running statistics, or with those of the batch in training."""
        return F.batch_norm(input, mean, var, self.weight, self.bias, training, momentum, self.eps)

    def extra_repr(self) -> str:
        affine = f"affine={self.affine}, bias={self.bias is not None}"
        options = f"eps={self.eps}, momentum={self.momentum}, {affine}"
        return f"{self.num_features}, {options}, track_running_stats={self.track_running_stats}"


class BatchNorm1d(BatchNorm):
    """Batch normalisation of inputs (N, C) or (N, C, L); arguments, attributes and formula are those of `BatchNorm`.

    >>> import miniflow as flow
    >>> flow.nn.BatchNorm1d(1, affine=False)(flow.tensor([[1.0], [3.0]]))
    tensor([[-1.0000],
            [ 1.0000]], dtype=miniflow.float32)
    """

    dims = (2, 3)


class BatchNorm2d(BatchNorm):
    """Batch normalisation of inputs (N, C, H, W); arguments, attributes and formula are those of `BatchNorm`.

    >>> import miniflow as flow
    >>> flow.nn.BatchNorm2d(3)(flow.ones(2, 3, 4, 5)).shape
    miniflow.Size([2, 3, 4, 5])
    """

    dims = (4,)


class BatchNorm3d(BatchNorm):
    """Batch normalisation of inputs (N, C, D, H, W); arguments, attributes and formula are those of `BatchNorm`."""

    dims = (5,)


class FusedBatchNorm:
    """relu(batch_norm(x) + addend), or relu(batch_norm(x)) without `addend`; a mixin for the BatchNorm classes."""

    def forward(self, x: Tensor, addend: Tensor | None = None) -> Tensor:
        y = super().forward(x)
        return F.relu(y if addend is None else add(y, addend))


class FusedBatchNorm1d(FusedBatchNorm, BatchNorm1d):
    """relu(batch_norm(x) + addend). `oneflow.nn.FusedBatchNorm1d`."""


class FusedBatchNorm2d(FusedBatchNorm, BatchNorm2d):
    """relu(batch_norm(x) + addend). `oneflow.nn.FusedBatchNorm2d`."""


class FusedBatchNorm3d(FusedBatchNorm, BatchNorm3d):
    """relu(batch_norm(x) + addend). `oneflow.nn.FusedBatchNorm3d`."""


class InstanceNorm(BatchNorm):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, the statistics taken over each channel of each sample.

    Args and attributes are those of `BatchNorm`, but by default there are neither parameters nor running statistics.
    The running statistics, if there are, are used in evaluation. Inputs may come without a batch.

    Source: `torch.nn.InstanceNorm2d`; Ulyanov et al. 2016, "Instance Normalization".
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ):  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in self.dims or input.shape[input.ndim - self.dims[1] + 1] != self.num_features:
            raise ShapeError(
                f"{type(self).__name__}: got shape {tuple(input.shape)}; expected {SHAPES[self.dims[1]]} with "
                f"C = {self.num_features}, with or without N"
            )
        use_input_stats = self.training or not self.track_running_stats
        batch = input if input.ndim == self.dims[1] else unsqueeze(input, 0)
        parameters = self.running_mean, self.running_var, self.weight, self.bias
        y = F.instance_norm(batch, *parameters, use_input_stats, self.momentum, self.eps)
        return y if batch is input else squeeze(y, 0)


class InstanceNorm1d(InstanceNorm):
    """Instance normalisation of inputs (N, C, L) or (C, L); see `InstanceNorm`."""

    dims = (2, 3)


class InstanceNorm2d(InstanceNorm):
    """Instance normalisation of inputs (N, C, H, W) or (C, H, W); see `InstanceNorm`."""

    dims = (3, 4)


class InstanceNorm3d(InstanceNorm):
    """Instance normalisation of inputs (N, C, D, H, W) or (C, D, H, W); see `InstanceNorm`."""

    dims = (4, 5)


_BatchNorm, _InstanceNorm = BatchNorm, InstanceNorm  # as source that asks for any of them calls them in PyTorch


class GroupNorm(Norm):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, the statistics taken over each group of channels of a sample.

    Args:
        num_groups: how many groups of neighbouring channels there are.
        num_channels: C, a multiple of it.
        eps: added to the variance.
        affine: whether there are weight and bias.
        device, dtype: of the parameters.
        bias: whether there is a bias besides the weight; by keyword.

    Attributes:
        weight, bias: (C,), initialized to ones and zeros.

    Shapes: (N, C, *) -> the same.

    Source: `torch.nn.GroupNorm`; Wu and He 2018, "Group Normalization".
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Any = None,
        dtype: Any = None, *, bias: bool = True,
    ):  # fmt: skip
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ArgumentError(f"GroupNorm: got {num_channels} channels in {num_groups} groups; expected a multiple")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        weight = (num_channels,) if affine else None
        self.add_parameters(device, dtype, weight=weight, bias=weight if bias else None)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = f"affine={self.affine}, bias={self.bias is not None}"
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, {affine}"


class RMSNorm(Norm):
    """y = x / sqrt(mean(x^2) + eps) * weight, the mean taken over the last dims of each sample.

    Args:
        normalized_shape: the sizes of the dims to normalise over, or one size for the last dim.
        eps: added to the mean; None for the precision of the dtype.
        elementwise_affine: whether there is a weight.
        device, dtype: of the weight.

    Attributes:
        weight: of shape normalized_shape, initialized to ones.

    Source: `torch.nn.RMSNorm`; Zhang and Sennrich 2019.
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True,
        device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__()
        self.normalized_shape, self.eps, self.elementwise_affine = sizes(normalized_shape), eps, elementwise_affine
        self.add_parameters(device, dtype, weight=self.normalized_shape if elementwise_affine else None)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class LocalResponseNorm(FunctionModule):
    """x / (k + alpha mean(x^2))^beta, the mean over `size` neighbouring channels. `torch.nn.LocalResponseNorm`."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)


class LayerNorm(Norm):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, the statistics taken over the last dims of each sample.

    Args:
        normalized_shape: the sizes of the dims to normalise over, or one size for the last dim.
        eps: added to the variance.
        elementwise_affine: whether there are weight and bias.
        bias: whether there is a bias besides the weight.
        device, dtype: of the parameters.

    Attributes:
        weight, bias: of shape normalized_shape, initialized to ones and zeros.

    Shapes: (*, *normalized_shape) -> the same.

    >>> import miniflow as flow
    >>> flow.nn.LayerNorm(2, elementwise_affine=False)(flow.tensor([[1.0, 3.0]]))
    tensor([[-1.0000,  1.0000]], dtype=miniflow.float32)

    Source: `torch.nn.LayerNorm`; Ba et al. 2016, "Layer Normalization".
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__()
        self.normalized_shape, self.eps, self.elementwise_affine = sizes(normalized_shape), eps, elementwise_affine
        weight = self.normalized_shape if elementwise_affine else None
        self.add_parameters(device, dtype, weight=weight, bias=weight if bias else None)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        return f"{self.normalized_shape}, eps={self.eps}, {affine}"


def sizes(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if hasattr(shape, "__index__") else tuple(shape)
