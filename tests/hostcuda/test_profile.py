"""The profile's counts against those counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from miniflow.hostcuda import check
from miniflow.hostcuda import host as cuda
from miniflow.hostcuda.profile import Profile, shared_cost


@pytest.fixture(autouse=True)
def _without_typing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "cached_typing_error", lambda *_: "")


@cuda.jit
def naive(a, b, c):
    column, row = cuda.grid(2)
    if row < c.shape[0] and column < c.shape[1]:
        total = np.float32(0)
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        c[row, column] = total


@cuda.jit
def tiled(a, b, c):
    left = cuda.shared.array((8, 8), np.float32)
    right = cuda.shared.array((8, 8), np.float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = np.float32(0)
    for first in range(0, a.shape[1], 8):
        left[y, x] = a[row, first + x]
        right[y, x] = b[first + y, column]
        cuda.syncthreads()
        for k in range(8):
            total += left[y, k] * right[k, x]
        cuda.syncthreads()
    c[row, column] = total


def matrices(m: int, k: int, n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.random((m, k), np.float32), rng.random((k, n), np.float32), np.zeros((m, n), np.float32)]


def test_naive_matmul_reads_2k_elements_for_each_output():
    m, k, n = 11, 5, 13
    profile = check.launch(naive, matrices(m, k, n), (2, 2), (8, 8), profile=True)
    assert profile.total.global_loads == m * n * 2 * k
    assert profile.total.global_stores == m * n
    assert profile.total.shared_loads == profile.total.shared_stores == profile.total.atomics == 0


def test_tiled_matmul_reads_2k_over_t_elements_for_each_output():
    m, k, n, t = 16, 24, 8, 8
    profile = check.launch(tiled, matrices(m, k, n), (1, 2), (8, 8), profile=True)
    assert profile.total.global_loads == m * n * 2 * k // t
    assert profile.total.global_stores == m * n
    assert profile.total.shared_stores == m * n * 2 * k // t
    assert profile.total.shared_loads == m * n * 2 * k


@cuda.jit
def by_rows(x, y):
    i = cuda.threadIdx.x
    for row in range(x.shape[0]):
        y[row, i] = x[row, i]


@cuda.jit
def by_columns(x, y):
    i = cuda.threadIdx.x
    for column in range(x.shape[1]):
        y[i, column] = x[i, column]


@pytest.mark.parametrize("dtype, sectors", [(np.float32, 4), (np.float64, 8), (np.uint8, 1)])
def test_row_wise_access_is_coalesced(dtype: type, sectors: int):
    x, y = np.ones((3, 32), dtype), np.zeros((3, 32), dtype)
    profile = check.launch(by_rows, [cuda.to_device(x), cuda.to_device(y)], 1, 32, profile=True)
    total = profile.total
    assert (total.global_requests, total.sectors, total.ideal_sectors) == (6, 6 * sectors, 6 * sectors)


def test_column_wise_access_costs_a_sector_for_each_lane():
    x, y = np.ones((32, 32), np.float32), np.zeros((32, 32), np.float32)
    profile = check.launch(by_columns, [cuda.to_device(x), cuda.to_device(y)], 1, 32, profile=True)
    total = profile.total
    assert (total.global_requests, total.sectors, total.ideal_sectors) == (64, 64 * 32, 64 * 4)


@cuda.jit
def fill_rows(y):
    for half in range(2):
        y[cuda.threadIdx.x, half::2] = half


def test_each_element_of_a_slice_is_a_request_of_the_warp():
    y = np.zeros((32, 6000), np.float32)  # in time that grows with the elements, not with their square
    total = check.launch(fill_rows, [cuda.to_device(y)], 1, 32, profile=True).total
    assert (total.global_requests, total.global_stores, total.sectors) == (6000, 32 * 6000, 32 * 6000)


@cuda.jit
def broadcast_and_shifted(x, y):
    i = cuda.grid(1)
    y[i] = x[0]
    y[i] += x[i + 1]


def test_broadcasts_and_shifted_rows():
    x, y = np.ones(65, np.float32), np.zeros(64, np.float32)
    profile = check.launch(broadcast_and_shifted, [cuda.to_device(x), cuda.to_device(y)], 1, 64, profile=True)
    one = profile.line("y[i] = x[0]")
    assert (one.global_loads, one.global_stores, one.sectors) == (64, 64, 2 * 1 + 2 * 4)
    shifted = profile.line("y[i] += x[i + 1]")  # reads x (5 sectors a warp) and y, writes y
    assert (shifted.global_loads, shifted.global_stores, shifted.sectors) == (128, 64, 2 * (5 + 4 + 4))
    assert shifted.ideal_sectors == 2 * (4 + 4 + 4)


def transposing(width: int):
    @cuda.jit
    def transpose(x, y):
        tile = cuda.shared.array((32, width), np.float32)
        i, j = cuda.threadIdx.x, cuda.threadIdx.y
        tile[j, i] = x[j, i]
        cuda.syncthreads()
        y[j, i] = tile[i, j]

    return transpose


@pytest.mark.parametrize("width, conflicts, worst", [(32, 31, 32), (33, 0, 1)])
def test_a_column_of_shared_memory_conflicts_unless_it_is_padded(width: int, conflicts: int, worst: int):
    x, y = np.random.default_rng(1).random((32, 32), np.float32), np.zeros((32, 32), np.float32)
    profile = check.launch(transposing(width), [x, y], 1, (32, 32), profile=True)
    np.testing.assert_array_equal(y, x.T)
    read = profile.line("y[j, i] = tile[i, j]")
    assert (read.shared_loads, read.shared_requests) == (1024, 32)
    assert (read.conflicts, read.worst_conflict, read.passes) == (32 * conflicts, worst, 32 * (conflicts + 1))
    write = profile.line("tile[j, i] = x[j, i]")
    assert (write.shared_stores, write.conflicts, write.passes) == (1024, 0, 32)


def bank_passes(addresses: dict[int, int], itemsize: int) -> tuple[int, ...]:
    """Passes, passes without conflicts, and the worst conflict of one request."""
    active = np.array([[lane in addresses for lane in range(32)]])
    at = np.array([[addresses.get(lane, 0) for lane in range(32)]])
    return tuple(int(found[0]) for found in shared_cost(at, active, itemsize))


def test_bank_conflicts_by_hand():
    lanes = range(32)
    got = [
        bank_passes({lane: 4 * lane for lane in lanes}, 4),  # neighbours
        bank_passes({lane: 8 * lane for lane in lanes}, 4),  # every second word
        bank_passes({lane: 128 * lane for lane in lanes}, 4),  # a column of 32
        bank_passes({lane: 128 * lane for lane in range(5)}, 4),  # five lanes of it
        bank_passes(dict.fromkeys(lanes, 12), 4),  # all read one word
        bank_passes({lane: lane for lane in lanes}, 1),  # four bytes of a word are one word
        bank_passes({lane: 8 * lane for lane in lanes}, 8),  # neighbouring doubles: two half warps
        bank_passes({lane: 128 * lane for lane in lanes}, 8),  # a column of doubles
    ]
    expected = [(1, 1, 1), (2, 1, 2), (32, 1, 32), (5, 1, 5), (1, 1, 1), (1, 1, 1), (2, 2, 1), (32, 2, 16)]
    np.testing.assert_equal(got, expected)


@cuda.jit
def counted(values, bins):
    mine = cuda.shared.array(4, np.int32)
    i = cuda.threadIdx.x
    if i < 4:
        mine[i] = 0
    cuda.syncthreads()
    cuda.atomic.add(mine, values[i], 1)
    cuda.syncthreads()
    if i < 4:
        cuda.atomic.add(bins, i, mine[i])


def test_atomics_are_counted():
    profile = check.launch(counted, [np.arange(64) % 4, np.zeros(4, np.int32)], 1, 64, profile=True)
    assert profile.line("cuda.atomic.add(mine").atomics == 64
    assert profile.line("cuda.atomic.add(bins").atomics == 4
    assert profile.total.atomics == 68


@cuda.jit
def small(x, y):
    tile = cuda.shared.array(4, np.float32)
    i = cuda.grid(1)
    tile[i] = x[i * 8]
    cuda.syncthreads()
    y[i] = tile[3 - i]


def test_the_table():
    profile = check.launch(
        small, [cuda.to_device(np.ones(32, np.float32)), np.zeros(4, np.float32)], 1, 4, profile=True
    )
    first = small.py_func.__code__.co_firstlineno
    expected = f"""\
