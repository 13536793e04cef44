# ruff: noqa: E501  (messages are compared as they are)
"""Each mistake that the checked executor reports: a minimal wrong kernel and its whole message; determinism."""

from __future__ import annotations

import math

import numpy as np
import pytest
from kernel_findings import findings, place, says

from miniflow.hostcuda import KernelCheckError, KernelLaunchError, check
from miniflow.hostcuda import host as cuda
from miniflow.hostcuda.numba_cuda import NUMBA_CUDA


@pytest.fixture(autouse=True)
def _without_typing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """These kernels are wrong in other ways; what numba.cuda says is asked in the test of that alone."""
    if "typing" not in request.node.name:
        monkeypatch.setattr(check, "cached_typing_error", lambda *_: "")


BARRIER = "    put cuda.syncthreads() between the two, where all threads of the block pass; or use cuda.atomic for both"
BLOCKS = "    let each element belong to one block, use cuda.atomic for both, or split the work into two launches"
SYNCWARP = "    put cuda.syncwarp() between the two, which are threads of one warp, or cuda.syncthreads()"
ATOMICS = SYNCWARP.replace("put", "use cuda.atomic for both accesses, or put")
ONE_STEP = "    use cuda.atomic, which reads and writes in one step; or let each element belong to one thread"
# Bounds


@cuda.jit
def too_far(x):
    i = cuda.grid(1)
    x[i] = 1.0


def test_out_of_bounds():
    x = np.zeros(5, np.float32)
    error = findings(too_far, [x], 2, 4)
    says(
        error,
        f"out of bounds: {place(too_far, 'x[i] = 1.0')}: thread (1, 0, 0) of block (1, 0, 0) uses x[5], but x has shape (5,)"
        " (3 times; this is the first)",
        "    guard it: `if index < x.shape[0]`, or launch fewer threads",
    )
    (finding,) = error.findings
    assert (finding.kernel, finding.array, finding.index, finding.block, finding.thread, finding.count) == (
        "too_far", "x", (5,), (1, 0, 0), (1, 0, 0), 3,
    )  # fmt: skip
    assert x.tolist() == [1.0] * 5  # the other threads went on


@cuda.jit
def too_far_in_two_dims(x, y):
    row, column = cuda.grid(2)
    y[row, column] = x[row, column + 1]


def test_out_of_bounds_in_two_dims():
    says(
        findings(too_far_in_two_dims, [np.zeros((2, 3)), np.zeros((2, 3))], 1, (2, 3)),
        f"out of bounds: {place(too_far_in_two_dims, 'y[row')}: thread (0, 2, 0) of block (0, 0, 0) uses x[0, 3], but x has "
        "shape (2, 3) (2 times; this is the first)",
        "    guard it: `if index < x.shape[1]`, or launch fewer threads",
    )


@cuda.jit
def left_neighbour(x, y):
    i = cuda.grid(1)
    y[i] = x[i - 1]


def test_negative_index():
    x, y = np.arange(4.0), np.zeros(4)
    says(
        findings(left_neighbour, [x, y], 1, 4),
        f"negative index: {place(left_neighbour, 'y[i]')}: thread (0, 0, 0) of block (0, 0, 0) uses x[-1], which wraps around "
        "to index 3",
        "    guard the access with an `if`, or shift the index; a literal -1 is taken as meant",
    )
    np.testing.assert_array_equal(y, [3, 0, 1, 2])


@cuda.jit
def last_element(x, y):
    y[cuda.grid(1)] = x[-1]


def test_a_literal_negative_index_is_meant():
    x, y = np.arange(4.0), np.zeros(4)
    check.launch(last_element, [x, y], 1, 4)
    np.testing.assert_array_equal(y, [3, 3, 3, 3])


@cuda.jit(device=True)
def next_of(x, i):
    return x[i + 1]


@cuda.jit
def calls_next_of(x, y):
    i = cuda.grid(1)
    y[i] = next_of(x, i)


