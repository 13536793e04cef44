"""Scatter: each element of the source goes to the place in the result that an integer names.

The index picture is that of `gather`, read the other way. The source is (outer, k_count, inner), the result
(outer, n, inner); a thread owns one element of the *source*:

    thread (x, y, z) of the grid  ->  element i = x, k = y, o = z

Two elements of the source may go to one place. Adding them takes atomics: every sum is right, but the order of its
terms, and so the last bits of a float, may differ from run to run. Writing them needs a rule which one stays. Here it
is that of a loop on the CPU: the last. Without a rule the gradient could not know which value was kept. It takes two
launches, since only the end of a launch makes all blocks wait for each other:

    claim   each thread raises last[place] to its own position: an atomic maximum
    put     only the thread whose position stands in last[place] writes

`*_rows` kernels have one index for a row, (1, k_count, 1), `*_cells` kernels one for each element, (outer, k_count,
inner). All are in [-n, n): others are left out.
"""

from __future__ import annotations

from miniflow.hostcuda import cuda
from miniflow.kernels.gather import of_cell, of_row, place_in


@cuda.jit
def claim(index, last):
    """last[o, index[o, k, i], i] = the largest k: one read and one atomic maximum.

    Args:
        index: (outer, k_count, inner), or (1, k_count, 1) for rows.
        last: (outer, n, inner), or (1, n, 1), int64, filled with -1.
    """
    i, k, o = cuda.grid(3)
    if i < index.shape[2] and k < index.shape[1] and o < index.shape[0]:
        place = place_in(last.shape[1], index[o, k, i])
        if place >= 0:
            cuda.atomic.max(last, (o, place, i), k)


def make_put(where):
    """out[o, index[k], i] = source[o, k, i], or out[o, index[o, k, i], i], for the last k at each place.

    Kernels of (source, index, last, out): source (outer, k_count, inner); index and last as for `claim`;
    out (outer, n, inner). Three reads, at most one write.
    """

    @cuda.jit
    def put(source, index, last, out):
        i, k, o = cuda.grid(3)
        if i < source.shape[2] and k < source.shape[1] and o < source.shape[0]:
            at, beside = where(o, i)
            place = place_in(out.shape[1], index[at, k, beside])
            if place >= 0 and last[at, place, beside] == k:
                out[o, place, i] = source[o, k, i]

    return put


def make_add(where):
    """out[o, index[k], i] += source[o, k, i], or out[o, index[o, k, i], i]; two reads and one atomic addition.

    Kernels of (source, index, out): as for `make_put`; out is of a dtype with atomics: 32 or 64 bits wide.
    """

    @cuda.jit
    def add(source, index, out):
        i, k, o = cuda.grid(3)
        if i < source.shape[2] and k < source.shape[1] and o < source.shape[0]:
            at, beside = where(o, i)
            place = place_in(out.shape[1], index[at, k, beside])
            if place >= 0:
                cuda.atomic.add(out, (o, place, i), source[o, k, i])

    return add


put_rows, put_cells = make_put(of_row), make_put(of_cell)
add_rows, add_cells = make_add(of_row), make_add(of_cell)
