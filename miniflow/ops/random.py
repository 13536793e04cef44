"""Random tensors: uniform and normal numbers, integers, permutations, and choices with given probabilities.

Each call is one draw: it takes `(seed, offset)` from a generator, and element i of the result depends on these and on i
alone. The ops take a tensor whose shape, dtype and device the result gets; no gradient flows through them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from miniflow.backends import memory
from miniflow.backends.memory import peek
from miniflow.device import of_array
from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.dispatcher import Op, Shard, call, run_kernel
from miniflow.dispatch.tape import modes
from miniflow.dtype import BY_NUMPY, as_dtype, dtype, int64
from miniflow.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from miniflow.ops.creation import empty, empty_like
from miniflow.ops.generator import Generator, default_generator
from miniflow.ops.inplace import write
from miniflow.ops.method import method
from miniflow.ops.promotion import broadcast_shape, cast, require_floating
from miniflow.sbp import each_element_alone
from miniflow.tensor import Tensor


def contiguous_slice(array: Any, bounds: tuple) -> Any:
    """A part of an array, contiguous; start and stop for each dim."""
    part = run_kernel(Op.by_name["Slice"], [array], {"index": (*[slice(*b) for b in bounds], ...)})
    return run_kernel(Op.by_name["Clone"], [part], {})


def draw_part(op: type[Op], arrays: list, attrs: dict[str, Any], shard: Shard) -> Any:
    """`Op.on_shard`: element i of the whole tensor has the number that it has on one device."""
    full_size = memory.empty(shard.wholes[0].shape, arrays[0].dtype, of_array(arrays[0]))
    return contiguous_slice(run_kernel(op, [full_size], attrs), shard.result)


class Uniform(Op):
    """y_i = low + (high - low) u_i with u uniform in [0, 1): 24 random bits for float32, 53 for float64."""

    def infer(like, *, low, high, seed, offset):
        require_floating("uniform", like)
        limit = float(np.finfo(like.dtype).max) if like.dtype.kind == "f" else 3.3e38
        if not low <= high or max(abs(low), abs(high), high - low) > limit:
            raise ArgumentError(f"uniform: got low={low}, high={high}; expected finite bounds with low <= high")
        return like.shape, like.dtype

    sbp = each_element_alone
    on_shard = draw_part


class Normal(Op):
    """y_i = mean + std z_i with z standard normal, by Box-Muller."""

    def infer(like, *, mean, std, seed, offset):
        require_floating("normal", like)
        if not std >= 0:
            raise ArgumentError(f"normal: got std={std}; expected a standard deviation of at least 0")
        return like.shape, like.dtype

    sbp = each_element_alone
    on_shard = draw_part


class Integers(Op):
    """Integers uniform in [low, high): low plus the high half of a product of high - low with 64 random bits."""

    def infer(like, *, low, high, seed, offset):
        if not low < high:
            raise ArgumentError(f"randint: got low={low}, high={high}; expected low < high, since high is exclusive")
        limits = range_of(like.dtype)
        if low < limits[0] or high - 1 > limits[1]:
            got = f"low={low}, high={high} for {BY_NUMPY[like.dtype]}"
            expected = f"values from {limits[0]} to {limits[1]}: give a wider dtype"
            raise DTypeError(f"randint: got {got}; expected {expected}")
        return like.shape, like.dtype

    sbp = each_element_alone
    on_shard = draw_part


class Permutation(Op):
    """The integers 0 .. n - 1 in random order."""

    def sbp(like, *, ranks, seed, offset):
        return []


def range_of(numpy_dtype: np.dtype) -> tuple[int, int]:
    """The smallest and the largest integer that a dtype holds, for floats without gaps below it."""
    if numpy_dtype.kind == "b":
        return 0, 1
    if numpy_dtype.kind in "iu":
        info = np.iinfo(numpy_dtype)
        return info.min, info.max
    bits = {"float64": 53, "float32": 24, "float16": 11}.get(numpy_dtype.name, 8)
    return -(2**bits), 2**bits


def draw(op: type[Op], like: Tensor, generator: Generator | None, **attrs: Any) -> Tensor:
    """Run a random op on the generator's next draw."""
    source = default_generator if generator is None else generator
    if not isinstance(source, Generator):
        raise ArgumentTypeError(f"{op.function_name}: got generator={source!r:.80}; expected a flow.Generator, or None")
    seed, offset = source.next_draw() if modes.tracer is None else modes.tracer.draw(source)
    if isinstance(like, Tensor) and like.is_global and modes.tracer is None:
        seed, offset = like._array.from_first_rank((seed, offset))
    return call(op, like, **attrs, seed=seed, offset=offset)


