"""Runs the blocks of a launch on all cores: threads take stretches of blocks until none are left."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from time import perf_counter

WORTH_SHARING = 2e-4  # seconds of work: below, waking the other threads costs more than they save
STRETCHES = 8  # for each worker, so that they finish together


def worker_count() -> int:
    """NUMBA_NUM_THREADS, or the cores that this process may use."""
    chosen = os.environ.get("NUMBA_NUM_THREADS", "")
    if chosen.isdigit() and int(chosen) > 0:
        return int(chosen)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def threads_of(process: int, count: int) -> ThreadPoolExecutor:
    """The threads of a process, started when first needed: a fork has to start its own."""
    return ThreadPoolExecutor(count, thread_name_prefix="hostcuda")


def run_blocks(blocks: Callable[[int, int], int], total: int) -> int:
    """Call `blocks(first, last)` until all of `total` blocks have run.

    The first sixteenth runs here and tells how long the others will take.

    Returns:
        the first result that is not 0, or 0.
    """
    count = worker_count()
    if count == 1 or total == 1:
        return blocks(0, total)
    trial = max(1, total // 16)
    start = perf_counter()
    status = blocks(0, trial)
    each = (perf_counter() - start) / trial
    if status or each * (total - trial) < WORTH_SHARING:
        return status or (blocks(trial, total) if total > trial else 0)
    return _share(blocks, trial, total, count)


def _share(blocks: Callable[[int, int], int], begin: int, total: int, count: int) -> int:
    step = max(1, (total - begin) // (STRETCHES * count))
    starts = iter(range(begin, total, step))
    lock = threading.Lock()

    def work() -> int:
        while True:
            with lock:
                first = next(starts, None)
            if first is None:
                return 0
            status = blocks(first, min(first + step, total))
            if status:
                return status

    others = [threads_of(os.getpid(), count - 1).submit(work) for _ in range(count - 1)]
    try:
        status = work()
    finally:
        results = [other.result() for other in others]
    return status or next((r for r in results if r), 0)
