"""Sharing a compiled loop out among threads, without compiling it for that.

numba's own parallel loops cost one to four seconds of compilation each, on top of their body's. A kernel that takes the
part of its range, `kernel(start, stop, *args)`, and does not hold the interpreter's lock can be run by ordinary threads
instead. Handing a part over costs some 20 microseconds: it pays where the items are whole images or planes.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba

from miniflow.backends.cpu.loops import STRICT

SHARED_FROM = 65_536  # elements


def ranged(fastmath: set[str] = STRICT) -> Callable[[Callable], Callable]:
    """Decorate `kernel(start, stop, *args)`, a numba function that does the items from start to stop."""
    return numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=set(fastmath))


compiled = numba.njit(error_model="numpy", fastmath=set(STRICT))  # a part of such a kernel


def share(kernel: Callable, items: int, elements: int, *args: Any) -> None:
    """Run `kernel(start, stop, *args)` over range(items), in as many parts as there are threads if that is worth it.

    Args:
        kernel: made by `ranged`; its parts must not write to the same memory.
        items: how many there are.
        elements: how many array elements are touched: few are done by one thread.
    """
    parts = min(numba.get_num_threads(), items) if elements >= SHARED_FROM else 1
    if parts <= 1:
        kernel(0, items, *args)
        return
    bounds = [items * part // parts for part in range(parts + 1)]
    others = [pool().submit(kernel, bounds[i], bounds[i + 1], *args) for i in range(1, parts)]
    try:
        kernel(bounds[0], bounds[1], *args)
    finally:
        for other in others:
            other.result()


@functools.cache
def pool() -> ThreadPoolExecutor:
    """The threads beside the calling one; made when first needed."""
    return ThreadPoolExecutor(max(1, numba.config.NUMBA_NUM_THREADS - 1), "miniflow")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.cache_clear)  # a forked child has none of its parent's threads
