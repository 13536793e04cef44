"""Layers that only change shapes."""

from __future__ import annotations

from typing import Any

from miniflow.errors import ArgumentError
from miniflow.nn.modules.function_module import FunctionModule
from miniflow.ops.pad import pad
from miniflow.ops.shape import flatten, unflatten
from miniflow.tensor import Tensor


class Flatten(FunctionModule, function=flatten, start_dim=1, end_dim=-1):
    """One dim in the place of those from `start_dim` to `end_dim`, both included.

    >>> import miniflow as flow
    >>> flow.nn.Flatten()(flow.zeros(2, 3, 4)).shape
    miniflow.Size([2, 12])

    Source: `torch.nn.Flatten`.
    """


class Unflatten(FunctionModule, dim=..., unflattened_size=...):
    """Several dims of sizes `unflattened_size` in the place of `dim`.

    >>> import miniflow as flow
    >>> flow.nn.Unflatten(1, (3, 4))(flow.zeros(2, 12)).shape
    miniflow.Size([2, 3, 4])

    Source: `torch.nn.Unflatten`.
    """

    def forward(self, input: Tensor) -> Tensor:
        return unflatten(input, self.dim, self.unflattened_size)


class ConstantPad2d(FunctionModule, padding=..., value=...):
    """A border of one value around the last two dims.

    Args:
        padding: the widths (left, right, top, bottom), or one for all; negative ones cut off.
        value: what the border holds.

    >>> import miniflow as flow
    >>> flow.nn.ConstantPad2d((1, 0, 0, 0), 7.0)(flow.zeros(1, 1, 1)).tolist()
    [[[7.0, 0.0]]]

    Source: `torch.nn.ConstantPad2d`.
    """

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        widths = (self.padding,) * 4 if isinstance(self.padding, int) else tuple(self.padding)
        if len(widths) != 4:
            name = type(self).__name__
            raise ArgumentError(f"{name}: got padding={self.padding!r}; expected one int or (left, right, top, bottom)")
        self.padding = widths

    def forward(self, input: Tensor) -> Tensor:
        return pad(input, self.padding, value=self.value)


class ZeroPad2d(ConstantPad2d, padding=..., value=0.0):
    """A border of zeros around the last two dims.

    Args:
        padding: the widths (left, right, top, bottom), or one for all; negative ones cut off.

    Source: `torch.nn.ZeroPad2d`.
    """

    def extra_repr(self) -> str:
        return f"{self.padding}"
