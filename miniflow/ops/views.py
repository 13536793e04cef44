"""Views by strides alone, and the adjoints of those that are parts of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from miniflow.backends.registry import kernel_of
from miniflow.dispatch import Op, call
from miniflow.sbp import letters, signatures
from miniflow.tensor import Tensor

# strides of which neither a multiple nor the sum of two is another one
PRIMES = 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181, 191, 193, 197, 199, 211


def input_shape(ctx: Any, position: int = 0) -> tuple[int, ...]:
    """The shape that the input at `position` had, for a backward; it is on the tape, so the input need not be saved."""
    node, output = ctx.edges[position]
    return node.shapes[output]


def common_dims(shape: tuple[int, ...], view: Callable) -> tuple[list[str], list[str]]:
    """Letters for the dims of an array and of a view of it: those that the view has whole, "." for the others.

    >>> common_dims((2, 3, 4), lambda x: x.T[:, 1:])
    (['a.c'], ['c.a'])
    """
    strides = PRIMES[: len(shape)]
    y = view(as_strided(np.empty(1, np.uint8), shape, strides))
    dims = {(stride, n): letter for stride, n, letter in zip(strides, shape, letters(len(shape)), strict=True)}
    result = "".join([dims.get(dim, ".") for dim in zip(y.strides, y.shape, strict=True)])
    return ["".join([c if c in result else "." for c in letters(len(shape))])], [result]


class StridedView(Op):
    """A view that NumPy makes by strides: where it has a dim whole, that can be split."""

    amp = "clear"
    view = True

    @classmethod
    def sbp(cls, x, *, ranks, **attrs):
        return signatures(*cls.common_dims(x.shape, attrs), linear=[[0]])

    @classmethod
    def common_dims(cls, shape: tuple[int, ...], attrs: dict[str, Any]) -> tuple[list[str], list[str]]:
        """See `common_dims`."""
        return common_dims(shape, lambda array: kernel_of("cpu", cls.__name__).run(array, **attrs))


class IntoZeros(Op):
    """Zeros of `shape` to which x is added where a view of them lies: the adjoint of the view `of`."""

    of: type[StridedView]

    def __init_subclass__(cls, of: type[StridedView]) -> None:
        super().__init_subclass__()
        cls.of, of.backward = of, staticmethod(lambda ctx, dy: call(cls, dy, shape=input_shape(ctx), **ctx.attrs))

    def infer(x, *, shape, **attrs):
        return shape, x.dtype

    @classmethod
    def sbp(cls, x, *, ranks, shape, **attrs):
        whole, part = cls.of.common_dims(shape, attrs)
        return signatures(part, whole, linear=[[0]])

    @classmethod
    def backward(cls, ctx, dy: Tensor) -> Tensor:
        return call(cls.of, dy, **{name: value for name, value in ctx.attrs.items() if name != "shape"})
