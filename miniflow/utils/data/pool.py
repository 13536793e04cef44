"""The worker processes of a DataLoader, seen from the parent.

Why `fork`, and what that costs. On Linux workers are forked by default, as in PyTorch and OneFlow: data sets defined
in a notebook, or in a script without `if __name__ == "__main__"`, work, nothing is copied, and a worker starts in
milliseconds. A fork copies only the calling thread. Memory allocation and OpenBLAS are prepared for that. GNU OpenMP,
numba's default threads, is not: once the parent has run a parallel loop, a forked worker that runs one is ended by
numba with SIGTERM. So a worker runs miniflow's own kernels in one thread (which also keeps workers from fighting for
cores), and if a data set brings parallel numba functions of its own, or needs a lock that another thread may hold at
that moment, its loader takes `multiprocessing_context="forkserver"`. macOS and Windows get `spawn`. Those two need a
data set that can be pickled (tensors may be in it) and a guarded main.

Each worker has one connection. The parent has no threads and no queues: it hands out tasks in turn and reads the
answers in the same order, so batches come in the sampler's order by construction. Only the worker holds the other end
of its connection: if it is lost, the parent reads the end of the file, and does not hang.
"""

from __future__ import annotations

import collections
import itertools
import multiprocessing
import os
import signal
import sys
import time
import warnings
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

from miniflow.errors import WorkerError
from miniflow.utils.data.fetch import Exhausted
from miniflow.utils.data.worker import PICKLING, Job, cannot_travel, run_worker

GRACE_SECONDS = 1.0  # how long a worker has to end by itself before it is terminated, and then killed
HINTS = {
    "SIGKILL": "out of memory? Use fewer workers or smaller batches",
    "SIGTERM": 'a parallel numba function after a fork? Pass multiprocessing_context="forkserver"',
}


@dataclass(eq=False)
class Worker:
    """One process and the parent's end of the connection to it."""

    id: int
    process: BaseProcess
    connection: Connection

    def __str__(self) -> str:
        return f"DataLoader worker {self.id} (pid {self.process.pid})"

    def send(self, message: Any) -> None:
        """Send one message; a worker that is gone is noticed when its answer is awaited."""
        try:
            self.connection.send(message)
        except OSError:
            pass
        except PICKLING as error:
            raise cannot_travel("an index of the sampler", error) from error

    def receive(self, timeout: float) -> tuple[int, Any, Any]:
        """The next answer.

        Raises:
            WorkerError: if the worker is gone, or none comes within `timeout` seconds (0: wait as long as it lives).
        """
        try:
            if self.connection.poll(timeout or None):
                return self.connection.recv()
        except (EOFError, OSError):
            raise self.lost() from None
        raise WorkerError(f"{self} sent no batch within timeout={timeout} seconds; pass a longer one, or 0 for none")

    def lost(self) -> WorkerError:
        """Why the process is gone."""
        self.process.join(GRACE_SECONDS)
        code = self.process.exitcode
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            hint = HINTS.get(name, "run with num_workers=0 to see the cause")
            return WorkerError(f"{self} was killed by {name} (exit code {code}); {hint}")
        return WorkerError(f"{self} ended unexpectedly with exit code {code}; run with num_workers=0 to see the cause")


class WorkerPool:
    """Starts the workers, runs epochs on them, and ends them when it is shut down or collected as garbage.

    Args:
        jobs: one for each worker, which gets a copy.
        prefetch_factor: tasks that each worker has at hand beyond those answered.
        timeout: seconds to wait for a batch; 0 for no limit.
        context: how processes are started.
    """

    def __init__(self, jobs: Iterable[Job], prefetch_factor: int, timeout: float, context: BaseContext):
        if multiprocessing.current_process().daemon:
            raise WorkerError("DataLoader: a worker process cannot start workers of its own; pass num_workers=0 there")
        self.prefetch_factor = prefetch_factor
        self.timeout = timeout
        self.epoch = 0
        self.workers: list[Worker] = []
        self.shutdown = weakref.finalize(self, _end, self.workers, os.getpid())
        try:
            for job in jobs:
                self.workers.append(_start(job, context))
        except BaseException:
            self.shutdown()
            raise

    def run_epoch(self, tasks: Iterable[Any], seed: int, keep: bool) -> Iterator[Any]:
        """Begin an epoch now, and return an iterator over its batches, in the order of the tasks.

        Args:
            tasks: what to fetch.
            seed: worker i seeds its generators with seed + i.
            keep: leave the workers alive for another epoch.
        """
        self.epoch += 1
        messages = ((self.epoch, seed, task) for task in tasks)
        pending: collections.deque[Worker] = collections.deque()  # who owes an answer, in the order of the tasks
        try:
            for worker in self.workers * self.prefetch_factor:
                _assign(worker, messages, pending)
        except BaseException:
            self.shutdown()
            raise
        return self._batches(self.epoch, messages, pending, keep)

    def _batches(
        self, epoch: int, messages: Iterator[Any], pending: collections.deque[Worker], keep: bool
    ) -> Iterator[Any]:
        try:
            while pending:
                if epoch != self.epoch:
                    raise WorkerError(
                        "DataLoader: this epoch ended when another was begun; with persistent_workers=True, "
                        "iterate over one epoch at a time"
                    )
                worker = pending.popleft()
                number, batch, failure = worker.receive(self.timeout)
                while number != epoch:  # it belongs to an epoch that was left early
                    number, batch, failure = worker.receive(self.timeout)
                if failure is not None:
                    error, text = failure
                    there = WorkerError(f"{worker} raised an exception. The traceback there:\n\n{text}")
                    raise there if error is None else error from there
                if batch is not Exhausted:  # else no more tasks for this worker
                    _assign(worker, messages, pending)
                    yield batch
        except GeneratorExit:  # the loop over the batches was left early
            raise
        except BaseException:  # an answer may be half read: these workers are of no more use
            keep = False
            raise
        finally:
            if not keep and epoch == self.epoch:
                self.shutdown()


def _assign(worker: Worker, messages: Iterator[Any], pending: collections.deque[Worker]) -> None:
    for message in itertools.islice(messages, 1):
        worker.send(message)
        pending.append(worker)


def _start(job: Job, context: BaseContext) -> Worker:
    """Start the process for one job."""
    ours, theirs = context.Pipe()
    forks = context.get_start_method() == "fork"
    arguments = (theirs, job, ours if forks else None)
    process = context.Process(target=run_worker, args=arguments, name=f"miniflow-worker-{job.id}", daemon=True)
    with warnings.catch_warnings():
        if forks:  # Python 3.12 and newer warn of forks with threads: see the top of this file
            warnings.simplefilter("ignore", DeprecationWarning)
        try:
            process.start()
        except PICKLING as error:
            raise cannot_travel("the data set", error) from error
    theirs.close()
    return Worker(job.id, process, ours)


def _end(workers: list[Worker], owner: int) -> None:
    """Tell the workers to end, and make sure that those which are busy end too."""
    if os.getpid() != owner:
        return  # a forked copy of the parent's pool
    for worker in workers:
        worker.send(None)
        worker.connection.close()
    for insist in ("is_alive", "terminate", "kill"):
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in workers:
            getattr(worker.process, insist)()
        for worker in workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
    workers.clear()


def default_context() -> BaseContext:
    """Fork on Linux, spawn elsewhere: see the top of this file."""
    return multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
