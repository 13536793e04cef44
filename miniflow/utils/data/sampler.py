"""Samplers: in which order the samples of a data set are read, and which of them make a batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from miniflow.errors import ArgumentError
from miniflow.ops.generator import Generator
from miniflow.ops.random import multinomial, randint, randperm
from miniflow.tensor import Tensor

T = TypeVar("T")
DRAWN = 4096  # indices at a time, of those that are drawn independently: an epoch may be longer than memory


class Sampler(Generic[T]):
    """A sequence of indices: a subclass writes `__iter__()` and, if the number is known, `__len__()`.

    Source: `torch.utils.data.Sampler`.
    """

    def __iter__(self) -> Iterator[T]:
        """The indices of one epoch."""
        raise NotImplementedError(f"{type(self).__name__} must define __iter__()")


@dataclass(eq=False, repr=False)
class SequentialSampler(Sampler[int]):
    """0, 1, ..., len(data_source) - 1.

    >>> list(SequentialSampler("abc"))
    [0, 1, 2]
    """

    data_source: Sized

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


@dataclass(eq=False, repr=False)
class RandomSampler(Sampler[int]):
    """Indices in random order, another one each epoch.

    Args:
        data_source: a data set with `__len__`.
        replacement: draw each index independently, so that some come several times and some never. Without it every
            index comes once, before any comes a second time.
        num_samples: how many indices make an epoch; None for `len(data_source)`.
        generator: where the randomness comes from; None for the default generator.

    Raises:
        ArgumentError: if `num_samples` is not a positive integer.

    >>> sorted(RandomSampler("abcd")), len(list(RandomSampler("abcd", num_samples=7)))
    ([0, 1, 2, 3], 7)

    Source: `torch.utils.data.RandomSampler`.
    """

    data_source: Sized
    replacement: bool = False
    num_samples: int | None = None
    generator: Generator | None = None

    def __post_init__(self) -> None:
        if self.num_samples is None:
            self.num_samples = len(self.data_source)
        else:
            check_positive("RandomSampler", "num_samples", self.num_samples)

    def __iter__(self) -> Iterator[int]:
        total, size, generator = self.num_samples, len(self.data_source), self.generator
        most = DRAWN if self.replacement else size or 1
        if total > most:  # what the program draws between two parts of the epoch does not change the order
            seed = randint(0, 2**62, (1,), device="cpu", generator=generator).item()
            generator = Generator().manual_seed(seed)
        for start in range(0, total, most):
            count = min(most, total - start)
            if self.replacement:
                yield from randint(0, size, (count,), device="cpu", generator=generator).tolist()
            else:
                yield from randperm(size, device="cpu", generator=generator).tolist()[:count]

    def __len__(self) -> int:
        return self.num_samples


@dataclass(eq=False, repr=False)
class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order.

    Args:
        indices: positions in a data set.
        generator: where the randomness comes from; None for the default generator.

    >>> sorted(SubsetRandomSampler([7, 3, 5]))
    [3, 5, 7]
    """

    indices: Sequence[int]
    generator: Generator | None = None

    def __iter__(self) -> Iterator[int]:
        for position in randperm(len(self.indices), device="cpu", generator=self.generator).tolist():
            yield self.indices[position]

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(eq=False, repr=False)
class WeightedRandomSampler(Sampler[int]):
    """Indices 0 to len(weights) - 1, each drawn with probability proportional to its weight.

    Args:
        weights: (N,), not negative; they need not sum to 1.
        num_samples: how many indices make an epoch.
        replacement: draw each index independently; otherwise none comes twice.
        generator: where the randomness comes from; None for the default generator.

    Raises:
        ArgumentError: if `num_samples` is not a positive integer; and, when an epoch begins, for weights that
            `flow.multinomial` refuses.

    >>> list(WeightedRandomSampler([0.0, 1.0, 0.0], 3))
    [1, 1, 1]

    Source: `torch.utils.data.WeightedRandomSampler`.
    """

    weights: Sequence[float] | Tensor
    num_samples: int
    replacement: bool = True
    generator: Generator | None = None

    def __post_init__(self) -> None:
        check_positive("WeightedRandomSampler", "num_samples", self.num_samples)
        values = self.weights.tolist() if isinstance(self.weights, Tensor) else self.weights
        self.weights = Tensor._wrap(np.array(values, np.float64).reshape(-1))

    def __iter__(self) -> Iterator[int]:
        return iter(multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator).tolist())

    def __len__(self) -> int:
        return self.num_samples


@dataclass(eq=False, repr=False)
class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices at a time from another sampler.

    Args:
        sampler: indices.
        batch_size: how many make a batch.
        drop_last: leave out a last batch that is smaller.

    Raises:
        ArgumentError: if `batch_size` is not a positive integer.

    >>> list(BatchSampler(range(5), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]

    Source: `torch.utils.data.BatchSampler`.
    """

    sampler: Iterable[int]
    batch_size: int
    drop_last: bool

    def __post_init__(self) -> None:
        check_positive("BatchSampler", "batch_size", self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        return (math.floor if self.drop_last else math.ceil)(len(self.sampler) / self.batch_size)


def check_positive(op: str, name: str, value: object) -> None:
    """Refuse what is not an integer above zero."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value <= 0:
        raise ArgumentError(f"{op}: got {name}={value!r}; expected an integer above zero")
