"""Names that a compiler might use itself, device functions with barriers, grid barriers, and refused launches."""

import numpy as np
import pytest
from expectations import Table, blank
from numba import float64, int64

from miniflow.hostcuda import KernelLaunchError, cuda

ALL = 0xFFFFFFFF
CASES = Table()
T = np.arange(64)


@CASES.launch(1, 4, np.arange(4), np.arange(4) * 10, blank(4, np.int64), gives=[0, 11, 22, 33])
def a_parameter_named_x_of(x, x_of, out):
    t = cuda.threadIdx.x
    v = x[t]
    cuda.syncthreads()
    out[t] = v + x_of[t]


@CASES.launch(1, 4, np.arange(4), blank(4, np.int64), gives=30 + 5 * np.arange(4))
def names_with_underscores(x, out):
    t = cuda.threadIdx.x
    t_ = x[t]
    _t = t_ + 10
    t__ = _t + t_
    cuda.syncthreads()
    x_ = t__ * 2
    __x = x_ + _t
    cuda.syncthreads()
    out[t] = __x


@CASES.launch(1, 4, np.arange(4), blank(4, np.int64), gives=np.arange(4) * 32 + 23)
def names_of_cuda(x, out):
    threadIdx = cuda.threadIdx.x
    blockDim = x[threadIdx] + 1
    lane = blockDim + threadIdx
    warp = lane + blockDim
    cuda.syncthreads()
    block = lane + warp + 1
    thread = block + warp
    cuda.syncthreads()
    grid = thread + lane + block
    shared = grid + threadIdx
    out[threadIdx] = shared + block + warp + thread


@CASES.launch(1, 4, np.arange(4), blank(4, np.int64), gives=[4, 7, 10, 13])
def names_of_python(x, out):
    t = cuda.threadIdx.x
    len = x[t]
    min = len + 1
    cuda.syncthreads()
    np = min + len
    numba = np + min
    cuda.syncthreads()
    out[t] = numba + 2


@CASES.launch(1, 4, np.arange(4), blank(4, np.int64), gives=[1, 3, 5, 7])
def a_parameter_and_a_derived_name(x, out):
    t = cuda.threadIdx.x
    x_0 = x[t]
    x_1 = x_0 + 1
    cuda.syncthreads()
    out_0 = x_0 + x_1
    cuda.syncthreads()
    out[t] = out_0


@cuda.jit(device=True)
def sum_of_block(s, v):
    t = cuda.threadIdx.x
    s[t] = v
    cuda.syncthreads()
    total = 0
    for k in range(cuda.blockDim.x):
        total += s[k]
    cuda.syncthreads()
    return total


@CASES.launch(1, 8, np.arange(8), blank((2, 8), np.int64), gives=[np.full(8, 28), np.full(8, 56)])
def device_function_with_a_barrier_called_twice(x, out):
    s = cuda.shared.array(8, int64)
    t = cuda.threadIdx.x
    out[0, t] = sum_of_block(s, x[t])
    out[1, t] = sum_of_block(s, 2 * x[t])


@CASES.launch(1, 8, np.arange(8), 3, blank(8, np.int64), gives=np.full(8, 28 * 3 + 56 * 3 + 8 * 3))
def device_function_with_a_barrier_called_twice_in_a_loop(x, n, out):
    s = cuda.shared.array(8, int64)
    t = cuda.threadIdx.x
    total = 0
    for k in range(n):
        total += sum_of_block(s, x[t])
        total += sum_of_block(s, 2 * x[t] + k)
    out[t] = total


@cuda.jit(device=True)
def first_positive(s, v):
    """Returns early, after a barrier that all threads reach."""
    t = cuda.threadIdx.x
    s[t] = v
    cuda.syncthreads()
    for k in range(8):
        if s[k] > 0:
            return k
    return -1


@CASES.launch(
    1, 8, np.array([-1, -2, 0, 5, 6, -1, 2, 3]), blank((2, 8), np.int64), gives=[np.full(8, 3), np.full(8, 0)]
)
def device_function_that_returns_early(x, out):
    s = cuda.shared.array(8, int64)
    t = cuda.threadIdx.x
    a = first_positive(s, x[t])
    cuda.syncthreads()
    b = first_positive(s, -x[t])
    out[0, t] = a
    out[1, t] = b


