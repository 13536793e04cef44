# ruff: noqa: E501  (messages are compared as they are)
"""What the checks say of whole arrays: unwritten results, writes that are lost, streams, slices, indices that overflow."""

from __future__ import annotations

import warnings
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from kernel_findings import asserts, findings, place, says

from miniflow.hostcuda import KernelCheckError, check
from miniflow.hostcuda import host as cuda
from miniflow.hostcuda.errors import UnwrittenWarning


@pytest.fixture(autouse=True)
def _without_typing(monkeypatch: pytest.MonkeyPatch) -> None:
    """numba.cuda's own opinion is asked in test_findings and test_ptx."""
    monkeypatch.setattr(check, "cached_typing_error", lambda *_: "")


# Results


@cuda.jit(check=True)
def every_other(x, out):
    i = cuda.grid(1)
    if i < out.size and i % 2 == 0:
        out[i] = x[i]


def test_elements_that_no_thread_writes_are_told_when_they_are_copied():
    x, out = cuda.to_device(np.ones(7, np.float32)), cuda.device_array(7, np.float32)
    every_other[1, 8](x, out)
    with pytest.warns(UnwrittenWarning, match=r"^3 of 7 elements of `out` were never written: what is copied") as told:
        np.testing.assert_array_equal(out.copy_to_host()[::2], np.ones(4))
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert out[:1].copy_to_host()[0] == x.copy_to_host()[0] == 1  # all that is copied was written
        out.copy_to_device(np.zeros(7, np.float32))
        out.copy_to_host()


def test_an_unwritten_part_of_a_result_of_out_is_told():
    out = np.zeros(5, np.float32)
    with pytest.warns(UnwrittenWarning, match=r"^2 of 5 elements of `out` were never written"):
        every_other[1, 8](cuda.In(np.ones(7, np.float32)), cuda.Out(out))
    np.testing.assert_array_equal(out[::2], np.ones(3))


@cuda.jit(check=True)
def square(x, y):
    i = cuda.grid(1)
    y[i] = x[i] * x[i]


@cuda.jit(check=True)
def in_place(x):
    x[cuda.grid(1)] *= 2


def test_a_write_to_an_array_of_in_is_lost():
    x = np.ones(4, np.float32)
    with pytest.raises(
        KernelCheckError, match=r"constant write: .* writes x\[0\], which is constant \(4 times"
    ) as caught:
        in_place[1, 4](cuda.In(x))
    assert "pass the array as an argument that is copied back: not by cuda.In" in str(caught.value)
    np.testing.assert_array_equal(x, np.ones(4))
    y = np.zeros(4, np.float32)
    square[1, 4](cuda.In(x), y)  # reading it is right
    np.testing.assert_array_equal(y, np.ones(4))


# Streams

UNORDERED = "and nothing orders the two\n    between the two, call stream.synchronize() for the first"


def in_two_streams(between: Any) -> np.ndarray:
    """A kernel writes y in one stream, and another reads it in a second one."""
    first, second = cuda.stream(), cuda.stream()
    x, y = cuda.to_device(np.full(4, 3.0), stream=first), cuda.device_array(4, stream=first)
    z = cuda.device_array(4, stream=second)
    square[1, 4, first](x, y)
    between(first, second)
    square[1, 4, second](y, z)
    return z.copy_to_host(stream=second)


def by_event(first: Any, second: Any) -> None:
    event = cuda.event()
    event.record(first)
    event.wait(second)


def by_host(first: Any, second: Any) -> None:
    event = cuda.event()
    event.record(first)
    event.synchronize()


def by_third(first: Any, second: Any) -> None:
    third = cuda.stream()
    by_event(first, third)
    by_event(third, second)


def by_default_stream(first: Any, second: Any) -> None:
    in_place[1, 1](cuda.to_device(np.ones(1)))


ORDERS = [
    by_event, by_host, by_third, by_default_stream, lambda first, second: first.synchronize(),
    lambda first, second: cuda.synchronize(), lambda first, second: cuda.current_context().synchronize(),
]  # fmt: skip


def test_streams_that_are_ordered():
    for between in ORDERS:
        np.testing.assert_array_equal(in_two_streams(between), np.full(4, 81.0))


def by_event_the_wrong_way(first: Any, second: Any) -> None:
    by_event(second, first)


def by_event_too_early(first: Any, second: Any) -> None:
    event = cuda.event()
    event.wait(second)
    event.record(first)


