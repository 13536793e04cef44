"""Names of arrays that change what they stand for, records, and arrays that a kernel captured."""

from collections import namedtuple

import numpy as np
from expectations import Table, blank, launch
from numba import float32, float64, int32, int64

from miniflow.hostcuda import cuda

CASES = Table()
T = np.arange(64)
PAIR = np.dtype([("x", np.float64), ("n", np.int32)], align=True)
NESTED = np.dtype([("a", np.int64), ("p", PAIR)], align=True)


def pairs(size):
    result = np.zeros(size, PAIR)
    result["x"], result["n"] = np.arange(size) * 0.5, np.arange(size) * 3
    return result


# One name for several arrays.


@CASES.launch(3, 4, blank(12, np.int64), gives=np.repeat([6, 22, 38], 4))
def shared_array_renamed_to_the_output(out):
    s = cuda.shared.array(4, int64)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    s[t] = i
    cuda.syncthreads()
    total = s[0] + s[1] + s[2] + s[3]
    s = out
    s[i] = total


@CASES.launch(1, 4, blank((2, 4), np.int64), gives=[[20, 21, 22, 23], [10, 11, 12, 13]])
def local_arrays_swapped_across_a_barrier(out):
    a = cuda.local.array(1, int64)
    b = cuda.local.array(1, int64)
    t = cuda.threadIdx.x
    a[0] = 10 + t
    b[0] = 20 + t
    cuda.syncthreads()
    a, b = b, a
    cuda.syncthreads()
    out[0, t] = a[0]
    out[1, t] = b[0]


@CASES.launch(1, 4, 3, blank((2, 4), np.int64), gives=[[20, 21, 22, 23], [11, 12, 13, 14]])
def local_arrays_swapped_in_a_loop(n, out):
    a = cuda.local.array(2, int64)
    b = cuda.local.array(2, int64)
    t = cuda.threadIdx.x
    a[0] = 10 + t
    b[0] = 20 + t
    for k in range(n):
        cuda.syncthreads()
        a, b = b, a
        a[1] = k
        if k == n - 1:
            b[0] += 1
    cuda.syncthreads()
    out[0, t] = a[0]
    out[1, t] = b[0]


# Local arrays of which a warp's lanes have the elements side by side.


@cuda.jit(device=True)
def row_sum(row):
    total = 0
    for k in range(row.size):
        total += row[k] * (k + 1)
    return total


def lanes_in_turn(values):
    """What each thread gets from its neighbour in the warp, the last from the first."""
    return np.roll(np.asarray(values).reshape(-1, 32), -1, axis=1).ravel()


@CASES.launch(1, 64, blank((3, 64), np.int64), gives=[
    lanes_in_turn(T * 6 + 2), lanes_in_turn(10 * T + 8), 3 * lanes_in_turn(T) + 2 * T
])  # fmt: skip
def local_arrays_of_lanes(out):
    a = cuda.local.array((2, 3), int64)
    t = cuda.threadIdx.x
    for i in range(2):
        for j in range(3):
            a[i, j] = t * (i + 1) + j * i
    other = cuda.shfl_sync(-1, row_sum(a[0]), t + 1)
    out[0, t] = other + 2
    out[1, t] = cuda.shfl_sync(-1, row_sum(a[1, :2]) + 4 * a[0, 2], t + 1) + 6
    a[0][1] = cuda.shfl_sync(-1, t, t + 1)
    out[2, t] = row_sum(a[0, 0:2]) + a[0, 1] + a.shape[0] * t - t


IN_TURN = 3 * lanes_in_turn(T) + T


@CASES.launch(1, 64, 3, blank((3, 64), np.int64), gives=[IN_TURN, IN_TURN, lanes_in_turn(IN_TURN)])
def local_arrays_of_lanes_in_a_loop(n, out):
    """The arrays are kept from round to round of a loop around a barrier, one of them by the code behind it too."""
    a = cuda.local.array(2, int64)
    b = cuda.local.array(2, int64)
    t = cuda.threadIdx.x
    a[0] = t
    for k in range(n):
        if k == 0:
            b[0] = t
        a[0] += cuda.shfl_sync(-1, t, t + 1)
        b[0] += cuda.shfl_sync(-1, t, t + 1)
        out[1, t] = b[0]
        cuda.syncthreads()
    out[0, t] = a[0]
    out[2, t] = cuda.shfl_sync(-1, a[0], t + 1)


