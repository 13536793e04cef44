"""Right kernels pass the checks without a report, and compute what they should."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

from miniflow.hostcuda import KernelCheckError, check
from miniflow.hostcuda import host as cuda

FULL = 0xFFFFFFFF


@pytest.fixture(autouse=True)
def _without_typing(monkeypatch: pytest.MonkeyPatch) -> None:
    """numba.cuda's own opinion is asked in test_findings and test_ptx."""
    monkeypatch.setattr(check, "cached_typing_error", lambda *_: "")


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(dtype)


def empty(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.full(shape, np.nan if np.dtype(dtype).kind in "fc" else 99, dtype)


# Reductions, scans, histograms, matrices


@cuda.jit
def tree_sum(x, y):
    tile = cuda.shared.array(64, np.float32)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    tile[thread] = x[i] if i < x.size else 0.0
    cuda.syncthreads()
    half = 32
    while half > 0:
        if thread < half:
            tile[thread] += tile[thread + half]
        cuda.syncthreads()
        half //= 2
    if thread == 0:
        y[cuda.blockIdx.x] = tile[0]


def test_tree_reduction():
    x, y = numbers(150), empty(3)
    check.launch(tree_sum, [x, y], 3, 64)
    np.testing.assert_allclose(y, [x[:64].sum(), x[64:128].sum(), x[128:].sum()], rtol=1e-5)


@cuda.jit(device=True)
def warp_sum(value):
    for k in range(5):
        value += cuda.shfl_down_sync(FULL, value, 16 >> k)
    return value


@cuda.jit
def shuffled_sum(x, y):
    sums = cuda.shared.array(4, np.float32)
    i = cuda.grid(1)
    value = warp_sum(x[i] if i < x.size else np.float32(0))
    if cuda.laneid == 0:
        sums[cuda.threadIdx.x // cuda.warpsize] = value
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(y, 0, sums[0] + sums[1] + sums[2] + sums[3])


def test_warp_shuffle_reduction():
    x, y = numbers(300), np.zeros(1, np.float32)
    check.launch(shuffled_sum, [x, y], 3, 128)
    np.testing.assert_allclose(y[0], x.sum(), rtol=1e-4)


@cuda.jit
def warp_tree(x, y):
    tile = cuda.shared.array(32, np.float32)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    cuda.syncwarp()
    half = 16
    while half > 0:
        value = tile[i] + tile[(i + half) % 32]
        cuda.syncwarp()
        tile[i] = value
        cuda.syncwarp()
        half //= 2
    y[i] = tile[i]


def test_syncwarp_orders_shared_memory():
    x, y = numbers(32), empty(32)
    check.launch(warp_tree, [x, y], 1, 32)
    np.testing.assert_allclose(y, np.full(32, x.sum()), rtol=1e-4, atol=1e-5)


@cuda.jit
def exchange_between_pairs(x):
    i = cuda.threadIdx.x
    pair = 3 << (i // 2 * 2)
    x[i] = float(i)
    cuda.syncwarp(pair)
    other = x[i ^ 1]
    cuda.syncwarp(pair)
    x[i] = other


def test_syncwarp_orders_global_memory_of_the_lanes_it_names():
    x = empty(8, dtype=np.float64)
    check.launch(exchange_between_pairs, [x], 1, 8)
    np.testing.assert_array_equal(x, [1, 0, 3, 2, 5, 4, 7, 6])


@cuda.jit
def scan(x, y):
    """Hillis and Steele, between two buffers."""
    buffers = cuda.shared.array((2, 64), np.float32)
    i = cuda.threadIdx.x
    source = 0
    buffers[source, i] = x[i]
    cuda.syncthreads()
    step = 1
    while step < 64:
        value = buffers[source, i]
        if i >= step:
            value += buffers[source, i - step]
        source = 1 - source
        buffers[source, i] = value
        cuda.syncthreads()
        step *= 2
    y[i] = buffers[source, i]


def test_scan():
    x, y = numbers(64), empty(64)
    check.launch(scan, [x, y], 1, 64)
    np.testing.assert_allclose(y, np.cumsum(x), rtol=1e-4, atol=1e-5)


@cuda.jit
def histogram(values, bins):
    mine = cuda.shared.array(8, np.int32)
    thread = cuda.threadIdx.x
    if thread < 8:
        mine[thread] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        cuda.atomic.add(mine, values[i], 1)
    cuda.syncthreads()
    if thread < 8:
        cuda.atomic.add(bins, thread, mine[thread])


def test_histogram_with_atomics():
    values, bins = np.random.default_rng(0).integers(0, 8, 500), np.zeros(8, np.int32)
    check.launch(histogram, [values, bins], 2, 32)
    np.testing.assert_array_equal(bins, np.bincount(values, minlength=8))


@cuda.jit
def tiled_matmul(a, b, c):
    left = cuda.shared.array((8, 8), np.float32)
    right = cuda.shared.array((8, 8), np.float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * 8 + y, cuda.blockIdx.x * 8 + x
    total = np.float32(0)
    for first in range(0, a.shape[1], 8):
        left[y, x] = a[row, first + x] if row < a.shape[0] and first + x < a.shape[1] else 0
        right[y, x] = b[first + y, column] if first + y < b.shape[0] and column < b.shape[1] else 0
        cuda.syncthreads()
        for k in range(8):
            total += left[y, k] * right[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


def test_tiled_matmul():
    a, b, c = numbers(9, 17), numbers(17, 15), empty(9, 15)
    check.launch(tiled_matmul, [a, b, c], (2, 2), (8, 8))
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)


@cuda.jit
def bitonic_sort(x):
    tile = cuda.shared.array(32, np.float32)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    cuda.syncthreads()
    size = 2
    while size <= 32:
        stride = size // 2
        while stride > 0:
            j = i ^ stride
            if j > i and (tile[i] > tile[j]) == (i & size == 0):
                tile[i], tile[j] = tile[j], tile[i]
            cuda.syncthreads()
            stride //= 2
        size *= 2
    x[i] = tile[i]


def test_swaps():
    x = numbers(32)
    expected = np.sort(x)
    check.launch(bitonic_sort, [x], 1, 32)
    np.testing.assert_array_equal(x, expected)


# What orders threads


@cuda.jit
def early_return(x, y):
    tile = cuda.shared.array(32, np.float32)
    i = cuda.threadIdx.x
    if i >= x.size:
        return
    tile[i] = x[i]
    cuda.syncthreads()
    y[i] = tile[x.size - 1 - i]


@cuda.jit
def early_return_in_an_else(x, y):
    tile = cuda.shared.array(32, np.float32)
    i = cuda.threadIdx.x
    if i < x.size:
        tile[i] = x[i]
    else:
        return
    cuda.syncthreads()
    y[i] = tile[x.size - 1 - i]


def test_threads_that_returned_are_not_waited_for():
    for kernel in (early_return, early_return_in_an_else):
        x, y = numbers(20), empty(20)
        check.launch(kernel, [x, y], 1, 32)
        np.testing.assert_array_equal(y, x[::-1])


@cuda.jit
def last_block_sums(x, parts, counter, total):
    """CUDA's threadFenceReduction: the block that counts last reads what all wrote."""
    last = cuda.shared.array(1, np.int32)
    if cuda.threadIdx.x == 0:
        value = 0.0
        for i in range(8):
            value += x[cuda.blockIdx.x * 8 + i]
        parts[cuda.blockIdx.x] = value
        cuda.threadfence()
        last[0] = cuda.atomic.add(counter, 0, 1) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if last[0] and cuda.threadIdx.x == 1:
        value = 0.0
        for i in range(cuda.gridDim.x):
            value += parts[i]
        total[0] = value


def test_a_fence_and_an_atomic_publish_to_other_blocks():
    x, total = numbers(32, dtype=np.float64), empty(1, dtype=np.float64)
    check.launch(last_block_sums, [x, empty(4, dtype=np.float64), np.zeros(1, np.int32), total], 4, 2)
    np.testing.assert_allclose(total[0], x.sum())


@cuda.jit
def neighbours_after_grid_sync(x, y):
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    x[i] = i
    grid.sync()
    y[i] = x[(i + 3) % x.size]
    grid.sync()
    x[i] = y[(i + 3) % x.size]


def test_grid_sync():
    x, y = empty(8), empty(8)
    check.launch(neighbours_after_grid_sync, [x, y], 4, 2)
    np.testing.assert_array_equal(x, (np.arange(8) + 6) % 8)


@cuda.jit
def votes_of_the_block(x, y):
    i = cuda.threadIdx.x
    y[0, i] = cuda.syncthreads_count(x[i] > 0)
    y[1, i] = cuda.syncthreads_and(x[i] > 0)
    y[2, i] = cuda.syncthreads_or(x[i] > 0)


def test_barriers_that_count():
    y = empty(3, 4, dtype=np.int32)
    check.launch(votes_of_the_block, [np.array([1.0, -1, 2, 3]), y], 1, 4)
    np.testing.assert_array_equal(y, [[3] * 4, [0] * 4, [1] * 4])


@cuda.jit
def meeting_in_functions(x):
    tile = cuda.shared.array(8, np.float32)
    i = cuda.threadIdx.x

    def rotate(step):
        tile[i] = x[i]
        cuda.syncthreads()
        x[i] = tile[(i + step) % 8]
        cuda.syncthreads()

    rotate(1)
    if x.size == 8:
        rotate(2)


def test_nested_functions_with_barriers():
    x = numbers(8)
    expected = np.roll(x, -3)
    check.launch(meeting_in_functions, [x], 1, 8)
    np.testing.assert_array_equal(x, expected)


# Warps


@cuda.jit
def lanes(x, y):
    i = cuda.threadIdx.x
    y[0, i] = cuda.shfl_sync(FULL, x[i], 3)
    y[1, i] = cuda.shfl_up_sync(FULL, x[i], 2)
    y[2, i] = cuda.shfl_down_sync(FULL, x[i], 2)
    y[3, i] = cuda.shfl_xor_sync(FULL, x[i], 1)
    y[4, i] = cuda.ballot_sync(FULL, i % 3 == 0)
    y[5, i] = cuda.all_sync(FULL, i < 32) + 2 * cuda.all_sync(FULL, i < 31)
    y[6, i] = cuda.any_sync(FULL, i == 5) + 2 * cuda.any_sync(FULL, i == 32)
    y[7, i] = cuda.eq_sync(FULL, i < 0) + 2 * cuda.eq_sync(FULL, i == 0)
    y[8, i] = cuda.match_any_sync(FULL, i // 16)
    y[9, i] = cuda.lanemask_lt()
    if i < 8:
        y[10, i] = cuda.activemask()
    else:
        y[10, i] = cuda.ballot_sync(0xFFFFFF00, True)


def test_shuffles_and_votes():
    i = np.arange(32)
    x, y = i * 10.0, empty(11, 32, dtype=np.float64)
    check.launch(lanes, [x, y], 1, 32)
    np.testing.assert_array_equal(y[0], np.full(32, 30.0))
    np.testing.assert_array_equal(y[1], np.where(i >= 2, x - 20, x))
    np.testing.assert_array_equal(y[2], np.where(i < 30, x + 20, x))
    np.testing.assert_array_equal(y[3], x[i ^ 1])
    np.testing.assert_array_equal(y[4], np.full(32, sum(1 << k for k in range(0, 30, 3)) + (1 << 30)))
    np.testing.assert_array_equal(y[5:8], np.full((3, 32), 1))
    np.testing.assert_array_equal(y[8], np.where(i < 16, 0xFFFF, -0x10000))  # an int32
    np.testing.assert_array_equal(y[9], 2.0**i - 1)
    np.testing.assert_array_equal(y[10], np.where(i < 8, 0xFF, -0x100))


# Arrays


@cuda.jit
def dynamic_shared(x, y):
    floats = cuda.shared.array(0, np.float32)
    doubles = cuda.shared.array(0, np.float64)[4:]
    i = cuda.threadIdx.x
    floats[i] = x[i]
    doubles[i] = x[i] * 2.0
    cuda.syncthreads()
    y[i] = floats[7 - i] + doubles[7 - i]


def test_dynamic_shared_memory_of_several_dtypes():
    x, y = numbers(8), empty(8)
    check.launch(dynamic_shared, [x, y], 1, 8, shared=8 * 4 + 8 * 8)
    np.testing.assert_allclose(y, 3 * x[::-1], rtol=1e-6)


WEIGHTS = np.array([1.0, 2.0, 4.0], np.float32)
SCALE, OFFSET = 0.5, (1, 10)


@cuda.jit
def constants_and_locals(x, y):
    weights = cuda.const.array_like(WEIGHTS)
    window = cuda.local.array(3, numba.float32)
    i = cuda.grid(1)
    for k in range(3):
        window[k] = x[i + k] * weights[k]
    total = np.float32(0)
    for value in window:
        total += value
    y[i] = total * SCALE + OFFSET[1] + WEIGHTS[-1]


def test_constant_and_local_arrays():
    x, y = numbers(10), empty(8)
    check.launch(constants_and_locals, [x, y], 2, 4)
    np.testing.assert_allclose(y, np.convolve(x, WEIGHTS[::-1], "valid") * 0.5 + 14, rtol=1e-5)


@cuda.jit(device=True)
def sum_of(row):
    total = 0.0
    for i in range(row.shape[0]):
        total += row[i]
    return total


def test_slices_and_views():
    x, y = numbers(4, 5, dtype=np.float64), empty(4, dtype=np.float64)
    expected = x.sum(1) + x[:, 1:3].sum(1) + x.T.sum(1)[:4] + x.reshape(-1)[:4] + 4 + x[:, 0]
    copied = x.copy()

    @cuda.jit
    def read_only(x, y):
        i = cuda.threadIdx.x
        y[i] = sum_of(x[i]) + sum_of(x[i, 1:3]) + sum_of(x.T[i]) + x.reshape(x.size)[i] + len(x) + x[i][0]

    check.launch(read_only, [x, y], 1, 4)
    np.testing.assert_allclose(y, expected)

    @cuda.jit
    def write_slices(x, y):
        i = cuda.threadIdx.x
        x[i, 3:] = y[i]
        x[i, :2] = y[2:]

    check.launch(write_slices, [x, y], 1, 4)
    copied[:, 3:], copied[:, :2] = y[:, None], y[2:]
    np.testing.assert_array_equal(x, copied)


@cuda.jit
def loops_over_arrays(x, y):
    total = 0.0
    for i, value in enumerate(x):
        total += i * value
    for a, b in zip(x, y):  # noqa: B905  (the one of kernels has no `strict`)
        total += a * b
    for row in y.reshape((2, 2)):
        total += row[1]
    y[0] = total


def test_loops_over_arrays():
    x, y = numbers(4, dtype=np.float64), numbers(4, dtype=np.float64) + 1
    expected = np.arange(4) @ x + x @ y + y[1] + y[3]
    check.launch(loops_over_arrays, [x, y], 1, 1)
    np.testing.assert_allclose(y[0], expected)


PARTICLE = np.dtype([("mass", np.float32), ("place", np.int64), ("tag", np.uint8)])


@cuda.jit
def records(particles, y):
    i = cuda.grid(1)
    particle = particles[i]
    particle.mass *= 2
    particles[i]["tag"] = particle.tag + 250
    y[i] = particles.mass[i] + particle["place"]


def test_records_whose_fields_are_not_aligned():
    particles, y = np.zeros(4, PARTICLE), empty(4)
    particles["mass"], particles["place"], particles["tag"] = [1, 2, 3, 4], [10, 20, 30, 40], [0, 5, 6, 255]
    check.launch(records, [particles, y], 2, 2)
    np.testing.assert_array_equal(y, [12, 24, 36, 48])
    np.testing.assert_array_equal(particles["tag"], [250, 255, 0, 249])


@cuda.jit
def in_three_dims(x):
    i, j, k = cuda.grid(3)
    if i < x.shape[0] and j < x.shape[1] and k < x.shape[2]:
        x[i, j, k] = i * 100 + j * 10 + k + cuda.gridsize(3)[1] * 1000


def test_three_dims():
    x = empty(3, 5, 4)
    check.launch(in_three_dims, [x], (2, 3, 1), (2, 2, 4))
    i, j, k = np.indices(x.shape)
    np.testing.assert_array_equal(x, i * 100 + j * 10 + k + 6000)


# Arguments, and the compiled executor


@cuda.jit
def arguments(pair, x, flag, y):
    first, (second, scale) = pair
    if flag:
        y[cuda.grid(1)] = first[0] + second[cuda.grid(1)] * scale + x


def test_tuples_numbers_and_bools():
    first, second, y = numbers(1), numbers(4), empty(4)
    check.launch(arguments, [(first, (second, 2.0)), np.float32(1), True, y], 1, 4)
    np.testing.assert_allclose(y, first[0] + second * 2 + 1, rtol=1e-6)


def test_overlapping_arguments_share_their_memory():
    @cuda.jit
    def shift(x, y):
        i = cuda.grid(1)
        y[i] = x[i]

    x = cuda.to_device(numbers(9))
    with pytest.raises(
        KernelCheckError, match=r"race: .* writes y\[4\] in global memory, which thread \(2, 0, 0\) reads"
    ):
        check.launch(shift, [x[:-1][::-1], x[1:]], 1, 8)
    halves = cuda.to_device(numbers(8))
    check.launch(shift, [halves[:4], halves[4:]], 1, 4)
    np.testing.assert_array_equal(halves[4:].copy_to_host(), halves[:4].copy_to_host())


def test_the_environment_switches_the_checks_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MINIFLOW_CHECK", "1")

    @cuda.jit
    def checked(x):
        x[cuda.grid(1)] = 1.0

    x = cuda.to_device(np.zeros(3))
    with pytest.raises(KernelCheckError, match="out of bounds"):
        checked[1, 4](x)
    np.testing.assert_array_equal(x.copy_to_host(), [1, 1, 1])


@pytest.mark.slow
def test_the_compiled_executor_shuffles_and_votes_the_same():
    checked, compiled = empty(11, 32, dtype=np.float64), cuda.to_device(empty(11, 32, dtype=np.float64))
    check.launch(lanes, [np.arange(32.0), checked], 1, 32)
    lanes[1, 32](cuda.to_device(np.arange(32.0)), compiled)
    np.testing.assert_array_equal(compiled.copy_to_host(), checked)
