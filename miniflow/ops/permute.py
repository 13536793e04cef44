"""Reordering dims, and elements along them."""

from __future__ import annotations

from collections.abc import Sequence

from miniflow.dispatch.dispatcher import Op, call
from miniflow.errors import ShapeError
from miniflow.ops.joining import cat
from miniflow.ops.method import method
from miniflow.ops.views import StridedView, sizes_of, wrap_dim, wrap_dims
from miniflow.sbp import letters_but, signatures
from miniflow.tensor import Tensor


class Transpose(StridedView):
    """x with two dims exchanged."""

    def infer(x, *, dim0, dim1):
        a, b = wrap_dim("transpose", dim0, len(x.shape)), wrap_dim("transpose", dim1, len(x.shape))
        shape = list(x.shape)
        if shape:
            shape[a], shape[b] = shape[b], shape[a]
        return tuple(shape), x.dtype

    def backward(ctx, dy):
        return call(Transpose, dy, dim0=ctx.attrs["dim0"], dim1=ctx.attrs["dim1"])


@method(aliases=("swapaxes", "swapdims"), checked=False)
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """A view with the dims `dim0` and `dim1` exchanged.

    Raises:
        DimError: for dims that do not exist.

    >>> import miniflow as flow
    >>> flow.zeros(2, 3, 4).transpose(0, -1).shape
    miniflow.Size([4, 3, 2])

    Source: `torch.transpose`.
    """
    return call(Transpose, input, dim0=dim0, dim1=dim1)


swapaxes = swapdims = transpose


@method
def t(input: Tensor) -> Tensor:
    """The transpose of a matrix; a tensor of fewer dims as it is.

    Raises:
        ShapeError: for more than 2 dims.

    >>> import miniflow as flow
    >>> flow.zeros(2, 3).t().shape
    miniflow.Size([3, 2])

    Source: `torch.t`.
    """
    ndim = input._array.ndim
    if ndim > 2:
        raise ShapeError(f"t: got a tensor of shape {tuple(input.shape)}; expected at most 2 dims: use mT")
    return call(Transpose, input, dim0=0, dim1=ndim - 1 if ndim else 0)


def T(x: Tensor) -> Tensor:
    """All dims in reverse order, the property `x.T`.

    >>> import miniflow as flow
    >>> flow.zeros(2, 3).T.shape
    miniflow.Size([3, 2])

    Source: `torch.Tensor.T`.
    """
    return call(Permute, x, dims=tuple(range(x._array.ndim - 1, -1, -1)))


def mT(x: Tensor) -> Tensor:
    """The last two dims exchanged, the property `x.mT`: the transpose of each matrix of a batch.

    Raises:
        ShapeError: for fewer than 2 dims.

    >>> import miniflow as flow
    >>> flow.zeros(5, 2, 3).mT.shape
    miniflow.Size([5, 3, 2])

    Source: `torch.Tensor.mT`.
    """
    if x._array.ndim < 2:
        raise ShapeError(f"mT: got a tensor of shape {tuple(x.shape)}; expected at least 2 dims")
    return call(Transpose, x, dim0=-2, dim1=-1)


class Permute(StridedView):
    """y with dim d of y being dim `dims[d]` of x."""

    def infer(x, *, dims):
        if len(dims) != len(x.shape):
            raise ShapeError(f"permute: got dims {dims} for a tensor of shape {x.shape}; expected each dim once")
        return tuple([x.shape[d] for d in wrap_dims("permute", dims, len(x.shape))]), x.dtype

    def backward(ctx, dy):
        dims = ctx.attrs["dims"]
        inverse = [0] * len(dims)
        for d, source in enumerate(dims):
            inverse[source] = d  # a negative source counts from the end here too
        return call(Permute, dy, dims=tuple(inverse))


@method
def permute(input: Tensor, *dims: int | Sequence[int]) -> Tensor:
    """A view with the dims in another order: `x.permute(1, 0)`, `x.permute(dims=(1, 0))`.

    Raises:
        ShapeError: unless there are as many dims as in `input`.
        DimError: for dims that do not exist or come twice.

    >>> import miniflow as flow
    >>> flow.zeros(2, 3, 4).permute(2, 0, 1).shape
    miniflow.Size([4, 2, 3])

    Source: `torch.permute`.
    """
    return call(Permute, input, dims=sizes_of(dims))


