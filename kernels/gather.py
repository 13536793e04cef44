"""Gather: each element of the result is picked from the source by an integer.

The index picture. All arrays are seen with three dims, (outer, n, inner): those before the indexed dim as one, the
indexed dim, and those behind it as one. The result is (outer, k_count, inner), and a *row* is one pair (o, k) of it:
`inner` elements, neighbours in memory on both sides.

    thread (x, y, z) of the grid  ->  element i = x, k = y, o = z

A block is as wide as a row, as far as 256 threads go, and has as many rows as fit: threads with neighbouring numbers
write neighbouring elements, also where a row has only one. Each thread moves one element: it reads one index and one
element, and writes one. Reads are coalesced within a row; where the rows lie is up to the index.

Elements are moved as unsigned integers of their width: one compiled kernel serves float32, int32 ... No kernel follows
an index out of its array; `report_outside` tells the host that there was one.
"""

from __future__ import annotations

from miniflow.hostcuda import cuda


@cuda.jit(device=True)
def of_row(o, i):
    """Where in an index (1, k_count, 1) the element for a row stands."""
    return 0, 0


@cuda.jit(device=True)
def of_cell(o, i):
    """Where in an index (outer, k_count, inner) the element for a cell stands."""
    return o, i


@cuda.jit(device=True)
def place_in(size, index):
    """The place that an index names, which counts from the end if it is negative; -1 if it is not in [-size, size)."""
    place = index + size if index < 0 else index
    return place if place >= 0 and place < size else -1


def make_take(where):
    """out[o, k, i] = x[o, index[k], i], or x[o, index[o, k, i], i].

    Kernels of (x, index, out): x (outer, n, inner); index (1, k_count, 1), or (outer, k_count, inner), in [-n, n);
    out (outer, k_count, inner), left as it is where the index is outside.
    """

    @cuda.jit
    def take(x, index, out):
        i, k, o = cuda.grid(3)
        if i < out.shape[2] and k < out.shape[1] and o < out.shape[0]:
            at, beside = where(o, i)
            source = place_in(x.shape[1], index[at, k, beside])
            if source >= 0:
                out[o, k, i] = x[o, source, i]

    return take


take_rows, take_cells = make_take(of_row), make_take(of_cell)


@cuda.jit
def join_coordinates(coordinates, size, rows):
    """rows[p] = rows[p] * size + coordinates[p]: one more coordinate of each row number, the last dim last.

    Thread p owns rows[p]: two reads, one write, all coalesced. Negative coordinates count from the end.

    Args:
        coordinates: (count,), each in [-size, size).
        size: of the dim that they count along.
        rows: (count,), the row numbers within the dims before, which become those within one dim more.
    """
    p = cuda.grid(1)
    if p < rows.shape[0]:
        rows[p] = rows[p] * size + place_in(size, coordinates[p])


@cuda.jit
def report_outside(index, low, high, number, report):
    """Raise report[0] to `number` if any index is not in [low, high).

    Thread p reads index[p]; only those that find something write, and meet in an atomic maximum.

    Args:
        index: (count,).
        low, high: the bounds.
        number: what to leave for the host, above 0.
        report: (1,), int64, 0 as long as nothing was found.
    """
    p = cuda.grid(1)
    if p < index.shape[0] and (index[p] < low or index[p] >= high):
        cuda.atomic.max(report, 0, number)
