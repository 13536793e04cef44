"""Samples shared out among ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized

from miniflow.errors import ArgumentError
from miniflow.ops.generator import Generator
from miniflow.ops.random import randperm
from miniflow.parallel import world
from miniflow.utils.data.sampler import Sampler


class DistributedSampler(Sampler[int]):
    """The indices of one rank: every `num_replicas`-th, as many on each rank.

    Args:
        dataset: with `__len__`.
        num_replicas: the number of ranks; None for the size of the world.
        rank: None for that of this process.
        shuffle: another order each epoch; call `set_epoch` before each.
        seed: the same on all ranks.
        drop_last: leave out what does not go round; otherwise the first samples come again.

    Raises:
        ArgumentError: for a rank that is not below `num_replicas`.

    >>> list(DistributedSampler("abcde", num_replicas=2, rank=1, shuffle=False))
    [1, 3, 0]

    Source: `torch.utils.data.distributed.DistributedSampler`.
    """

    def __init__(
        self, dataset: Sized, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True,
        seed: int = 0, drop_last: bool = False,
    ):  # fmt: skip
        self.dataset = dataset
        self.num_replicas = world.size() if num_replicas is None else num_replicas
        self.rank = world.rank() if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ArgumentError(f"DistributedSampler: got rank={self.rank}; expected 0 to {self.num_replicas - 1}")
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.epoch = 0
        share = len(dataset) / self.num_replicas
        self.num_samples = math.floor(share) if drop_last else math.ceil(share)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next epoch: the same on all ranks."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = list(range(len(self.dataset)))
        if self.shuffle:
            order = randperm(len(order), generator=Generator().manual_seed(self.seed + self.epoch)).tolist()
        total = self.num_samples * self.num_replicas
        if order:
            order = (order * math.ceil(total / len(order)))[:total]
        return iter(order[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
