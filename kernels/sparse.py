"""Sparse gradients: terms of a sum sorted by the row they belong to, and rows written back into their table.

Thread (x, y) of the grid owns column x of the term at position y among the indices. Which positions name the same row
is found without a pass over the table, with a hash table that has a place for each row that occurs. Two launches:

    find_owners   thread p looks for the place of row indices[p], an atomic compare-and-swap for each place it tries;
                  the smallest position that came there is the row's owner, an atomic minimum
    add_to_owners thread (p, column) adds dy[p, column] to the values of the owner, an atomic addition

At most half of the hash table is taken, so that a search is over after one or two tries.
"""

from __future__ import annotations

import numpy as np

from miniflow.hostcuda import cuda

SPREAD = 2_654_435_769  # 2^32 / golden ratio: sends neighbours and multiples of powers of two to different places


@cuda.jit
def find_owners(indices, padding, table, places):
    """table[places[p]] = the first position with the index of p; places[p] = -1 for one that is left out.

    Args:
        indices: (count,), integers; those below 0 are left out.
        padding: an index that is left out; -1 for none.
        table: (2^k,), at least twice `count`, int64, filled with `count`.
        places: (count,), int64.
    """
    p = np.int64(cuda.grid(1))  # as the cells of the table, which atomics compare it with
    if p < indices.shape[0]:
        row = indices[p]
        if row < 0 or row == padding:
            places[p] = -1
        else:
            empty = indices.shape[0]
            place = row * SPREAD
            place = (place ^ (place >> 32)) & (table.shape[0] - 1)
            seen = cuda.atomic.cas(table, place, empty, p)
            while seen != empty and indices[seen] != row:
                place = (place + 1) & (table.shape[0] - 1)
                seen = cuda.atomic.cas(table, place, empty, p)
            cuda.atomic.min(table, place, p)
            places[p] = place


@cuda.jit
def add_to_owners(dy, indices, table, places, rows, values):
    """values[owner of p, j] += dy[p, j]; rows[p] = indices[p] for the owner of a row.

    Args:
        dy: (count, width).
        indices: (count,).
        table, places: from `find_owners`.
        rows: (count,), int64, filled with -1.
        values: (count, width), float32 or float64, filled with zeros.
    """
    column, p = cuda.grid(2)
    if column < dy.shape[1] and p < dy.shape[0] and places[p] >= 0:
        owner = table[places[p]]
        if column == 0 and owner == p:
            rows[p] = indices[p]
        cuda.atomic.add(values, (owner, column), dy[p, column])


@cuda.jit
def put_rows(source, rows, table):
    """table[rows[p], j] = source[p, j]; one index and one element read, one written.

    Args:
        source: (count, width).
        rows: (count,), different from each other; those below 0 are left out.
        table: (table_rows, width).
    """
    column, p = cuda.grid(2)
    if column < source.shape[1] and p < source.shape[0]:
        row = rows[p]
        if row >= 0 and row < table.shape[0]:
            table[row, column] = source[p, column]
