"""Groups of ranks for collectives of local tensors, and asynchronous collectives."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from miniflow.backends.runtime_defaults import user_level
from miniflow.errors import ArgumentError
from miniflow.parallel import world

listeners: list[Callable] = []  # called with what a collective does, in words, and its ranks, before it runs


class ProcessGroup:
    """The ranks that take part in a collective.

    Args:
        given: some of the ranks, in order; None for all that there are.

    Source: `torch.distributed.ProcessGroup`.
    """

    def __init__(self, given: tuple[int, ...] | None = None):
        self._ranks = given

    @property
    def ranks(self) -> tuple[int, ...]:
        """Their numbers in the world."""
        return tuple(range(world.size())) if self._ranks is None else self._ranks

    def size(self) -> int:
        """How many there are."""
        return len(self.ranks)

    def rank(self) -> int:
        """The position of this process among them; -1 if it is none of them."""
        return self.ranks.index(world.rank()) if world.rank() in self.ranks else -1

    def __repr__(self) -> str:
        return f"ProcessGroup(ranks={list(self.ranks)})"


class group:
    """`group.WORLD` are all ranks. As `torch.distributed.group`."""

    WORLD = ProcessGroup()


def new_group(
    ranks: Sequence[int] | None = None, timeout: datetime.timedelta | None = None, backend: Any = None,
    pg_options: Any = None, use_local_synchronization: bool = False, group_desc: str | None = None,
) -> ProcessGroup:  # fmt: skip
    """Some ranks, for the argument `group` of collectives.

    Ranks that are not in it may make it too, and get an object that no collective uses. MPI's communicator is made by
    its ranks at their first collective.

    Args:
        ranks: numbers in the world; None for all. They are sorted, as PyTorch does.
        timeout, backend, pg_options, use_local_synchronization, group_desc: of PyTorch, without effect.

    Raises:
        ArgumentError: for ranks that do not exist, or come twice.

    >>> import miniflow as flow
    >>> flow.parallel.simulate(4)
    >>> x = flow.ones(2)
    >>> flow.comm.all_reduce(x, group=flow.distributed.new_group([0, 2]))
    >>> x.tolist()
    [2.0, 2.0]
    >>> flow.parallel.simulate(1)

    Source: `torch.distributed.new_group`.
    """
    if ranks is None:
        return ProcessGroup()
    array = np.asarray(ranks)
    numbers, integers = array.tolist(), array.ndim == 1 and array.dtype.kind in "iu"
    if not integers or len(set(numbers)) != len(numbers) or not set(numbers) <= set(range(world.size())):
        raise ArgumentError(f"new_group: got ranks={numbers!r}; expected each once, of {world.size()}")
    return ProcessGroup(tuple(sorted(numbers)))


class Work:
    """An asynchronous collective or message. Its tensors may be read, and written, after `wait`.

    Source: `torch.distributed.Work`.
    """

    def __init__(self, pending: Any, finish: Callable[[Any], None]):
        self._pending = pending
        self._finish: Callable[[Any], None] | None = finish

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Wait for its end, and write the result; True. As for all that waits, MINIFLOW_TIMEOUT_SECONDS is the limit.

        Raises:
            PlacementError: if ranks called different things.
        """
        if self._finish is not None:
            result = self._pending.result()
            finish, self._finish = self._finish, None
            finish(result)
        return True

    def is_completed(self) -> bool:
        """Whether `wait` would return at once."""
        return self._finish is None or self._pending.done() and self.wait()


def run(
    call: str, ranks: Sequence[int], collective: Callable[[Any], Any], finish: Callable[[Any], None], async_op: bool
) -> Work | None:
    """Run a collective of local tensors, or start it.

    Args:
        call: what it is, with all that has to be the same on all ranks.
        ranks: which take part; on others nothing is done, with a warning.
        collective: what the communicator does.
        finish: writes what that returns.
        async_op: return at once.

    Returns:
        what waits for the end, if `async_op` is true.
    """
    if world.rank() not in ranks:
        message = f"{call}: rank {world.rank()} is not in the group {list(ranks)} and does nothing"
        warnings.warn(message, stacklevel=user_level())
        return None
    for listen in listeners:
        listen(call, ranks)
    if async_op:
        return Work(world.communicator().start(call, collective), finish)
    finish(world.communicator().run(call, collective))
    return None


def ranks_of(group: ProcessGroup | None) -> tuple[int, ...]:
    """The ranks of a group; of None: all."""
    return (group or ProcessGroup()).ranks