@method(aliases=("moveaxis",))
def movedim(input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """A view with the dims `source` moved to the positions `destination`; the others keep their order.

    Raises:
        ShapeError: unless there are as many sources as destinations.
        DimError: for dims that do not exist or come twice.

    >>> import miniflow as flow
    >>> flow.zeros(2, 3, 4).movedim(0, -1).shape
    miniflow.Size([3, 4, 2])

    Source: `torch.movedim`.
    """
    ndim = input._array.ndim
    source, destination = ((x,) if hasattr(x, "__index__") else tuple(x) for x in (source, destination))
    if len(source) != len(destination):
        raise ShapeError(f"movedim: got source {source} and destination {destination}; expected as many of each")
    if not source or not ndim:
        return call(Permute, input, dims=tuple(range(ndim)))
    source_of = dict(zip(wrap_dims("movedim", destination, ndim), wrap_dims("movedim", source, ndim), strict=True))
    remaining = iter([d for d in range(ndim) if d not in source_of.values()])
    return call(Permute, input, dims=tuple([source_of[d] if d in source_of else next(remaining) for d in range(ndim)]))


moveaxis = movedim


class Flip(Op):
    """x in reverse order along `dims`."""

    amp = "clear"

    def sbp(x, *, ranks, dims):
        x_dims = letters_but(x.ndim, *dims)
        return signatures([x_dims], [x_dims], linear=[[0]])

    def backward(ctx, dy):
        return call(Flip, dy, dims=ctx.attrs["dims"])


@method
def flip(input: Tensor, *dims: int | Sequence[int]) -> Tensor:
    """A copy with the order of elements reversed along some dims: `x.flip(0, 1)`, `x.flip(dims=(0, 1))`.

    Raises:
        DimError: for dims that do not exist or come twice.

    >>> import miniflow as flow
    >>> flow.tensor([[1, 2], [3, 4]]).flip(1).tolist()
    [[2, 1], [4, 3]]

    Source: `torch.flip`.
    """
    dims = sizes_of(dims) and wrap_dims("flip", sizes_of(dims), input._array.ndim)
    return call(Flip, input, dims=dims if input._array.ndim else ())


@method
def roll(input: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Tensor:
    """The elements shifted by `shifts` along `dims`; those that leave at one end enter at the other.

    Args:
        input: any shape.
        shifts, dims: as many of each. Without dims, the flat tensor is rolled.

    >>> import miniflow as flow
    >>> flow.roll(flow.arange(4), 1).tolist()
    [3, 0, 1, 2]

    Source: `torch.roll`.
    """
    if dims is None:
        return roll(input.flatten(), shifts, 0).reshape(input.shape)
    shifts, dims = ((x,) if hasattr(x, "__index__") else tuple(x) for x in (shifts, dims))
    if len(shifts) != len(dims):
        raise ShapeError(f"roll: got shifts {shifts} and dims {dims}; expected as many of each")
    if dims and not input.ndim:
        raise ShapeError(f"roll: got dims {dims} of a tensor of no dims; expected none")
    rolled = input
    for shift, dim in zip(shifts, wrap_dims("roll", dims, input.ndim), strict=True):
        size = input.shape[dim]
        split = -shift % size if size else 0
        if split:
            rolled = cat([rolled.narrow(dim, split, size - split), rolled.narrow(dim, 0, split)], dim)
    return rolled.clone() if rolled is input else rolled


@method
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """The planes of two dims turned `k` times by 90 degrees, from the first dim towards the second. `torch.rot90`."""
    first, second = wrap_dims("rot90", dims, input.ndim)
    turns = [lambda x: x.clone(), lambda x: x.flip(second).transpose(first, second), lambda x: x.flip(first, second)]
    return turns[k % 4](input) if k % 4 < 3 else input.transpose(first, second).flip(second)


@method
def fliplr(input: Tensor) -> Tensor:
    """The columns in reverse order. `torch.fliplr`."""
    return input.flip(1)


@method
def flipud(input: Tensor) -> Tensor:
    """The rows in reverse order. `torch.flipud`."""
    return input.flip(0)
