"""What runs in a worker process of a DataLoader, and how objects travel between it and the parent.

The parent sends (epoch, seed, task) as often as it wants a batch, and None as the end; the worker answers every task
with (epoch, status, content). The worker computes in its main thread and sends in a second one. So it never waits for
the parent to read, the parent never waits long for it to read, and up to `prefetch_factor` batches stand ready.

A Tensor, which refuses to be pickled, travels as its array. Pickle is safe here and only here: the other end is our own
child or parent process, nobody else has the connection, and nothing is kept.
"""

from __future__ import annotations

import io
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
from typing import Any

import numpy as np

from miniflow.backends.cpu import loops
from miniflow.errors import WorkerError
from miniflow.ops.generator import manual_seed
from miniflow.tape import no_grad
from miniflow.tensor import Tensor
from miniflow.utils.data.dataset import Dataset
from miniflow.utils.data.fetch import EXHAUSTED, Fetcher

BATCH, END, ERROR = "batch", "end", "error"  # the statuses of an answer


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


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            return Tensor._wrap, (np.require(obj.detach().numpy(), requirements="CW"),)
        return NotImplemented


def pack(obj: Any, what: str) -> bytes:
    """The pickle of `obj`; tensors arrive as values, without gradient or history.

    Args:
        obj: anything that can be pickled, and tensors.
        what: what it is, for the error.

    Raises:
        WorkerError: if something in it cannot be pickled.

    >>> pickle.loads(pack({"n": np.arange(3)}, "a batch"))
    {'n': array([0, 1, 2])}
    """
    stream = io.BytesIO()
    try:
        _Pickler(stream, protocol=5).dump(obj)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise WorkerError(
            f"DataLoader: {what} cannot travel between processes: {error}; expected tensors, arrays, plain values "
            "and classes and functions from the top level of a module: pass num_workers=0 for others"
        ) from error
    return stream.getvalue()


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


def run_worker(connection: Connection, job: Job | bytes, parents: Connection | None) -> None:
    """The whole life of a worker: it ends when the parent says so, or is gone.

    Args:
        connection: to the parent.
        job: pickled, unless the process was forked.
        parents: the parent's end of the connection, of which a fork has a copy.
    """
    if parents is not None:
        parents.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    loops.PARALLEL_FROM = math.inf  # see pool.py
    outbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_send_all, args=(connection, outbox), daemon=True).start()
    begun = 0
    try:
        with no_grad():
            while (message := pickle.loads(connection.recv_bytes())) is not None:
                epoch, seed, task = message
                try:
                    job = pickle.loads(job) if isinstance(job, bytes) else job
                    if epoch != begun:
                        job.begin_epoch(seed)
                        begun = epoch
                    batch = job.fetcher.fetch(task)
                    answer = (epoch, END, None) if batch is EXHAUSTED else (epoch, BATCH, batch)
                    outbox.put(pack(answer, "a batch"))
                except Exception as error:
                    outbox.put(pack((epoch, ERROR, _describe(error)), "an exception"))
    except (EOFError, OSError):
        pass  # the parent is gone


def _send_all(connection: Connection, outbox: queue.SimpleQueue[bytes]) -> None:
    while True:
        try:
            connection.send_bytes(outbox.get())
        except OSError:
            return  # the parent is gone


def _describe(error: Exception) -> tuple[bytes | None, str, str]:
    """What the parent needs to raise the exception there: the class, its name, and the traceback as text."""
    kind = type(error)
    text = "".join(traceback.format_exception(kind, error, error.__traceback__))
    try:
        return pickle.dumps(kind), kind.__name__, text
    except (pickle.PicklingError, AttributeError):  # a class inside a function
        return None, kind.__name__, text


class _Verbatim(str):
    """Text that prints as it is even where its repr is asked for, as KeyError does."""

    __repr__ = str.__str__


def rebuild_error(description: tuple[bytes | None, str, str], worker: str) -> Exception:
    """The exception to raise in the parent: of the same class, its message the worker's traceback.

    A WorkerError where that class cannot be made from a message.
    """
    pickled_kind, name, text = description
    message = _Verbatim(f"{worker} raised {name}. The traceback there:\n\n{text}")
    try:
        error = pickle.loads(pickled_kind)(message)
        if message in str(error):
            return error
    except Exception:  # noqa: S110  (a class that is not importable here, or wants other arguments)
        pass
    return WorkerError(message)
