"""Requests that wait for a model are joined to batches: while one batch is computed the next one gathers.

A batch starts when it has `max_batch_size` rows, or when its first request has waited for as long as the config allows
(`max_queue_delay_microseconds` of `dynamic_batching`), and the batch before it is done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
    """Answers the requests to one model.

    Args:
        model: which computes in a thread of its own, so that the event loop stays free.
    """

    def __init__(self, model: ServedModel):
        self.model, batching = model, model.config.dynamic_batching
        self._most = model.config.max_batch_size if model.config.HasField("dynamic_batching") else 1
        self._delay = batching.max_queue_delay_microseconds / 1e6
        self._waiting: deque[Waiting] = deque()
        self._came = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, f"miniflow.serve.{model.name}")

    async def answer(self, request: Request) -> dict[str, Tensor]:
        """The outputs for a request.

        Raises:
            One of `REFUSALS`, for a request that is refused.
        """
        tensors, loop = self.model.check(request), asyncio.get_running_loop()
        rows = tensors[0].shape[0] if self.model.config.max_batch_size else 1
        self._waiting.append(Waiting(request, rows, loop.time(), loop.create_future()))
        self._came.set()
        return await self._waiting[-1].answer

    async def run(self) -> None:
        """Compute batches, until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._gathered()
            batch, rows = [], 0
            while self._waiting and (not batch or rows + self._waiting[0].rows <= self._most):
                batch.append(self._waiting.popleft())
                rows += batch[-1].rows
            batch = [one for one in batch if not one.answer.done()]  # whose clients have not gone
            if batch:
                await self._settle(batch, loop.run_in_executor(self._thread, self._compute, batch))

    async def _gathered(self) -> None:
        """Wait until there is a batch to be computed."""
        loop = asyncio.get_running_loop()
        while sum(one.rows for one in self._waiting) < self._most:
            self._came.clear()
            left = self._waiting[0].since + self._delay - loop.time() if self._waiting else None
            if left is not None and left <= 0:
                return
            try:
                await asyncio.wait_for(self._came.wait(), left)
            except asyncio.TimeoutError:  # noqa: UP041  (another class before Python 3.11)
                return

    def _compute(self, batch: Sequence[Waiting]) -> list[dict[str, Tensor] | Exception]:
        return self.model.answer([one.request for one in batch])

    async def _settle(self, batch: Sequence[Waiting], computing: asyncio.Future) -> None:
        try:
            answers = await computing
        except Exception as error:  # a fault of the server: these requests fail, others do not
            answers = [error] * len(batch)
        for one, answer in zip(batch, answers, strict=True):
            if one.answer.done():
                continue
            if isinstance(answer, Exception):
                one.answer.set_exception(answer)
            else:
                one.answer.set_result(answer)
