"""Requests that wait for a model are joined to batches: while one batch is computed the next one gathers.

A batch starts when it has `max_batch_size` rows, or when its first request has waited for as long as the config allows
(`max_queue_delay_microseconds` of `dynamic_batching`), and the batch before it is done.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
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
    """Answers the requests to one model, in a thread of its own."""

    def __init__(self, model: ServedModel):
        self.model, batching = model, model.config.dynamic_batching
        self._most = model.most if model.config.HasField("dynamic_batching") else 0  # rows; 0: one request
        self._delay = batching.max_queue_delay_microseconds / 1e6
        self._waiting: SimpleQueue[Waiting] = SimpleQueue()
        self._following: list[Waiting] = []  # the first of the next batch, if it did not fit in the last one
        self._thread = ThreadPoolExecutor(1, f"miniflow.serve.{model.name}")

    def answer(self, request: Request) -> Future:
        """The outputs for a request; or one of `REFUSALS`, if it is refused."""
        rows = max((x.shape[0] for x in request.values() if x.ndim), default=1)
        one = Waiting(request, rows, time.monotonic(), Future())
        self._waiting.put(one)
        self._thread.submit(self._compute)  # for each request: there are batches for all of them, and empty ones
        return one.answer

    def _compute(self) -> None:
        batch = [
            one for one in self._gathered() if one.answer.set_running_or_notify_cancel()
        ]  # its client has not gone
        try:
            answers = self.model.answer([one.request for one in batch]) if batch else []
        except Exception as error:  # a fault of the server: these requests fail, others do not
            answers = [error] * len(batch)
        for one, answer in zip(batch, answers, strict=True):
            (one.answer.set_exception if isinstance(answer, Exception) else one.answer.set_result)(answer)

    def _gathered(self) -> list[Waiting]:
        """The next batch; empty if all requests have been answered."""
        batch, self._following = self._following, []
        rows = sum(one.rows for one in batch)
        while not batch or rows < self._most:
            left = batch[0].since + self._delay - time.monotonic() if batch else 0
            try:
                one = self._waiting.get(timeout=max(0, left))
            except Empty:
                break
            if batch and rows + one.rows > self._most:
                self._following = [one]
                break
            batch.append(one)
            rows += one.rows
        return batch
