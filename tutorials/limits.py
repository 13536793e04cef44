"""What a submission may use: time for each check, memory, and room for what it prints.

Limits stop mistakes, not attacks. Windows has none of them: there `report.run` ends the process that checks.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tutorials.lessons import Lesson

SECONDS = 120  # for one check
COMPILING = 300  # where it may compile kernels, for the first time and on a slow machine
MEMORY = (4 << 30) + (os.cpu_count() or 1) * (64 << 20)  # bytes of a process; NumPy's products have some per thread
PRINTED = 64 << 20  # bytes of a file that it writes, as of what it prints


class OutOfTime(BaseException):
    """Raised in the middle of what takes too long; `except Exception` of a student does not catch it."""


def seconds_of(found: Lesson) -> float:
    """The limit of each check of a lesson."""
    return COMPILING if "cuda.jit" in found.stub else SECONDS


def limit_process() -> None:
    """Limit the memory of this process and the files that it writes, where the system can; a lower limit stays."""
    try:
        import resource
    except ImportError:  # on Windows
        return
    for kind, most in ((resource.RLIMIT_DATA, MEMORY), (resource.RLIMIT_FSIZE, PRINTED)):
        soft, hard = resource.getrlimit(kind)
        lowest = min([most, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)])
        resource.setrlimit(kind, (lowest, hard))


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """A block that must end within this time; only the main thread can be stopped.

    Raises:
        OutOfTime: in the middle of the block.
    """
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise OutOfTime(too_long(seconds))

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def too_long(seconds: float) -> str:
    """What is said about it."""
    return f"not done after {seconds:g} seconds, the limit of a check: is there a loop without an end?"