def test_a_mistake_in_a_device_function_names_the_caller():
    says(
        findings(calls_next_of, [np.zeros(4), np.zeros(4)], 1, 4),
        f"out of bounds: {place(next_of, 'return')} (called at {place(calls_next_of, 'y[i] =')}): thread (3, 0, 0) of block "
        "(0, 0, 0) uses x[4], but x has shape (4,)",
        "    guard it: `if index < x.shape[0]`, or launch fewer threads",
    )


# Races


@cuda.jit
def shift_without_barrier(x, y):
    tile = cuda.shared.array(64, np.float32)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    y[i] = tile[63 - i]


def test_race_in_shared_memory():
    says(
        findings(shift_without_barrier, [np.zeros(64, np.float32), np.zeros(64, np.float32)], 1, 64),
        f"race: {place(shift_without_barrier, 'tile[i] =')}: thread (32, 0, 0) of block (0, 0, 0) writes tile[32] in shared "
        f"memory, which thread (31, 0, 0) reads at {place(shift_without_barrier, 'y[i] =')}; no barrier between them "
        "(32 times; this is the first)",
        BARRIER,
        f"race: {place(shift_without_barrier, 'y[i] =')}: thread (32, 0, 0) of block (0, 0, 0) reads tile[31] in shared "
        f"memory, which thread (31, 0, 0) writes at {place(shift_without_barrier, 'tile[i] =')}; no barrier between them "
        "(32 times; this is the first)",
        BARRIER,
    )


