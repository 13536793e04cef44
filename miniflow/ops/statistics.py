"""Variance, log-sum-exp and norms."""

from __future__ import annotations

from math import inf

from miniflow.dispatch import call
from miniflow.errors import DTypeError
from miniflow.operands import takes_tensors
from miniflow.ops.method import method
from miniflow.ops.piecewise import where
from miniflow.ops.promotion import Number, as_float, cast, require_floating
from miniflow.ops.reduce import Dim, Reduction, as_dims, expand_reduced, term_count
from miniflow.tensor import Tensor


def deviation(x: Tensor, attrs: dict) -> Tensor:
    """(x - mean) / (n - correction): half of the derivative of the variance."""
    dim = attrs["dim"]
    degrees = float(term_count(x._array.shape, dim) - attrs["correction"])
    return (x - x.mean(dim, keepdim=True)) * (1.0 / degrees if degrees > 0 else inf)


class Var(Reduction):
    """y = sum of (x - mean)^2 over `dim`, divided by n - correction."""

    saves = ("x",)
    requires = "floats"

    def backward(ctx, dy):
        (x,) = ctx.saved
        return expand_reduced(dy, x._array.shape, ctx.attrs) * 2.0 * deviation(x, ctx.attrs)


class Std(Reduction):
    """The square root of `Var`; where it is 0, the gradient is 0."""

    saves = ("x", "y")
    requires = "floats"

    def backward(ctx, dy):
        x, y = ctx.saved
        flat = y == 0
        scale = where(flat, 0.0, dy / where(flat, 1.0, y))
        return expand_reduced(scale, x._array.shape, ctx.attrs) * deviation(x, ctx.attrs)


def _moment(op: type[Reduction], input, dim, unbiased, keepdim, correction) -> Tensor:
    """PyTorch has two ways to say what to subtract from n: `correction`, or `unbiased`, which may come alone."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        given = f"unbiased={unbiased} and correction={correction}"
        raise DTypeError(f"{op.function_name}: got {given}; expected one of them")
    if correction is None:
        correction = 0 if unbiased is False else 1
    return call(op, input, dim=as_dims(dim), correction=correction, keepdim=keepdim)


@method(checked=False)
def var(
    input: Tensor, dim: Dim = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: Number | None = None,
) -> Tensor:  # fmt: skip
    """The variance over `dim`: sum of (x - mean)^2 / (n - correction).

    Args:
        input: floating, any shape.
        dim: the dims to reduce; all if None.
        unbiased: True for correction=1 (the default), False for correction=0.
        keepdim: leave the reduced dims with size 1.
        correction: what to subtract from the number of terms n.

    Returns:
        NaN where no degree of freedom is left.

    Raises:
        DTypeError: for integers and bool.
        DimError: for dims that do not exist or come twice.

    >>> import miniflow as flow
    >>> flow.tensor([1.0, 2.0, 3.0]).var().item(), flow.tensor([1.0, 3.0]).var(correction=0).item()
    (1.0, 1.0)

    Source: `torch.var`.
    """
    return _moment(Var, input, dim, unbiased, keepdim, correction)


@method(checked=False)
def std(
    input: Tensor, dim: Dim = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: Number | None = None,
) -> Tensor:  # fmt: skip
    """The standard deviation over `dim`, the square root of `var`.

    >>> import miniflow as flow
    >>> flow.tensor([1.0, 5.0]).std(correction=0).item()
    2.0

    Source: `torch.std`.
    """
    return _moment(Std, input, dim, unbiased, keepdim, correction)


@takes_tensors
def var_mean(
    input: Tensor, dim: Dim = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: Number | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The pair of `var` and `mean` over `dim`.

    >>> import miniflow as flow
    >>> [y.item() for y in flow.var_mean(flow.tensor([1.0, 3.0]), correction=0)]
    [1.0, 2.0]

    Source: `torch.var_mean`.
    """
    y = _moment(Var, input, dim, unbiased, keepdim, correction)
    return y, input.mean(None if isinstance(dim, bool) else dim, keepdim)


