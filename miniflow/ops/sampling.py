"""Choices with given probabilities."""

from __future__ import annotations

import operator

from miniflow.backends.memory import peek
from miniflow.dispatch import Op
from miniflow.dtype import int64
from miniflow.errors import ArgumentError, ShapeError
from miniflow.operands import takes_tensors
from miniflow.ops.creation import ones_like
from miniflow.ops.generator import Generator
from miniflow.ops.inplace import write
from miniflow.ops.method import method
from miniflow.ops.promotion import cast, require_floating
from miniflow.ops.random import Uniform, draw, rand_like
from miniflow.tensor import Tensor


class Bernoulli(Op):
    """y_i = 1 with probability p_i, else 0."""

    checks_values = "infer"

    def infer(p, *, seed, offset):
        require_floating("bernoulli", p)
        values = peek(p)
        if values is not None and not ((values >= 0) & (values <= 1)).all():
            raise ArgumentError("bernoulli: got probabilities outside [0, 1] or nan; expected each from 0 to 1")
        return p.shape, p.dtype

    def sbp(p, *, ranks, seed, offset):
        return []


class Multinomial(Op):
    """Indices of categories drawn in proportion to their weights."""

    checks_values = "kernel"

    def infer(weights, *, num_samples, replacement, seed, offset):
        require_floating("multinomial", weights)
        if len(weights.shape) not in (1, 2) or weights.shape[-1] == 0:
            raise ShapeError(f"multinomial: got weights {weights.shape}; expected (categories,) or (rows, categories)")
        if num_samples < 1 or (not replacement and num_samples > weights.shape[-1]):
            raise ArgumentError(
                f"multinomial: got num_samples={num_samples} of {weights.shape[-1]} categories; expected at least "
                "1, and no more than there are categories unless replacement=True"
            )
        return (*weights.shape[:-1], num_samples), int64.numpy

    def sbp(weights, *, ranks, **attrs):
        return []


@method
def bernoulli(input: Tensor, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
    """Ones with the probabilities `input`, else zeros.

    Args:
        input: probabilities, floating, of any shape; only the shape and dtype count if `p` is given.
        p: one probability for all.
        generator: where the randomness comes from; None for the default generator.

    Returns:
        the shape and dtype of `input`.

    Raises:
        ArgumentError: for probabilities outside [0, 1].
        DTypeError: for a dtype that is not floating.

    >>> import miniflow as flow
    >>> flow.bernoulli(flow.tensor([0.0, 1.0]))
    tensor([0., 1.], dtype=miniflow.float32)

    Source: `torch.bernoulli`.
    """
    if p is None:
        return draw(Bernoulli, input, generator)
    if not 0 <= p <= 1:
        raise ArgumentError(f"bernoulli: got p={p}; expected a probability from 0 to 1")
    return cast(draw(Uniform, input, generator, low=0.0, high=1.0) < p, input.dtype)


@method
def bernoulli_(input: Tensor, p: float = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Overwrite `input` with ones of probability `p` and zeros, and return it.

    Raises:
        ArgumentError: for a probability outside [0, 1].
        DTypeError: for a dtype that is not floating.

    >>> import miniflow as flow
    >>> flow.zeros(2).bernoulli_(1.0)
    tensor([1., 1.], dtype=miniflow.float32)

    Source: `torch.Tensor.bernoulli_`.
    """
    return write(input, "bernoulli_", lambda: bernoulli(input, p, generator=generator))


@method
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Indices of categories, drawn in proportion to their weights.

    With replacement by inverting the cumulated weights; without, by an exponential race: category i arrives after an
    exponential time of rate x_i, and the first `num_samples` arrivals count (Efraimidis and Spirakis, 2006).

    Args:
        input: weights, floating, not negative, shape (categories,) or (rows, categories); they need not sum to 1.
        num_samples: how many indices for each row.
        replacement: whether an index may come more than once.
        generator: where the randomness comes from; None for the default generator.

    Returns:
        int64, shape (num_samples,) or (rows, num_samples).

    Raises:
        ShapeError: for other shapes.
        ArgumentError: for weights that are negative, not finite or all zero, or for more samples without replacement
            than there are categories of positive weight.

    >>> import miniflow as flow
    >>> flow.multinomial(flow.tensor([0.0, 3.0, 0.0]), 2, replacement=True)
    tensor([1, 1], dtype=miniflow.int64)

    Source: `torch.multinomial`.
    """
    return draw(Multinomial, input, generator, num_samples=operator.index(num_samples), replacement=bool(replacement))


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
