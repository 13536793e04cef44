"""Process-wide defaults for threads, memory and warnings, set by `import miniflow` before NumPy is loaded.

MINIFLOW_RUNTIME_DEFAULTS=0 in the environment leaves threads and memory as they are.

Threads: idle workers of OpenBLAS, and of OpenMP in parallel numba functions of users, spin while they wait for work,
and so keep the cores busy: a matrix product followed by a loop in several threads then takes up to ten times as long.
OpenMP's workers are told to sleep at once; OpenBLAS's, which wait for the next of many products, after 2^20 cycles
(0.4 ms) instead of 2^26. Both read their variable when they are loaded: libgomp at the first parallel function of
numba, OpenBLAS with NumPy. So **import miniflow before NumPy**, or set OPENBLAS_THREAD_TIMEOUT=20 in the environment:
otherwise a convolution gains nothing from a second thread.

Memory: glibc returns arrays above its mmap threshold to the system when they are freed, and the next array of that size
faults in every page again. With the thresholds raised, freed arrays up to 32 MB (glibc's limit for the threshold) are
kept.

Warnings: log(0) is -inf and 0/0 is nan, as IEEE 754 and PyTorch have it. NumPy also warns; those warnings are switched
off for the calls that miniflow makes, and for no others. Warnings of miniflow itself point to the user's line.
"""

import ctypes
import os
import sys
import warnings

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
MMAP_THRESHOLD = 32 * 2**20
TRIM_THRESHOLD = 512 * 2**20


def let_waiting_threads_sleep() -> None:
    """Shorten how long idle workers spin, unless the user has chosen otherwise."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")


def keep_freed_memory() -> None:
    """Raise glibc's thresholds on Linux, unless the user has set them."""
    if sys.platform != "linux" or "MALLOC_MMAP_THRESHOLD_" in os.environ or "MALLOC_TRIM_THRESHOLD_" in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD)
        mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD)


def accept_infinities() -> None:
    """Silence NumPy's floating-point warnings where they come from miniflow's own calls."""
    warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"miniflow\.")


def user_level() -> int:
    """The `stacklevel` with which a warning of the caller points to the user's code: not to miniflow or NumPy."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("miniflow", "numpy"):
        frame, level = frame.f_back, level + 1
    return level


if os.environ.get("MINIFLOW_RUNTIME_DEFAULTS") != "0":
    let_waiting_threads_sleep()
    keep_freed_memory()
accept_infinities()