@takes_tensors
def std_mean(
    input: Tensor, dim: Dim = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: Number | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The pair of `std` and `mean` over `dim`. `torch.std_mean`."""
    y = _moment(Std, input, dim, unbiased, keepdim, correction)
    return y, input.mean(None if isinstance(dim, bool) else dim, keepdim)


@method
def nansum(input: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: object = None) -> Tensor:
    """The sum over `dim`, with 0 for NaN. `torch.nansum`."""
    return where(input.isnan(), 0, input).sum(dim, keepdim, dtype=dtype)


@method
def nanmean(input: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: object = None) -> Tensor:
    """The mean over `dim` of the elements that are not NaN; NaN if there are none. `torch.nanmean`."""
    total = nansum(input, dim, keepdim, dtype=dtype)
    return total / cast((input == input).sum(dim, keepdim), total.dtype)


class Logsumexp(Reduction):
    """y = log(sum of exp(x) over `dim`); dy/dx = exp(x - y), the softmax."""

    saves = ("x", "y")
    requires = "floats"

    def backward(ctx, dy):
        x, y = ctx.saved
        shape = x._array.shape
        return expand_reduced(dy, shape, ctx.attrs) * (x - expand_reduced(y, shape, ctx.attrs)).exp()


@method(checked=False)
def logsumexp(input: Tensor, dim: Dim, keepdim: bool = False) -> Tensor:
    """log(sum of exp(x)) over `dim`, as m + log(sum of exp(x - m)) with m the largest x: nothing overflows.

    Args:
        input: any shape; integers and bools are computed in the default floating dtype.
        dim: the dims to reduce.
        keepdim: leave the reduced dims with size 1.

    Raises:
        DimError: for dims that do not exist or come twice.

    >>> import miniflow as flow
    >>> flow.tensor([1000.0, -1000.0]).logsumexp(0).item()
    1000.0

    Source: `torch.logsumexp`.
    """
    return call(Logsumexp, as_float(input), dim=as_dims(dim), keepdim=keepdim)


class Norm(Reduction):
    """y = (sum of |x|^p over `dim`)^(1/p) for a p other than 0 and infinity; where y is 0, the gradient is 0."""

    saves = ("x", "y")
    requires = "floats"

    def backward(ctx, dy):
        x, y = ctx.saved
        shape, attrs, p = x._array.shape, ctx.attrs, ctx.attrs["p"]
        flat = y == 0
        scale = where(flat, 0.0, dy / where(flat, 1.0, y) ** (p - 1))
        if p != 2:
            zero = x == 0
            x = where(zero, 0.0, x.sign() * abs(where(zero, 1.0, x)) ** (p - 1))
        return expand_reduced(scale, shape, attrs) * x


@method
def norm(
    input: Tensor, p: Number | str | None = "fro", dim: Dim = None, keepdim: bool = False, dtype: object = None
) -> Tensor:
    """The p-norm of the elements over `dim`, as one vector: (sum of |x|^p)^(1/p).

    Args:
        input: floating, any shape.
        p: the exponent; inf for the largest |x|, -inf for the smallest, 0 for the number of elements that are not
            zero, "fro" or None for 2.
        dim: the dims to reduce; all if None.
        keepdim: leave the reduced dims with size 1.
        dtype: cast to it first.

    Raises:
        DTypeError: for integers and bool, or an unknown p.
        DimError: for dims that do not exist or come twice.

    >>> import miniflow as flow
    >>> x = flow.tensor([3.0, -4.0])
    >>> x.norm().item(), x.norm(1).item(), x.norm(float("inf")).item()
    (5.0, 7.0, 4.0)

    Source: `torch.norm`.
    """
    if dtype is not None:
        input = cast(input, dtype)
    require_floating("norm", input._array)
    p = 2.0 if p in ("fro", None) else p
    if isinstance(p, str):
        raise DTypeError(f"norm: got p={p!r}; expected a number, inf, -inf or 'fro'")
    if p in (inf, -inf):
        return abs(input).amax(dim, keepdim) if p > 0 else abs(input).amin(dim, keepdim)
    if p == 0:
        return where(input != 0, 1.0, input.sign()).sum(dim, keepdim)  # the gradient of `sign` is 0
    if p == 1:
        return abs(input).sum(dim, keepdim)
    return call(Norm, input, p=float(p), dim=as_dims(dim), keepdim=keepdim)
