"""Data sets: samples by index, or as a stream."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from miniflow.errors import ArgumentError, ShapeError
from miniflow.ops.generator import Generator
from miniflow.ops.random import randperm
from miniflow.tensor import Tensor

T = TypeVar("T")


class Dataset(Generic[T]):
    """Samples by index: a subclass writes `__getitem__(index)` and, for most samplers, `__len__()`.

    A subclass may write `__getitems__(indices)` too, which returns a list of samples: then a batch is read in one call.

    >>> class Squares(Dataset):
    ...     def __getitem__(self, index):
    ...         return index**2
    ...     def __len__(self):
    ...         return 10
    >>> Squares()[3], len(Squares() + Squares())
    (9, 20)

    Source: `torch.utils.data.Dataset`.
    """

    def __getitem__(self, index: Any) -> T:
        """The sample at `index`."""
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__(index)")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
    """Samples one after the other: a subclass writes `__iter__()`, for data that comes as a stream.

    Each worker process of a DataLoader iterates over its own copy. So that every sample appears once, `__iter__`
    asks `get_worker_info()` which part of the samples this worker reads; without that, every worker reads all.

    >>> from miniflow.utils.data import DataLoader, get_worker_info
    >>> class CountTo(IterableDataset):
    ...     def __init__(self, stop):
    ...         self.stop = stop
    ...     def __iter__(self):
    ...         worker = get_worker_info()
    ...         first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
    ...         return iter(range(first, self.stop, step))
    >>> [batch.tolist() for batch in DataLoader(CountTo(5), batch_size=2)]
    [[0, 1], [2, 3], [4]]

    Source: `torch.utils.data.IterableDataset`.
    """

    def __iter__(self) -> Iterator[T]:
        """All samples in turn."""
        raise NotImplementedError(f"{type(self).__name__} must define __iter__()")


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Sample i is the tuple of the i-th rows of all tensors.

    Args:
        tensors: tensors of equal size in dimension 0.

    Raises:
        ShapeError: if the sizes differ, or there is no tensor.

    >>> import miniflow as flow
    >>> samples = TensorDataset(flow.zeros(3, 2), flow.arange(3))
    >>> len(samples), samples[1]
    (3, (tensor([0., 0.], dtype=miniflow.float32), tensor(1, dtype=miniflow.int64)))

    Source: `torch.utils.data.TensorDataset`.
    """

    def __init__(self, *tensors: Tensor):
        shapes = [tuple(tensor.shape) for tensor in tensors]
        if not shapes or not all(shapes) or len({shape[0] for shape in shapes}) != 1:
            raise ShapeError(f"TensorDataset: got shapes {shapes}; expected one tensor or more, equal in dimension 0")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple([tensor[index] for tensor in self.tensors])

    def __len__(self) -> int:
        return len(self.tensors[0])


class Subset(Dataset[T]):
    """The samples of `dataset` at `indices`, in that order.

    Args:
        dataset: a data set with `__getitem__`.
        indices: positions in it.

    >>> letters = Subset("abcdef", [4, 0])
    >>> list(letters), len(letters)
    (['e', 'a'], 2)

    Source: `torch.utils.data.Subset`.
    """

    def __init__(self, dataset: Dataset[T], indices: Sequence[int]):
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> T:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: list[int]) -> list[T]:
        positions = [self.indices[i] for i in indices]
        if hasattr(self.dataset, "__getitems__"):
            return self.dataset.__getitems__(positions)
        return [self.dataset[i] for i in positions]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset[T]):
    """The samples of several data sets, one after the other.

    Args:
        datasets: one or more data sets with `__getitem__` and `__len__`.

    >>> both = ConcatDataset(["abc", "de"])
    >>> len(both), both[3], both[-1]
    (5, 'd', 'e')

    Source: `torch.utils.data.ConcatDataset`.
    """

    def __init__(self, datasets: Iterable[Dataset[T]]):
        self.datasets = list(datasets)
        self.cumulative_sizes = list(itertools.accumulate(len(dataset) for dataset in self.datasets))

    def __getitem__(self, index: int) -> T:
        position = range(len(self))[index]
        i = bisect.bisect_right(self.cumulative_sizes, position)
        return self.datasets[i][position - (self.cumulative_sizes[i - 1] if i else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


def random_split(
    dataset: Dataset[T], lengths: Sequence[int | float], generator: Generator | None = None
) -> list[Subset[T]]:
    """Split a data set at random into parts; every sample is in one of them.

    Args:
        dataset: a data set with `__len__`.
        lengths: the sizes of the parts, which sum to `len(dataset)`; or fractions that sum to 1: each part then gets
            `floor(fraction * len(dataset))` samples, and what remains goes to the parts in turn, one each.
        generator: where the randomness comes from; None for the default generator.

    Returns:
        one Subset for each length.

    Raises:
        ArgumentError: if the lengths are negative or sum to something else.

    >>> import miniflow as flow
    >>> parts = random_split(range(10), [0.7, 0.3], generator=flow.Generator().manual_seed(0))
    >>> [len(part) for part in parts], sorted(parts[0]) + sorted(parts[1]) == list(range(10))
    ([7, 3], False)

    Source: `torch.utils.data.random_split`.
    """
    sizes = _part_sizes(len(dataset), list(lengths))
    order = randperm(len(dataset), device="cpu", generator=generator).tolist()
    return [
        Subset(dataset, order[end - size : end]) for size, end in zip(sizes, itertools.accumulate(sizes), strict=True)
    ]


def _part_sizes(total: int, lengths: list[int | float]) -> list[int]:
    if lengths and min(lengths) >= 0:
        if all(isinstance(length, int) for length in lengths) and sum(lengths) == total:
            return lengths
        if math.isclose(sum(lengths), 1):
            sizes = [math.floor(fraction * total) for fraction in lengths]
            for part in range(total - sum(sizes)):
                sizes[part % len(sizes)] += 1
            return sizes
    raise ArgumentError(
        f"random_split: got lengths {lengths} for {total} samples; "
        f"expected integers >= 0 that sum to {total}, or fractions that sum to 1"
    )
