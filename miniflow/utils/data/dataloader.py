"""The DataLoader: batches of a data set, made here or by worker processes ahead of time."""

from __future__ import annotations

import itertools
import math
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.context import BaseContext
from typing import Any

from miniflow.errors import ArgumentError, DTypeError
from miniflow.ops.generator import Generator
from miniflow.ops.random import randint
from miniflow.utils.data.collate import default_collate, default_convert
from miniflow.utils.data.dataset import Dataset, IterableDataset
from miniflow.utils.data.fetch import Exhausted, Fetcher
from miniflow.utils.data.pool import WorkerPool, default_context
from miniflow.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, check_positive
from miniflow.utils.data.worker import Job


class DataLoader:
    """Iterates over a data set in batches; each `for` loop over it is one epoch.

    Every index of the sampler is read exactly once an epoch, and the order of the batches does not depend on
    `num_workers`. Shuffling and the workers' seeds come from `generator`: equal seeds give equal epochs.

    With worker processes, random numbers drawn in the data set differ between workers and from epoch to epoch: worker i
    seeds `random`, `numpy.random` and `flow.manual_seed` with the epoch's seed + i. An exception in a worker is raised
    here, of the same class and with the worker's traceback; a worker that dies is a WorkerError. Workers end with their
    epoch, also when the loop is left early. On Linux they are forked: see `utils/data/pool.py` for what that means.

    Args:
        dataset: a data set with indices, or an IterableDataset, of which each worker iterates over a copy.
        batch_size: samples in a batch; None yields single samples, converted by `default_convert`.
        shuffle: read in a new random order each epoch.
        sampler: the indices of an epoch, instead of `shuffle`.
        batch_sampler: lists of indices, instead of `batch_size`, `shuffle`, `sampler` and `drop_last`.
        num_workers: worker processes; 0 makes batches in this process.
        collate_fn: makes a batch of a list of samples; None for `default_collate`.
        pin_memory: accepted for code written for a GPU; batches are in ordinary memory.
        drop_last: leave out a last batch that is smaller.
        timeout: seconds to wait for a batch from a worker; 0 for no limit.
        worker_init_fn: called with the worker's id when a worker starts.
        multiprocessing_context: "fork", "spawn", "forkserver" or a `multiprocessing` context.
        generator: where the randomness comes from; None for the default generator.
        prefetch_factor: batches that each worker makes ahead; None for 2.
        persistent_workers: keep the workers from epoch to epoch; their random numbers are those of new ones.

    Raises:
        ArgumentError: for arguments that contradict each other or are out of range.

    >>> import miniflow as flow
    >>> from miniflow.utils.data import DataLoader, TensorDataset
    >>> dataset = TensorDataset(flow.arange(5), flow.arange(5) * 2)
    >>> for x, y in DataLoader(dataset, batch_size=2):
    ...     print(x.tolist(), y.tolist())
    [0, 1] [0, 2]
    [2, 3] [4, 6]
    [4] [8]
    >>> len(DataLoader(dataset, batch_size=2, shuffle=True, drop_last=True, num_workers=2))
    2

    Source: `torch.utils.data.DataLoader`, `oneflow.utils.data.DataLoader`.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | None = 1,
        shuffle: bool = False,
        sampler: Sampler | Iterable | None = None,
        batch_sampler: Sampler | Iterable | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = 2,
        persistent_workers: bool = False,
    ):
        self.dataset = dataset
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.generator = generator
        self.prefetch_factor = 2 if prefetch_factor is None else prefetch_factor
        self.persistent_workers = persistent_workers
        context = multiprocessing_context or default_context()
        self.multiprocessing_context = multiprocessing.get_context(context) if isinstance(context, str) else context
        self._pool: WorkerPool | None = None
        self._check_workers()
        self._choose_samplers(batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.collate_fn = collate_fn or (default_collate if self._batched else default_convert)

    def _check_workers(self) -> None:
        if isinstance(self.num_workers, bool) or not isinstance(self.num_workers, int) or self.num_workers < 0:
            raise ArgumentError(
                f"DataLoader: got num_workers={self.num_workers!r}; expected 0 or more worker processes"
            )
        if not self.timeout >= 0:
            raise ArgumentError(f"DataLoader: got timeout={self.timeout!r}; expected seconds, or 0 for no limit")
        check_positive("DataLoader", "prefetch_factor", self.prefetch_factor)
        if self.persistent_workers and not self.num_workers:
            raise ArgumentError(
                "DataLoader: got persistent_workers=True with num_workers=0; expected num_workers above 0"
            )

    def _choose_samplers(self, batch_size, shuffle, sampler, batch_sampler, drop_last) -> None:  # as in __init__
        iterable = isinstance(self.dataset, IterableDataset)
        if iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise ArgumentError(
                "DataLoader: got shuffle, sampler or batch_sampler for an IterableDataset, which has no indices; "
                "expected none of them: order the samples in its __iter__"
            )
        if sampler is not None and shuffle:
            raise ArgumentError(
                "DataLoader: got both sampler and shuffle=True; expected one: the sampler sets the order"
            )
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ArgumentError(
                    "DataLoader: got batch_sampler with batch_size, shuffle, sampler or drop_last; "
                    "expected it alone: it sets all of them"
                )
            batch_size = None
        elif batch_size is not None:
            check_positive("DataLoader", "batch_size", batch_size)
        elif drop_last:
            raise ArgumentError("DataLoader: got drop_last=True with batch_size=None; expected a batch_size")
        if sampler is None and not iterable and batch_sampler is None:
            sampler = (
                RandomSampler(self.dataset, generator=self.generator) if shuffle else SequentialSampler(self.dataset)
            )
        if batch_size is not None and not iterable:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self._batched = batch_size is not None or batch_sampler is not None

    def __len__(self) -> int:
        """The number of batches of an epoch, if the data set or the sampler has a length."""
        if not isinstance(self.dataset, IterableDataset):
            return len(self.batch_sampler if self._batched else self.sampler)
        if not hasattr(self.dataset, "__len__"):
            raise DTypeError(
                f"DataLoader: {type(self.dataset).__name__} is an IterableDataset without __len__; define it"
            )
        if self.batch_size is None:
            return len(self.dataset)
        return (math.floor if self.drop_last else math.ceil)(len(self.dataset) / self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch: the batches in turn."""
        seed = int(randint(0, 2**48, (1,), device="cpu", generator=self.generator).item())
        if isinstance(self.dataset, IterableDataset):
            tasks = itertools.repeat(None)
        else:
            tasks = self.batch_sampler if self._batched else self.sampler
        tasks = iter(tasks)
        tasks = itertools.chain(
            list(itertools.islice(tasks, 1)), tasks
        )  # the sampler draws now, not at the first batch
        fetcher = Fetcher(self.dataset, self.collate_fn, self._batched, self.batch_size, self.drop_last)
        if not self.num_workers:
            return _batches_here(fetcher, tasks)
        pool = self._pool
        if pool is None or not pool.shutdown.alive:
            jobs = [Job(i, self.num_workers, fetcher, self.worker_init_fn) for i in range(self.num_workers)]
            pool = WorkerPool(jobs, self.prefetch_factor, self.timeout, self.multiprocessing_context)
            self._pool = pool if self.persistent_workers else None
        return pool.run_epoch(tasks, seed, keep=self.persistent_workers)


def _batches_here(fetcher: Fetcher, tasks: Iterable[Any]) -> Iterator[Any]:
    """The batches, made in this process when they are asked for."""
    fetcher.restart()
    for task in tasks:
        batch = fetcher.fetch(task)
        if batch is Exhausted:
            return
        yield batch
