"""Compiled loops in two variants, one thread and all threads, chosen by the amount of work.

Waking the sleeping threads (see `backends.runtime_defaults`) costs 10 to 35 microseconds, as much as one thread needs
for 100,000 to 300,000 elements: smaller arrays are faster in one thread. Each variant is compiled when it is first
needed and kept in numba's cache.
"""

from __future__ import annotations

import types
from collections.abc import Callable

import numba

PARALLEL_FROM = 262_144  # elements

STRICT = {"contract"}  # fused multiply-add only
SUMS = {"contract", "reassoc"}  # also sums in any order, which vector instructions need; nan and inf stay right


class loop:
    """Decorate a numba function whose outer loop is a `prange`; the size of its first array decides who runs it.

    Args:
        fastmath: the liberties that LLVM may take, `STRICT` or `SUMS`.
    """

    def __init__(self, fastmath: set[str] = STRICT):
        self.options = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": set(fastmath)}

    def __call__(self, function: Callable) -> Callable:
        serial = numba.njit(**self.options)(function)
        parallel = numba.njit(parallel=True, **self.options)(renamed(function, f"{function.__qualname__}_parallel"))

        def run(x, *rest):
            return (serial if x.size < PARALLEL_FROM else parallel)(x, *rest)

        run.serial, run.parallel, run.__name__ = serial, parallel, function.__name__
        return run


def renamed(function: Callable, name: str) -> Callable:
    """A copy under another name: numba files its cache by name, and would mix the two variants up."""
    copy = types.FunctionType(function.__code__, function.__globals__, name, function.__defaults__)
    copy.__qualname__, copy.__module__ = name, function.__module__
    return copy
