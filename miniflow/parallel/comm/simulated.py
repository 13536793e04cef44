"""Ranks that are simulated in one process: what they send is copied in memory, and counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from miniflow.backends import memory
from miniflow.device import of_array
from miniflow.parallel.comm.counted import Counted, reduced

Arrays = dict[int, Any]  # rank -> array
Group = Sequence[int]
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

    def all_reduce(self, parts: Arrays, group: Group, by: str = "add", out: Arrays | None = None) -> Arrays:
        """The sum of the parts, for each rank: a reduce-scatter, and an all-gather of the sums.

        Args:
            by: what to do instead of adding, see `reduced`.
            out: arrays to write the sums to; each may be its rank's part.
        """
        first, device = group[0], of_array(parts[group[0]])
        total = reduced([memory.move(parts[r], device) for r in group], None if out is None else out[first], by)
        self.counted.add("all_reduce", 2 * total.nbytes * (len(group) - 1))
        if out is None:
            return {r: memory.move(total.copy(), of_array(parts[r])) for r in group}
        for r in group[1:]:
            memory.copy_into(out[r], memory.move(total, of_array(out[r])))
        return {r: out[r] for r in group}

    def start_all_reduce(self, parts: Arrays, group: Group) -> Callable[[], None]:
        """Start an all-reduce in place, and return a function that waits until the parts hold the sums."""
        for rank, total in self.all_reduce(parts, group).items():  # the parts may be one array, as of local tensors
            memory.copy_into(parts[rank], total)
        return lambda: None

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

    def finish_sending(self) -> None:
        """Wait until the stages of a pipeline have what was sent to them: here nothing is on its way."""
