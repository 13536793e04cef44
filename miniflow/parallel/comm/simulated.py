"""Ranks that are simulated in one process: what they send is copied in memory, and counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from miniflow.backends import memory
from miniflow.device import of_array
from miniflow.parallel.comm.counted import Counted, cut, joined, reduced

Arrays = dict[int, Any]  # rank -> array
Group = Sequence[int]
Counts = Sequence[int]
Messages = dict[tuple[int, int], Any]  # sender, receiver -> array


class SimulatedCommunicator:
    """The collectives, with the arrays of all ranks at hand.

    Attributes:
        size: the number of ranks.
        owned: the ranks whose arrays this process holds: all.
        counted: what was sent.
        cuda_aware: whether arrays may be in the memory of CUDA devices; otherwise they are on the CPU.
    """

    cuda_aware = True

    def __init__(self, size: int):
        self.size = size
        self.owned = range(size)
        self.counted = Counted()

    def run(self, call: str, collective: Callable[[Any], Any]) -> Any:
        """The result of `collective(self)`.

        Args:
            call: what the user called, with all that has to be the same on all ranks.
        """
        return collective(self)

    def start(self, call: str, collective: Callable[[Any], Any]) -> Future:
        """As `run`, asynchronously where possible: a future."""
        done: Future = Future()
        done.set_result(collective(self))
        return done

    def all_gather(self, parts: Arrays, group: Group, counts: Counts) -> Arrays:
        """The flat parts of all ranks of the group one after the other, for each of them.

        Args:
            counts: the elements of the parts.
        """
        self.counted.add("all_gather", sum(x.nbytes for x in parts.values()) * (len(group) - 1))
        return {r: joined([parts[g] for g in group], parts[r]) for r in group}

    def all_reduce(self, parts: Arrays, group: Group, by: str = "add") -> Arrays:
        """The sum of the parts, for each rank: a reduce-scatter, and an all-gather of the sums.

        Args:
            by: what to do instead of adding, see `reduced`.
        """
        total = self._total(parts, group, by)
        self.counted.add("all_reduce", 2 * total.nbytes * (len(group) - 1))
        return {r: memory.move(total.copy(), of_array(parts[r])) for r in group}

    def start_all_reduce(self, parts: Arrays, group: Group) -> Callable[[], None]:
        """Start an all-reduce in place, and return a function that waits until the parts hold the sums."""
        for rank, total in self.all_reduce(parts, group).items():
            memory.copy_into(parts[rank], total)
        return lambda: None

    def reduce_scatter(self, parts: Arrays, group: Group, counts: Counts, by: str = "add") -> Arrays:
        """The sum of the flat parts, of which the i-th rank of the group gets `counts[i]` elements."""
        total = self._total(parts, group, by)
        self.counted.add("reduce_scatter", total.nbytes * (len(group) - 1))
        pieces = zip(group, cut(total, counts), strict=True)
        return {r: memory.move(piece, of_array(parts[r])) for r, piece in pieces}

    def _total(self, parts: Arrays, group: Group, by: str) -> Any:
        """The sum, on the device of the first rank of the group."""
        device = of_array(parts[group[0]])
        return reduced([memory.move(parts[r], device) for r in group], None, by)

    def all_to_all(self, parts: Arrays, group: Group, sent: dict[int, Counts], received: dict[int, Counts]) -> Arrays:
        """From each rank `sent[rank][i]` elements of its flat part to the i-th of the group.

        Args:
            received: rank -> the elements that it gets from each of the group.
        """
        pieces = {r: cut(parts[r], sent[r]) for r in group}
        moved = sum(x.nbytes for r, row in pieces.items() for g, x in zip(group, row, strict=True) if g != r)
        self.counted.add("all_to_all", moved)
        return {r: joined([pieces[g][i] for g in group], parts[r]) for i, r in enumerate(group)}

    def exchange(self, messages: Messages, targets: Messages, group: Group | None = None, name: str = "send") -> None:
        """Deliver messages, by sender and receiver.

        Args:
            targets: what is filled with those for ranks of this process.
            group: the ranks of all of them; None for all.
            name: what it is, for the count.
        """
        sent = sum(x.nbytes for (sender, receiver), x in messages.items() if sender != receiver)
        self.counted.add(name, sent)
        for key, target in targets.items():
            memory.copy_into(target, memory.move(messages[key], of_array(target)))

    def all_gather_object(self, value: Any, group: Group) -> list[Any]:
        """A small object of each rank of the group; not counted."""
        return [value] * len(group)

    def barrier(self, group: Group | None = None) -> None:
        """Wait until every rank of a group is here; None for all."""
