"""Matrix products."""

from __future__ import annotations

from math import prod

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.dispatcher import Op, call
from miniflow.errors import ArgumentTypeError, ShapeError, refusal
from miniflow.ops.method import method
from miniflow.ops.promotion import Number, broadcast_shape, left_to_autocast, promote, require_one_dtype
from miniflow.ops.views import input_shape
from miniflow.sbp import aligned, letters, signatures
from miniflow.tensor import Tensor


class Matmul(Op):
    """The matrix product over the last two dimensions, either operand transposed; batch dimensions broadcast."""

    amp = "white"
    saves = ("x", "y")
    saved_if_needed = {"x": 1, "y": 0}
    broadcasts = True

    def infer(x, y, *, transpose_x, transpose_y):
        rows, inner = x.shape[-2:]
        if transpose_x:
            rows, inner = inner, rows
        inner_y, columns = y.shape[-2:]
        if transpose_y:
            inner_y, columns = columns, inner_y
        if inner != inner_y:
            raise ShapeError(
                f"matmul: got shapes {x.shape} and {y.shape}; expected the columns of the first "
                f"({inner}) to equal the rows of the second ({inner_y}): transpose one of them?"
            )
        batch = broadcast_shape("matmul", x.shape[:-2], y.shape[:-2]) if x.ndim > 2 or y.ndim > 2 else ()
        return (*batch, rows, columns), x.dtype

    def sbp(x, y, *, ranks, transpose_x, transpose_y):
        dims = max(x.ndim, y.ndim) - 2
        operands = [
            aligned(x.shape[:-2], dims) + ("KM" if transpose_x else "MK"),
            aligned(y.shape[:-2], dims) + ("NK" if transpose_y else "KN"),
        ]
        return signatures(operands, [letters(dims) + "MN"], linear=[[0], [1]])

    def backward(ctx, dy):
        x, y = ctx.saved
        tx, ty = ctx.attrs["transpose_x"], ctx.attrs["transpose_y"]
        dx = dweight = None
        if ctx.needs[0]:
            dx = product(y, dy, ty, True) if tx else product(dy, y, False, not ty)
        if ctx.needs[1]:
            if len(input_shape(ctx, 1)) == 2 and not tx:
                dweight = summed_product(dy, x) if ty else summed_product(x, dy)
            else:
                dweight = product(dy, x, True, tx) if ty else product(x, dy, not tx, False)
        return dx, dweight


def product(x: Tensor, y: Tensor, transpose_x: bool = False, transpose_y: bool = False) -> Tensor:
    """The product of (..., m, k) and (..., k, n) matrices of one dtype, either given transposed."""
    return call(Matmul, x, y, transpose_x=transpose_x, transpose_y=transpose_y)


class SummedProduct(Op):
    """y[i, j] = the sum over all rows r of a[r, i] b[r, j], for a (..., m) and b (..., n) with the same leading dims:
    the gradient of a matrix that every row is multiplied by."""

    amp = "white"
    saves = ("a", "b")
    saved_if_needed = {"a": 1, "b": 0}

    def infer(a, b):
        if a.shape[:-1] != b.shape[:-1]:
            raise ShapeError(f"summed_product: got shapes {a.shape} and {b.shape}; expected (..., m) and (..., n)")
        return (a.shape[-1], b.shape[-1]), a.dtype

    def sbp(a, b, *, ranks):
        rows = letters(a.ndim - 1)
        return signatures([rows + "M", rows + "N"], ["MN"], linear=[[0], [1]])

    def backward(ctx, dy):
        a, b = ctx.saved
        return (
            product(b, dy, transpose_y=True) if ctx.needs[0] else None,
            product(a, dy) if ctx.needs[1] else None,
        )


def summed_product(a: Tensor, b: Tensor) -> Tensor:
    """The sum over all rows of their outer products, (..., m) and (..., n) -> (m, n): a^T b of two matrices."""
    return product(a, b, transpose_x=True) if a.ndim == 2 else call(SummedProduct, a, b)


class Linear(Op):
    """y = x weight^T + bias for x (..., in), weight (out, in), bias (out,) or None."""

    amp = "white"
    saves = ("x", "weight")
    saved_if_needed = {"x": 1, "weight": 0}

    def infer(x, weight, bias):
        if x.ndim == 0 or weight.ndim != 2 or x.shape[-1] != weight.shape[1]:
            raise ShapeError(f"linear: got input {x.shape} and weight {weight.shape}; expected (..., in) and (out, in)")
        outputs = weight.shape[0]
        if bias is not None and bias.shape != (outputs,):
            raise ShapeError(f"linear: got bias {bias.shape}; expected ({outputs},), one for each output")
        return (*x.shape[:-1], outputs), x.dtype

    def sbp(x, weight, bias, *, ranks):
        bias_position = [] if bias is None else [2]
        rows = letters(x.ndim - 1)
        operands = [rows + "K", "OK", None if bias is None else "O"]
        return signatures(operands, [rows + "O"], linear=[[0, *bias_position], [1, *bias_position]], added=[2])

    def backward(ctx, dy):
        x, weight = ctx.saved
        return (
            product(dy, weight) if ctx.needs[0] else None,
            summed_product(dy, x) if ctx.needs[1] else None,
            dy.sum(tuple(range(dy.ndim - 1))) if ctx.needs[2] else None,
        )


