"""Ranks that are simulated in one process: what they send is copied in memory, and counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Arrays = dict[int, np.ndarray]
Group = Sequence[int]


class Counted:
    """What a communicator has sent.

    Attributes:
        bytes: collective -> bytes that the ranks of this process have sent by it.
        calls: collective -> how often it ran.
    """

    def __init__(self) -> None:
        self.bytes: dict[str, int] = {}
        self.calls: dict[str, int] = {}

    def add(self, name: str, sent: int) -> None:
        """Count one call."""
        self.bytes[name] = self.bytes.get(name, 0) + sent
        self.calls[name] = self.calls.get(name, 0) + 1


class SimulatedCommunicator:
    """The collectives, with the shards of all ranks at hand.

    Attributes:
        size: the number of ranks.
        owned: the ranks whose arrays this process holds: all.
        counted: what was sent.
    """

    def __init__(self, size: int):
        self.size = size
        self.owned = range(size)
        self.counted = Counted()

    def all_gather(self, parts: Arrays, group: Group, shape_of: Callable[[int], tuple]) -> dict[int, list[np.ndarray]]:
        """The parts of all ranks of the group, for each of them: every part goes to all others.

        Args:
            shape_of: rank -> the shape of its part, which the others have to know.
        """
        self.counted.add("all_gather", sum(x.nbytes for x in parts.values()) * (len(group) - 1))
        return {rank: [parts[r] for r in group] for rank in group}

    def all_reduce(self, parts: Arrays, group: Group) -> Arrays:
        """The sum of the parts, for each rank: a reduce-scatter of n pieces, and an all-gather of their sums."""
        total = summed([parts[r] for r in group])
        self.counted.add("all_reduce", 2 * total.nbytes * (len(group) - 1))
        return {rank: total.copy() for rank in group}

    def reduce_scatter(self, pieces: dict[int, list[np.ndarray]], group: Group) -> Arrays:
        """The sum over the ranks of the i-th pieces, for the i-th rank of the group."""
        self.counted.add("reduce_scatter", off_diagonal(pieces, group))
        return {rank: summed([pieces[r][i] for r in group]) for i, rank in enumerate(group)}

    def all_to_all(
        self, pieces: dict[int, list[np.ndarray]], group: Group, shape_of: Callable[[int, int], tuple]
    ) -> dict[int, list[np.ndarray]]:
        """From each rank the i-th piece for the i-th rank of the group.

        Args:
            shape_of: sender, receiver -> the shape of the piece, which the receiver has to know.
        """
        self.counted.add("all_to_all", off_diagonal(pieces, group))
        return {rank: [pieces[r][i] for r in group] for i, rank in enumerate(group)}

    def exchange(
        self, messages: dict[tuple[int, int], np.ndarray], expected: dict[tuple[int, int], tuple]
    ) -> dict[tuple[int, int], np.ndarray]:
        """Deliver messages, by sender and receiver; `expected` has the shapes of those for ranks of this process."""
        self.counted.add("send", sum(x.nbytes for (sender, receiver), x in messages.items() if sender != receiver))
        return {key: messages[key] for key in expected}

    def all_gather_object(self, value: Any) -> list[Any]:
        """A small object of each rank; not counted."""
        return [value] * self.size

    def barrier(self) -> None:
        """Wait until every rank is here."""


def summed(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The sum, in the order of the ranks: so the number of processes changes no bit."""
    total = parts[0].copy()
    for x in parts[1:]:
        np.add(total, x, out=total)
    return total


def off_diagonal(pieces: dict[int, list[np.ndarray]], group: Group) -> int:
    """The bytes of all pieces but those that a rank keeps."""
    return sum(x.nbytes for rank, row in pieces.items() for i, x in enumerate(row) if group[i] != rank)
