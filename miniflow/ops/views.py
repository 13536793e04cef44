"""Views by strides alone, slices, the adjoints of those that are parts of a tensor, and dims counted from the end."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from miniflow.backends.memory import peek
from miniflow.backends.ranges import first_outside
from miniflow.backends.registry import kernel_of
from miniflow.dispatch.dispatcher import Op, call, run_kernel
from miniflow.errors import DimError, DTypeError, IndexRangeError
from miniflow.ops.split_dims import is_whole, parts_of_slice, run, sizes, zeros
from miniflow.sbp import Signature, letters, signatures
from miniflow.tensor import Tensor

# strides of which neither a multiple nor the sum of two is another one
PRIMES = 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181, 191, 193, 197, 199, 211


def input_shape(ctx: Any, position: int = 0) -> tuple[int, ...]:
    """The shape that the input at `position` had, for a backward; it is on the tape, so the input need not be saved."""
    node, output = ctx.edges[position]
    return node.shapes[output]


def split_as_input(ctx: Any, position: int = 0) -> dict[str, tuple[int, ...]]:
    """The attribute `split` of an adjoint that adds parts to zeros: the dims that the input had split among ranks.
    Each of them computes its part of these then. Nothing for local tensors."""
    node, output = ctx.edges[position]
    split = tuple([entry.dim for entry in node.sbps[output] if entry.dim is not None])
    return {"split": split} if split else {}


def adjoint_signatures(operands: list, result: str, split: tuple[int, ...]) -> list[Signature]:
    """The signatures of such an adjoint, which is linear in the first operand. Dims of the result that no operand has
    are divided only where they are `split`; a partial sum of it would be larger than one of the operand."""
    letters = "".join(operands)
    result = "".join([c if c in letters or d in split else "." for d, c in enumerate(result)])
    return signatures(operands, [result], linear=[] if split else [[0]])


def without_split(attrs: dict[str, Any]) -> dict[str, Any]:
    """The attributes that the kernel takes."""
    return {name: value for name, value in attrs.items() if name != "split"}


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
        cls.of = of
        if of.backward is None:
            of.backward = staticmethod(lambda ctx, dy: call(cls, dy, shape=input_shape(ctx), **ctx.attrs))

    def infer(x, *, shape, **attrs):
        return shape, x.dtype

    @classmethod
    def sbp(cls, x, *, ranks, shape, **attrs):
        result_dims, x_dims = cls.of.common_dims(shape, attrs)
        return signatures(x_dims, result_dims, linear=[[0]])

    @classmethod
    def backward(cls, ctx, dy: Tensor) -> Tensor:
        attrs = {name: value for name, value in ctx.attrs.items() if name not in ("shape", "split")}
        return call(cls.of, dy, **attrs)


def wrap_dim(op: str, dim: int, ndim: int) -> int:
    """`dim` counted from the front; a 0-dim tensor is treated as having one dim, as PyTorch does.

    >>> wrap_dim("sum", -1, 3)
    2

    Raises:
        DimError: if there is no such dim.
        DTypeError: if `dim` is not an integer.
    """
    try:
        dim = operator.index(dim)
    except TypeError:
        got = f"dim={dim!r}" if not hasattr(dim, "shape") else f"a dim of shape {tuple(dim.shape)}"
        raise DTypeError(f"{op}: got {got}; expected an integer dim") from None
    n = ndim or 1
    if not -n <= dim < n:
        raise DimError(f"{op}: got dim={dim} for a tensor of {ndim} dims; expected a dim from {-n} to {n - 1}")
    return dim + n if dim < 0 else dim


def wrap_dims(op: str, dims: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Several dims counted from the front, each at most once; None and () stand for all.

    Raises:
        DimError: if a dim does not exist or comes twice.
    """
    if dims is None or isinstance(dims, tuple | list) and not dims:
        return tuple(range(ndim))
    wrapped = tuple([wrap_dim(op, d, ndim) for d in (dims if isinstance(dims, tuple | list) else (dims,))])
    if len(set(wrapped)) != len(wrapped):
        raise DimError(f"{op}: got dims {tuple(dims)}, in which a dim comes twice; expected each dim once")
    return wrapped


def sizes_of(sizes: tuple) -> tuple[int, ...]:
    """Sizes given one by one, `x.reshape(2, 3)`, or as one sequence, `x.reshape((2, 3))`."""
    if len(sizes) == 1 and sizes[0].__class__ is not int and isinstance(sizes[0], tuple | list):
        return tuple(sizes[0])
    return sizes