@takes_tensors
def rand(
    *size: int | Sequence[int], generator: Generator | None = None, dtype: dtype | None = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Numbers uniform in [0, 1).

    Args:
        size: the shape, as integers or as one sequence.
        generator: where the randomness comes from; None for the default generator.
        dtype: a floating dtype; None for the default one.
        device: None for the CPU.
        requires_grad: whether gradients are wanted.

    Raises:
        ShapeError: for a negative size.
        DTypeError: for a dtype that is not floating.

    >>> import miniflow as flow
    >>> flow.rand(2, 3).shape
    miniflow.Size([2, 3])

    Source: `torch.rand`.
    """
    like = empty(*size, dtype=dtype, device=device)
    return draw(Uniform, like, generator, low=0.0, high=1.0).requires_grad_(requires_grad)


@takes_tensors
def randn(
    *size: int | Sequence[int], generator: Generator | None = None, dtype: dtype | None = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Numbers from the standard normal distribution; arguments as for `rand`.

    Raises:
        ShapeError: for a negative size.
        DTypeError: for a dtype that is not floating.

    >>> import miniflow as flow
    >>> flow.randn((2, 3), dtype=flow.float64).dtype
    miniflow.float64

    Source: `torch.randn`.
    """
    like = empty(*size, dtype=dtype, device=device)
    return draw(Normal, like, generator, mean=0.0, std=1.0).requires_grad_(requires_grad)


@takes_tensors
def rand_like(
    input: Tensor, dtype: dtype | None = None, generator: Generator | None = None, device: Any = None
) -> Tensor:
    """`rand` with the shape of `input`, and its dtype and device unless others are given.

    >>> import miniflow as flow
    >>> flow.rand_like(flow.zeros(2, 3)).shape
    miniflow.Size([2, 3])

    Source: `torch.rand_like`.
    """
    return draw(Uniform, empty_like(input, dtype=dtype, device=device), generator, low=0.0, high=1.0)


@takes_tensors
def randn_like(
    input: Tensor, dtype: dtype | None = None, generator: Generator | None = None, device: Any = None
) -> Tensor:
    """`randn` with the shape of `input`, and its dtype and device unless others are given.

    >>> import miniflow as flow
    >>> flow.randn_like(flow.zeros(2, 3)).shape
    miniflow.Size([2, 3])

    Source: `torch.randn_like`.
    """
    return draw(Normal, empty_like(input, dtype=dtype, device=device), generator, mean=0.0, std=1.0)


def randint(
    low: int = 0,
    high: int | Sequence[int] | None = None,
    size: Sequence[int] | None = None,
    *,
    generator: Generator | None = None,
    dtype: dtype | None = None,
    device: Any = None,
) -> Tensor:
    """Integers uniform in [low, high): `randint(high, size)` or `randint(low, high, size)`.

    Each takes the high half of the product of 64 random bits with `high - low`; the probabilities differ by less than
    2**-64.

    Args:
        low: the smallest value, 0 if only `high` is given.
        high: exclusive.
        size: the shape, a sequence.
        generator: where the randomness comes from; None for the default generator.
        dtype: None for int64.
        device: None for the CPU.

    Raises:
        ArgumentError: unless low < high, or without a size.
        DTypeError: if the dtype cannot hold the values.

    >>> import miniflow as flow
    >>> x = flow.randint(-2, 3, (1000,))
    >>> x.min().item(), x.max().item(), x.dtype
    (-2, 2, miniflow.int64)

    Source: `torch.randint`.
    """
    if isinstance(high, Sequence):
        low, high, size = 0, low, high
    if high is None:
        low, high = 0, low
    if size is None:
        raise ArgumentError("randint: got no size; expected randint(high, size) or randint(low, high, size)")
    like = empty(tuple(size), dtype=int64 if dtype is None else dtype, device=device)
    return draw(Integers, like, generator, low=operator.index(low), high=operator.index(high))


@takes_tensors
def randint_like(
    input: Tensor, low: int, high: int | None = None, dtype: dtype | None = None, generator: Generator | None = None,
    device: Any = None,
) -> Tensor:  # fmt: skip
    """`randint` with the shape, dtype and device of `input`, unless others are given: `(x, high)` or `(x, low, high)`.

    Raises:
        ArgumentError: unless low < high.

    >>> import miniflow as flow
    >>> flow.randint_like(flow.zeros(2, 3), 10).dtype
    miniflow.float32

    Source: `torch.randint_like`.
    """
    low, high = (0, low) if high is None else (low, high)
    like = empty_like(input, dtype=dtype, device=device)
    return draw(Integers, like, generator, low=operator.index(low), high=operator.index(high))


def randperm(n: int, *, generator: Generator | None = None, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """The integers 0 .. n - 1 in random order: the order of random 64-bit keys whose low bits are the index.

    Args:
        n: how many, at most 2**32.
        generator: where the randomness comes from; None for the default generator.
        dtype: None for int64.
        device: None for the CPU.

    Raises:
        ArgumentError: for an `n` outside 0 .. 2**32, or beyond what the dtype holds.

    >>> import miniflow as flow
    >>> sorted(flow.randperm(4).tolist())
    [0, 1, 2, 3]

    Source: `torch.randperm`.
    """
    result_dtype, n = as_dtype(int64 if dtype is None else dtype), operator.index(n)
    if not 0 <= n <= min(2**32, range_of(result_dtype.numpy)[1] + 1):
        expected = "n from 0 to what the dtype holds, at most 2**32"
        raise ArgumentError(f"randperm: got n={n} for {result_dtype}; expected {expected}")
    return draw(Permutation, empty(n, dtype=result_dtype, device=device), generator)


def normal(
    mean: Tensor | float = 0.0,
    std: Tensor | float = 1.0,
    size: int | Sequence[int] | None = None,
    *,
    generator: Generator | None = None,
    dtype: dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Normal numbers, y_i = mean_i + std_i z_i.

    Args:
        mean, std: numbers, or tensors that are broadcast; no gradient flows to them.
        size: the shape, needed if both are numbers and not allowed otherwise.
        generator: where the randomness comes from; None for the default generator.
        dtype, device, requires_grad: as for `randn`; the dtype of a tensor `mean` or `std` wins.

    Raises:
        ArgumentError: for a negative `std`, or a size that is missing or too much.

    >>> import miniflow as flow
    >>> flow.normal(0.0, 2.0, (2, 3)).shape, flow.normal(flow.zeros(4), 1.0).shape
    (miniflow.Size([2, 3]), miniflow.Size([4]))

    Source: `torch.normal`.
    """
    tensors = [t for t in (mean, std) if isinstance(t, Tensor)]
    if bool(tensors) == (size is not None):
        raise ArgumentError("normal: expected a size if mean and std are numbers, and none if one of them is a tensor")
    if not tensors:
        like = empty(size, dtype=dtype, device=device)
        return draw(Normal, like, generator, mean=float(mean), std=float(std)).requires_grad_(requires_grad)
    if isinstance(std, Tensor) and modes.tracer is None and not bool((std >= 0).all()):
        raise ArgumentError("normal: got a std with negative elements; expected at least 0 everywhere")
    like = empty(
        broadcast_shape("normal", *[t._array.shape for t in tensors]), dtype=tensors[0].dtype, device=tensors[0]._device
    )
    mean, std = [x.detach() if isinstance(x, Tensor) else x for x in (mean, std)]
    return draw(Normal, like, generator, mean=0.0, std=1.0) * std + mean


@method
def uniform_(self: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Overwrite `self` with numbers uniform in [low, high), and return it.

    Raises:
        ArgumentError: unless the bounds are finite and low <= high.
        DTypeError: for a dtype that is not floating.

    >>> import miniflow as flow
    >>> x = flow.zeros(100).uniform_(-1, 1)
    >>> bool((x >= -1).all() and (x < 1).all())
    True

    Source: `torch.Tensor.uniform_`.
    """
    return write(self, "uniform_", lambda: draw(Uniform, self, generator, low=float(low), high=float(high)))


@method
def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Overwrite `self` with normal numbers, and return it.

    Raises:
        ArgumentError: for a negative `std`.
        DTypeError: for a dtype that is not floating.

    >>> import miniflow as flow
    >>> flow.zeros(2).normal_(5.0, 0.0)
    tensor([5., 5.], dtype=miniflow.float32)

    Source: `torch.Tensor.normal_`.
    """
    return write(self, "normal_", lambda: draw(Normal, self, generator, mean=float(mean), std=float(std)))


@method
def random_(
    self: Tensor, from_: int | None = None, to: int | None = None, *, generator: Generator | None = None
) -> Tensor:
    """Overwrite `self` with integers uniform in [from_, to), and return it: `x.random_(to)`, `x.random_(from_, to)`.

    Without bounds they are from 0 to the largest that the dtype holds, of floats without gaps below it.

    Raises:
        ArgumentError: unless from_ < to.
        DTypeError: if the dtype cannot hold the values.

    >>> import miniflow as flow
    >>> x = flow.empty(1000, dtype=flow.int64).random_(3)
    >>> x.min().item(), x.max().item()
    (0, 2)

    Source: `torch.Tensor.random_`.
    """
    if to is None:
        from_, to = 0, range_of(self._array.dtype)[1] + 1 if from_ is None else from_
    if not all(hasattr(bound, "__index__") for bound in (from_ or 0, to)):
        raise ArgumentTypeError(f"random_: got from_={from_!r:.40} and to={to!r:.40}; expected integers")
    bounds = {"low": operator.index(from_ or 0), "high": operator.index(to)}
    return write(self, "random_", lambda: draw(Integers, self, generator, **bounds))


@method
def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Overwrite `self` with numbers of density lambd exp(-lambd x), and return it.

    Raises:
        ArgumentError: unless `lambd` is positive.
        DTypeError: for a dtype that is not floating.

    >>> import miniflow as flow
    >>> 0.9 < flow.empty(10_000).exponential_(2.0).mean().item() * 2 < 1.1
    True

    Source: `torch.Tensor.exponential_`.
    """
    if not isinstance(lambd, int | float | np.number) or not lambd > 0:
        raise ArgumentError(f"exponential_: got lambd={lambd!r:.80}; expected a positive rate")
    uniform = empty_like(self.detach()).uniform_(generator=generator)
    return write(self, "exponential_", lambda: (-uniform).log1p() / -lambd)


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
def bernoulli_(self: Tensor, p: float = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Overwrite `self` with ones of probability `p` and zeros, and return it.

    Raises:
        ArgumentError: for a probability outside [0, 1].
        DTypeError: for a dtype that is not floating.

    >>> import miniflow as flow
    >>> flow.zeros(2).bernoulli_(1.0)
    tensor([1., 1.], dtype=miniflow.float32)

    Source: `torch.Tensor.bernoulli_`.
    """
    return write(self, "bernoulli_", lambda: bernoulli(self, p, generator=generator))


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
