# ruff: noqa: B007, B020
"""What a loop variable holds after its loop, and loops that threads leave early."""

import numpy as np
import pytest
from compare import assert_same
from expectations import Table, blank

from miniflow.hostcuda import cuda

CASES = Table()
T = np.arange(64)


# The loop variable after the loop.


@CASES.launch(1, 32, np.array([3]), blank(32, np.int64), gives=np.full(32, 2))
def variable_after_a_loop_with_a_barrier(n, out):
    j = -5
    for j in range(n[0]):
        cuda.syncthreads()
    out[cuda.threadIdx.x] = j


@CASES.launch(1, 32, np.array([0]), blank(32, np.int64), gives=np.full(32, -5))
def variable_after_no_iteration_with_a_barrier(n, out):
    j = -5
    for j in range(n[0]):
        cuda.syncthreads()
    out[cuda.threadIdx.x] = j


@CASES.launch(1, 64, 64, blank(64, np.int64), gives=np.tile(np.arange(32) + 32, 2))
def variable_after_a_warp_strided_loop(n, out):
    t = cuda.threadIdx.x
    j = -1
    for j in range(t % 32, n, 32):
        cuda.syncwarp()
    out[t] = j


@CASES.launch(1, 32, 10, blank((2, 32), np.int64), gives=[np.full(32, 1), np.full(32, 4)])
def variables_after_nested_loops(n, out):
    t = cuda.threadIdx.x
    i = j = 50
    for i in range(n, 0, -3):
        for j in range(5):
            cuda.syncthreads()
    out[0, t] = i
    out[1, t] = j


@CASES.launch(1, 32, 10, blank(32, np.int64), gives=np.full(32, 4))
def variable_after_break(n, out):
    j = 0
    for j in range(n):
        cuda.syncthreads()
        if j == 4:
            break
    out[cuda.threadIdx.x] = j


@CASES.launch(1, 32, 3, blank((2, 32), np.int64), gives=[np.full(32, 3), np.full(32, 204)])
def variable_changed_in_the_body(n, out):
    t = cuda.threadIdx.x
    total = 0
    j = 0
    for j in range(n):
        total += j
        j += 100
        cuda.syncthreads()
        j *= 2
    out[0, t] = total
    out[1, t] = j


@CASES.launch(1, 64, blank(64, np.int64), gives=np.where(T % 4 == 0, -1, T % 4 - 1))
def variable_after_a_divergent_loop(out):
    t = cuda.threadIdx.x
    j = -1
    for j in range(t % 4):
        pass
    cuda.syncthreads()
    out[t] = j


@CASES.launch(1, 32, np.array([4]), blank((3, 32), np.int64), gives=np.repeat([[3], [6], [9]], 32, 1))
def one_variable_of_three_loops(n, out):
    t = cuda.threadIdx.x
    for k in range(n[0]):
        cuda.syncthreads()
    out[0, t] = k
    for k in range(k, k + n[0]):
        cuda.syncthreads()
    out[1, t] = k
    for k in range(k, k + n[0]):
        out[2, t] = k


# Exits nested in loops.

LIMITS = np.array([0, 4, 2, 1])
STEPS = np.array([3, 1, 4, 1, 5])


@CASES.launch(1, 4, STEPS, LIMITS, True, blank(4, np.int64), gives=[5, 1, 2, 2])
def break_under_two_ifs(x, limit, flag, out):
    t = cuda.threadIdx.x
    count = 0
    for i in range(5):
        count += 1
        cuda.syncwarp()
        if flag:
            if x[i] <= limit[t]:
                break
    out[t] = count


@CASES.launch(1, 4, np.array([0, 0, 0, 0, 1]), np.array([5, 1, 5, 2]), True, blank(4, np.int64), gives=[5, 1, 5, 2])
def break_under_two_ifs_at_different_steps(x, limit, flag, out):
    t = cuda.threadIdx.x
    count = 0
    for i in range(5):
        count += 1
        cuda.syncwarp()
        if flag:
            if x[i] == 1 or count >= limit[t]:
                break
    out[t] = count


@CASES.launch(1, 64, blank(64, np.int64), gives=[sum(k for k in range(6) if k % 3 or k <= t % 3) for t in T])
def continue_under_two_ifs_between_barriers(out):
    t = cuda.threadIdx.x
    total = 0
    for k in range(6):
        cuda.syncthreads()
        kept = True
        for _ in range(1):
            if k % 3 == 0:
                if k > t % 3:
                    kept = False
                    continue
        if kept:
            total += k
        cuda.syncthreads()
    out[t] = total


@CASES.launch(1, 64, blank(64, np.int64), gives=[sum(min(k, t % 4) for k in range(5)) for t in T])
def inner_loop_left_at_different_steps(out):
    t = cuda.threadIdx.x
    total = 0
    for k in range(5):
        for j in range(k):
            if j >= 0:
                if j == t % 4:
                    break
            total += 1
        cuda.syncthreads()
    out[t] = total


