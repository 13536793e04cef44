"""MPI ranks: this process is one of them, the others run the same script.

Values are sent as bytes, whatever their dtype, and added up here in the order of the ranks: so a sum has the same bits
as that of simulated ranks. A rank that raises ends all of them. One that leaves the common path, so that the others
wait for it in vain, is found by time-out: each rank that waits says for what, and all end.

Arrays on CUDA devices go through the memory of the CPU, or straight to an MPI that was built for CUDA if
`MINIFLOW_CUDA_AWARE_MPI=1` says that this one was.

Source: the MPI standard; Thakur, Rabenseifner and Gropp 2005, "Optimization of collective communication operations in
MPICH" (an all-reduce is a reduce-scatter and an all-gather).
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from miniflow.backends import memory
from miniflow.errors import ArgumentError, PlacementError
from miniflow.parallel.caller import line_of_caller
from miniflow.parallel.comm.counted import Counted, parts_of, reduced
from miniflow.parallel.comm.simulated import Arrays, Counts, Group


class MpiCommunicator:
    """The collectives between MPI processes; the arrays in the dicts are those of this rank.

    Attributes: those of `SimulatedCommunicator`.

    Raises:
        PlacementError: if mpi4py is not installed.
    """

    def __init__(self) -> None:
        try:
            from mpi4py import MPI
        except ImportError as error:
            raise PlacementError(
                "this process was started as one of several MPI ranks, and mpi4py is not installed: "
                'pip install "miniflow-edu[mpi]"'
            ) from error
        self.mpi = MPI
        self.world = MPI.COMM_WORLD
        self.size = self.world.Get_size()
        self.rank = self.world.Get_rank()
        self.cuda_aware = os.environ.get("MINIFLOW_CUDA_AWARE_MPI", "0") == "1"
        self.owned = range(self.rank, self.rank + 1)
        self.counted = Counted()
        self._groups = {tuple(range(self.size)): self.world}
        self._watchdog = Watchdog(self.world)
        self._watchdog.start()
        end_all_on_exception(self.world)

    def _bytes(self, x: Any) -> Any:
        """The memory of an array in row-major order; a device finishes first what it has to do."""
        assert memory.row_major(x) is x, "an array with gaps was to be sent"
        memory.synchronize(x)
        return self.mpi.buffer.fromaddress(memory.address(x), x.nbytes)

    def _of(self, group: Group) -> Any:
        """MPI's communicator for a group, which its ranks make together when they first need it."""
        key = tuple(group)
        if key not in self._groups:
            with self._watchdog.waits("the first collective", key):
                self._groups[key] = self.world.Create_group(self.world.group.Incl(list(key)))
        return self._groups[key]

    def all_gather(self, parts: Arrays, group: Group, counts: Counts) -> Arrays:
        """As `SimulatedCommunicator.all_gather`."""
        part = parts[self.rank]
        self.counted.add("all_gather", part.nbytes * (len(group) - 1))
        return {self.rank: self._all_gather(part, group, counts)}

    def _all_gather(self, part: Any, group: Group, counts: Counts) -> Any:
        whole = memory.empty_like(part, (sum(counts),))
        comm = self._of(group)
        with self._watchdog.waits("all_gather", group):
            comm.Allgatherv(self._bytes(part), [self._bytes(whole), [n * part.itemsize for n in counts]])
        return whole

    def all_reduce(self, parts: Arrays, group: Group, by: str = "add") -> Arrays:
        """As `SimulatedCommunicator.all_reduce`."""
        x = parts[self.rank]
        counts = self._count_all_reduce(x, group)
        mine = self._reduce_scatter(x.reshape(-1), group, counts, "all_reduce", by)
        return {self.rank: self._all_gather(mine, group, counts).reshape(x.shape)}

    def _count_all_reduce(self, x: Any, group: Group) -> list[int]:
        """Count a reduce-scatter and an all-gather; returns the elements of each rank's part."""
        counts = parts_of(x.size, len(group))
        own = self._own(counts, group)
        self.counted.add("all_reduce", (x.size - own + own * (len(group) - 1)) * x.itemsize)
        return counts

    def _own(self, counts: Counts, group: Group) -> int:
        """What counts for this rank."""
        return counts[list(group).index(self.rank)]

    def start_all_reduce(self, parts: Arrays, group: Group) -> Callable[[], None]:
        """As `SimulatedCommunicator.start_all_reduce`; MPI chooses the order of the sum."""
        x = parts[self.rank]
        self._count_all_reduce(x, group)
        kind = self.mpi.Datatype.fromcode(x.dtype.char)
        request = self._of(group).Iallreduce(self.mpi.IN_PLACE, [self._bytes(x), kind])

        def wait() -> None:
            with self._watchdog.waits("all_reduce", group):
                request.Wait()

        return wait

    def reduce_scatter(self, parts: Arrays, group: Group, counts: Counts, by: str = "add") -> Arrays:
        """As `SimulatedCommunicator.reduce_scatter`."""
        x = parts[self.rank]
        self.counted.add("reduce_scatter", (x.size - self._own(counts, group)) * x.itemsize)
        return {self.rank: self._reduce_scatter(x, group, counts, "reduce_scatter", by)}

    def _reduce_scatter(self, x: Any, group: Group, counts: Counts, name: str, by: str) -> Any:
        """Block after block, so that what comes from the others is added while it is in the cache."""
        own, me = self._own(counts, group), list(group).index(self.rank)
        starts = np.cumsum([0, *counts[:-1]])
        result, block = memory.empty_like(x, (own,)), max(1, BLOCK // len(group) // x.itemsize)
        arrived = memory.empty_like(x, (len(group), min(block, own)))
        offsets = [rank * arrived.shape[1] * x.itemsize for rank in range(len(group))]
        comm = self._of(group)
        with self._watchdog.waits(name, group):
            for first in range(0, max(counts), block):
                mine = min(block, max(0, own - first))
                sent = [min(block, max(0, n - first)) * x.itemsize for n in counts]
                received = [mine * x.itemsize] * len(group)
                sent[me] = received[me] = 0
                comm.Alltoallv(
                    [self._bytes(x), (sent, (starts + first) * x.itemsize)],
                    [self._bytes(arrived), (received, offsets)],
                )
                if mine:
                    rows = [arrived[i, :mine] for i in range(len(group))]
                    rows[me] = x[starts[me] + first :][:mine]
                    reduced(rows, result[first : first + mine], by)
        return result

    def all_to_all(self, parts: Arrays, group: Group, sent: dict[int, Counts], received: dict[int, Counts]) -> Arrays:
        """As `SimulatedCommunicator.all_to_all`."""
        x, counts = parts[self.rank], sent[self.rank]
        self.counted.add("all_to_all", (x.size - self._own(counts, group)) * x.itemsize)
        return {self.rank: self._all_to_all(x, group, counts, received[self.rank], "all_to_all")}

    def _all_to_all(self, x: Any, group: Group, sent: Counts, received: Counts, name: str) -> Any:
        result = memory.empty_like(x, (sum(received),))
        comm = self._of(group)
        sizes, found = ([n * x.itemsize for n in counts] for counts in (sent, received))
        with self._watchdog.waits(name, group):
            comm.Alltoallv([self._bytes(x), sizes], [self._bytes(result), found])
        return result

    def exchange(
        self, messages: dict[tuple[int, int], np.ndarray], expected: dict[tuple[int, int], tuple]
    ) -> dict[tuple[int, int], np.ndarray]:
        """As `SimulatedCommunicator.exchange`."""
        others = {key: memory.row_major(x) for key, x in messages.items() if key[1] != self.rank}
        self.counted.add("send", sum(x.nbytes for x in others.values()))
        found = {key: memory.empty(*kind) for key, kind in expected.items() if key not in messages}
        requests = [self.world.Irecv(self._bytes(x), source) for (source, _), x in found.items()]
        requests += [self.world.Isend(self._bytes(x), target) for (_, target), x in others.items()]
        with self._watchdog.waits("send and receive", sorted({r for key in (*found, *others) for r in key})):
            self.mpi.Request.Waitall(requests)
        return {key: messages[key] if key in messages else found[key] for key in expected}

    def all_gather_object(self, value: Any, group: Group) -> list[Any]:
        """As `SimulatedCommunicator.all_gather_object`."""
        comm = self._of(group)
        with self._watchdog.waits("a comparison", group):
            return comm.allgather(value)

    def barrier(self) -> None:
        """As `SimulatedCommunicator.barrier`."""
        with self._watchdog.waits("barrier", range(self.size)):
            self.world.Barrier()


BLOCK = 1 << 20  # bytes from all ranks that are added up at a time: what the cache of a core holds


class Watchdog(threading.Thread):
    """Ends the process when it has waited for other ranks for too long."""

    def __init__(self, world: Any):
        super().__init__(daemon=True, name="watchdog of MPI")
        self.world = world
        self.rank = world.Get_rank()
        self.limit = time_limit()
        self.waiting: tuple[float, str, Group] | None = None

    @contextlib.contextmanager
    def waits(self, name: str, group: Group) -> Iterator[None]:
        """While a collective of these ranks runs."""
        self.waiting = time.monotonic(), name, group
        try:
            yield
        finally:
            self.waiting = None

    def run(self) -> None:
        """Look now and then."""
        while True:
            time.sleep(min(1.0, self.limit / 4))
            waiting = self.waiting
            if waiting is not None and time.monotonic() - waiting[0] > self.limit:
                print(self.report(*waiting[1:]), file=sys.stderr, flush=True)
                time.sleep(2 + self.limit / 4)  # the others say so too
                self.world.Abort(1)

    def report(self, name: str, group: Group) -> str:
        """What this rank waits for, and where."""
        others = [r for r in group if r != self.rank]
        return (
            f"rank {self.rank} has waited for {self.limit:g} s for ranks {others} in {name}, called at "
            f"{line_of_caller()}\n"
            "Maybe executing different code in different ranks, please check if the code is branched and operates on "
            "the global tensor. Ranks that print no such line are elsewhere; MINIFLOW_CHECK_RANKS=1 compares what "
            "they run, MINIFLOW_TIMEOUT_SECONDS sets the limit."
        )


def time_limit() -> float:
    """Seconds to wait for other ranks: MINIFLOW_TIMEOUT_SECONDS, or 300.

    Raises:
        ArgumentError: if it is not a positive number.
    """
    text = os.environ.get("MINIFLOW_TIMEOUT_SECONDS", "300")
    try:
        limit = float(text)
    except ValueError:
        limit = 0.0
    if not limit > 0:
        raise ArgumentError(f"MINIFLOW_TIMEOUT_SECONDS: got {text!r}; expected a positive number")
    return limit


def end_all_on_exception(comm: Any) -> None:
    """An exception that nobody catches ends the other ranks too, after its traceback."""

    def hook(kind: Any, value: Any, trace: Any) -> None:
        lines = [*traceback.format_exception(kind, value, trace), f"rank {comm.Get_rank()} ends all ranks\n"]
        sys.stderr.write("".join(lines))  # at once, since others may write too
        sys.stderr.flush()
        time.sleep(0.5)  # mpiexec passes that on, and drops what comes after the end
        comm.Abort(1)

    sys.excepthook = hook