@method(checked=False)
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product, as `x @ y`. As `torch.matmul`.

    Args:
        input: (k,), (m, k) or (..., m, k).
        other: (k,), (k, n) or (..., k, n). Batch dimensions are broadcast; a 1-D operand is a row (x) or a column (y).

    >>> import miniflow as flow
    >>> flow.matmul(flow.ones(2, 3), flow.ones(3, 4)).shape
    miniflow.Size([2, 4])
    """
    if (
        isinstance(input, Tensor)
        and isinstance(other, Tensor)
        and (input._array.dtype is other._array.dtype or left_to_autocast(input, other))
    ):
        if input._array.ndim == 2 == other._array.ndim:  # the common case
            return product(input, other)
    else:
        input, other = promote(input, other, "matmul")
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        raise ArgumentTypeError("matmul: got a number; expected tensors of at least 1 dim: use x * y")
    if input.ndim == 0 or other.ndim == 0:
        expected = "at least 1-D: use x * y"
        raise ShapeError(f"matmul: got shapes {tuple(input.shape)} and {tuple(other.shape)}; expected {expected}")
    _check_inner(input, other)
    if input.ndim == 1:
        return matmul(input.unsqueeze(0), other).squeeze(-2 if other.ndim > 1 else 0)
    if other.ndim == 1:
        return matmul(input, other.unsqueeze(1)).squeeze(-1)
    return product(input, other)


def _check_inner(x: Tensor, y: Tensor) -> None:
    rows = y.shape[0] if y.ndim == 1 else y.shape[-2]
    if x.shape[-1] != rows:
        expected = f"the last size of the first ({x.shape[-1]}) to equal the rows of the second ({rows})"
        raise ShapeError(f"matmul: got shapes {tuple(x.shape)} and {tuple(y.shape)}; expected {expected}")


def _check_ndim(name: str, expected: int, **operands: Tensor) -> None:
    for label, x in operands.items():
        if x.ndim != expected:
            raise ShapeError(f"{name}: got {label} of shape {tuple(x.shape)}; expected {expected} dims: use matmul")


@method
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices, (m, k) and (k, n)."""
    _check_ndim("mm", 2, input=input, mat2=mat2)
    return matmul(input, mat2)


@method
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of two batches of matrices, (b, m, k) and (b, k, n); nothing is broadcast."""
    _check_ndim("bmm", 3, input=input, mat2=mat2)
    if input.shape[0] != mat2.shape[0]:
        raise ShapeError(f"bmm: got batches of {input.shape[0]} and {mat2.shape[0]} matrices; expected equally many")
    return matmul(input, mat2)


@method(aliases=("vdot",))
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The inner product of two vectors of equal length."""
    _check_ndim("dot", 1, input=input, tensor=tensor)
    return matmul(input, tensor)


@method(in_place=True)
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2), `input` broadcast to the product (m, n). `torch.addmm`."""
    return _added("addmm", input, mm(mat1, mat2), beta, alpha)


def _added(name: str, input: Tensor, result: Tensor, beta: Number, alpha: Number) -> Tensor:
    """beta * input + alpha * result, `input` broadcast to the result; it is not read where beta is 0."""
    result = result if alpha == 1 else result * alpha
    if broadcast_shape(name, input.shape, result.shape) != tuple(result.shape):
        raise refusal(ShapeError, name, f"a shape that broadcasts to {tuple(result.shape)}", input=input)
    return result if beta == 0 else result + (input if beta == 1 else input * beta)


@method
def inner(input: Tensor, other: Tensor) -> Tensor:
    """The sums of products along the last dims, of all pairs of the others. `torch.inner`."""
    if input.ndim == 0 or other.ndim == 0:
        return input * other
    columns = other.reshape((prod(other.shape[:-1]), other.shape[-1])).t()
    return matmul(input, columns).reshape((*input.shape[:-1], *other.shape[:-1]))


@method
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix (m, k) and a vector (k,). `torch.mv`."""
    _check_ndim("mv", 2, input=input)
    _check_ndim("mv", 1, vec=vec)
    return matmul(input, vec)


@method(aliases=("ger",))
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """All products of an element of one vector and one of another, (n,) and (m,) -> (n, m). `torch.outer`."""
    _check_ndim("outer", 1, input=input, vec2=vec2)
    return input.unsqueeze(1) * vec2


@method(in_place=True)
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * (mat @ vec). `torch.addmv`."""
    return _added("addmv", input, mv(mat, vec), beta, alpha)


@method(in_place=True)
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * outer(vec1, vec2). `torch.addr`."""
    return _added("addr", input, outer(vec1, vec2), beta, alpha)


@method(in_place=True)
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * (batch1 @ batch2), for batches of matrices. `torch.baddbmm`."""
    return _added("baddbmm", input, bmm(batch1, batch2), beta, alpha)


@method(in_place=True)
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * the sum of the products of two batches of matrices. `torch.addbmm`."""
    return _added("addbmm", input, bmm(batch1, batch2).sum(0, dtype=batch1.dtype), beta, alpha)


@takes_tensors
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y = input weight^T + bias. As `torch.nn.functional.linear`.

    Args:
        input: (..., in_features).
        weight: (out_features, in_features).
        bias: (out_features,) or None.

    Raises:
        ShapeError, DTypeError: if the operands do not fit together.
    """
    if input._array.dtype is not weight._array.dtype and not left_to_autocast(input, weight, bias):
        require_one_dtype("linear", input._array, weight._array, None if bias is None else bias._array)
    if input._array.ndim == 1:
        Linear.infer(input._array, weight._array, None if bias is None else bias._array)
        return call(Linear, input.unsqueeze(0), weight, bias).squeeze(0)
    return call(Linear, input, weight, bias)
