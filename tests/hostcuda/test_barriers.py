"""Barrier fission: what is computed between barriers, around them, and across them."""

import math

import numpy as np
import pytest
from numba import float32, float64, int32, int64

from miniflow.hostcuda import DivergentBarrierError, cuda

draw = np.random.default_rng(0)


def launch(kernel, grid, block, *arguments, shared=0):
    """Run a kernel on copies of NumPy arrays, and return what it made of the last one."""
    given = [cuda.to_device(a) if isinstance(a, np.ndarray) else a for a in arguments]
    kernel[grid, block, 0, shared](*given)
    return given[-1].copy_to_host()


@cuda.jit
def reverse_in_blocks(x, y):
    room = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    if i < x.size:
        room[t] = x[i]
    cuda.syncthreads()
    if i < x.size:
        y[i] = room[cuda.blockDim.x - 1 - t]


def test_a_thread_sees_what_another_wrote_before_the_barrier():
    x = draw.normal(size=256).astype(np.float32)
    got = launch(reverse_in_blocks, 4, 64, x, np.zeros_like(x))
    np.testing.assert_array_equal(got, x.reshape(4, 64)[:, ::-1].ravel())


@cuda.jit
def block_sum(x, y):
    room = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    room[t] = x[i] if i < x.size else 0
    cuda.syncthreads()
    half = cuda.blockDim.x // 2
    while half > 0:
        if t < half:
            room[t] += room[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        y[cuda.blockIdx.x] = room[0]


@pytest.mark.parametrize("size", [1, 127, 128, 129, 1000])
def test_tree_reduction(size):
    x = draw.integers(0, 100, size).astype(np.float32)
    blocks = -(-size // 128)
    got = launch(block_sum, blocks, 128, x, np.zeros(blocks, np.float32))
    padded = np.zeros(blocks * 128, np.float32)
    padded[:size] = x
    np.testing.assert_array_equal(got, padded.reshape(blocks, 128).sum(1))


@cuda.jit
def inclusive_scan(x, y):
    room = cuda.shared.array((2, 64), int64)
    t = cuda.threadIdx.x
    source = 0
    room[0, t] = x[t]
    cuda.syncthreads()
    step = 1
    while step < cuda.blockDim.x:
        if t >= step:
            room[1 - source, t] = room[source, t] + room[source, t - step]
        else:
            room[1 - source, t] = room[source, t]
        source = 1 - source
        step *= 2
        cuda.syncthreads()
    y[t] = room[source, t]


def test_scan_with_two_buffers():
    x = draw.integers(-9, 9, 64)
    np.testing.assert_array_equal(launch(inclusive_scan, 1, 64, x, np.zeros(64, np.int64)), np.cumsum(x))


@cuda.jit
def private_values(x, y):
    """Every kind of value that a thread keeps across a barrier."""
    t = cuda.threadIdx.x
    small = int32(x[t])
    wide = float64(x[t]) / 3
    flag = x[t] > 0
    pair = (t, x[t] * 2)
    z = complex(x[t], 1.0)
    first, second = x[t] + 1, t * 2
    cuda.syncthreads()
    result = wide + small + pair[0] + pair[1] + z.real * z.imag + first + second
    if flag:
        result += 1000
    cuda.syncthreads()
    y[t] = result


def test_variables_live_across_barriers():
    x = draw.integers(-5, 5, 96).astype(np.float32)
    t = np.arange(96)
    wide = x.astype(np.float64)
    expected = wide / 3 + wide + t + 2 * wide + wide + wide + 1 + 2 * t + 1000 * (x > 0)
    np.testing.assert_allclose(launch(private_values, 1, 96, x, np.zeros(96)), expected, rtol=1e-14)


@cuda.jit
def early_return(x, y):
    room = cuda.shared.array(32, int64)
    t = cuda.threadIdx.x
    if t >= x.size:
        return
    room[t] = x[t]
    cuda.syncthreads()
    total = 0
    for k in range(x.size):
        total += room[k]
        if total > 100:
            y[t] = -k
            return
    cuda.syncthreads()
    y[t] = total


@pytest.mark.parametrize("values", [[1, 2, 3], [60, 60, 1]])
def test_returned_threads_take_no_part(values):
    x = np.array(values)
    expected = [sum(values)] * 3 if sum(values) <= 100 else [-1] * 3
    got = launch(early_return, 1, 32, x, np.full(32, 7))
    np.testing.assert_array_equal(got, expected + [7] * 29)


@cuda.jit
def uniform_control(x, n, y):
    """Loops, branches, break and continue around barriers, their conditions the same for the block."""
    room = cuda.shared.array(32, int64)
    t = cuda.threadIdx.x
    total = 0
    for k in range(n):
        if k == 2:
            continue
        room[t] = x[t] + k
        cuda.syncthreads()
        total += room[31 - t]
        if n > 3:
            cuda.syncthreads()
            total += 1
        else:
            total += 2
        cuda.syncthreads()
        if room[0] > 6:
            break
    y[t] = total


def uniform_control_reference(x, n):
    total = np.zeros(32, np.int64)
    for k in range(n):
        if k == 2:
            continue
        total += x[::-1] + k + (1 if n > 3 else 2)
        if x[0] + k > 6:
            break
    return total


@pytest.mark.parametrize("n", [0, 1, 3, 4, 9])
def test_uniform_control_flow(n):
    x = draw.integers(0, 9, 32)
    x[0] = 2
    got = launch(uniform_control, 1, 32, x, n, np.zeros(32, np.int64))
    np.testing.assert_array_equal(got, uniform_control_reference(x, n))


@cuda.jit
def data_dependent_while(x, y):
    """The condition is read from shared memory: all threads evaluate it and agree."""
    room = cuda.shared.array(1, int64)
    t = cuda.threadIdx.x
    if t == 0:
        room[0] = x[0]
    cuda.syncthreads()
    count = 0
    while room[0] != 1:
        count += 1
        cuda.syncthreads()
        if t == 0:
            room[0] = room[0] // 2 if room[0] % 2 == 0 else 3 * room[0] + 1
        cuda.syncthreads()
    y[t] = count


def test_condition_read_from_shared_memory():
    got = launch(data_dependent_while, 1, 32, np.array([27]), np.zeros(32, np.int64))
    np.testing.assert_array_equal(got, [111] * 32)


@cuda.jit
def divergent_if(x):
    if cuda.threadIdx.x < 3:
        cuda.syncthreads()
    x[cuda.threadIdx.x] = 1
    cuda.syncthreads()


@cuda.jit
def divergent_loop(x):
    for _ in range(cuda.threadIdx.x):
        cuda.syncthreads()
    cuda.syncthreads()
    x[cuda.threadIdx.x] = 1


@cuda.jit
def divergent_break(x):
    for _ in range(3):
        if cuda.threadIdx.x == 5:
            break
        cuda.syncthreads()
    cuda.syncthreads()


@cuda.jit
def ends_after_the_barrier(x):
    if cuda.threadIdx.x < 3:
        for _ in range(cuda.threadIdx.x + 1):
            cuda.syncthreads()
        x[cuda.threadIdx.x] = 1


def test_threads_that_have_left_count_as_arrived():
    np.testing.assert_array_equal(launch(ends_after_the_barrier, 2, 32, np.zeros(32)), np.arange(32) < 3)


@pytest.mark.parametrize("kernel, offset", [(divergent_if, 2), (divergent_loop, 2), (divergent_break, 3)])
def test_divergent_barriers_are_refused(kernel, offset):
    line = kernel.py_func.__code__.co_firstlineno + offset
    with pytest.raises(DivergentBarrierError, match=rf"test_barriers.py:{line}: {kernel.py_func.__name__}: .*disagree"):
        launch(kernel, 1, 32, np.zeros(32))


@cuda.jit
def three_dimensional(x, y):
    room = cuda.shared.array((2, 3, 4), float32)
    i, j, k = cuda.grid(3)
    a, b, c = cuda.threadIdx.z, cuda.threadIdx.y, cuda.threadIdx.x
    inside = i < x.shape[2] and j < x.shape[1] and k < x.shape[0]
    if inside:
        room[a, b, c] = x[k, j, i]
    cuda.syncthreads()
    if inside:
        y[k, j, i] = room[a, b, c] + 100 * cuda.blockIdx.z + 10 * cuda.blockIdx.y + cuda.blockIdx.x


def test_three_dimensional_grid_and_block():
    x = draw.normal(size=(5, 7, 9)).astype(np.float32)
    got = launch(three_dimensional, (3, 3, 3), (4, 3, 2), x, np.zeros_like(x))
    k, j, i = np.indices(x.shape)
    np.testing.assert_allclose(got, x + 100 * (k // 2) + 10 * (j // 3) + i // 4, rtol=1e-6)


@cuda.jit
def counts(x, y):
    t = cuda.threadIdx.x
    n = cuda.syncthreads_count(x[t])
    every = cuda.syncthreads_and(x[t])
    some = cuda.syncthreads_or(x[t])
    y[t, 0], y[t, 1], y[t, 2] = n, every, some


@pytest.mark.parametrize("ones", [0, 5, 70])
def test_barriers_that_count(ones):
    x = np.zeros(70, np.int32)
    x[:ones] = 3
    got = launch(counts, 1, 70, x, np.zeros((70, 3), np.int64))
    np.testing.assert_array_equal(got, [[ones, ones == 70, ones > 0]] * 70)


@cuda.jit
def local_memory(x, y):
    room = cuda.local.array(4, float32)
    matrix = cuda.local.array((2, 2), float64)
    t = cuda.threadIdx.x
    for k in range(4):
        room[k] = x[t] + k
    cuda.syncthreads()
    for k in range(4):
        matrix[k // 2, k % 2] = room[3 - k]
    cuda.syncthreads()
    y[t] = matrix[0, 0] * 1000 + matrix[0, 1] * 100 + matrix[1, 0] * 10 + matrix[1, 1]


def test_local_arrays_live_across_barriers():
    x = np.arange(40, dtype=np.float32)
    expected = (x + 3) * 1000 + (x + 2) * 100 + (x + 1) * 10 + x
    np.testing.assert_array_equal(launch(local_memory, 1, 40, x, np.zeros(40)), expected)


@cuda.jit
def dynamic_memory(x, y):
    n = cuda.blockDim.x
    floats = cuda.shared.array(0, float32)
    ints = cuda.shared.array(0, int32)
    t = cuda.threadIdx.x
    first = floats[:n]
    second = ints[n : 2 * n]
    third = floats[2 * n : 4 * n].view(float64)
    first[t] = x[t]
    second[t] = t
    third[t] = x[t] / 3
    cuda.syncthreads()
    y[t] = first[n - 1 - t] + second[n - 1 - t] + third[n - 1 - t]


def test_dynamic_shared_memory_and_its_views():
    x = draw.normal(size=32).astype(np.float32)
    got = launch(dynamic_memory, 1, 32, x, np.zeros(32), shared=32 * 16)
    expected = (x + np.arange(32) + x.astype(np.float64) / 3)[::-1]
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@cuda.jit
def rows_across_barrier(x, y):
    """A view of an array is taken again behind the barrier."""
    t = cuda.threadIdx.x
    row = x[t]
    column = x[:, t]
    cuda.syncthreads()
    total = 0.0
    for k in range(row.shape[0]):
        total += row[k] * column[k]
    y[t] = total


def test_views_live_across_barriers():
    x = draw.normal(size=(20, 20))
    np.testing.assert_allclose(launch(rows_across_barrier, 1, 20, x, np.zeros(20)), np.einsum("tk,kt->t", x, x))


@cuda.jit
def loop_with_private_bounds(x, y):
    """Loops of a thread's own length between barriers."""
    t = cuda.threadIdx.x
    total = 0
    for k in range(t % 5):
        total += x[k]
    n = t
    while n > 3:
        n -= 2
        if n == 7:
            continue
        total += n
    cuda.syncthreads()
    y[t] = total


def test_private_loops_between_barriers():
    x = draw.integers(0, 50, 8)

    def one(t):
        total, n = x[: t % 5].sum(), t
        while n > 3:
            n -= 2
            total += n if n != 7 else 0
        return total

    got = launch(loop_with_private_bounds, 1, 33, x, np.zeros(33, np.int64))
    np.testing.assert_array_equal(got, [one(t) for t in range(33)])


@cuda.jit
def same_name_two_types(x, y):
    t = cuda.threadIdx.x
    v = t // 2
    cuda.syncthreads()
    a = x[v]
    v = a * 0.5
    cuda.syncthreads()
    y[t] = v + a


def test_a_name_may_change_its_type():
    x = draw.normal(size=32)
    expected = 1.5 * x[np.arange(32) // 2]
    np.testing.assert_allclose(launch(same_name_two_types, 1, 32, x, np.zeros(32)), expected)


@cuda.jit
def softmax_rows(x, y):
    """One block a row, threads strided over it, two reductions."""
    room = cuda.shared.array(64, float32)
    t, row, n = cuda.threadIdx.x, cuda.blockIdx.x, x.shape[1]
    largest = float32(-math.inf)
    for i in range(t, n, cuda.blockDim.x):
        largest = max(largest, x[row, i])
    room[t] = largest
    cuda.syncthreads()
    half = 32
    while half > 0:
        if t < half:
            room[t] = max(room[t], room[t + half])
        cuda.syncthreads()
        half //= 2
    largest = room[0]
    cuda.syncthreads()
    total = float32(0)
    for i in range(t, n, cuda.blockDim.x):
        total += math.exp(x[row, i] - largest)
    room[t] = total
    cuda.syncthreads()
    for k in range(6):
        half = 32 >> k
        if t < half:
            room[t] += room[t + half]
        cuda.syncthreads()
    for i in range(t, n, cuda.blockDim.x):
        y[row, i] = math.exp(x[row, i] - largest) / room[0]


@pytest.mark.parametrize("width", [1, 63, 64, 65, 200])
def test_strided_loops_and_reductions(width):
    x = draw.normal(size=(5, width)).astype(np.float32)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    got = launch(softmax_rows, 5, 64, x, np.full_like(x, np.nan))
    np.testing.assert_allclose(got, e / e.sum(1, keepdims=True), rtol=1e-5)


@cuda.jit
def tile_transpose(x, y):
    tile = cuda.shared.array((16, 17), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    col, row = cuda.grid(2)
    if row < x.shape[0] and col < x.shape[1]:
        tile[ty, tx] = x[row, col]
    cuda.syncthreads()
    col = cuda.blockIdx.y * 16 + tx
    row = cuda.blockIdx.x * 16 + ty
    if row < y.shape[0] and col < y.shape[1]:
        y[row, col] = tile[tx, ty]


@pytest.mark.parametrize("shape", [(16, 16), (15, 33), (50, 7)])
def test_tiled_transpose(shape):
    x = draw.normal(size=shape).astype(np.float32)
    grid = (-(-shape[1] // 16), -(-shape[0] // 16))
    np.testing.assert_array_equal(
        launch(tile_transpose, grid, (16, 16), x, np.full(shape[::-1], np.nan, np.float32)), x.T
    )


@cuda.jit
def many_blocks(x, y):
    room = cuda.shared.array(32, int64)
    t, b = cuda.threadIdx.x, cuda.blockIdx.x
    room[t] = b * t
    cuda.syncthreads()
    if t == 0:
        total = 0
        for k in range(32):
            for _ in range(x):
                total += room[k]
        y[b] = total


def test_blocks_in_several_threads_do_not_share_memory():
    got = launch(many_blocks, 5000, 32, 20, np.zeros(5000, np.int64))
    np.testing.assert_array_equal(got, np.arange(5000) * sum(range(32)) * 20)