@cuda.jit(device=True)
def clamp(v, low, high):
    if v < low:
        return low
    if v > high:
        return high
    return v


@CASES.launch(
    1, 8, np.arange(8), blank(8, np.int64), gives=np.clip(np.arange(8), 2, 5) + 10 * np.clip(np.arange(8), 0, 3)
)
def early_returns_of_a_device_function(x, out):
    t = cuda.threadIdx.x
    v = clamp(x[t], 2, 5)
    cuda.syncthreads()
    out[t] = v + 10 * clamp(x[t], 0, 3)


@cuda.jit(device=True)
def vote_of_block(v):
    return cuda.syncthreads_count(v)


@CASES.launch(2, 64, 96, blank(128, np.int64), gives=np.where(np.arange(128) < 96, np.repeat([64, 32], 64), 77))
def device_function_that_votes_after_exits(n, out):
    i = cuda.grid(1)
    if i >= n:
        return
    out[i] = vote_of_block(1)


@cuda.jit(device=True)
def twice(f):
    s = cuda.shared.array(8, float64)
    t = cuda.threadIdx.x
    s[t] = f
    cuda.syncthreads()
    r = s[7 - t]
    cuda.syncthreads()
    return r


@CASES.launch(1, 8, blank(8, np.float64), gives=np.arange(8.0))
def shared_array_inside_a_device_function(out):
    s = cuda.threadIdx.x
    r = twice(s)
    out[s] = twice(r)


# Grid barriers.


@CASES.launch(2, 4, np.zeros(8, np.int64), 3, gives={0: np.full(8, 3)})
def grid_barrier_after_an_update(a, n):
    i = cuda.grid(1)
    g = cuda.cg.this_grid()
    for _ in range(n):
        a[i] += 1
        g.sync()


@CASES.launch(2, 4, np.arange(8), np.zeros(8, np.int64), 3, gives={0: np.roll(np.arange(8), 3)})
def ring_shift_over_grid_barriers(a, b, n):
    i = cuda.grid(1)
    g = cuda.cg.this_grid()
    for _ in range(n):
        b[i] = a[(i - 1) % 8]
        g.sync()
        a[i] = b[i]
        g.sync()


@CASES.launch(2, 4, np.zeros(8, np.int64), np.array([1]), gives={0: np.full(8, 8)})
def grid_barrier_under_a_condition(a, flag):
    i = cuda.grid(1)
    g = cuda.cg.this_grid()
    if flag[0] > 0:
        a[i] = 1
        g.sync()
        total = 0
        for k in range(8):
            total += a[k]
        g.sync()
        a[i] = total


@CASES.launch(2, 4, np.zeros(2, np.int64), blank(8, np.int64), gives=np.repeat([0, 1], 4) + 100)
def loop_variable_after_grid_barriers(n, out):
    g = cuda.cg.this_grid()
    for s in range(101):  # noqa: B007
        g.sync()
    out[cuda.grid(1)] = s + cuda.blockIdx.x


# Names of the compiler, of numba and of Python.


@CASES.launch(1, 1, 1, blank(3, np.int64), gives=[2, 7, 1])
def variables_named_as_the_numbers_of_arrays(n, out):
    a = cuda.local.array(1, int64)
    b = cuda.local.array(1, int64)
    a[0], b[0] = 1, 2
    a_choice = n + 6
    if n > 0:
        a, b = b, a
    out[0], out[1], out[2] = a[0], a_choice, b[0]


@CASES.launch(1, 4, np.arange(4), blank(4, np.int64), gives=1000 * np.arange(4) + 7)
def variables_named_as_the_members_of_a_tuple(x, out):
    t = cuda.threadIdx.x
    pair = x[t], x[t] + 1
    pair_0 = x[t] + 7
    cuda.syncthreads()
    out[t] = 1000 * pair[0] + pair_0 - x[t]