@CASES.launch(1, 64, T, 5, blank(64, np.int64), gives=[T[max(0, t - 31) : t + 1].sum() for t in T])
def ping_pong_scan(x, n, out):
    """Hillis and Steele's scan: shared arrays change places at each step."""
    front = cuda.shared.array(64, int64)
    back = cuda.shared.array(64, int64)
    t = cuda.threadIdx.x
    front[t] = x[t]
    cuda.syncthreads()
    step = 1
    for _ in range(n):
        back[t] = front[t] + front[t - step] if t >= step else front[t]
        cuda.syncthreads()
        front, back = back, front
        step *= 2
    out[t] = front[t]


@CASES.launch(1, 4, np.arange(4), np.arange(4) * 10, 3, blank(4, np.int64), gives=np.arange(4) * 10 + 1)
def arguments_swapped(a, b, n, out):
    t = cuda.threadIdx.x
    for _ in range(n):
        a, b = b, a
        cuda.syncthreads()
    out[t] = a[t] + 1


@CASES.launch(2, 4, np.arange(4), np.arange(4) * 10, blank(8, np.int64), gives=[0, 1, 2, 3, 0, 10, 20, 30])
def array_chosen_by_the_block(a, b, out):
    t = cuda.threadIdx.x
    if cuda.blockIdx.x == 0:
        chosen = a
    else:
        chosen = b
    cuda.syncthreads()
    out[cuda.grid(1)] = chosen[t]


@CASES.launch(1, 4, np.arange(4), np.arange(4) * 10, blank(4, np.int64), gives=[0, 10, 2, 30])
def array_chosen_by_the_thread(a, b, out):
    t = cuda.threadIdx.x
    chosen = a if t % 2 == 0 else b
    cuda.syncthreads()
    out[t] = chosen[t]


@CASES.launch(1, 4, np.arange(12).reshape(3, 4), blank(4, np.int64), gives=[4, 5, 6, 7])
def row_kept_across_a_barrier(a, out):
    t = cuda.threadIdx.x
    row = a[1]
    cuda.syncthreads()
    out[t] = row[t]


@CASES.launch(1, 3, np.arange(12).reshape(3, 4), blank(3, np.int64), gives=[6, 22, 38])
def row_of_each_thread_kept_across_a_barrier(a, out):
    t = cuda.threadIdx.x
    row = a[t]
    cuda.syncthreads()
    total = 0
    for k in range(4):
        total += row[k]
    out[t] = total


@CASES.launch(1, 4, blank((2, 4), np.float64), gives=[[0, 1, 2, 3], [3.5, 2.5, 1.5, 0.5]])
def one_name_for_two_shared_arrays(out):
    t = cuda.threadIdx.x
    s = cuda.shared.array(4, int32)
    s[t] = t
    cuda.syncthreads()
    out[0, t] = s[t]
    cuda.syncthreads()
    s = cuda.shared.array(4, float32)
    s[t] = t + 0.5
    cuda.syncthreads()
    out[1, t] = s[3 - t]


@CASES.launch(1, 4, np.arange(4), blank((2, 4), np.float64), gives=[[0, 1, 2, 3], [0.25, 0.75, 1.25, 1.75]])
def one_name_for_an_integer_and_a_float(x, out):
    t = cuda.threadIdx.x
    v = x[t]
    cuda.syncthreads()
    out[0, t] = v
    v = v * 0.5 + 0.25
    cuda.syncthreads()
    out[1, t] = v


# Records.


@CASES.launch(1, 4, pairs(4), blank(4, np.float64), gives={1: [5.0] * 4})
def field_read_after_it_was_written(r, out):
    t = cuda.threadIdx.x
    one = r[t]
    one.x = 5.0
    v = one.x
    out[t] = v


@CASES.launch(1, 4, pairs(4), blank((2, 4), np.float64), gives={1: [[1, 1.5, 2, 2.5], [1, 4, 7, 10]]})
def field_updated_across_a_barrier(r, out):
    t = cuda.threadIdx.x
    r[t].x += 1
    r[t]["n"] += 1
    cuda.syncthreads()
    out[0, t] = r[t].x
    out[1, t] = r[t]["n"]


@CASES.launch(1, 4, pairs(4), gives=np.array([(10.0, 10), (6.5, 7), (7.0, 4), (7.5, 1)], PAIR))
def fields_of_another_thread(r):
    t = cuda.threadIdx.x
    x = r[t].x
    n = r[3 - t].n
    cuda.syncthreads()
    r[t].x = x + 6
    r[t].n = n + 1
    if t == 0:
        r[t].x = r[t].n


@CASES.launch(1, 4, np.zeros(4, NESTED), blank(4, np.float64), gives={1: [0.0, 3.5, 7.0, 10.5]})
def nested_records(r, out):
    t = cuda.threadIdx.x
    r[t].a = t
    r[t].p.x = t * 2.5
    cuda.syncthreads()
    out[t] = r[t].a + r[t].p.x


