"""Tables of arrays, through which one compiled call works on many of them."""

import numpy as np
import pytest
from compare import count_comparison

from miniflow.backends.cpu.tables import FLOAT32, FLOAT64, Fixed, Table, overlap, tables, vector
from miniflow.backends.cpu.threads import compiled


@compiled
def total(table_addresses, ends, like, row, column, start, stop):
    """The sum of those of a row's elements that are from start to stop of all."""
    first, count = overlap(ends, row, start, stop)
    result = 0.0
    if count > 0:
        for x in vector(table_addresses[row, column], first, count, like):
            result += x
    return result


def arrays(dtype=np.float32):
    return [np.arange(6, dtype=dtype).reshape(2, 3), np.full((), 7, dtype), np.empty((0, 4), dtype), np.ones(2, dtype)]


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64])
def test_addresses_and_sizes(dtype):
    groups = [arrays(dtype), [None, *arrays(dtype)[1:]]]
    table = Table(groups, dtype)
    count_comparison()
    assert table.complete and table.ends.tolist() == [0, 6, 7, 7, 9] and table.total == 9
    for c, group in enumerate(groups):
        for r, array in enumerate(group):
            assert table.addresses[r, c] == (0 if array is None else array.__array_interface__["data"][0])


def test_elements_are_reached_by_their_numbers():
    kept = arrays()
    table = Table([kept], FLOAT32)
    everything = np.concatenate([a.ravel() for a in kept])
    for start in range(10):
        for stop in range(start, 10):
            found = [total(table.addresses, table.ends, table.like, r, 0, start, stop) for r in range(4)]
            assert sum(found) == everything[start:stop].sum()
    count_comparison()


@pytest.mark.parametrize(
    "odd",
    [
        np.ones(2, np.float64), np.ones(2, np.float16), np.ones(4, np.float32)[::2], np.ones((2, 3), np.float32).T,
        np.broadcast_to(np.float32(1), (2,)), np.ones(2, ">f4"), np.ones(9, np.uint8)[1:].view(np.float32),
    ],
    ids=["float64", "float16", "strided", "transposed", "expanded", "byte order", "not aligned"],
)  # fmt: skip
def test_arrays_that_do_not_fit_are_copied_and_written_back(odd):
    assert not Table([[odd]], FLOAT32).complete
    odd = odd.copy("K") if not odd.flags.writeable else odd
    groups = [[np.zeros_like(odd), np.zeros(3, np.float32)], [odd, np.full(3, 5, np.float32)]]
    want = [np.asarray(x, np.float64).copy() for x in groups[1]]
    seen = set()
    for table, rows in tables(groups, changed=(0,)):
        assert table.complete
        for k, row in enumerate(range(2) if isinstance(rows, slice) else rows):
            seen.add(row)
            size = table.ends[k + 1] - table.ends[k]
            copy(table.addresses, table.like, k, size)
    assert seen == {0, 1}
    for got, expected in zip(groups[0], want, strict=True):
        np.testing.assert_array_equal(np.asarray(got, np.float64), expected)
    count_comparison()


@compiled
def copy(addresses, like, row, size):
    vector(addresses[row, 0], 0, size, like)[:] = vector(addresses[row, 1], 0, size, like)


def test_a_table_of_fixed_lists_is_made_once():
    groups = [Fixed(arrays()), Fixed(arrays())]
    (first, _), (second, _) = next(tables(groups)), next(tables(groups))
    assert first is second
    plain = [Fixed(arrays()), arrays()]
    (first, _), (second, _) = next(tables(plain)), next(tables(plain))
    assert first is not second, "the other list may change"
    count_comparison()