@cuda.jit(device=True)
def blocks(x):
    total = 0
    for k in range(3):
        total += x + k
    return total


@cuda.jit(device=True)
def njit(x):
    return 10 * blocks(x)


@CASES.launch(1, 1, 5, blank(2, np.int64), gives=[18, 180])
def device_functions_named_as_parts_of_the_module(x, out):
    out[0], out[1] = blocks(x), njit(x)


@CASES.launch(1, 8, np.arange(8), blank(8, np.int64), gives=5 * np.arange(8)[::-1] + 4)
def variable_named_arg(x, out):
    s = cuda.shared.array(8, int64)
    t = cuda.threadIdx.x
    arg = x[t] * 4
    s[t] = x[t]
    cuda.syncthreads()
    out[7 - t] = arg + s[t] + 4


@CASES.launch(1, 8, np.arange(8), blank(8, np.int64), gives=np.arange(8) + 7 * (np.arange(8) < 4))
def variables_named_range_bool_and_slice(x, out):
    t = cuda.threadIdx.x
    range = x[t]
    bool = t < 4
    slice = 7
    cuda.syncthreads()
    out[t] = range + slice * bool


# Arrays from outside and of a nested function.

TABLE = np.array([3, 1, 4])


@cuda.jit(device=True)
def from_table(i):
    if i > 2:
        i = 0
    return TABLE[i]


@cuda.jit(device=True)
def from_tables(i):
    if i > 4:
        return 0
    return from_table(i) + TABLE[1]


@CASES.launch(1, 6, blank((2, 6), np.int64), gives=[[3, 1, 4, 3, 3, 3], [4, 2, 5, 4, 4, 0]])
def global_array_in_a_device_function(out):
    t = cuda.threadIdx.x
    out[0, t] = from_table(t)
    out[1, t] = from_tables(t)


@CASES.launch(1, 8, np.arange(8), blank(8, np.int64), gives=np.arange(8) * 3 + 1)
def local_array_in_a_nested_function(x, out):
    t = cuda.threadIdx.x

    def doubled(v):
        kept = cuda.local.array(2, int64)
        kept[0] = v
        kept[1] = 2 * v
        return kept[0] + kept[1]

    out[t] = doubled(x[t]) + 1


def made(factor, table):
    @cuda.jit
    def lambda_with_a_variable_of_the_factory(x, out):
        t = cuda.threadIdx.x
        scaled = lambda v: v * factor + table[t % 3]  # noqa: E731
        out[t] = scaled(x[t])

    return lambda_with_a_variable_of_the_factory


CASES.launch(1, 8, np.arange(8), blank(8, np.int64), gives=np.arange(8) * 2 + np.resize(TABLE, 8))(made(2, TABLE))


test_compiled, test_checked, test_reference = CASES.tests(default=3)


# Launches that no GPU accepts.


def writes_ones(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = 1


def test_a_float_as_number_of_blocks_is_refused_always():
    kernel = cuda.jit(writes_ones)
    x = np.zeros(64)
    with pytest.raises((KernelLaunchError, TypeError), match="2.0"):
        kernel[64 / 32, 32](x)
    kernel[2, 32](cuda.to_device(x))
    with pytest.raises((KernelLaunchError, TypeError), match="2.0"):
        kernel[64 / 32, 32](x)
    with pytest.raises((KernelLaunchError, TypeError), match="32.0"):
        kernel[2, 32.0](x)


def test_sixty_four_kib_of_static_shared_memory_are_refused():
    @cuda.jit
    def greedy(x):
        s = cuda.shared.array(8192, x.dtype)
        t = cuda.threadIdx.x
        s[t] = x[t]
        cuda.syncthreads()
        x[t] = s[31 - t]

    with pytest.raises((KernelLaunchError, ValueError), match="bytes of shared arrays"):
        greedy[1, 32](cuda.to_device(np.zeros(32)))


def test_too_many_threads_are_refused():
    with pytest.raises(KernelLaunchError, match="1,?024"):
        cuda.jit(writes_ones)[1, 1025](np.zeros(4))