def by_the_other_stream(first: Any, second: Any) -> None:
    second.synchronize()


def test_streams_that_are_not_ordered():
    reads = "stream: kernel square, in `x`, reads what kernel square, in `y`, writes in another stream, "
    for between in (by_event_the_wrong_way, by_event_too_early, by_the_other_stream):
        with pytest.raises(KernelCheckError, match="kernel square: 1 finding") as caught:
            in_two_streams(between)
        assert f"{reads}{UNORDERED}" in str(caught.value)


def test_a_copy_in_another_stream():
    first, second = cuda.stream(), cuda.stream()
    x, y = cuda.to_device(np.ones(4)), cuda.device_array(4)
    square[1, 4, first](x, y)
    with pytest.raises(
        KernelCheckError, match=r"stream: copy_to_host reads what kernel square, in `y`, writes in another"
    ):
        y.copy_to_host(stream=second)
    with pytest.raises(
        KernelCheckError, match="stream: copy_to_device writes what kernel square, in `x`, reads in another"
    ):
        x.copy_to_device(np.ones(4), stream=second)
    y.copy_to_host(stream=first)
    x.copy_to_host(stream=second)  # both read


def test_copies_alone_are_checked_if_that_was_asked_for(monkeypatch: pytest.MonkeyPatch):
    def overtake() -> np.ndarray:
        x = cuda.to_device(np.ones(4), stream=cuda.stream())
        return x.copy_to_host(stream=cuda.stream())

    np.testing.assert_array_equal(overtake(), np.ones(4))
    monkeypatch.setenv("MINIFLOW_CHECK", "1")
    with pytest.raises(
        KernelCheckError, match="stream: copy_to_host reads what copy_to_device writes in another stream"
    ):
        overtake()


# Slices


@cuda.jit
def row_too_far(x, y):
    i = cuda.grid(1)
    y[i] = x[i + 1, 1:3][0]


def test_an_integer_beside_a_slice():
    says(
        findings(row_too_far, [np.ones((3, 4)), np.zeros(3)], 1, 3),
        f"out of bounds: {place(row_too_far, 'y[i]')}: thread (2, 0, 0) of block (0, 0, 0) uses x[3], but x has shape (3, 4)",
        "    guard it: `if index < x.shape[0]`, or launch fewer threads",
    )


@cuda.jit
def column_too_far(x):
    x[:, cuda.grid(1) + 2] = 7.0


def test_a_column_too_far_is_not_written():
    x = np.zeros((3, 4))
    error = findings(column_too_far, [x], 1, 3)
    assert [(f.kind, f.index, f.count) for f in error.findings] == [("out of bounds", (4,), 1)]
    np.testing.assert_array_equal(x, [[0, 0, 7, 7]] * 3)


@cuda.jit
def literal_column_too_far(x, y):
    y[:] = x[:2, 4]


def test_a_literal_column_too_far():
    (finding,) = findings(literal_column_too_far, [np.ones((3, 4)), np.zeros(2)], 1, 1).findings
    assert (finding.kind, finding.array, finding.index) == ("out of bounds", "x", (4,))


@cuda.jit
def row_view(x, y):
    row = x[cuda.grid(1) + 1]
    row[:] = y[:]
    x[5] = 1.0


def test_a_row_too_far_is_not_written():
    x = np.zeros((6, 3))
    error = findings(row_view, [x[:3], np.ones(3)], 1, 3)
    assert [(f.kind, f.array, f.index, f.count) for f in error.findings if f.kind == "out of bounds"] == [
        ("out of bounds", "x", (3,), 1), ("out of bounds", "x", (5,), 3),
    ]  # fmt: skip
    np.testing.assert_array_equal(x, [[0] * 3, [1] * 3, [1] * 3, *[[0] * 3] * 3])


@cuda.jit
def long_row(x):
    x[cuda.grid(1) + 1, :] = 7.0


def test_a_long_row_too_far_is_not_written():
    x = np.zeros((2, 1_000_000))
    (finding,) = findings(long_row, [x], 1, 2).findings
    assert (finding.kind, finding.index) == ("out of bounds", (2,))
    np.testing.assert_array_equal(x[:, ::99_999], [[0] * 11, [7] * 11])


