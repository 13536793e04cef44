"""Runs the blocks of a launch on all cores, or NUMBA_NUM_THREADS: threads take stretches until none are left."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from time import perf_counter

from numba import config

WORTH_SHARING = 2e-4  # seconds of work: below, waking the other threads costs more than they save
STRETCHES = 8  # for each worker, so that they finish together


@cache
def thread_pool(process: int, count: int) -> ThreadPoolExecutor:
    """The threads of a process, started when first needed: a fork has to start its own."""
    return ThreadPoolExecutor(count, thread_name_prefix="hostcuda")


def run_blocks(blocks: Callable[[int, int], int], total: int) -> int:
    """Call `blocks(first, last)` until all of `total` blocks have run.

    The time of the first sixteenth, which runs here, predicts that of the others.

    Returns:
        the first result that is not 0, or 0.
    """
    count = config.NUMBA_NUM_THREADS
    if count == 1 or total == 1:
        return blocks(0, total)
    trial = max(1, total // 16)
    start = perf_counter()
    status = blocks(0, trial)
    seconds_per_block = (perf_counter() - start) / trial
    if status or seconds_per_block * (total - trial) < WORTH_SHARING:
        return status or (blocks(trial, total) if total > trial else 0)
    step = max(1, (total - trial) // (STRETCHES * count))
    starts = iter(range(trial, total, step))  # each of which one thread gets

    def work() -> int:
        for first in starts:
            if status := blocks(first, min(first + step, total)):
                return status
        return 0

    others = [thread_pool(os.getpid(), count - 1).submit(work) for _ in range(count - 1)]
    try:
        status = work()
    finally:
        results = [other.result() for other in others]
    return status or next((r for r in results if r), 0)
