"""Sharing work out among threads, without compiling it for that.

numba's own parallel loops cost one to four seconds of compilation each, on top of their body's. Work that takes a part
of its range, `work(start, stop, *args)`, and does not hold the interpreter's lock (compiled kernels, large NumPy
operations) can be run by ordinary threads instead. Waking a thread costs 20 microseconds, in a virtual machine 100, and
so does every return to the interpreter while another thread has its lock: parts should be large, and be computed in
few calls.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numba
import numpy as np

from miniflow.backends.cpu.loops import STRICT

SHARED_FROM = 262_144  # elements, at 0.5 ns each
# Matrix products of so many multiplications OpenBLAS leaves to the calling thread with AVX-512, without it a quarter as
# many. Larger ones it shares out itself, and then threads that call it wait for each other.
SERIAL_PRODUCT = 1_000_000


def unlocked(fastmath: set[str] = STRICT) -> Callable[[Callable], Callable]:
    """Decorate a function that numba compiles when it is first called, and that runs without the interpreter's lock."""
    return numba.njit(cache=True, nogil=True, no_cfunc_wrapper=True, error_model="numpy", fastmath=set(fastmath))


compiled = numba.njit(no_cfunc_wrapper=True, error_model="numpy", fastmath=set(STRICT))
"""Decorates a part of a kernel."""
inlined = numba.njit(no_cfunc_wrapper=True, inline="always")
"""Decorates a part of a kernel that does little work: a call would count references to its arrays, at 10 ns each."""


def share(work: Callable, items: int, elements: int, *args: Any) -> None:
    """Run `work(start, stop, *args)` over range(items), in as many parts as there are threads if that is worth it.

    Args:
        work: mostly compiled kernels or large NumPy operations; its parts must not write to the same memory.
        items: how many there are.
        elements: how many array elements are touched, those that take longer than 0.5 ns counted several times; few are
            done by one thread.
    """
    parts = min(numba.get_num_threads(), items) if elements >= SHARED_FROM else 1
    if parts <= 1:
        work(0, items, *args)
        return
    bounds = [items * part // parts for part in range(parts + 1)]
    others: list[Future] = []
    try:
        for i in range(1, parts):
            others.append(pool().submit(work, bounds[i], bounds[i + 1], *args))
        work(bounds[0], bounds[1], *args)
    finally:
        finish(others)
    for other in others:
        other.result()


def finish(others: list[Future]) -> None:
    """Wait for other threads, through Ctrl-C too: while they compute, the arrays have to live."""
    try:
        wait(others)
    except KeyboardInterrupt:
        finish(others)
        raise


def copy_in_threads(target: np.ndarray, source: np.ndarray) -> None:
    """Copy an array, the threads sharing out its first axis."""

    def copy(start: int, stop: int) -> None:
        np.copyto(target[start:stop], source[start:stop])

    share(copy, len(target), target.size)


def sum_of_parts(totals: dict[int, np.ndarray]) -> np.ndarray:
    """The sum of what the parts of a `share` added up, each under its `start`: always in the same order."""
    first, *rest = (totals[start] for start in sorted(totals))
    for total in rest:
        first += total
    return first


@functools.cache
def pool() -> ThreadPoolExecutor:
    """The threads beside the calling one; made when first needed."""
    return ThreadPoolExecutor(max(1, numba.config.NUMBA_NUM_THREADS - 1), "miniflow")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # a forked child has none of its parent's threads
