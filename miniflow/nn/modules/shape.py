"""Layers that only change shapes."""

from __future__ import annotations

from collections.abc import Sequence

from miniflow.errors import ArgumentError
from miniflow.nn.modules.module import Module
from miniflow.ops.pad import pad
from miniflow.ops.shape import flatten, unflatten
from miniflow.tensor import Tensor


class Flatten(Module):
    """One dim in the place of those from `start_dim` to `end_dim`, both included.

    >>> import miniflow as flow
    >>> flow.nn.Flatten()(flow.zeros(2, 3, 4)).shape
    miniflow.Size([2, 12])

    Source: `torch.nn.Flatten`.
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        return flatten(input, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Several dims of sizes `unflattened_size` in the place of `dim`.

    >>> import miniflow as flow
    >>> flow.nn.Unflatten(1, (3, 4))(flow.zeros(2, 12)).shape
    miniflow.Size([2, 3, 4])

    Source: `torch.nn.Unflatten`.
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]):
        super().__init__()
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return unflatten(input, self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class ConstantPad2d(Module):
    """A border of one value around the last two dims.

    Args:
        padding: the widths (left, right, top, bottom), or one for all; negative ones cut off.
        value: what the border holds.

    >>> import miniflow as flow
    >>> flow.nn.ConstantPad2d((1, 0, 0, 0), 7.0)(flow.zeros(1, 1, 1)).tolist()
    [[[7.0, 0.0]]]

    Source: `torch.nn.ConstantPad2d`.
    """

    def __init__(self, padding: int | tuple[int, int, int, int], value: float):
        super().__init__()
        self.padding = (padding,) * 4 if isinstance(padding, int) else tuple(padding)
        if len(self.padding) != 4:
            raise ArgumentError(
                f"{type(self).__name__}: got padding={padding!r}; expected one int or four (left, right, top, bottom)"
            )
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return pad(input, self.padding, value=self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ZeroPad2d(ConstantPad2d):
    """A border of zeros around the last two dims.

    Args:
        padding: the widths (left, right, top, bottom), or one for all; negative ones cut off.

    Source: `torch.nn.ZeroPad2d`.
    """

    def __init__(self, padding: int | tuple[int, int, int, int]):
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"
