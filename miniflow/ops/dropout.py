"""Dropout: random zeros; the other elements are scaled so that the mean stays the same."""

from __future__ import annotations

from miniflow.backends import memory
from miniflow.device import of_array
from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.dispatcher import Op, call, run_kernel
from miniflow.errors import ArgumentError, ShapeError
from miniflow.formulas.scalar import Formula
from miniflow.formulas.scalar import where as select
from miniflow.ops.creation import new_ones
from miniflow.ops.generator import Generator
from miniflow.ops.indexing import where
from miniflow.ops.inplace import write
from miniflow.ops.pointwise import add_gradient, make_op
from miniflow.ops.promotion import require_floating
from miniflow.ops.random import contiguous_slice, draw
from miniflow.sbp import letters, signatures
from miniflow.tensor import Tensor


class Dropout(Op):
    """y = x * keep / (1 - p), keep being 1 with probability 1 - p, else 0. Srivastava et al., 2014."""

    amp = "gray"
    outputs = ("y", "keep")
    nondifferentiable = ("keep",)
    saves = ("keep",)

    def infer(x, *, p, seed, offset):
        require_floating("dropout", x)
        return [(x.shape, x.dtype), (x.shape, bool)]

    def sbp(x, *, ranks, p, seed, offset):
        return signatures([letters(x.ndim)], [letters(x.ndim)] * 2)

    def on_shard(op, arrays, attrs, shard):
        ones = memory.full(shard.wholes[0].shape, 1, arrays[0].dtype, of_array(arrays[0]))
        factors, keep = [contiguous_slice(array, shard.result) for array in run_kernel(Dropout, [ones], attrs)]
        return run_kernel(Op.by_name["Mul"], [arrays[0], factors], {}), keep

    def backward(ctx, dy):
        p = ctx.attrs["p"]
        return call(DropoutGrad, dy, *ctx.saved, scale=0.0 if p == 1 else 1 / (1 - p))


def _dropout_grad(dy, keep: bool, scale=1.0):
    """dx = dy * scale where kept, else 0: linear in dy, so that it is its own derivative."""
    return select(keep, dy * scale, 0)


DropoutGrad = make_op(Formula.of(_dropout_grad, "dropout_grad"), "gray")
add_gradient(DropoutGrad, "dy")(_dropout_grad)


@takes_tensors
def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """y = x * keep / (1 - p) in training, where keep is 1 with probability 1 - p and else 0; y = x otherwise.

    Args:
        input: floating, any shape.
        p: the probability of a zero.
        training: whether to drop anything.
        inplace: write the result into `input`.
        generator: where the randomness comes from; None for the default generator.

    Returns:
        the shape and dtype of `input`.

    Raises:
        ArgumentError: for a `p` outside [0, 1].
        DTypeError: for a dtype that is not floating.

    >>> import miniflow as flow
    >>> y = dropout(flow.ones(1000), 0.5)
    >>> sorted(set(y.tolist()))
    [0.0, 2.0]

    Source: Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014;
    `torch.nn.functional.dropout`.
    """
    if not 0 <= p <= 1:
        raise ArgumentError(f"dropout: got p={p}; expected a probability from 0 to 1")
    if not training or p == 0:
        return input
    if inplace:
        return write(input, "dropout_", lambda: draw(Dropout, input, generator, p=float(p))[0])
    return draw(Dropout, input, generator, p=float(p))[0]


def _drop_channels(op: str, dims: tuple[int, ...], expected: str, input, p, training, inplace) -> Tensor:
    """`dropout1d` and its siblings."""
    if input.ndim not in dims:
        raise ShapeError(f"{op}: got input {tuple(input.shape)}; expected {expected}")
    if not training or p == 0:
        return input
    factors = dropout(new_ones(input, _channels(input, op != "dropout2d" and input.ndim == dims[0])), p)
    return input.mul_(factors) if inplace else input * factors


def _channels(x: Tensor, single: bool) -> tuple[int, ...]:
    """The shape of one factor per channel of `x`; `single` means that `x` has no batch dim."""
    ndim = 1 if single else 2
    return (*x.shape[:ndim], *(1,) * (x.ndim - ndim))


@takes_tensors
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels of an input (C, L) or (N, C, L): each becomes 0 with probability p.

    Source: Tompson et al., "Efficient Object Localization Using Convolutional Networks", 2015;
    `torch.nn.functional.dropout1d`.
    """
    return _drop_channels("dropout1d", (2, 3), "(C, L) or (N, C, L)", input, p, training, inplace)


@takes_tensors
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels of an input (N, C), (N, C, L) or (N, C, H, W): each becomes 0 with probability p.

    Source: Tompson et al., "Efficient Object Localization Using Convolutional Networks", 2015;
    `torch.nn.functional.dropout2d`.
    """
    expected = "(N, C), (N, C, L) or (N, C, H, W)"
    return _drop_channels("dropout2d", (2, 3, 4), expected, input, p, training, inplace)


@takes_tensors
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels of an input (C, D, H, W) or (N, C, D, H, W): each becomes 0 with probability p.

    Source: Tompson et al., "Efficient Object Localization Using Convolutional Networks", 2015;
    `torch.nn.functional.dropout3d`.
    """
    expected = "(C, D, H, W) or (N, C, D, H, W)"
    return _drop_channels("dropout3d", (4, 5), expected, input, p, training, inplace)


SATURATION = -1.7580993408473766  # -scale * alpha of `selu`, its limit at -inf


def _alpha_dropped(input: Tensor, shape: tuple[int, ...], p: float, training: bool, inplace: bool) -> Tensor:
    """Set to SATURATION with probability p, drawn in `shape`; then shift and scale to keep mean 0 and variance 1."""
    if not training or p == 0:
        return dropout(input, p, False)
    keep = dropout(new_ones(input, shape), p) != 0
    scale = 0.0 if p == 1 else ((1 - p) * (1 + p * SATURATION**2)) ** -0.5
    y = where(keep, input, SATURATION) * scale + -scale * p * SATURATION
    return input.copy_(y) if inplace else y


@takes_tensors
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout to the value that `selu` tends to, which keeps mean 0 and variance 1.

    Args:
        input: floating, any shape.
        p, training, inplace: see `dropout`.

    Source: Klambauer et al., "Self-Normalizing Neural Networks", 2017; `torch.nn.functional.alpha_dropout`.
    """
    return _alpha_dropped(input, input.shape, p, training, inplace)


@takes_tensors
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels of an input (N, C, ...). `torch.nn.functional.feature_alpha_dropout`."""
    if input.ndim < 2:
        raise ShapeError(f"feature_alpha_dropout: got input {tuple(input.shape)}; expected (N, C, ...)")
    return _alpha_dropped(input, _channels(input, False), p, training, inplace)
