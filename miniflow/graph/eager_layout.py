"""In which order the elements of a result lie in memory in eager mode.

A program computes every result in row-major order, while most kernels keep the order of transposed operands. Eager code
shows the difference: whether `x.view(...)` is allowed, and whether `x.reshape(...)` or `x.contiguous()` share memory
with x, so that a write to one reaches the other. So symbols answer as the eager arrays would: where the order can
differ, the kernel is run once on other values with the strides of the operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from miniflow.backends import memory
from miniflow.backends.registry import KERNELS
from miniflow.device import of_array
from miniflow.dispatch import Op, as_array
from miniflow.graph.ir import scalars_in, with_numbers

if TYPE_CHECKING:
    from miniflow.graph.symbol import Symbol

# their results may be transposed, although no operand is
TURNING = {"Index", "IndexIntoZeros", "LogSoftmax", "LogSoftmaxGrad", "Multinomial", "Softmax", "SoftmaxGrad"}
ROW_MAJOR = {"Contiguous", "LayerNorm", "Linear", "Matmul", "SliceIntoZeros"}  # so are their results, whatever operands


@dataclass(frozen=True)
class Making:
    """How a result is made: output `position` of `op`, applied to symbols, numbers or None."""

    op: type[Op]
    operands: list[Any]
    attrs: dict[str, Any]
    position: int

    @property
    def symbols(self) -> list[Symbol]:
        """The symbols among the operands."""
        return [x for x in self.operands if hasattr(x, "known")]

    @property
    def is_row_major(self) -> bool:
        """Whether the result is so for sure, as far as that is known without running kernels."""
        if self.op.__name__ in ROW_MAJOR:
            return True
        known = all(x.known is not None and x.known.flags.c_contiguous for x in self.symbols)
        return known and self.op.__name__ not in TURNING


def eager_layout(symbol: Symbol) -> np.ndarray:
    """An array of the strides that the symbol's array has in eager mode, whose elements must never be looked at."""
    waiting = [symbol]
    while waiting:
        first = waiting[-1]
        before = [x for x in sources(first) if x.known is None]
        if before:
            waiting += before
        else:
            if first.known is None:
                first.known = layout_from(first)
            waiting.pop()
    return symbol.known


def sources(symbol: Symbol) -> list[Symbol]:
    """The symbols on whose layouts that of this one depends."""
    if symbol.known is not None:
        return []
    return [symbol.parent] if symbol.parent is not None else symbol.making.symbols


def layout_from(symbol: Symbol) -> np.ndarray:
    """The layout of a symbol, given those of its sources."""
    if symbol.parent is not None:
        return KERNELS["cpu"][symbol.op.__name__](symbol.parent.known, **symbol.attrs)
    making = symbol.making
    arrays = [stand_in(x) if hasattr(x, "known") else x for x in making.operands]
    numbers = {scalar.name: 0 for value in making.attrs.values() for scalar in scalars_in(value)}
    attrs = {name: with_numbers(value, numbers) for name, value in making.attrs.items()}
    kernel = KERNELS[of_array(making.symbols[0]).type][making.op.__name__]
    with np.errstate(all="ignore"):
        result = kernel(*arrays, **attrs)
    return memory.layout(as_array(result if making.op.single else result[making.position]))


def stand_in(symbol: Symbol) -> Any:
    """An array on the symbol's device with the strides that it has in eager mode: of ones, which will do as numbers and
    as probabilities, or for integers of zeros, which will do as indices."""
    layout = symbol.known
    reach = sum((n - 1) * abs(step) for n, step in zip(layout.shape, layout.strides, strict=True)) // layout.itemsize
    values = memory.full((max(reach, 0) + 1,), layout.dtype.kind not in "biu", layout.dtype, of_array(symbol))

    def take(flat: np.ndarray) -> np.ndarray:
        return as_strided(flat, layout.shape, [abs(step) for step in layout.strides])

    return take(values) if memory.is_host(values) else values.view(take)
