"""Requests that wait for a model are joined to batches: while one batch is computed the next one gathers.

A batch starts when it has `max_batch_size` rows, or when its first request has waited for as long as the config allows
(`max_queue_delay_microseconds` of `dynamic_batching`), and the batch before it is done.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import NamedTuple

from miniflow.serve.model import Request, ServedModel


class Waiting(NamedTuple):
    """A request, its rows, when it came in seconds, and its answer to be."""

    request: Request
    rows: int
    since: float
    answer: Future


class Batches:
    """Answers the requests to one model, in a thread of its own, until it is closed."""

    def __init__(self, model: ServedModel):
        self.model, batching = model, model.config.dynamic_batching
        self._most = model.most if model.config.HasField("dynamic_batching") else 1
        self._delay = batching.max_queue_delay_microseconds / 1e6
        self._waiting: SimpleQueue[Waiting | None] = SimpleQueue()  # None: no more come
        threading.Thread(target=self._run, name=f"miniflow.serve.{model.name}", daemon=True).start()

    def answer(self, request: Request) -> Future:
        """The outputs for a request; or one of `REFUSALS`, if it is refused."""
        rows = max((x.shape[0] for x in request.values() if x.ndim), default=1)
        one = Waiting(request, rows, time.monotonic(), Future())
        self._waiting.put(one)
        return one.answer

    def close(self) -> None:
        """End the thread, after the requests that wait."""
        self._waiting.put(None)

    def _run(self) -> None:
        following = None
        while (following := following or self._waiting.get()) is not None:
            batch, following = self._gathered(following)
            batch = [one for one in batch if one.answer.set_running_or_notify_cancel()]  # whose clients have not gone
            try:
                answers = self.model.answer([one.request for one in batch])
            except Exception as error:  # a fault of the server: these requests fail, others do not
                answers = [error] * len(batch)
            for one, answer in zip(batch, answers, strict=True):
                (one.answer.set_exception if isinstance(answer, Exception) else one.answer.set_result)(answer)

    def _gathered(self, first: Waiting) -> tuple[list[Waiting], Waiting | None]:
        """A batch that begins with a request, and the request behind it, if it has come and does not fit."""
        batch, rows = [first], first.rows
        while rows < self._most:
            try:
                one = self._waiting.get(timeout=max(0, first.since + self._delay - time.monotonic()))
            except Empty:
                break
            if one is None:
                self.close()  # for `_run`
                break
            if rows + one.rows > self._most:
                return batch, one
            batch.append(one)
            rows += one.rows
        return batch, None
