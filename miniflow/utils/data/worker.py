"""What runs in a worker process of a DataLoader, and how objects travel between it and the parent.

The parent sends (epoch, seed, task) as often as it wants a batch, and None as the end; the worker answers every task
with (epoch, batch, error). The worker computes in its main thread and sends in a second one. So it never waits for
the parent to read, the parent never waits long for it to read, and up to `prefetch_factor` batches stand ready.

A Tensor, which refuses to be pickled, travels as its array. Pickle is safe here and only here: the other end is our own
child or parent process, nobody else has the connection, and nothing is kept.
"""

from __future__ import annotations

import math
import pickle
import queue
import random
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler

import numpy as np

from miniflow.backends.cpu import loops
from miniflow.errors import WorkerError
from miniflow.ops.generator import manual_seed
from miniflow.tape import no_grad
from miniflow.tensor import Tensor
from miniflow.utils.data.dataset import Dataset
from miniflow.utils.data.fetch import Fetcher

PICKLING = (pickle.PicklingError, AttributeError, TypeError)  # what pickle raises for what it cannot do


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


def _reduce(tensor: Tensor) -> tuple:
    return Tensor._wrap, (np.require(tensor.detach().numpy(), requirements="C"),)


ForkingPickler.register(Tensor, _reduce)


@dataclass
class Job:
    """All that a worker needs to know."""

    id: int
    num_workers: int
    fetcher: Fetcher
    init: Callable[[int], None] | None  # worker_init_fn

    def begin_epoch(self, seed: int) -> None:
        """Seed every random generator of this process with a seed of its own, and read the data set from its start."""
        global _info
        seed += self.id
        random.seed(seed)
        np.random.seed(seed % 2**32)
        manual_seed(seed)
        _info = WorkerInfo(self.id, self.num_workers, seed, self.fetcher.dataset)
        if self.init is not None:
            self.init(self.id)
            self.init = None  # once in a worker's life
        self.fetcher.restart()


def run_worker(connection: Connection, job: Job, parents: Connection | None) -> None:
    """The whole life of a worker: it ends when the parent says so, or is gone.

    Args:
        connection: to the parent.
        job: what to do.
        parents: the parent's end of the connection, of which a fork has a copy.
    """
    if parents is not None:
        parents.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    loops.PARALLEL_FROM = math.inf  # see pool.py
    outbox: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
    threading.Thread(target=_send_all, args=(connection, outbox), daemon=True).start()
    begun = 0
    try:
        with no_grad():
            while (message := connection.recv()) is not None:
                epoch, seed, task = message
                try:
                    if epoch != begun:
                        job.begin_epoch(seed)
                        begun = epoch
                    answer = _pack((epoch, job.fetcher.fetch(task), None))
                except Exception as error:
                    answer = _pack((epoch, None, _describe(error)))
                outbox.put(answer)
    except (EOFError, OSError):
        pass  # the parent is gone


def _pack(answer: tuple) -> memoryview:
    try:
        return ForkingPickler.dumps(answer)
    except PICKLING as error:
        raise cannot_travel("a batch", error) from error


def cannot_travel(what: str, error: Exception) -> WorkerError:
    """The error for something that cannot be pickled."""
    return WorkerError(
        f"DataLoader: {what} cannot travel between processes: {error}; expected tensors, arrays, plain values "
        "and classes and functions from the top level of a module: pass num_workers=0 for others"
    )


def _send_all(connection: Connection, outbox: queue.SimpleQueue[memoryview]) -> None:
    while True:
        try:
            connection.send_bytes(outbox.get())
        except OSError:
            return  # the parent is gone


def _describe(error: Exception) -> tuple[Exception | None, str]:
    """The exception, or None if it cannot travel, and its traceback as text."""
    text = "".join(traceback.format_exception(error))
    try:
        return pickle.loads(pickle.dumps(error)), text
    except Exception:  # a class inside a function, or one that wants other arguments
        return None, text
