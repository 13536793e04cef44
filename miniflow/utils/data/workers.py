"""The worker processes of a DataLoader: what runs in them, and the parent's side.

Each worker has one connection. The parent sends (seed, task) as often as it wants a batch, and None as the end; the
worker answers every task with (batch, error). The parent hands out tasks in turn and reads the answers in the same
order, so batches come in the sampler's order, and it needs no threads, which would compete with the training step:
with `concurrent.futures` small batches take twice as long. The worker computes in its main thread and sends in a second
one. So up to `prefetch_factor` batches stand ready, and neither side waits long for the other to read. Each end of a
connection is held by one process only: if that process is lost, the other reads the end of the file and does not hang.

Why `fork`, and what that costs. On Linux workers are forked by default, as in PyTorch and OneFlow: data sets defined in
a notebook, or in a script without `if __name__ == "__main__"`, work, nothing is copied, and a worker starts in
milliseconds. A fork copies only the calling thread. Memory allocation and OpenBLAS are prepared for that. GNU OpenMP,
numba's default threads, is not: once the parent has run a parallel numba function, a forked worker that runs one is
ended by numba with SIGTERM. miniflow has none itself. If a data set brings some, or needs a lock that another thread
may hold at that moment, its loader takes `multiprocessing_context="forkserver"`. macOS and Windows get `spawn`. Those
two need a data set that can be pickled (tensors may be in it) and a guarded main.

A Tensor, which refuses to be pickled, travels as its array. Pickle is safe here and only here: the other end is our own
child or parent process, nobody else has the connection, and nothing is kept. The bytes of large arrays are not in the
pickle: on Linux they travel as files in memory, of which the connection passes the descriptors. A pipe holds 64 KB, and
to pass 38 MB of images through it takes the parent 70 ms instead of 20.
"""

from __future__ import annotations

import collections
import contextlib
import io
import itertools
import math
import multiprocessing.util
import os
import pickle
import queue
import random
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.reduction import ForkingPickler, recvfds, sendfds
from typing import Any

import numpy as np

from miniflow.backends.cpu import threads
from miniflow.dispatch.tape import no_grad
from miniflow.errors import WorkerError
from miniflow.ops.generator import manual_seed
from miniflow.tensor import Tensor
from miniflow.utils.data.dataset import Dataset

LARGE = 2**17 if hasattr(os, "memfd_create") else math.inf  # bytes of an array that travels beside the pickle
GRACE_SECONDS = 1.0  # how long workers have to end by themselves before they are killed
HINTS = {  # exit code -> a likely cause
    -9: "killed by SIGKILL: out of memory? Use fewer workers or smaller batches",
    -15: 'killed by SIGTERM: a parallel numba function after a fork? Pass multiprocessing_context="forkserver"',
}


class Exhausted:
    """The batch that stands for the end of an IterableDataset: the class itself, which is pickled by its name."""


@dataclass
class WorkerInfo:
    """What `get_worker_info` tells.

    Args:
        id: 0 to num_workers - 1.
        num_workers: how many workers share the work.
        seed: what this worker's random generators were seeded with for this epoch.
        dataset: this worker's copy of the data set.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Dataset


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Which worker this process is; None in the main process.

    An IterableDataset asks this to read its own share of the samples only.

    >>> get_worker_info() is None
    True

    Source: `torch.utils.data.get_worker_info`.
    """
    return _info


@dataclass
class Job:
    """All that the workers need to know.

    Args:
        num_workers: how many workers there are.
        dataset: where the samples come from.
        begin_epoch: makes the function from a task to a batch.
        init: called with the worker's id when it starts, or None.
    """

    num_workers: int
    dataset: Dataset
    begin_epoch: Callable[[], Callable[[Any], Any]]
    init: Callable[[int], None] | None


# in the worker


def run_worker(id: int, job: Job, connection: Connection, parents: Connection) -> None:
    """The whole life of a worker: it ends when the parent says so, or is gone.

    Args:
        id: 0 to num_workers - 1.
        job: what to do.
        connection: to the parent.
        parents: this process's copy of the parent's end of the connection.
    """
    parents.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threads.SHARED_FROM = math.inf  # the workers are the parallelism: one thread each
    outbox: queue.SimpleQueue[Packed] = queue.SimpleQueue()
    threading.Thread(target=_send_all, args=(connection, outbox), daemon=True).start()
    epoch = None
    with no_grad(), contextlib.suppress(EOFError, OSError):  # the parent is gone
        while (message := connection.recv()) is not None:
            seed, task = message
            try:
                if seed != epoch:
                    _seed(id, job, seed + id, first=epoch is None)
                    epoch, fetch = seed, job.begin_epoch()
                answer = Packed((fetch(task), None))
            except Exception as error:
                answer = Packed((None, _describe(error)))
            outbox.put(answer)


def _seed(id: int, job: Job, seed: int, first: bool) -> None:
    """Seed every random generator of this process, and call `worker_init_fn` in the first epoch."""
    global _info
    random.seed(seed)
    np.random.seed(seed % 2**32)
    manual_seed(seed)
    _info = WorkerInfo(id, job.num_workers, seed, job.dataset)
    if first and job.init is not None:
        job.init(id)


def _send_all(connection: Connection, outbox: queue.SimpleQueue[Packed]) -> None:
    with contextlib.suppress(OSError):  # the parent is gone
        while True:
            outbox.get().send(connection)