@CASES.launch(1, 4, pairs(4), blank(4, np.float64), gives={1: np.full(4, 1.5)})
def records_in_shared_memory(r, out):
    s = cuda.shared.array(4, PAIR)
    t = cuda.threadIdx.x
    s[t].x = r[t].x
    s[t].n = r[t].n
    cuda.syncthreads()
    out[t] = s[3 - t].x + s[t].n / 6


# What stands in memory only once.


@CASES.launch(1, 4, blank((3, 4), np.int64), gives=[[5] * 4, [5] * 4, [5] * 4])
def chained_assignment(out):
    t = cuda.threadIdx.x
    out[0, t] = out[1, t] = v = 5
    out[2, t] = v


@CASES.launch(1, 4, np.arange(8), gives=[1, 0, 3, 2, 5, 4, 7, 6])
def elements_swapped(a):
    t = cuda.threadIdx.x
    a[2 * t], a[2 * t + 1] = a[2 * t + 1], a[2 * t]


@CASES.launch(1, 8, blank(8, np.int64), gives=[7, 6, 5, 4, 3, 2, 1, 0], shared=64)
def dynamic_shared_memory(out):
    s = cuda.shared.array(0, int64)
    t = cuda.threadIdx.x
    s[t] = t
    cuda.syncthreads()
    out[t] = s[7 - t]


@CASES.launch(1, 8, blank(8, np.float64), gives=np.arange(8)[::-1] * 10 + np.arange(8) * 0.5, shared=64)
def two_parts_of_dynamic_shared_memory(out):
    ints = cuda.shared.array(0, int32)[:8]
    floats = cuda.shared.array(0, float32)[8:16]
    t = cuda.threadIdx.x
    ints[t] = t * 10
    floats[t] = t * 0.5
    cuda.syncthreads()
    out[t] = ints[7 - t] + floats[t]


# Values that are computed from what is known once a warp or once a block.


@CASES.launch(1, 64, 1.0 + np.arange(128), blank(128, np.float64), gives=(1.0 + np.arange(128)) / 196.0)
def index_from_a_warp_after_a_barrier_of_the_block(x, out):
    s = cuda.shared.array(2, float64)
    t = cuda.threadIdx.x
    w, lane = t // 32, t % 32
    at = w * 64 + lane
    v = x[at] + x[at + 32]
    v = cuda.shfl_sync(0xFFFFFFFF, v, 0)
    if lane == 0:
        s[w] = v
    cuda.syncthreads()
    total = s[0] + s[1]
    out[at] = x[at] / total
    out[at + 32] = x[at + 32] / total


@CASES.launch(3, 32, np.arange(192.0), np.zeros(192), gives=np.arange(192) * 2.0 * (np.arange(192) % 64 < 32))
def index_from_a_block_after_a_barrier_of_the_grid(x, y):
    g = cuda.cg.this_grid()
    s = cuda.shared.array(32, float64)
    t = cuda.threadIdx.x
    first = cuda.blockIdx.x * 64
    at = first + t
    s[t] = x[at]
    cuda.syncthreads()
    x[first + 32 + t] = s[31 - t]
    g.sync()
    y[at] = x[at] * 2


# Fields that are called as what is known of arrays.

SPAN = namedtuple("SPAN", "size shape")
SIZED = np.dtype([("size", np.int32), ("ndim", np.float32)], align=True)


def sized(size):
    result = np.zeros(size, SIZED)
    result["size"], result["ndim"] = np.arange(size)[::-1], 3
    return result


@CASES.launch(2, 32, SPAN(22.5, -3), np.zeros(40), gives=np.arange(40) < 22.5)
def size_of_a_named_tuple(span, out):
    i = cuda.grid(1)
    if i < span.size:
        out[i] = span.shape + 4


@CASES.launch(2, 32, sized(40), np.arange(40.0), np.zeros(40), gives=np.arange(40)[::-1] + 3.0)
def size_of_a_record(p, x, out):
    i = cuda.grid(1)
    if i < p.shape[0]:
        out[i] = x[p[i].size] + p[i].ndim


test_compiled, test_checked, test_reference = CASES.tests(default=3)

TABLE = np.array([1, 2, 3, 4])


def reads_a_captured_array(x):
    t = cuda.threadIdx.x
    x[t] += TABLE[t]


def test_a_captured_array_is_frozen_when_the_kernel_is_compiled():
    kernel = cuda.jit(reads_a_captured_array)
    x = np.zeros(4, np.int64)
    launch(kernel, 1, 4, [x])
    np.testing.assert_array_equal(x, [1, 2, 3, 4])
    TABLE[:] = 100
    try:
        launch(kernel, 1, 4, [x])
    finally:
        TABLE[:] = [1, 2, 3, 4]
    np.testing.assert_array_equal(x, [2, 4, 6, 8])
