"""Sharing work among threads, without compiling it for that.

A parallel loop of numba takes one to four seconds to compile, in addition to its body. A function that computes a part
of its range, `work(start, stop, *args)`, and releases the interpreter lock (compiled kernels, large NumPy operations)
can run in ordinary threads instead. Waking a thread takes 20 microseconds, in a virtual machine 100, and so does every
return to the interpreter while another thread holds its lock: parts should be large, and computed in few calls.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numba
import numpy as np

STRICT = {"contract"}  # the liberties that LLVM may take: fused multiply-add only
SUMS = {"contract", "reassoc"}  # also sums in any order, which vector instructions need; nan and inf stay right
SHARED_FROM = 262_144  # elements, at 0.5 ns each
# Up to so many multiplications OpenBLAS computes a matrix product in the calling thread (without AVX-512 a quarter of
# that). It distributes larger ones itself, and then threads that call it wait for each other.
SERIAL_PRODUCT = 1_000_000


def unlocked(fastmath: set[str] = STRICT) -> Callable[[Callable], Callable]:
    """Decorate a function that numba compiles on its first call, and that runs without the interpreter lock."""
    return numba.njit(cache=True, nogil=True, no_cfunc_wrapper=True, error_model="numpy", fastmath=set(fastmath))


compiled = numba.njit(no_cfunc_wrapper=True, error_model="numpy", fastmath=set(STRICT))
"""Decorates a part of a kernel."""
inlined = numba.njit(no_cfunc_wrapper=True, inline="always")
"""Decorates a part of a kernel that does little work: a call would count references to its arrays, at 10 ns each."""


def share(work: Callable, items: int, elements: int, *args: Any) -> None:
    """Run `work(start, stop, *args)` over range(items), one part per thread if that pays.

    Args:
        work: mostly compiled kernels or large NumPy operations; its parts must not write to the same memory.
        items: how many there are.
        elements: how many array elements are processed, in units of 0.5 ns; few are processed by one thread.
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
    """Wait for other threads, even after Ctrl-C: the arrays have to live while they compute."""
    try:
        wait(others)
    except KeyboardInterrupt:
        finish(others)
        raise


def copy_in_threads(target: np.ndarray, source: np.ndarray) -> None:
    """Copy an array; threads share its first axis."""

    def copy(start: int, stop: int) -> None:
        np.copyto(target[start:stop], source[start:stop])

    share(copy, len(target), target.size)


def sum_of_parts(totals: dict[int, np.ndarray]) -> np.ndarray:
    """The sum of the totals of the parts of a `share`, by their `start`: always in the same order."""
    first, *others = (totals[start] for start in sorted(totals))
    for total in others:
        first += total
    return first


@functools.cache
def pool() -> ThreadPoolExecutor:
    """The threads other than the calling one, created on first use."""
    return ThreadPoolExecutor(max(1, numba.config.NUMBA_NUM_THREADS - 1), "miniflow")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # a forked child does not have the threads of its parent