class Packed:
    """An answer, pickled; large arrays are in files in memory, which go with the last descriptor of them."""

    def __init__(self, answer: Any):
        self.files: list[int] = []
        stream = io.BytesIO()
        ForkingPickler(stream, 5, True, self._is_small).dump(answer)
        self.pickle = stream.getbuffer()

    def _is_small(self, buffer: pickle.PickleBuffer) -> bool:
        """Whether an array belongs into the pickle; others are written to a file."""
        data = buffer.raw()
        if data.nbytes < LARGE:
            return True
        self.files.append(os.memfd_create("batch"))
        with open(self.files[-1], "wb", closefd=False) as file:
            file.write(data)
        return False

    def send(self, connection: Connection) -> None:
        """To the parent."""
        connection.send(len(self.files))
        connection.send_bytes(self.pickle)
        if self.files:
            with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as sender:
                sendfds(sender, self.files)
        for file in self.files:
            os.close(file)


def _receive(connection: Connection) -> Any:
    """The answer that was packed."""
    count, pickled, buffers = connection.recv(), connection.recv_bytes(), []
    if count:
        with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as receiver:
            files = recvfds(receiver, count)
        for descriptor in files:
            with open(descriptor, "rb") as file:
                buffers.append(np.empty(file.tell(), np.uint8))  # it stands at the end
                file.seek(0)
                file.readinto(buffers[-1])
    return pickle.loads(pickled, buffers=buffers)


def _describe(error: Exception) -> tuple[Exception | None, str]:
    """The exception, or None if it cannot be pickled and unpickled, and its traceback as text."""
    text = "".join(traceback.format_exception(error))
    try:
        return pickle.loads(pickle.dumps(error)), text
    except Exception:  # a class inside a function, or one that wants other arguments
        return None, text


def _reduce(tensor: Tensor) -> tuple:
    return Tensor._wrap, (tensor.detach()._host_array(),)


ForkingPickler.register(Tensor, _reduce)


# in the parent


class Worker:
    """One process and the parent's end of the connection to it."""

    def __init__(self, id: int, job: Job, context: BaseContext):
        self.connection, theirs = context.Pipe()
        arguments = (id, job, theirs, self.connection)
        self.process = context.Process(target=run_worker, args=arguments, name=f"miniflow-worker-{id}", daemon=True)
        try:
            self.process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:  # what pickle raises for what it cannot do
            raise WorkerError(
                f"DataLoader: the data set cannot travel between processes: {error}; expected tensors, arrays, plain "
                "values and classes and functions from the top level of a module: pass num_workers=0 for others"
            ) from error
        theirs.close()
        self.name = f"DataLoader worker {id} (pid {self.process.pid})"

    def send(self, message: Any) -> None:
        """Send one message; a worker that is gone is noticed when its answer is awaited."""
        with contextlib.suppress(OSError):
            self.connection.send(message)

    def receive(self, timeout: float) -> Any:
        """The next batch.

        Raises:
            WorkerError: if the worker is gone, or sends nothing within `timeout` seconds (0: wait as long as it lives).
            Exception: what was raised in the worker.
        """
        try:
            if not self.connection.poll(timeout or None):
                raise WorkerError(
                    f"{self.name} sent no batch within timeout={timeout} seconds; pass a longer one, or 0 for none"
                )
            batch, failure = _receive(self.connection)
        except (EOFError, OSError):
            self.process.join(GRACE_SECONDS)
            code = self.process.exitcode
            hint = HINTS.get(code, "run with num_workers=0 to see the cause")
            raise WorkerError(f"{self.name} ended unexpectedly with exit code {code}; {hint}") from None
        if failure is None:
            return batch
        error, text = failure
        worker_error = WorkerError(f"{self.name} raised an exception. The traceback there:\n\n{text}")
        raise worker_error if error is None else error from worker_error


class WorkerPool:
    """Starts the workers, runs epochs on them, and ends them when it is shut down or collected as garbage.

    Args:
        job: what the workers do.
        context: how processes are started.
    """

    def __init__(self, job: Job, context: BaseContext):
        self.workers: list[Worker] = []
        self.pending: collections.deque[Worker] = collections.deque()  # who owes an answer, in the order of the tasks
        self.shutdown = multiprocessing.util.Finalize(self, _end, (self.workers,), exitpriority=10)
        for id in range(job.num_workers):
            self.workers.append(Worker(id, job, context))

    def run_epoch(self, tasks: Iterable[Any], seed: int, prefetch_factor: int, timeout: float) -> Iterator[Any]:
        """The batches of an epoch, in the order of the tasks.

        Args:
            tasks: what to fetch.
            seed: worker i seeds its generators with seed + i.
            prefetch_factor: tasks that each worker has at hand beyond those answered.
            timeout: seconds to wait for a batch; 0 for no limit.
        """
        try:
            while self.pending:  # of an epoch that was left early
                self.pending.popleft().receive(timeout)
            messages = ((seed, task) for task in tasks)
            for worker in self.workers * prefetch_factor:
                self._assign(worker, messages)
            while self.pending:
                worker = self.pending.popleft()
                batch = worker.receive(timeout)
                if batch is not Exhausted:  # else no more tasks for this worker
                    self._assign(worker, messages)
                    yield batch
        except GeneratorExit:  # the loop over the batches was left early
            raise
        except BaseException:  # an answer may be half read: these workers are of no more use
            self.shutdown()
            raise

    def _assign(self, worker: Worker, messages: Iterator[Any]) -> None:
        for message in itertools.islice(messages, 1):
            worker.send(message)
            self.pending.append(worker)


def _end(workers: list[Worker]) -> None:
    """Tell the workers to end, and kill those that are busy."""
    for worker in workers:
        worker.send(None)
        worker.connection.close()
    deadline = time.monotonic() + GRACE_SECONDS
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        worker.process.kill()
        worker.process.join()