class Slice(StridedView):
    """y = x[index] for an `index` of ints, slices, None and exactly one Ellipsis: a view."""

    def infer(x, *, index):
        return sliced_shape("getitem", x.shape, index), x.dtype

    @classmethod
    def common_dims(cls, shape, attrs):
        """The dims that are sliced have letters too: a rank has some of the elements, or none."""
        (x_dims,), view_dims = super().common_dims(shape, attrs)
        x_dims = [d.upper() if c == "." else c for c, d in zip(x_dims, letters(len(shape)), strict=True)]
        return ["".join(x_dims)], view_dims

    def on_shard(op, arrays, attrs, shard):
        shape, part = shard.wholes[0].shape, shard.operands[0]
        (x_dims,), _ = Slice.common_dims(shape, attrs)
        if is_whole(part, shape, [d for d, c in enumerate(x_dims) if c.isupper()]):
            return run_kernel(op, arrays, attrs)
        parts = parts_of_slice(attrs["index"], shape, part)
        if parts is None:
            return zeros(arrays[0], sizes(shard.result))
        source, target = parts
        return run("SliceIntoZeros", run_kernel(op, arrays, {"index": source}), index=target, shape=sizes(shard.result))

    def backward(ctx, dy):
        return call(SliceIntoZeros, dy, shape=input_shape(ctx), **ctx.attrs, **split_as_input(ctx))


class SliceIntoZeros(IntoZeros, of=Slice):
    """y = zeros of `shape` with y[index] = x: the adjoint of `Slice`."""

    amp = "clear"

    def sbp(x, *, ranks, shape, index, split=()):
        (x_dims,), (view_dims,) = Slice.common_dims(shape, {"index": index})
        return adjoint_signatures([view_dims], x_dims, split)

    def on_shard(op, arrays, attrs, shard):
        attrs = without_split(attrs)
        parts = parts_of_slice(attrs["index"], shard.shape, shard.result)
        if parts is None:
            return zeros(arrays[0], attrs["shape"])
        source, target = parts
        return run_kernel(op, [run("Slice", arrays[0], index=target)], attrs | {"index": source})


def sliced_shape(op: str, shape: tuple[int, ...], index: tuple) -> tuple[int, ...]:
    """The shape of `x[index]` for an `x` of `shape`.

    Raises:
        IndexRangeError: for an int outside its dim, or too many indices.
    """
    consumed = sum(part is not None and part is not Ellipsis for part in index)
    check_count(op, index.count(...), consumed, shape)
    result, dim = [], 0
    for part in index:
        if part is Ellipsis:
            skipped = len(shape) - consumed
            result += shape[dim : dim + skipped]
            dim += skipped
        elif part is None:
            result.append(1)
        else:
            if isinstance(part, slice):
                result.append(len(range(*part.indices(shape[dim]))))
            elif not -shape[dim] <= part < shape[dim]:
                raise out_of_range(op, part, dim, shape)
            dim += 1
    return tuple(result)


def check_count(op: str, ellipses: int, consumed: int, shape: tuple[int, ...]) -> None:
    """Refuse several Ellipsis, and more indices than dims, with an IndexRangeError."""
    if ellipses > 1:
        raise IndexRangeError(f"{op}: got more than one Ellipsis (...); expected at most one")
    if consumed > len(shape):
        got = f"{consumed} for a tensor of shape {tuple(shape)}"
        raise IndexRangeError(f"{op}: too many indices: got {got}; expected at most {len(shape)}")


def check_in_range(
    op: str, index: Any, dim: int, shape: tuple[int, ...], negative: bool = False, remedy: str = ""
) -> None:
    """Refuse an index along `dim` that has values outside of it, as far as they can be looked at.

    Args:
        negative: whether negative values count from the end.
        remedy: what to do about it, for the message.

    Raises:
        IndexRangeError: for the first that is outside.
    """
    values = peek(index)
    if values is None or not values.size:
        return
    size = shape[dim] if shape else 1
    flat = np.ascontiguousarray(values, np.int64).reshape(-1)
    bad = first_outside(flat, -size if negative else 0, size, 0) if size else 0
    if bad >= 0:
        raise out_of_range(op, values.flat[bad], dim, shape, negative, remedy)


def out_of_range(
    op: str, index: int, dim: int, shape: tuple[int, ...], negative: bool = True, remedy: str = ""
) -> IndexRangeError:
    """The error for an index outside the size of its dim."""
    size = shape[dim] if shape else 1
    expected = f"from {-size if negative else 0} to {size - 1}" if size else "none, since the dim is empty"
    return IndexRangeError(
        f"{op}: index {index} is out of range for dim {dim} of size {size} (shape {tuple(shape)}); expected {expected}"
        f"{remedy}"
    )
