"""Softmax, its logarithm, and random choices that are differentiable by it."""

from __future__ import annotations

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.dispatcher import Op, call
from miniflow.dispatch.tape import is_grad_enabled
from miniflow.errors import ShapeError, refusal
from miniflow.ops.creation import ones_like
from miniflow.ops.method import method
from miniflow.ops.promotion import cast, require_floating
from miniflow.ops.random import rand_like
from miniflow.ops.views import wrap_dim
from miniflow.sbp import each_row, letters_but, signatures
from miniflow.tensor import Tensor


class RowOp(Op):
    """An op along one dim of a floating tensor that keeps its shape."""

    amp = "gray"
    saves = ("y",)

    @classmethod
    def infer(cls, x, *, dim):
        require_floating(cls.function_name, x)
        wrap_dim(cls.function_name, dim, x.ndim)
        return x.shape, x.dtype

    sbp = each_row


class RowOpGrad(Op):
    """The fused gradient of a row op, from the cotangent and the result."""

    amp = "gray"

    def infer(dy, y, *, dim):
        if dy.shape != y.shape or not -y.ndim <= dim < max(y.ndim, 1):
            raise refusal(ShapeError, "softmax_grad", "equal shapes, and one of their dims", dy=dy, y=y, dim=dim)
        return y.shape, dy.dtype

    def sbp(dy, y, *, ranks, dim):
        x_dims = letters_but(y.ndim, dim)
        return signatures([x_dims, x_dims], [x_dims], linear=[[0]])


class Softmax(RowOp):
    """y_i = exp(x_i) / sum_j exp(x_j) along `dim`"""

    def backward(ctx, dy):
        (y,) = ctx.saved
        dim = ctx.attrs["dim"]
        if is_grad_enabled():
            return y * (dy - (dy * y).sum(dim, True))
        return call(SoftmaxGrad, dy, y, dim=dim)


class SoftmaxGrad(RowOpGrad):
    """dx_i = y_i (dy_i - sum_j dy_j y_j)"""


class LogSoftmax(RowOp):
    """y_i = x_i - log sum_j exp(x_j) along `dim`"""

    def backward(ctx, dy):
        (y,) = ctx.saved
        dim = ctx.attrs["dim"]
        if is_grad_enabled():
            return dy - y.exp() * dy.sum(dim, True)
        return call(LogSoftmaxGrad, dy, y, dim=dim)


class LogSoftmaxGrad(RowOpGrad):
    """dx_i = dy_i - exp(y_i) sum_j dy_j"""


@method
def softmax(input: Tensor, dim: int, dtype: object = None) -> Tensor:
    """exp(x_i) / sum_j exp(x_j) along `dim`: positive numbers that sum to 1.

    The largest x_j is subtracted first, so that nothing overflows; a row of only -inf, or with +inf in it, gives NaN.

    Args:
        input: any shape, floating.
        dim: the dim along which the results sum to 1.
        dtype: cast to it first.

    Raises:
        DimError: if there is no such dim.
        DTypeError: for integers and bool, unless `dtype` is given.

    >>> import miniflow as flow
    >>> flow.softmax(flow.tensor([0.0, 0.0, 0.0, 0.0]), 0).tolist()
    [0.25, 0.25, 0.25, 0.25]

    Source: `torch.softmax`.
    """
    return call(Softmax, input if dtype is None else cast(input, dtype), dim=dim)


@method
def log_softmax(input: Tensor, dim: int, dtype: object = None) -> Tensor:
    """x_i - log sum_j exp(x_j) along `dim`: the logarithm of softmax, accurate where that underflows.

    Args:
        input: any shape, floating.
        dim: the dim along which the exponentials of the results sum to 1.
        dtype: cast to it first.

    Raises:
        DimError: if there is no such dim.
        DTypeError: for integers and bool, unless `dtype` is given.

    >>> import miniflow as flow
    >>> [round(v, 4) for v in flow.log_softmax(flow.tensor([0.0, 0.0]), 0).tolist()]
    [-0.6931, -0.6931]

    Source: `torch.log_softmax`.
    """
    return call(LogSoftmax, input if dtype is None else cast(input, dtype), dim=dim)


@takes_tensors
def softmin(input: Tensor, dim: int, dtype: object = None) -> Tensor:
    """softmax(-input) along `dim`. `torch.nn.functional.softmin`."""
    return softmax(-input, dim, dtype)


@takes_tensors
def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """softmax((logits + g) / tau), g of Gumbel's distribution: a draw of a category that has a gradient.

    Args:
        logits: any shape, floating.
        tau: the temperature: results come nearer to one-hot as it falls.
        hard: give one-hot results, with the gradient of soft ones.
        eps: without effect, as in PyTorch.
        dim: that of the categories.

    Source: `torch.nn.functional.gumbel_softmax`; Jang et al. 2017, "Categorical Reparameterization".
    """
    y = ((logits - (-rand_like(logits).log()).log()) / tau).softmax(dim)
    if not hard:
        return y
    one_hot = y.argmax(dim, True) == cast(ones_like(y.detach()).cumsum(dim) - 1, "int64")
    return cast(one_hot, y.dtype) - y.detach() + y
