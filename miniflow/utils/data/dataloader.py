"""The DataLoader: batches of a data set, made here or by worker processes ahead of time."""

from __future__ import annotations

import itertools
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from miniflow.dispatch.tape import modes
from miniflow.errors import ArgumentError, ArgumentTypeError
from miniflow.nn.arguments import AT_LEAST_0, ExplainsArguments, check_range
from miniflow.ops.generator import Generator
from miniflow.ops.random import randint
from miniflow.utils.data.collate import default_collate, default_convert
from miniflow.utils.data.dataset import Dataset, IterableDataset
from miniflow.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler, check_positive
from miniflow.utils.data.workers import Exhausted, Job, WorkerPool


class DataLoader(ExplainsArguments):
    """Iterates over a data set in batches; each `for` loop over it is one epoch.

    Every index of the sampler is read exactly once an epoch, and the order of the batches does not depend on
    `num_workers`. Shuffling and the workers' seeds come from `generator`: equal seeds give equal epochs.

    With worker processes, random numbers drawn in the data set differ between workers and from epoch to epoch: worker i
    seeds `random`, `numpy.random` and `flow.manual_seed` with the epoch's seed + i. An exception in a worker is raised
    here, of the same class and with the worker's traceback; a worker that dies is a WorkerError. Workers start with
    their epoch and end with it, also when the loop is left early. On Linux they are forked: see `utils/data/workers.py`
    for what that means.

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
        ArgumentTypeError: for a dataset, function or generator that is none.

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
        self, dataset: Dataset, batch_size: int | None = 1, shuffle: bool = False, sampler: Iterable | None = None,
        batch_sampler: Iterable | None = None, num_workers: int = 0, collate_fn: Callable[[list], Any] | None = None,
        pin_memory: bool = False, drop_last: bool = False, timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None, multiprocessing_context: Any = None,
        generator: Generator | None = None, *, prefetch_factor: int | None = 2, persistent_workers: bool = False,
    ):  # fmt: skip
        check_range(self, AT_LEAST_0, num_workers=num_workers, timeout=timeout)
        for name, value in (("collate_fn", collate_fn), ("worker_init_fn", worker_init_fn)):
            if value is not None and not callable(value):
                raise ArgumentTypeError(f"DataLoader: got {name}={value!r}; expected a function, or None")
        if not isinstance(generator, Generator | None):
            raise ArgumentTypeError(f"DataLoader: got generator={generator!r}; expected a flow.Generator, or None")
        if not hasattr(dataset, "__getitem__") and not hasattr(dataset, "__iter__"):
            raise ArgumentTypeError(f"DataLoader: got dataset={dataset!r}; expected a Dataset, or a list of samples")
        self.dataset, self.batch_size, self.shuffle, self.drop_last = dataset, batch_size, shuffle, drop_last
        self.sampler, self.batch_sampler, self.generator = sampler, batch_sampler, generator
        self.num_workers, self.persistent_workers, self.timeout = num_workers, persistent_workers, timeout
        self.worker_init_fn, self.pin_memory = worker_init_fn, pin_memory
        context = multiprocessing_context or ("fork" if sys.platform == "linux" else "spawn")
        self.multiprocessing_context = multiprocessing.get_context(context) if isinstance(context, str) else context
        self.prefetch_factor = 2 if prefetch_factor is None else prefetch_factor
        self._idle: list[WorkerPool] = []  # persistent workers between epochs
        check_positive("DataLoader", "prefetch_factor", self.prefetch_factor)
        self._choose_samplers()
        self.collate_fn = collate_fn or (default_convert if self.batch_sampler is None else default_collate)

    def _choose_samplers(self) -> None:
        iterable = isinstance(self.dataset, IterableDataset)
        if iterable and (self.shuffle or self.sampler is not None or self.batch_sampler is not None):
            raise ArgumentError(
                "DataLoader: got shuffle, sampler or batch_sampler for an IterableDataset, which has no indices; "
                "expected none of them: order the samples in its __iter__"
            )
        if self.sampler is not None and self.shuffle:
            raise ArgumentError(
                "DataLoader: got both sampler and shuffle=True; expected one: the sampler sets the order"
            )
        if self.batch_sampler is not None:
            if self.batch_size != 1 or self.shuffle or self.sampler is not None or self.drop_last:
                raise ArgumentError(
                    "DataLoader: got batch_sampler with batch_size, shuffle, sampler or drop_last; "
                    "expected it alone: it sets all of them"
                )
            self.batch_size = None
            return
        if iterable:
            self.sampler = self.dataset
        elif self.shuffle:
            self.sampler = RandomSampler(self.dataset, generator=self.generator)
        elif self.sampler is None:
            self.sampler = SequentialSampler(self.dataset)
        if self.batch_size is not None:
            self.batch_sampler = BatchSampler(self.sampler, self.batch_size, self.drop_last)
        elif self.drop_last:
            raise ArgumentError("DataLoader: got drop_last=True with batch_size=None; expected a batch_size")

    def __len__(self) -> int:
        """The number of batches of an epoch, if the data set or the sampler has a length."""
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        """An epoch: the batches in turn."""
        batches = self._batches()
        return batches if modes.profiler is None else modes.profiler.each("enumerate(DataLoader)", batches)

    def _batches(self) -> Iterator[Any]:
        seed = int(randint(0, 2**48, (1,), device="cpu", generator=self.generator).item())
        batched = self.batch_sampler is not None
        tasks = self.batch_sampler if batched else self.sampler
        if isinstance(self.dataset, IterableDataset):
            tasks = itertools.repeat(None)
        reading = (self.dataset, self.collate_fn, batched, self.batch_size, self.drop_last)
        if not self.num_workers:
            fetch = fetcher(*reading)
            for task in tasks:
                if (batch := fetch(task)) is Exhausted:
                    return
                yield batch
            return
        if self._idle:
            pool = self._idle.pop()
        else:
            job = Job(self.num_workers, self.dataset, partial(fetcher, *reading), self.worker_init_fn)
            pool = WorkerPool(job, self.multiprocessing_context)
        try:
            yield from pool.run_epoch(tasks, seed, self.prefetch_factor, self.timeout)
        finally:
            if self.persistent_workers and pool.shutdown.still_active():
                self._idle.append(pool)
            else:
                pool.shutdown()


def fetcher(
    dataset: Dataset, collate: Callable[[Any], Any], batched: bool, batch_size: int | None, drop_last: bool
) -> Callable[[Any], Any]:
    """The function that makes the batch for a task, in whatever process that happens; it serves one epoch.

    Args:
        dataset: where the samples come from.
        collate: makes the batch of a list of samples; with `batched=False`, converts one sample.
        batched: whether a task is a list of indices or one index; for an IterableDataset a task is any object.
        batch_size: how many samples of an IterableDataset make a batch.
        drop_last: leave out a last batch of an IterableDataset that is smaller.

    Returns:
        the function from a task to a batch, or to `Exhausted` after the last sample of an IterableDataset.
    """
    if isinstance(dataset, IterableDataset):
        inputs = BatchSampler(dataset, batch_size, drop_last) if batched else dataset
        batches = (collate(samples) for samples in inputs)
        return lambda task: next(batches, Exhausted)
    if not batched:
        return lambda index: collate(dataset[index])
    if hasattr(dataset, "__getitems__"):
        return lambda indices: collate(dataset.__getitems__(indices))
    return lambda indices: collate([dataset[index] for index in indices])
