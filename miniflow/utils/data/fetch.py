"""From a data set to batches, in whatever process that happens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from miniflow.utils.data.dataset import Dataset, IterableDataset


class Exhausted:
    """What a fetcher returns when an IterableDataset has no more samples: the class, which is pickled as itself."""


@dataclass
class Fetcher:
    """Makes one batch at a time.

    Args:
        dataset: where the samples come from.
        collate: makes the batch of a list of samples; with `batched=False`, converts one sample.
        batched: whether a task stands for a list of samples or for one sample.
        batch_size: how many samples of an IterableDataset make a batch.
        drop_last: leave out a last batch of an IterableDataset that is smaller.
    """

    dataset: Dataset
    collate: Callable[[Any], Any]
    batched: bool
    batch_size: int | None
    drop_last: bool
    samples: Iterator | None = None

    def restart(self) -> None:
        """Begin an epoch: an IterableDataset is iterated from its start."""
        self.samples = iter(self.dataset) if isinstance(self.dataset, IterableDataset) else None

    def fetch(self, task: Any) -> Any:
        """The batch for `task`: a list of indices, or one index if not batched; ignored by an IterableDataset."""
        if self.samples is not None:
            return self._next()
        if not self.batched:
            return self.collate(self.dataset[task])
        if hasattr(self.dataset, "__getitems__"):
            return self.collate(self.dataset.__getitems__(task))
        return self.collate([self.dataset[index] for index in task])

    def _next(self) -> Any:
        wanted = self.batch_size if self.batched else 1
        samples = list(itertools.islice(self.samples, wanted))
        if not samples or (len(samples) < wanted and self.drop_last):
            return Exhausted
        return self.collate(samples if self.batched else samples[0])
