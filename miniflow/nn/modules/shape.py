"""Layers that only change shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from miniflow.errors import ArgumentError
from miniflow.nn import functional as F
from miniflow.nn.modules.layer import FunctionModule
from miniflow.ops.shape import flatten, unflatten
from miniflow.tensor import Tensor


class Flatten(FunctionModule):
    """One dim in the place of those from `start_dim` to `end_dim`, both included.

    >>> import miniflow as flow
    >>> flow.nn.Flatten()(flow.zeros(2, 3, 4)).shape
    miniflow.Size([2, 12])

    Source: `torch.nn.Flatten`.
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return flatten(input, self.start_dim, self.end_dim)


class Unflatten(FunctionModule):
    """Several dims of sizes `unflattened_size` in the place of `dim`.

    >>> import miniflow as flow
    >>> flow.nn.Unflatten(1, (3, 4))(flow.zeros(2, 12)).shape
    miniflow.Size([2, 3, 4])

    Source: `torch.nn.Unflatten`.
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]):
        super().__init__()
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return unflatten(input, self.dim, self.unflattened_size)


class Padding(FunctionModule):
    """Base of the layers that put a border around the last dims.

    Args:
        padding: its width, or (before, after) of the last dim, then of the dim before it; negative ones cut off.

    Attributes:
        dims: how many dims have a border.
    """

    dims: ClassVar[int]

    def __init__(self, padding: int | Sequence[int]):
        super().__init__()
        self.padding = (padding,) * 2 * self.dims if isinstance(padding, int) else tuple(padding)
        if len(self.padding) != 2 * self.dims:
            name = self._get_name()
            raise ArgumentError(f"{name}: got padding={self.padding}; expected one int or {2 * self.dims} of them")

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(Padding):
    """A border of one value around the last dim. `torch.nn.ConstantPad1d`."""

    dims = 1

    def __init__(self, padding: int | Sequence[int], value: float):
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value!r}"


class ConstantPad2d(ConstantPad1d):
    """A border of one value around the last 2 dims. `torch.nn.ConstantPad2d`."""

    dims = 2


class ConstantPad3d(ConstantPad1d):
    """A border of one value around the last 3 dims. `torch.nn.ConstantPad3d`."""

    dims = 3


class ZeroPad1d(Padding):
    """A border of zeros, around the last dim. `torch.nn.ZeroPad1d`."""

    dims = 1

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant")


class ZeroPad2d(ZeroPad1d):
    """A border of zeros, around the last 2 dims. `torch.nn.ZeroPad2d`."""

    dims = 2


class ZeroPad3d(ZeroPad1d):
    """A border of zeros, around the last 3 dims. `torch.nn.ZeroPad3d`."""

    dims = 3


class ReflectionPad1d(Padding):
    """A border mirrored at the outermost elements, around the last dim. `torch.nn.ReflectionPad1d`."""

    dims = 1

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "reflect")


class ReflectionPad2d(ReflectionPad1d):
    """A border mirrored at the outermost elements, around the last 2 dims. `torch.nn.ReflectionPad2d`."""

    dims = 2


class ReflectionPad3d(ReflectionPad1d):
    """A border mirrored at the outermost elements, around the last 3 dims. `torch.nn.ReflectionPad3d`."""

    dims = 3


class ReplicationPad1d(Padding):
    """A border of copies of the outermost elements, around the last dim. `torch.nn.ReplicationPad1d`."""

    dims = 1

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "replicate")


class ReplicationPad2d(ReplicationPad1d):
    """A border of copies of the outermost elements, around the last 2 dims. `torch.nn.ReplicationPad2d`."""

    dims = 2


class ReplicationPad3d(ReplicationPad1d):
    """A border of copies of the outermost elements, around the last 3 dims. `torch.nn.ReplicationPad3d`."""

    dims = 3


class CircularPad1d(Padding):
    """A border of the elements from the other end, around the last dim. `torch.nn.CircularPad1d`."""

    dims = 1

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "circular")


class CircularPad2d(CircularPad1d):
    """A border of the elements from the other end, around the last 2 dims. `torch.nn.CircularPad2d`."""

    dims = 2


class CircularPad3d(CircularPad1d):
    """A border of the elements from the other end, around the last 3 dims. `torch.nn.CircularPad3d`."""

    dims = 3
