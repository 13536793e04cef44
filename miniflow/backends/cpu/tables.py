"""Many arrays in one call of a compiled function, which is compiled once however many they are.

numba compiles a function again for every length of a tuple of arrays, and unpacks a list of them slowly. So a function
that works on many arrays takes a `Table` of the addresses of their elements, and makes itself arrays of those.

    row r, column c:  array r of group c, flat; its elements are numbered from ends[r] to ends[r + 1]

The addresses are read where NumPy keeps them: in the fields of `PyArrayObject`, which are part of its binary interface.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic
from numpy.lib.array_utils import byte_bounds

from miniflow.backends.cpu.threads import compiled, unlocked

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
REAL = {FLOAT32: np.empty(0, np.float32), FLOAT64: np.empty(0, np.float64)}  # tell compiled functions the dtype
# Fields of PyArrayObject, in words of 8 bytes behind the head that all Python objects have: numpy/ndarraytypes.h
HEAD = object.__basicsize__
DATA, NDIM, SHAPE, DTYPE, FLAGS = 0, 1, 2, 5, 6
WANTED = 0x0001 | 0x0100  # the flags NPY_ARRAY_C_CONTIGUOUS and NPY_ARRAY_ALIGNED


@intrinsic
def pointer(typing_context: Any, address: Any) -> Any:
    """An address as a pointer."""

    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.intp), generate


@compiled
def vector(address, first, count, like):
    """Elements first .. first + count - 1 behind an address, as an array of the dtype of `like`."""
    return carray(pointer(address + first * like.itemsize), count, like.dtype)


@compiled
def overlap(ends, row, start, stop):
    """Which of its own elements a row has between the elements start and stop of all: the first, and how many."""
    first = max(start - ends[row], 0)
    return first, min(stop, ends[row + 1]) - ends[row] - first


@unlocked()
def read(objects, missing, dtype, addresses, ends):
    """Fill `addresses` and `ends` from the addresses of array objects, column after column; `missing` is that of None.

    The sizes are those of the first column.

    Returns:
        whether all arrays are without gaps and of the dtype whose object is at the address `dtype`.
    """
    rows, columns = addresses.shape
    for row in range(rows):
        for column in range(columns):
            addresses[row, column] = 0
            address = objects[column * rows + row]
            if address == missing:
                continue
            words = carray(pointer(address + HEAD), 7, np.int64)
            if words[DTYPE] != dtype or (words[FLAGS] & WANTED) != WANTED:
                return False
            addresses[row, column] = words[DATA]
            if column == 0:
                size = 1
                for length in carray(pointer(words[SHAPE]), words[NDIM] & 0xFFFF, np.int64):
                    size *= length
                ends[row + 1] = ends[row] + size
    return True


class Table:
    """Addresses and sizes of groups of arrays, which must be kept alive beside it.

    Args:
        groups: one list of arrays for each column, all of one length.
        dtype: float32 or float64.

    Attributes:
        complete: whether all arrays have that dtype and no gaps; if not, the rest is of no use.
        addresses: (rows, columns), int64; 0 for None.
        ends: (rows + 1,), int64, where each row ends, from 0 on.
        like: an array of the dtype.
        total: elements in all rows.
    """

    __slots__ = ("addresses", "ends", "like", "total", "complete")

    def __init__(self, groups: Sequence[Sequence[np.ndarray | None]], dtype: np.dtype):
        rows, columns = len(groups[0]), len(groups)
        objects = np.fromiter(map(id, chain.from_iterable(groups)), np.int64, rows * columns)
        self.addresses = np.empty((rows, columns), np.int64)
        self.ends = np.zeros(rows + 1, np.int64)
        self.like = REAL[dtype]
        self.complete = read(objects, id(None), id(dtype), self.addresses, self.ends)
        self.total = int(self.ends[-1])


Arrays = Sequence[np.ndarray | None]


class Fixed(list):
    """A list of arrays that always lie where they lie now: a table that begins with it is made only once.

    Attributes:
        table: made of this and other fixed lists, always the same ones.
    """

    __slots__ = ("table",)

    def __init__(self, arrays: Arrays):
        super().__init__(arrays)
        self.table: Table | None = None


def tables(groups: Sequence[Arrays], changed: Sequence[int] = ()) -> Iterator[tuple[Table, Any]]:
    """Groups of arrays of any layout and floating dtype as tables: one if they allow it, else two of copies.

    Where arrays that are written to share memory, each row is a table of its own, so that none takes back what another
    has written.

    Args:
        groups: as for `Table`; the first has no None.
        changed: the columns that are written to while a table is looked at: what was copied is then copied back.

    Yields:
        a table, and the rows that it has: a slice or a list of indices. Half precision becomes float32.
    """
    first = groups[0]
    fixed = type(first) is Fixed
    if fixed and first.table is not None:
        yield first.table, slice(None)
        return
    dtype = first[0].dtype
    if dtype in REAL:
        table = Table(groups, dtype)
        if table.complete:
            if fixed and all([type(group) is Fixed for group in groups]):
                first.table = table
            yield table, slice(None)
            return
    for real in REAL:
        rows = [row for row, array in enumerate(groups[0]) if (array.dtype == FLOAT64) == (real is FLOAT64)]
        apart = _may_overlap([groups[column][row] for column in changed for row in rows])
        for some in ([row] for row in rows) if apart else filter(None, [rows]):
            yield from _copied([[group[row] for row in some] for group in groups], real, some, changed)


def _copied(groups: list[Arrays], real: np.dtype, rows: list[int], changed: Sequence[int]) -> Iterator[tuple]:
    """One table of copies; what it has in the columns `changed` is then copied back."""
    plain = [[x if x is None else np.require(x, real, "CA") for x in group] for group in groups]
    yield Table(plain, real), rows
    for column in changed:
        for array, new in zip(groups[column], plain[column], strict=True):
            if array is not new:
                array[...] = new


def _may_overlap(arrays: Arrays) -> bool:
    """Whether the memory of one array may begin before that of another ends."""
    spans = sorted([byte_bounds(array) for array in arrays if array is not None and array.size])
    return any(low < high for (_, high), (low, _) in pairwise(spans))