@cuda.jit
def whole_slices(x, y):
    tile = cuda.shared.array((2, 4), np.float64)
    rows = cuda.shared.array((2, 4), np.float64)
    sums = cuda.local.array(4, np.float64)
    sums[:] = 0.0
    i = cuda.threadIdx.x
    tile[i, :] = x[i, 1:5]
    tile[i] = 2 * tile[i, 0]
    rows[i] = 3.0
    for k in range(4):
        sums[k] += tile[i, k] * rows[i, k]
    sums[1:] += 1.0
    y[i, :4] = sums


def test_whole_slices_are_written():
    x, y = np.arange(12.0).reshape(2, 6), cuda.device_array((2, 4))
    check.launch(whole_slices, [x, y], 1, 2)
    expected = 6 * x[:, 1:2] + [0, 1, 1, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(y.copy_to_host(), expected)


@cuda.jit
def slices_that_race(x):
    i = cuda.threadIdx.x
    x[i : i + 2] = 1.0


@cuda.jit
def slice_of_garbage(y):
    tile = cuda.shared.array(4, np.float64)
    tile[:3] = 1.0
    y[:] = tile[1:]


def test_slices_are_looked_up():
    error = findings(slices_that_race, [np.zeros(40)], 1, 34)
    (race,) = error.findings
    assert (race.kind, race.array, race.index) == ("race", "x", (1,))
    error = findings(slice_of_garbage, [np.zeros(3)], 1, 1)
    (read,) = error.findings
    assert (read.kind, read.array, read.index) == ("uninitialised read", "tile", (3,))


# Loops over arrays


@cuda.jit
def zipped(x, y):
    tile = cuda.shared.array(4, np.float64)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    total = 0.0
    for a, b in zip(x, tile):  # noqa: B905
        total += a * b
    y[i] = total


@cuda.jit
def enumerated(y):
    sums = cuda.local.array(3, np.float64)
    sums[0] = 1.0
    for k, value in enumerate(sums[:2], 1):
        y[k] = value


def test_elements_of_loops_are_looked_up():
    _, race = findings(zipped, [np.ones(4), np.zeros(4)], 1, 4).findings
    assert (race.kind, race.array) == ("race", "tile") and "zip(x, tile)" in race.site.text
    (read,) = findings(enumerated, [np.zeros(3)], 1, 1).findings
    assert (read.kind, read.array, read.index) == ("uninitialised read", "sums", (1,))


@cuda.jit
def loops(x, y, z):
    total = 0.0
    for k, (a, b) in enumerate(zip(x, y)):  # noqa: B905
        total += k * a * b
    for k, a in enumerate(x[1:], start=5):
        total += k * a
    for a, k in zip(x[::2], range(7)):  # noqa: B905
        total += a * k
    for k in (2, 3):
        total += k
    for row in z:
        total += row[1]
    for a in z[1]:
        total += a
    x[0] = total


def test_right_loops():
    x, y, z = np.arange(1.0, 6.0), np.arange(3.0), np.arange(6.0).reshape(2, 3)
    total = (np.arange(3) * x[:3] * y).sum() + (np.arange(5, 9) * x[1:]).sum() + (x[::2] * np.arange(3)).sum()
    total += 5 + z[:, 1].sum() + z[1].sum()
    check.launch(loops, [x, y, z], 1, 1)
    assert x[0] == total


# Indices that overflow, and remedies


@cuda.jit
def in_eight_bits(x):
    i = np.int8(cuda.grid(1))
    x[i] = 1.0


@cuda.jit
def in_32_bits(x, n):
    x[np.int32(n * n)] = 1.0


def test_an_index_of_few_bits_overflows():
    error = findings(in_eight_bits, [np.zeros(200)], 2, 100)
    assert "uses x[-128], which wraps around to index 72" in str(error)
    assert "    an int8 holds at most 127: if the index has overflown, compute it with 64 bits; else guard" in str(
        error
    )
    error = findings(in_32_bits, [np.zeros(200), 50_000], 1, 1)
    assert "uses x[-1794967296], but x has shape (200,)" in str(error)
    assert (
        "    an int32 holds at most 2147483647: if the index has overflown, compute it with 64 bits; else guard"
        in str(error)
    )


@cuda.jit
def flag_without_fence(data, flag, out):
    if cuda.blockIdx.x == 0:
        data[0] = 5.0
        cuda.atomic.exch(flag, 0, 1)
    else:
        while cuda.atomic.add(flag, 0, 0) == 0:
            pass
        out[0] = data[0]


@cuda.jit
def flag_with_fence(data, flag, out):
    if cuda.blockIdx.x == 0:
        data[0] = 5.0
        cuda.threadfence()
        cuda.atomic.exch(flag, 0, 1)
    else:
        while cuda.atomic.add(flag, 0, 0) == 0:
            pass
        out[0] = data[0]


def test_a_flag_wants_a_fence():
    error = findings(flag_without_fence, [np.zeros(1), np.zeros(1, np.int32), np.zeros(1)], 2, 1)
    assert "reads data[0] in global memory, which thread (0, 0, 0) of block (0, 0, 0) writes" in str(error)
    assert "only if the writing thread calls cuda.threadfence() before its cuda.atomic" in str(error)
    out = np.zeros(1)
    check.launch(flag_with_fence, [np.zeros(1), np.zeros(1, np.int32), out], 2, 1)
    assert out[0] == 5


@cuda.jit
def waits_by_reading(flag):
    if cuda.blockIdx.x == 0:
        while flag[0] == 0:
            pass
    flag[0] = 1


def test_waiting_without_an_atomic_does_not_hang(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(check, "SPINS", 1000)
    error = findings(waits_by_reading, [np.zeros(1, np.int32)], 2, 1)
    assert "has asked for flag[0] 1,000 times in a row: it seems to wait for another thread" in str(error)


# What is right is not reported

Pair = namedtuple("Pair", "left right scale")
INNER = np.dtype([("a", np.int32), ("b", np.float32)])
OUTER = np.dtype([("s", np.float32), ("inner", INNER), ("vector", np.float32, 3)])


@cuda.jit
def of_many_kinds(pair, records, record, y):
    i = cuda.grid(1)
    y[i] = pair.left[i] + pair.right[i] * pair.scale + record["s"] + record.inner.b
    cuda.atomic.add(records["s"], 1, 1.0)
    cuda.atomic.add(y, -1, 100.0)
    records[i]["inner"]["b"] = i
    records[i].inner.a = i + 1
    records[i]["vector"][1] = 2.0
    y[i] += records[i]["inner"]["b"] + records[i].inner.a + records[i].vector[1]


def test_right_kernels_of_many_kinds():
    record = np.zeros(1, OUTER)[0]
    record["s"], record["inner"]["b"] = 10, 20
    records, y = np.zeros(4, OUTER), np.zeros(5)
    check.launch(of_many_kinds, [Pair(np.ones(4), np.arange(4.0), 2.0), records, record, y], 2, 2)
    np.testing.assert_array_equal(y, [*(34 + 4 * np.arange(4)), 400])
    np.testing.assert_array_equal(records["s"], [0, 4, 0, 0])
    np.testing.assert_array_equal(records["inner"]["a"], np.arange(4) + 1)


def test_an_assertion_that_holds():
    x = np.zeros(4)
    check.launch(asserts, [x], 1, 4)
    np.testing.assert_array_equal(x, [0, 2, 4, 6])


@cuda.jit
def product_by_compare_and_swap(x, y):
    """As in the CUDA C++ programming guide: the first read is a plain one."""
    old = y[0]
    while True:
        assumed = old
        old = cuda.atomic.cas(y, 0, assumed, assumed * x[cuda.grid(1)])
        if old == assumed:
            break


def test_a_loop_of_compare_and_swap():
    x, y = np.array([2, 3, 5, 7]), np.ones(1, np.int64)
    check.launch(product_by_compare_and_swap, [x, y], 2, 2)
    assert y[0] == 210


@cuda.jit
def narrow(a, b, y):
    y[0] = -a[0]
    y[1] = ~b[0]
    y[2] = -np.int8(-128)
    y[3] = ~np.uint8(1)
    y[4] = abs(a[0])
    y[5] = -b[0]


def test_narrow_integers_wrap_as_numba_has_them():
    arguments = [np.full(1, -128, np.int8), np.ones(1, np.uint8)]
    checked, compiled = np.zeros(6), cuda.to_device(np.zeros(6))
    check.launch(narrow, [*arguments, checked], 1, 1)
    narrow[1, 1](*map(cuda.to_device, arguments), compiled)
    np.testing.assert_array_equal(checked, [-128, 254, -128, 254, -128, 255])
    np.testing.assert_array_equal(compiled.copy_to_host(), checked)
