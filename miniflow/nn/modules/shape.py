"""Layers that only change shapes."""

from __future__ import annotations

from typing import Any, ClassVar

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


class Padding(FunctionModule, padding=...):
    """Base of the layers that put a border around the last dims.

    Attributes:
        dims: how many.
        mode: what the border holds, as in `pad`.
        padding: the widths (before, after) of the last dim, then of the dim before it; negative ones cut off.
    """

    dims: ClassVar[int]
    mode: ClassVar[str]

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.padding = (self.padding,) * 2 * self.dims if isinstance(self.padding, int) else tuple(self.padding)
        if len(self.padding) != 2 * self.dims:
            name = self._get_name()
            raise ArgumentError(f"{name}: got padding={self.padding}; expected one int or {2 * self.dims} of them")

    def forward(self, input: Tensor) -> Tensor:
        return pad(input, self.padding, self.mode, getattr(self, "value", None))

    def extra_repr(self) -> str:
        return super().extra_repr() if "value" in self.options else f"{self.padding}"


BORDERS = {
    "ConstantPad": ("constant", "A border of one value", {"value": ...}),
    "ZeroPad": ("constant", "A border of zeros", {}),
    "ReflectionPad": ("reflect", "A border mirrored at the outermost elements", {}),
    "ReplicationPad": ("replicate", "A border of copies of the outermost elements", {}),
    "CircularPad": ("circular", "A border of the elements from the other end", {}),
}
PADDINGS = {
    f"{name}{dims}d": type(
        f"{name}{dims}d", (Padding,), {
            "__doc__": f"{what}, around the last {dims} dims: `padding` is one int, or (before, after) of the last "
            f"dim, then of the dim before it. `torch.nn.{name}{dims}d`.",
            "__module__": __name__, "mode": mode, "dims": dims,
        }, **options,
    )
    for name, (mode, what, options) in BORDERS.items() for dims in (1, 2, 3)
}  # fmt: skip
globals().update(PADDINGS)
