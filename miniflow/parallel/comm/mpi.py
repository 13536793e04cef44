"""MPI ranks: this process is one of them, the others run the same script.

Values are sent as bytes, whatever their dtype, and added up here in the order of the ranks: so a sum has the same bits
as that of simulated ranks. A rank that raises ends all of them. One that leaves the common path, so that the others
wait for it in vain, is found by time-out: each rank that waits says for what, and all end. What others send is known
by a tag that says for what it was sent, and by its size: so ranks that disagree are found as soon as a message comes.

Arrays on CUDA devices go through the memory of the CPU, or straight to an MPI that was built for CUDA if
`MINIFLOW_CUDA_AWARE_MPI=1` says that this one was.

Source: the MPI standard; Thakur, Rabenseifner and Gropp 2005, "Optimization of collective communication operations in
MPICH" (an all-reduce is a reduce-scatter and an all-gather).
"""

from __future__ import annotations

import contextlib
import copy
import os
import sys
import threading
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from miniflow.backends import memory
from miniflow.device import CPU, of_array
from miniflow.errors import ArgumentError, PlacementError
from miniflow.parallel.caller import line_of_caller
from miniflow.parallel.comm.counted import Counted, cut, parts_of, reduced
from miniflow.parallel.comm.simulated import Arrays, Group, Messages


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
        self.peers = MPI.COMM_WORLD  # of the messages that users send
        self.size = self.peers.Get_size()
        self.rank = self.peers.Get_rank()
        self.call = ""  # what the user called
        self._tag = 0  # of the groups that are made
        self._background: tuple[MpiCommunicator, ThreadPoolExecutor] | None = None
        self.cuda_aware = os.environ.get("MINIFLOW_CUDA_AWARE_MPI", "0") == "1"
        self.owned = range(self.rank, self.rank + 1)
        self.counted = Counted()
        self._watchdog = Watchdog(self.peers, MPI)
        self._watchdog.start()
        with self._watchdog.waits("import miniflow", range(self.size)):
            self.world = self.peers.Dup()  # where no message of users is taken for one of a collective
            self.stages = self.peers.Dup()  # nor for one between the stages of a pipeline
        self._sending: list[Message] = []
        self._expected: dict[tuple[int, int], Message] = {}  # by rank and tag
        self._groups = {tuple(range(self.size)): self.world}
        end_all_on_exception(self.world)

    def _buffers(self, x: Any) -> list[Any]:
        """The memory of an array in row-major order, in parts that fit into a message; a device finishes first what it
        has to do."""
        assert memory.row_major(x) is x, "an array with gaps was to be sent"
        memory.synchronize(x)
        whole = self.mpi.buffer.fromaddress(memory.address(x), x.nbytes)
        return [whole[i : i + MOST] for i in range(0, max(1, x.nbytes), MOST)]

    def _of(self, group: Group) -> Any:
        """MPI's communicator for a group, which its ranks make together when they first need it."""
        key = tuple(group)
        if key not in self._groups:
            with self._watchdog.waits("the first collective", key):
                self._groups[key] = self.world.Create_group(self.world.group.Incl(list(key)), self._tag)
        return self._groups[key]

    def run(self, call: str, collective: Callable[[Any], Any]) -> Any:
        """As `SimulatedCommunicator.run`."""
        self.call = call
        try:
            return collective(self)
        finally:
            self.call = ""

    def start(self, call: str, collective: Callable[[Any], Any]) -> Future:
        """As `SimulatedCommunicator.start`: one thread runs them in their order, between groups of its own. An MPI that
        takes calls from one thread only runs them at once."""
        if self.mpi.Query_thread() < self.mpi.THREAD_MULTIPLE:
            done: Future = Future()
            done.set_result(self.run(call, collective))
            return done
        if self._background is None:
            other = copy.copy(self)
            other._groups, other._tag = {}, 1
            self._background = other, ThreadPoolExecutor(1, "collectives")
        other, thread = self._background
        return thread.submit(other.run, call, collective)

    def _move(self, name: str, group: Group, sent: dict[int, Any], received: dict[int, Any]) -> None:
        """Send arrays to ranks of a group, and fill arrays with what they send.

        Raises:
            PlacementError: if something else comes than what is expected.
        """
        comm, group_rank = self._of(group), {rank: i for i, rank in enumerate(group)}
        kinds = sorted({str(x.dtype) for x in (*sent.values(), *received.values())})
        tag = zlib.crc32(f"{name} {kinds} {self.call}".encode()) % 32768  # which every MPI has
        with self._watchdog.waits(self.call or name, group):
            expected = [(rank, buffer) for rank, x in received.items() for buffer in self._buffers(x)]
            requests = [comm.Irecv(buffer, group_rank[rank]) for rank, buffer in expected]
            requests += [comm.Isend(b, group_rank[rank], tag) for rank, x in sent.items() for b in self._buffers(x)]
            statuses = [self.mpi.Status() for _ in requests]
            self.mpi.Request.Waitall(requests, statuses)
        for (rank, buffer), status in zip(expected, statuses, strict=False):
            if status.tag != tag:
                raise self._watchdog.left(self.call or name, group, f"got what rank {rank} sent in another call")
            if status.count != buffer.nbytes:
                sizes = f"got {status.count} bytes from rank {rank}; expected {buffer.nbytes}"
                raise self._watchdog.left(self.call or name, group, sizes)

    def send(self, x: Any, rank: int, tag: int) -> None:
        """Start to send an array, which may change at once, from one stage of a pipeline to another."""
        self._sending = [message for message in self._sending if not message.done()]
        self._sending.append(self.post(memory.row_major(memory.to_host(x).copy()), rank, tag, comm=self.stages))

    def expect(self, x: Any, rank: int, tag: int) -> None:
        """Start to receive what `receive` will fill an array like `x` with: MPI can write it while this rank computes,
        if it makes progress by itself, as MPICH with MPIR_CVAR_ASYNC_PROGRESS=1."""
        arrived = memory.empty(x.shape, x.dtype, CPU)
        self._expected[rank, tag] = self.post(arrived, rank, tag, receive=True, comm=self.stages)

    def receive(self, x: Any, rank: int, tag: int) -> None:
        """Fill an array with what `send` has sent."""
        if (rank, tag) not in self._expected:
            self.expect(x, rank, tag)
        message = self._expected.pop((rank, tag))
        message.result()
        memory.copy_into(x, memory.move(message.x, of_array(x)))

    def finish_sending(self) -> None:
        """Wait until all has come that `send` has sent."""
        for message in self._sending:
            message.result()
        self._sending.clear()

    def post(self, x: Any, peer: int | None, tag: int, receive: bool = False, comm: Any = None) -> Message:
        """Start to send an array to a rank, or to fill it with what a rank sends; None: whichever.

        Raises:
            ArgumentError: for more than fits into one message.
        """
        if x.nbytes > MOST:
            raise ArgumentError(
                f"send: got a tensor of {x.nbytes:,} bytes; expected at most {MOST:,} in a message: send parts of it"
            )
        self.counted.add("send", 0 if receive else x.nbytes)
        comm = self.peers if comm is None else comm
        begin = comm.Irecv if receive else comm.Isend
        request = begin(self._buffers(x)[0], self.mpi.ANY_SOURCE if peer is None else peer, tag)
        return Message(self, x, request, receive, range(self.size) if peer is None else [peer])

    def all_reduce(self, parts: Arrays, group: Group, by: str = "add", out: Arrays | None = None) -> Arrays:
        """As `SimulatedCommunicator.all_reduce`."""
        x = parts[self.rank]
        counts = self._count_all_reduce(x, group)
        gathered = memory.empty_like(x, (x.size,)) if out is None else out[self.rank].reshape(-1)
        pieces = dict(zip(group, cut(gathered, counts), strict=True))
        mine = pieces.pop(self.rank)
        mine[...] = self._reduce_scatter(x.reshape(-1), group, counts, by)
        self._move("all_reduce", group, dict.fromkeys(pieces, mine), pieces)
        return {self.rank: gathered.reshape(x.shape) if out is None else out[self.rank]}

    def _count_all_reduce(self, x: Any, group: Group) -> list[int]:
        """Count a reduce-scatter and an all-gather; returns the elements of each rank's part."""
        counts = parts_of(x.size, len(group))
        count = counts[list(group).index(self.rank)]
        self.counted.add("all_reduce", (x.size - count + count * (len(group) - 1)) * x.itemsize)
        return counts

    def start_all_reduce(self, parts: Arrays, group: Group) -> Callable[[], None]:
        """As `SimulatedCommunicator.start_all_reduce`; MPI chooses the order of the sum."""
        x = parts[self.rank]
        self._count_all_reduce(x, group)
        datatype = self.mpi.Datatype.fromcode(x.dtype.char)
        comm = self._of(group)
        requests = [comm.Iallreduce(self.mpi.IN_PLACE, [buffer, datatype]) for buffer in self._buffers(x)]

        def wait() -> None:
            with self._watchdog.waits("all_reduce", group):
                self.mpi.Request.Waitall(requests)

        return wait

    def _reduce_scatter(self, x: Any, group: Group, counts: Sequence[int], by: str) -> Any:
        """Block after block, so that what comes from the others is added while it is in the cache."""
        count, pieces = counts[list(group).index(self.rank)], dict(zip(group, cut(x, counts), strict=True))
        result, block = memory.empty_like(x, (count,)), max(1, BLOCK // len(group) // x.itemsize)
        arrived = memory.empty_like(x, (len(group), min(block, count)))
        other_ranks = [rank for rank in group if rank != self.rank]
        for first in range(0, max(counts), block):
            rows = {rank: arrived[i, : max(0, count - first)] for i, rank in enumerate(group)}
            sent = {rank: pieces[rank][first : first + block] for rank in other_ranks}
            self._move(f"all_reduce by {by}", group, sent, {rank: rows[rank] for rank in other_ranks})
            if first < count:
                rows[self.rank] = pieces[self.rank][first : first + block]
                reduced(list(rows.values()), result[first : first + block], by)
        return result

    def exchange(self, messages: Messages, targets: Messages, group: Group | None = None, name: str = "send") -> None:
        """As `SimulatedCommunicator.exchange`."""
        sent = {
            target: memory.row_major(x if self.cuda_aware else memory.to_host(x))
            for (_, target), x in messages.items()
            if target != self.rank
        }
        self.counted.add(name, sum(x.nbytes for x in sent.values()))
        values, arriving = dict(messages), {}
        for (source, _), x in targets.items():
            if source != self.rank:  # straight to where it is needed, if MPI can write there
                place = of_array(x) if self.cuda_aware else CPU
                direct = memory.is_on(x, place) and memory.row_major(x) is x
                arriving[source] = values[source, self.rank] = x if direct else memory.empty(x.shape, x.dtype, place)
        self._move(name, range(self.size) if group is None else group, sent, arriving)
        for key, x in targets.items():
            if values[key] is not x:
                memory.copy_into(x, memory.move(values[key], of_array(x)))

    def all_gather_object(self, value: Any, group: Group) -> list[Any]:
        """As `SimulatedCommunicator.all_gather_object`."""
        comm = self._of(group)
        with self._watchdog.waits("a comparison", group):
            return comm.allgather(value)

    def barrier(self, group: Group | None = None) -> None:
        """As `SimulatedCommunicator.barrier`."""
        group = range(self.size) if group is None else group
        comm = self._of(group)
        with self._watchdog.waits("barrier", group):
            comm.Barrier()


class Message:
    """What `MpiCommunicator.post` started; it has two methods of a future."""

    def __init__(self, owner: MpiCommunicator, x: Any, request: Any, receive: bool, peers: Group):
        self.owner, self.x, self.request, self.receive, self.peers = owner, x, request, receive, peers
        self.status: Any = None  # once it has ended

    def done(self) -> bool:
        """Whether it has been sent, or has come."""
        return self.request.Get_status()

    def result(self) -> int:
        """Wait for that; the rank that has sent what came."""
        name, watchdog = "recv" if self.receive else "send", self.owner._watchdog
        if self.status is None:
            status = self.owner.mpi.Status()
            with watchdog.waits(name, self.peers):
                self.request.Wait(status)
            self.status = status
        if self.receive and self.status.count != self.x.nbytes:
            raise watchdog.left(name, self.peers, f"got {self.status.count} bytes; expected {self.x.nbytes}")
        return self.status.source


MOST = 1 << 30  # bytes in a message: MPI counts in ints of 32 bits
BLOCK = 1 << 20  # bytes from all ranks that are added up at a time: what the cache of a core holds


class Watchdog(threading.Thread):
    """Ends the process when it has waited for other ranks for too long."""

    def __init__(self, world: Any, mpi: Any):
        super().__init__(daemon=True, name="watchdog of MPI")
        self.world = world
        self.rank = world.Get_rank()
        self.mpi = mpi
        self.limit = time_limit()
        self.waiting: dict[int, tuple[float, str, Group]] = {}  # by thread

    @contextlib.contextmanager
    def waits(self, name: str, group: Group) -> Iterator[None]:
        """Watch the time of the block, a collective of these ranks; what MPI raises becomes a PlacementError."""
        self.waiting[threading.get_ident()] = time.monotonic(), name, group
        try:
            yield
        except self.mpi.Exception as error:
            more = error.Get_error_class() in (self.mpi.ERR_IN_STATUS, self.mpi.ERR_TRUNCATE)
            what = "more bytes than it expected" if more else f"an error of MPI, {error}"
            raise self.left(name, group, f"got {what}") from error
        finally:
            del self.waiting[threading.get_ident()]

    def left(self, name: str, group: Group, what: str) -> PlacementError:
        """The error for ranks that do not make the same call."""
        return PlacementError(
            f"{name}: rank {self.rank} of the ranks {list(group)} {what}, at {line_of_caller()}\n"
            "Expected the same call on all of them, with the same shapes, dtypes, operation and root, in the same "
            "order; MINIFLOW_CHECK_RANKS=1 compares them before they run."
        )

    def run(self) -> None:
        """Check every second (or more often) whether a wait has exceeded the limit."""
        while True:
            time.sleep(min(1.0, self.limit / 4))
            for start, *waiting in list(self.waiting.values()):
                if time.monotonic() - start > self.limit:
                    print(self.report(*waiting), file=sys.stderr, flush=True)
                    time.sleep(2 + self.limit / 4)  # the others say so too
                    self.world.Abort(1)

    def report(self, name: str, group: Group) -> str:
        """What this rank waits for, and where."""
        other_ranks = [r for r in group if r != self.rank]
        return (
            f"rank {self.rank} has waited for {self.limit:g} s for ranks {other_ranks} in {name}, called at "
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

    def hook(error_class: Any, value: Any, trace: Any) -> None:
        lines = [*traceback.format_exception(error_class, value, trace), f"rank {comm.Get_rank()} ends all ranks\n"]
        sys.stderr.write("".join(lines))  # at once, since others may write too
        sys.stderr.flush()
        time.sleep(0.5)  # mpiexec passes that on, and drops what comes after the end
        comm.Abort(1)

    sys.excepthook = hook
