"""How this process uses threads, memory and warnings, set before the first kernel runs.

Threads: numba's OpenMP workers and OpenBLAS's both spin while they wait and so starve each other; a matrix product
followed
by a parallel loop then takes ten times as long. Passive waiting cures it. libgomp reads the variable when it is
loaded, at
numba's first parallel launch.

Memory: glibc returns arrays above its mmap threshold to the system when they are freed, and the next array of that size
faults in every page anew. With the thresholds raised, freed arrays up to 32 MB (glibc's limit for the threshold) are
kept.

Warnings: log(0) is -inf and 0/0 is nan, as IEEE 754 and PyTorch have it. NumPy also warns; those warnings are switched
off
for the calls that miniflow makes, and for no others.
"""

import ctypes
import os
import sys
import warnings

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
MMAP_THRESHOLD = 32 * 2**20
TRIM_THRESHOLD = 512 * 2**20


def wait_passively() -> None:
    """Let idle OpenMP workers sleep, unless the user has chosen otherwise."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def keep_freed_memory() -> None:
    """Raise glibc's thresholds, unless the user has set them; elsewhere nothing is done."""
    if sys.platform != "linux" or "MALLOC_MMAP_THRESHOLD_" in os.environ or "MALLOC_TRIM_THRESHOLD_" in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD)
        mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD)


def accept_infinities() -> None:
    """Silence NumPy's floating-point warnings where they come from miniflow's own calls."""
    warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"miniflow\.")
