"""Requests that wait for a model are joined to batches: while one batch is computed the next one gathers.

A batch starts when it has `max_batch_size` rows, or when its first request has waited for as long as the config allows
(`max_queue_delay_microseconds` of `dynamic_batching`), and the batch before it is done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from miniflow.serve.model import Request, ServedModel
from miniflow.tensor import Tensor


class Waiting(NamedTuple):
    """A request, its rows, when it came, and its answer to be."""

    request: Request
    rows: int
    since: float
    answer: asyncio.Future


class Batches:
    """Answers the requests to one model, which computes in a thread of its own, so that the event loop stays free."""

    def __init__(self, model: ServedModel):
        self.model, batching = model, model.config.dynamic_batching
        self._most = model.most if model.config.HasField("dynamic_batching") else 1
        self._delay = batching.max_queue_delay_microseconds / 1e6
        self._waiting: deque[Waiting] = deque()
        self._running: asyncio.Task | None = None
        self._thread = ThreadPoolExecutor(1, f"miniflow.serve.{model.name}")

    async def answer(self, request: Request) -> dict[str, Tensor]:
        """The outputs for a request.

        Raises:
            One of `REFUSALS`, for a request that is refused.
        """
        loop, rows = asyncio.get_running_loop(), max((x.shape[0] for x in request.values() if x.ndim), default=1)
        one = Waiting(request, rows, loop.time(), loop.create_future())
        self._waiting.append(one)
        if self._running is None or self._running.done():
            self._full, self._running = asyncio.Event(), loop.create_task(self._run())
        if self._is_full():
            self._full.set()
        return await one.answer

    def _is_full(self) -> bool:
        return sum(one.rows for one in self._waiting) >= self._most

    async def _run(self) -> None:
        """Compute batches for as long as requests wait."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            if not self._is_full():
                left = self._waiting[0].since + self._delay - loop.time()
                with suppress(asyncio.TimeoutError):  # another class than TimeoutError before Python 3.11
                    await asyncio.wait_for(self._full.wait(), left)
            self._full.clear()
            batch, rows = [], 0
            while self._waiting and (not batch or rows + self._waiting[0].rows <= self._most):
                batch.append(self._waiting.popleft())
                rows += batch[-1].rows
            batch = [one for one in batch if not one.answer.done()]  # whose clients have not gone
            try:
                requests = [one.request for one in batch]
                answers = await loop.run_in_executor(self._thread, self.model.answer, requests) if batch else []
            except Exception as error:  # a fault of the server: these requests fail, others do not
                answers = [error] * len(batch)
            for one, answer in zip(batch, answers, strict=True):
                if not one.answer.done():
                    (one.answer.set_exception if isinstance(answer, Exception) else one.answer.set_result)(answer)