@CASES.launch(1, 33, 3, blank((2, 33), np.int64), gives=[np.full(33, 3), np.full(33, 100)])
def break_in_else_of_a_uniform_loop(n, out):
    t = cuda.threadIdx.x
    c = 0
    d = 0
    for k in range(9):
        cuda.syncthreads()
        if k < n:
            c += 1
        else:
            d = 100
            break
        cuda.syncthreads()
    out[0, t] = c
    out[1, t] = d


@CASES.launch(1, 33, np.array([3, 9]), blank((2, 33), np.int64), gives=np.repeat([[3], [19]], 33, 1))
def for_else_with_a_barrier(n, out):
    t = cuda.threadIdx.x
    for row in range(2):
        c = 0
        for k in range(9):
            cuda.syncthreads()
            if k == n[row]:
                break
            c += 1
        else:
            c += 10
        out[row, t] = c


@CASES.launch(1, 64, blank(64, np.int64), gives=np.where(T % 7 < 5, T % 7, 100))
def return_from_nested_loops_before_a_barrier(out):
    t = cuda.threadIdx.x
    for i in range(5):
        for j in range(2):
            if j == 1:
                if i == t % 7:
                    out[t] = i
                    return
    cuda.syncthreads()
    out[t] = 100


@CASES.launch(1, 64, blank(64, np.int64), gives=[sum(range(t % 5)) if t % 5 != 4 else 16 for t in T])
def while_true_left_at_different_steps(out):
    t = cuda.threadIdx.x
    k = total = 0
    while True:
        if k == t % 5:
            break
        total += k
        k += 1
        if k == 4:
            total += 10
            break
    cuda.syncthreads()
    out[t] = total


# Loops with the threads inside are run in strips of a few rounds.


@cuda.jit
def sums_of_columns(x, first, last, out):
    t = cuda.grid(1)
    if t < x.shape[1]:
        total = np.float32(0)
        for k in range(first, last):
            total += x[k, t]
        out[t] = total


@pytest.mark.parametrize("kind", [int, np.uint64])
@pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 1), (0, 3), (0, 4), (0, 5), (2, 9), (5, 2), (3, 12)])
def test_strips(first, last, kind):
    x, out = np.random.default_rng(0).normal(size=(12, 40)).astype(np.float32), blank(40, np.float32)
    sums_of_columns[2, 32](x, kind(first), kind(last), out)
    expected = np.zeros(40, np.float32)
    for row in x[first:last]:
        expected += row
    assert_same(out, expected)


@cuda.jit
def rounds_from_a_lag_on(x, n, lag, out):
    t = cuda.grid(1)
    total = 0.0
    for k in range(n):
        total += x[k, t] if k - lag >= 0 else 100.0
    out[t] = total


@pytest.mark.parametrize("kind", [np.uint8, np.uint32, np.uint64, np.int32, np.int64])
def test_unsigned_rounds(kind):
    """numba counts them in uint64, where no difference is below 0."""
    out = np.zeros(32)
    rounds_from_a_lag_on[1, 32](np.ones((8, 32)), kind(6), kind(3), out)
    assert_same(out, np.full(32, 303.0 if np.issubdtype(kind, np.signedinteger) else 6.0))


@pytest.mark.parametrize("last", [13, 14, 17])
def test_rounds_outside_the_array(last):
    """Those before the first of them are run."""
    with pytest.raises(IndexError, match=r"x\[k, t\].*12"):
        sums_of_columns[1, 32](np.ones((12, 40), np.float32), 0, last, blank(40, np.float32))


# Counters of while loops, and where loops start.


@CASES.launch(1, 4, np.zeros(12), 3, gives={0: np.repeat([1.0, 2.0, 3.0, 4.0], 3)})
def counter_that_goes_on_over_an_outer_loop(y, n):
    i = cuda.threadIdx.x
    for stage in range(4):
        limit = (stage + 1) * n
        while i < limit:
            y[i] += 1 + stage
            i += cuda.blockDim.x


@CASES.launch(2, 2, np.arange(50.0).reshape(10, 5), blank(10, np.float64), gives=np.arange(50.0).reshape(10, 5).sum(1))
def nested_loops_that_count(a, out):
    i = cuda.grid(1)
    while i < a.shape[0]:
        j = 0
        total = 0.0
        while j < a.shape[1]:
            total += a[i, j]
            j += 1
        out[i] = total
        i += cuda.gridsize(1)


@CASES.launch(1, 8, np.zeros(40), 40, 1, gives={0: np.full(40, 9.0)})
def start_taken_before_its_variable_changes(y, n, big):
    off = 0
    first = cuda.threadIdx.x + off
    if big > 0:
        off = 8
    for i in range(first, n, cuda.blockDim.x):
        y[i] += 1 + off


@CASES.launch(1, 32, 5, blank(32, np.int64), gives=3 * np.arange(32)[::-1] + 206)
def states_that_take_turns(n, out):
    s = cuda.shared.array(32, np.int64)
    t = cuda.threadIdx.x
    phase = 0
    acc = 0
    for k in range(n):
        if phase == 0:
            s[t] = t + k
            cuda.syncthreads()
            acc += s[31 - t]
            phase = 1
        else:
            cuda.syncthreads()
            acc += 100
            phase = 0
    out[t] = acc


test_compiled, test_checked, test_reference = CASES.tests(default=3)
