"""Dropout: random zeros, and the rest scaled up so that the mean stays."""

from __future__ import annotations

from miniflow.backends import memory
from miniflow.device import of_array
from miniflow.dispatch import Op, call, run_kernel
from miniflow.errors import ArgumentError
from miniflow.inplace import write
from miniflow.ops.generator import Generator
from miniflow.ops.pointwise import add_gradient, make_op
from miniflow.ops.promotion import require_floating
from miniflow.ops.random import cut, draw
from miniflow.sbp import letters, signatures
from miniflow.scalar import Formula
from miniflow.scalar import where as select
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

    def on_shard(op, arrays, attrs, bounds, operands):
        whole = memory.full(operands[0].shape, 1, operands[0].dtype, of_array(arrays[0]))
        factors, keep = [cut(array, bounds) for array in run_kernel(Dropout, [whole], attrs)]
        return run_kernel(Op.by_name["Mul"], [arrays[0], factors], {}), keep

    def backward(ctx, dy):
        (keep,) = ctx.saved
        p = ctx.attrs["p"]
        return call(DropoutGrad, dy, keep, scale=0.0 if p == 1 else 1 / (1 - p))


def _kept(dy, keep: bool, scale=1.0):
    """dx = dy * scale where kept, else 0: linear in dy, so that it is its own derivative."""
    return select(keep, dy * scale, 0)


DropoutGrad = make_op(Formula.of(_kept, "dropout_grad"), "gray")
add_gradient(DropoutGrad, "dy")(_kept)


class DropoutMask(Op):
    """The `keep` of `Dropout` alone, for compiled graphs: the op that reads it scales."""

    made_by_passes = True

    def infer(*, shape, p, seed, offset, device):
        return tuple(shape), bool


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
