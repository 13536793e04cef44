"""What runs in a worker process of a DataLoader.

The parent sends ("epoch", number, seed) and then ("task", task) as often as it wants a batch; the worker answers every
task with one message (epoch number, status, content).

The worker computes in its main thread and sends in a second one. So it never waits for the parent to read, the parent
never waits long for it to read, and up to `prefetch_factor` finished batches stand ready in the worker.
"""

from __future__ import annotations

import math
import pickle
import queue
import random
import signal
import threading
import traceback
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from miniflow.backends.cpu import loops
from miniflow.errors import WorkerError
from miniflow.ops.generator import manual_seed
from miniflow.tape import no_grad
from miniflow.utils.data.channel import Channel, pack, unpack
from miniflow.utils.data.dataset import Dataset
from miniflow.utils.data.fetch import EXHAUSTED, Fetcher

BATCH, END, ERROR = "batch", "end", "error"  # the statuses of an answer

parent_ends: weakref.WeakSet[Channel] = weakref.WeakSet()  # this process's ends of the channels to its workers


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
    """All that a worker needs to know."""

    id: int
    num_workers: int
    fetcher: Fetcher
    init: Callable[[int], None] | None  # worker_init_fn


def run_worker(channel: Channel, job: Job | list[bytes]) -> None:
    """The whole life of a worker: it ends when the parent closes its end of the channel, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    loops.PARALLEL_FROM = math.inf  # see pool.py
    for inherited in list(parent_ends):  # a fork's copies would keep the channels open when the parent is gone
        inherited.close()
    outbox: queue.SimpleQueue[list[bytes]] = queue.SimpleQueue()
    threading.Thread(target=_send_all, args=(channel, outbox), daemon=True).start()
    try:
        with no_grad():
            _answer(channel, outbox, job)
    except (EOFError, OSError):
        pass  # the parent has closed the channel


def _send_all(channel: Channel, outbox: queue.SimpleQueue[list[bytes]]) -> None:
    while True:
        try:
            channel.send(outbox.get())
        except OSError:
            return  # the parent has closed the channel


def _answer(channel: Channel, outbox: queue.SimpleQueue[list[bytes]], job: Job | list[bytes]) -> None:
    """Answer tasks until the channel is closed; after a failure, all tasks of that epoch are answered with it."""
    epoch, failure = 0, None
    while True:
        kind, *content = channel.receive()
        try:
            if kind == "epoch":
                (epoch, seed), failure = content, None
                job = unpack(job) if isinstance(job, list) else job
                _begin_epoch(job, seed)
            elif failure is None:
                batch = job.fetcher.fetch(*content)
                status, batch = (END, None) if batch is EXHAUSTED else (BATCH, batch)
                outbox.put(pack((epoch, status, batch), "a batch"))
        except Exception as error:
            failure = _describe(error)
        if failure is not None and kind == "task":
            outbox.put(pack((epoch, ERROR, failure), "an exception"))


def _begin_epoch(job: Job, seed: int) -> None:
    """Seed every random generator of this process with its own seed, and read the data set from the beginning."""
    global _info
    seed += job.id
    random.seed(seed)
    np.random.seed(seed % 2**32)
    manual_seed(seed)
    _info = WorkerInfo(job.id, job.num_workers, seed, job.fetcher.dataset)
    if job.init is not None:
        init, job.init = job.init, None  # once in a worker's life
        init(job.id)
    job.fetcher.restart()


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
