"""Whether integers in the memory of the CPU lie in a range: the checks of indices and labels, before a kernel runs."""

from __future__ import annotations

import numba


@numba.njit(cache=True, nogil=True)
def first_outside(values, lowest, stop, ignored):
    """The first position of a value outside of [lowest, stop) that is not `ignored`; -1 if there is none."""
    for i in range(values.size):
        if (values[i] < lowest or values[i] >= stop) and values[i] != ignored:
            return i
    return -1