@cuda.jit
def same_cell(x):
    x[cuda.threadIdx.x // 2] = 1.0


def test_race_of_two_writes_of_the_same_value():
    line = place(same_cell, "x[cuda")
    says(
        findings(same_cell, [np.zeros(2)], 1, 4),
        f"race: {line}: thread (1, 0, 0) of block (0, 0, 0) writes x[0] in global memory, which thread (0, 0, 0) writes at "
        f"{line}, with the same value; no barrier between them (2 times; this is the first)",
        "    this changes nothing as long as all write the same value; plainer is one thread that writes it, as by an `if`",
    )


@cuda.jit
def cell_of_several_values(x):
    x[0] = min(cuda.threadIdx.x, 2)


def test_race_of_writes_of_which_few_differ():
    line = place(cell_of_several_values, "x[0]")
    says(
        findings(cell_of_several_values, [np.zeros(1)], 1, 8),
        f"race: {line}: thread (1, 0, 0) of block (0, 0, 0) writes x[0] in global memory, which thread (0, 0, 0) writes at "
        f"{line}; no barrier between them (7 times; this is the first)",
        ONE_STEP,
    )


@cuda.jit
def field_of_a_record(r):
    r[0].low = cuda.threadIdx.x


def test_race_on_a_field_names_it():
    line, records = place(field_of_a_record, "r[0]"), np.zeros(2, [("low", np.int32), ("high", np.int32)])
    says(
        findings(field_of_a_record, [records], 1, 2),
        f"race: {line}: thread (1, 0, 0) of block (0, 0, 0) writes r[0].low in global memory, which thread (0, 0, 0) writes "
        f"at {line}; no barrier between them",
        ONE_STEP,
    )


@cuda.jit
def with_a_lock(lock, total):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    total[0] += 1
    cuda.threadfence()
    cuda.atomic.exch(lock, 0, 0)


@cuda.jit
def with_a_shared_lock(total):
    lock, count = cuda.shared.array(1, np.int32), cuda.shared.array(1, np.int32)
    if cuda.threadIdx.x == 0:
        lock[0] = count[0] = 0
    cuda.syncthreads()
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    count[0] += 1
    cuda.threadfence_block()
    cuda.atomic.exch(lock, 0, 0)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(total, 0, count[0])


def test_a_lock_orders_threads_of_one_block_and_of_several():
    total = np.zeros(1, np.int32)
    check.launch(with_a_lock, [np.zeros(1, np.int32), total], 2, 40)
    check.launch(with_a_shared_lock, [total], 2, 40)
    assert total[0] == 160


@cuda.jit
def with_a_lock_that_publishes_nothing(lock, total):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    total[0] += 1
    cuda.atomic.exch(lock, 0, 0)


@cuda.jit
def with_a_lock_that_nobody_takes(lock, total):
    total[0] += 1
    cuda.threadfence()
    cuda.atomic.exch(lock, 0, 0)
    cuda.threadfence()


@pytest.mark.parametrize("kernel", [with_a_lock_that_publishes_nothing, with_a_lock_that_nobody_takes])
def test_half_a_lock_orders_nobody(kernel):
    line = place(kernel, "total[0] +=")
    says(
        findings(kernel, [np.zeros(1, np.int32), np.zeros(1, np.int32)], 1, 40),
        f"race: {line}: thread (1, 0, 0) of block (0, 0, 0) reads total[0] in global memory, which thread (0, 0, 0) writes "
        f"at {line}; no barrier between them (39 times; this is the first)",
        ONE_STEP,
    )


@cuda.jit
def sum_over_blocks(x, total):
    total[0] += x[cuda.grid(1)]


def test_race_between_blocks():
    line = place(sum_over_blocks, "total[0] +=")
    says(
        findings(sum_over_blocks, [np.ones(2), np.zeros(1)], 2, 1),
        f"race: {line}: thread (0, 0, 0) of block (1, 0, 0) reads total[0] in global memory, which thread (0, 0, 0) of block "
        f"(0, 0, 0) writes at {line}; nothing orders blocks",
        ONE_STEP,
    )


@cuda.jit
def barrier_for_blocks(x):
    i = cuda.grid(1)
    x[i] = 1.0
    cuda.syncthreads()
    x[x.size - 1 - i] += 1.0


def test_a_barrier_does_not_order_blocks():
    error = findings(barrier_for_blocks, [np.zeros(4)], 2, 2)
    assert {finding.kind for finding in error.findings} == {"race"}
    assert "of block (1, 0, 0) writes x[2]" in str(error) and "nothing orders blocks" in str(error)


@cuda.jit
def atomic_and_plain(total):
    cuda.atomic.add(total, 0, 1)
    if cuda.threadIdx.x == 1:
        total[0] = 0


def test_race_of_an_atomic_with_a_plain_access():
    error = findings(atomic_and_plain, [np.zeros(1, np.int32)], 1, 3)
    atomic, plain = place(atomic_and_plain, "atomic.add"), place(atomic_and_plain, "total[0] = 0")
    says(
        error,
        f"race: {atomic}: thread (2, 0, 0) of block (0, 0, 0) atomically updates total[0] in global memory, which thread "
        f"(1, 0, 0) writes at {plain}; no barrier between them",
        ATOMICS,
        f"race: {plain}: thread (1, 0, 0) of block (0, 0, 0) writes total[0] in global memory, which thread (0, 0, 0) "
        f"atomically updates at {atomic}; no barrier between them",
        ATOMICS,
    )


@cuda.jit
def warp_sum_without_syncwarp(x, y):
    tile = cuda.shared.array(32, np.float32)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    value = cuda.shfl_xor_sync(0xFFFFFFFF, tile[i], 1)  # orders no memory
    y[i] = value + tile[i ^ 1]


def test_a_shuffle_does_not_order_memory():
    line = place(warp_sum_without_syncwarp, "tile[i] =")
    error = findings(warp_sum_without_syncwarp, [np.zeros(32, np.float32), np.zeros(32, np.float32)], 1, 32)
    says(
        error,
        f"race: {place(warp_sum_without_syncwarp, 'y[i] =')}: thread (0, 0, 0) of block (0, 0, 0) reads tile[1] in shared "
        f"memory, which thread (1, 0, 0) writes at {line}; no barrier between them (32 times; this is the first)",
        SYNCWARP,
    )


@cuda.jit
def half_a_syncwarp(x, y):
    tile = cuda.shared.array(32, np.float32)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    if i < 16:
        cuda.syncwarp(0x0000FFFF)
        y[i] = tile[i ^ 1]
    else:
        y[i] = tile[i - 16]


def test_syncwarp_orders_only_the_lanes_it_names():
    error = findings(half_a_syncwarp, [np.zeros(32, np.float32), np.zeros(32, np.float32)], 1, 32)
    assert len(error.findings) == 1 and error.findings[0].count == 16
    assert f"{place(half_a_syncwarp, 'tile[i - 16]')}: thread (16, 0, 0) of block (0, 0, 0) reads tile[0]" in str(error)


@cuda.jit
def neighbours_of_several_warps(y):
    tile = cuda.shared.array(64, np.float32)
    i = cuda.threadIdx.x
    tile[i] = i
    y[i] = tile[(i + 1) % 64]


def test_a_warp_is_not_enough_where_one_race_is_between_warps():
    (first, second) = findings(neighbours_of_several_warps, [np.zeros(64, np.float32)], 1, 64).findings
    assert "thread (1, 0, 0) of block (0, 0, 0) writes tile[1]" in str(first) and str(first).endswith(BARRIER)
    assert "thread (63, 0, 0) of block (0, 0, 0) reads tile[0]" in str(second) and str(second).endswith(BARRIER)


@cuda.jit
def beyond_its_pair(x, y):
    i = cuda.threadIdx.x
    x[i] = i
    cuda.syncwarp(3 << (i // 2 * 2))
    y[i] = x[i ^ 2]


def test_syncwarp_orders_only_lanes_that_name_each_other():
    (race,) = findings(beyond_its_pair, [np.zeros(8), np.zeros(8)], 1, 8).findings
    assert (race.kind, race.array, race.index, race.count) == ("race", "x", (2,), 8)


@cuda.jit
def syncwarp_for_two_warps(y):
    tile = cuda.shared.array(64, np.float32)
    i = cuda.threadIdx.x
    tile[i] = i
    cuda.syncwarp()
    y[i] = tile[(i + 32) % 64]


def test_syncwarp_does_not_order_two_warps():
    error = findings(syncwarp_for_two_warps, [np.zeros(64, np.float32)], 1, 64)
    assert [(f.kind, f.count) for f in error.findings] == [("race", 32)] * 2 and BARRIER in str(error)


# Uninitialised memory


@cuda.jit
def unwritten_shared(y):
    tile = cuda.shared.array(8, np.float32)
    i = cuda.threadIdx.x
    if i < 4:
        tile[i] = 1.0
    cuda.syncthreads()
    y[i] = tile[i]


def test_unwritten_shared_memory():
    says(
        findings(unwritten_shared, [np.zeros(8, np.float32)], 1, 8),
        f"uninitialised read: {place(unwritten_shared, 'y[i]')}: thread (4, 0, 0) of block (0, 0, 0) reads tile[4] in shared "
        "memory, which nothing has written (4 times; this is the first)",
        "    cuda.shared.array leaves garbage: write the element first",
    )


@cuda.jit
def unwritten_local(y):
    sums = cuda.local.array(2, np.float64)
    sums[0] = 1.0
    y[cuda.threadIdx.x] = sums[0] + sums[1]


def test_unwritten_local_memory():
    says(
        findings(unwritten_local, [np.zeros(1)], 1, 1),
        f"uninitialised read: {place(unwritten_local, 'y[cuda')}: thread (0, 0, 0) of block (0, 0, 0) reads sums[1] in local "
        "memory, which nothing has written",
        "    cuda.local.array leaves garbage: write the element first",
    )


@cuda.jit
def add_one(x):
    x[cuda.grid(1)] += 1.0


def test_unwritten_device_memory():
    x = cuda.device_array(8, np.float32)
    cuda.to_device(np.ones(5, np.float32), to=x[:5])
    says(
        findings(add_one, [x], 1, 8),
        f"uninitialised read: {place(add_one, 'x[cuda')}: thread (5, 0, 0) of block (0, 0, 0) reads x[5] in global memory, "
        "which nothing has written (3 times; this is the first)",
        "    device_array leaves garbage: write the element first",
    )
    check.launch(add_one, [x], 1, 8)  # now it is written


# Limits and what cannot be done


def test_a_write_to_a_read_only_array():
    x = np.zeros(1, np.float32)
    x.flags.writeable = False
    error = findings(add_one, [x], 1, 1)
    assert "constant write: " in str(error) and "writes x[0], which is constant" in str(error)
    assert x[0] == 0


@cuda.jit
def large_tiles(y):
    left = cuda.shared.array((64, 64), np.float64)
    right = cuda.shared.array((64, 64), np.float64)
    left[0, 0] = right[0, 0] = 1.0
    y[0] = left[0, 0] + right[0, 0]


TABLE = np.arange(4.0)


@cuda.jit
def write_constant(x):
    TABLE[cuda.grid(1)] = 1.0


def test_a_write_to_constant_memory():
    says(
        findings(write_constant, [np.zeros(1)], 1, 1),
        f"constant write: {place(write_constant, 'TABLE[')}: thread (0, 0, 0) of block (0, 0, 0) writes TABLE[0], which is "
        "constant",
        "    pass the array as an argument that is copied back: not by cuda.In, and not read-only",
    )


@cuda.jit
def wait_for_the_next_block(flag):
    if cuda.blockIdx.x == 0:
        while cuda.atomic.add(flag, 0, 0) == 0:
            pass
    else:
        cuda.atomic.exch(flag, 0, 1)


def test_waiting_for_a_later_block_does_not_hang(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(check, "SPINS", 1000)
    says(
        findings(wait_for_the_next_block, [np.zeros(1, np.int32)], 2, 1),
        f"exception: {place(wait_for_the_next_block, 'while')}: thread (0, 0, 0) of block (0, 0, 0) has asked for flag[0] "
        "1,000 times in a row: it seems to wait for another thread",
        "    the checks run threads and blocks one after another: a thread can wait for a later one at a barrier only",
    )


@cuda.jit
def wrong_for_a_gpu(x):
    x[0] = x.middle


@pytest.mark.ptx
def test_typing_error_of_numba_cuda_comes_first():
    try:
        NUMBA_CUDA.compiler()
    except ImportError as error:  # it says what is missing
        pytest.skip(str(error))
    error = findings(wrong_for_a_gpu, [np.zeros(1)], 1, 1)
    first, *_ = error.findings
    line = place(wrong_for_a_gpu, "x[0]").partition(":")[2]
    assert first.kind == "typing"
    assert first.what == (
        f"numba.cuda cannot compile this for a GPU: {__file__}:{line}: Unknown attribute 'middle' of type array(float64, 1d, C)"
    )


@cuda.jit(device=True)
def factorial(n):
    return 1 if n == 0 else n * factorial(n - 1)


@cuda.jit
def recursive(x):
    x[0] = factorial(3)


def test_recursion():
    x = np.zeros(1)
    check.launch(recursive, [x], 1, 1)
    np.testing.assert_array_equal(x, [6])


# The report


@cuda.jit
def many_mistakes(x, y):
    tile = cuda.shared.array(32, np.float32)
    i = cuda.threadIdx.x
    tile[i] = x[i - 1] + x[i + 1]
    y[i // 3] = tile[31 - i]
    if i % 2 == 0:
        cuda.syncthreads()


def test_two_runs_report_the_same():
    def message() -> str:
        arrays = [np.zeros(32, np.float32), np.zeros(32, np.float32)]
        return str(findings(many_mistakes, arrays, 3, 32))

    first = message()
    assert first == message()
    kinds = [line.partition(":")[0] for line in first.split("\n") if not line.startswith(("    ", "kernel"))]
    np.testing.assert_equal(kinds, sorted(kinds, key=kinds.index))  # findings of a kind stand together
    assert {"race", "negative index", "out of bounds", "divergent barrier"} <= set(kinds)


def test_the_option_check_runs_the_checks():
    @cuda.jit(check=True)
    def checked(x):
        x[cuda.threadIdx.x + 1] = math.sqrt(2.0)

    with pytest.raises(KernelCheckError, match="kernel checked: 1 finding\nout of bounds: "):
        checked[1, 4](cuda.to_device(np.zeros(4)))


# Sizes, and remedies that fit


def test_a_large_problem_is_checked():
    x = np.zeros((1000, 1000), np.float32)
    error = findings(too_far, [x.reshape(-1)], 3907, 256)
    (finding,) = error.findings
    assert (finding.index, finding.count) == ((1_000_000,), 192)
    np.testing.assert_array_equal(x, np.ones_like(x))


@cuda.jit
def dynamic_tile(x):
    tile = cuda.shared.array(0, np.float32)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    x[i] = tile[i]


def test_too_little_dynamic_shared_memory():
    error = findings(dynamic_tile, [np.zeros(8, np.float32)], 1, 8, shared=16)
    assert "launch with more dynamic shared memory than 16 bytes: dynamic_tile[grid, block, stream, bytes]" in str(
        error
    )


@cuda.jit
def large_local(y):
    values = cuda.local.array(70_000, np.float64)
    values[0] = 1.0
    y[0] = values[0]


@cuda.jit
def together(x):
    grid = cuda.cg.this_grid()
    x[cuda.grid(1)] = 1.0
    grid.sync()


CONSTANTS = np.zeros(8193)


@cuda.jit
def large_constants(x):
    x[0] = CONSTANTS[x.size]


LIMITS = [
    (add_one, 1, (64, 32), "a block of 2,048 threads; at most 1,024, make the grid larger"),
    (
        large_tiles,
        1,
        1,
        r"65,536 bytes of shared arrays; at most 49,152 \(48 KB\) have a fixed size: write cuda.shared",
    ),
    (large_local, 1, 1, r"560,000 bytes of local arrays; a thread has at most 524,288 \(512 KB\): use a smaller array"),
    (large_constants, 1, 1, r"65,544 bytes of const arrays; a kernel has at most 65,536 \(64 KB\): pass the array"),
    (
        together,
        10_000,
        32,
        "a grid of 10,000 blocks, which wait for each other; a GPU runs 4,224 of them at once: loop",
    ),
]


@pytest.mark.parametrize("kernel, grid, block, message", LIMITS, ids=[kernel.__name__ for kernel, *_ in LIMITS])
@pytest.mark.parametrize("checked", [False, True])
def test_no_gpu_could_launch_it(kernel, grid, block, message, checked):
    with pytest.raises(KernelLaunchError, match=f"{kernel.__name__}: {message}"):
        if checked:
            check.launch(kernel, [np.zeros(1)], grid, block)
        else:
            kernel[grid, block](cuda.to_device(np.zeros(1)))


@cuda.jit
def plain_histogram(values, bins):
    bins[values[cuda.grid(1)]] += 1


@cuda.jit
def plain_histogram_in_two_steps(values, bins):
    k = values[cuda.grid(1)]
    bins[k] = bins[k] + 1


def test_an_update_of_many_threads_wants_an_atomic():
    for kernel in (plain_histogram, plain_histogram_in_two_steps):
        for grid, block in ((1, 8), (1, 64), (8, 1)):
            error = findings(kernel, [np.zeros(64, np.int64), np.zeros(2, np.int64)], grid, block)
            assert {finding.remedy for finding in error.findings} == {ONE_STEP.strip()}


@cuda.jit
def last_by_atomic(x):
    cuda.atomic.add(x, -1, 1)


def test_a_literal_negative_index_of_an_atomic_is_meant():
    x = np.zeros(3, np.int32)
    check.launch(last_by_atomic, [x], 1, 5)
    np.testing.assert_array_equal(x, [0, 0, 5])
