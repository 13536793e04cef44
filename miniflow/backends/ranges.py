"""Range checks of indices and labels on the CPU, before a kernel runs."""

from __future__ import annotations

import numba


@numba.njit(cache=True, nogil=True)
def first_outside(values, lowest, stop, ignored):
    """The first position of a value outside of [lowest, stop) that is not `ignored`; -1 if there is none."""
    for i in range(values.size):
        if (values[i] < lowest or values[i] >= stop) and values[i] != ignored:
            return i
    return -1