kernel small: grid (1, 1, 1), block (4, 1, 1); elements accessed, 32-byte sectors moved
       ----------------- global memory -----------------  ----- shared memory ----
 line  loads  stores  atomics  sectors  ideal  per request  loads  stores  conflicts
  {first + 4}      4                        4      1          4.0              4             0  tile[i] = x[i * 8]
  {first + 6}              4                1      1          1.0      4                     0  y[i] = tile[3 - i]
total      4       4                5      2          2.5      4       4             0
"""
    lines = str(profile).splitlines()
    assert len(lines[1]) == len(lines[2])
    got = [line.replace("-", "").split() for line in lines]  # the number of dashes is a matter of taste
    np.testing.assert_equal(got, [line.replace("-", "").split() for line in expected.splitlines()])


def test_a_launch_leaves_its_profile_with_the_kernel():
    @cuda.jit(profile=True)
    def profiled(x):
        x[cuda.grid(1)] += 1

    x = cuda.to_device(np.zeros(64, np.float32))
    profiled[2, 32](x)
    assert isinstance(profiled.profile, Profile)
    assert profiled.profile.total.global_loads == profiled.profile.total.global_stores == 64


@cuda.jit
def through_views(x, y):
    i = cuda.threadIdx.x
    row = x[i]
    row[-1] = y.T[i, 1]


def test_views_touch_the_array_they_are_of():
    profile = check.launch(through_views, [np.ones((3, 4)), np.ones((2, 3))], 1, 3, profile=True)
    assert sorted(profile.touches) == ["x", "y"]
    assert profile.touches["x"].writers == {(i, 3): (0, i) for i in range(3)}
    assert profile.touches["y"].readers == {(1, i): (0, i) for i in range(3)}


def test_who_touched_what():
    profile = check.launch(small, [np.ones(32, np.float32), np.zeros(4, np.float32)], 1, 4, profile=True)
    assert sorted(profile.touches) == ["tile", "x", "y"]
    assert profile.touches["x"].readers == {(0,): (0, 0), (8,): (0, 1), (16,): (0, 2), (24,): (0, 3)}
    assert profile.touches["tile"].readers == {(3,): (0, 0), (2,): (0, 1), (1,): (0, 2), (0,): (0, 3)}
    assert profile.touches["tile"].writers == profile.touches["y"].writers == {(i,): (0, i) for i in range(4)}


@cuda.jit
def one_lane_after_the_other(y):
    i = cuda.threadIdx.x
    for j in range(32):
        if j == i:
            y[j] = 1


@cuda.jit
def strides_that_grow(x, y):
    i = cuda.threadIdx.x
    for step in range(1, 33):
        y[i] += x[i * step]


def test_lanes_share_a_request_in_the_same_round_of_a_loop_only():
    profile = check.launch(one_lane_after_the_other, [np.zeros(32, np.float32)], 1, 32, profile=True)
    assert (profile.total.global_stores, profile.total.global_requests, profile.total.sectors) == (32, 32, 32)


@cuda.jit
def one_lane_in_each_round(y):
    i = cuda.threadIdx.x
    for j in range(32):
        if j == i:
            y[j] = 1
        cuda.syncthreads()


@cuda.jit
def one_lane_after_each_syncwarp(y):
    i = cuda.threadIdx.x
    for j in range(32):
        if j == i:
            y[j] = 1
        cuda.syncwarp()


def test_lanes_share_no_request_beyond_a_barrier():
    for kernel in (one_lane_in_each_round, one_lane_after_each_syncwarp):
        profile = check.launch(kernel, [np.zeros(32, np.float32)], 1, 32, profile=True)
        assert (profile.total.global_stores, profile.total.global_requests, profile.total.sectors) == (32, 32, 32)


def test_the_worst_request_is_kept_beside_the_first():
    x, y = cuda.to_device(np.zeros(1024, np.float32)), cuda.to_device(np.zeros(32, np.float32))
    profile = check.launch(strides_that_grow, [x, y], 1, 32, profile=True)
    reads = [(r.cost, r.number, r.worst) for r in profile.requests if r.array == "x"]
    assert reads == [(4, 32, False), (32, 32, True)]
    assert profile.large == {}
