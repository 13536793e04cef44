"""Threads that return before barriers, and blocks that take work from a queue until none is left."""

import numpy as np
from expectations import Table, blank
from numba import int32, int64

from miniflow.hostcuda import cuda

ALL = 0xFFFFFFFF
CASES = Table()
T = np.arange(64)
ONES = np.ones(128, np.int32)


def until(n, size, value, rest=77):
    """`value` below n, what was there before from n on."""
    return np.where(np.arange(size) < n, value, rest)


# Votes of the block after some of its threads returned.


@CASES.launch(2, 64, ONES, 96, blank(128, np.int32), gives=until(96, 128, np.repeat([64, 32], 64)))
def count_after_return(x, n, out):
    i = cuda.grid(1)
    if i >= n:
        return
    out[i] = cuda.syncthreads_count(int32(x[i] > 0))


@CASES.launch(2, 64, np.repeat([1, 0], 64), 96, blank(128, np.int32), gives=until(96, 128, np.repeat([1, 0], 64)))
def or_after_return(x, n, out):
    i = cuda.grid(1)
    if i >= n:
        return
    out[i] = cuda.syncthreads_or(x[i])


@CASES.launch(2, 64, np.repeat([0, 1], 64), 96, blank(128, np.int32), gives=until(96, 128, np.repeat([0, 1], 64)))
def and_after_return(x, n, out):
    i = cuda.grid(1)
    if i >= n:
        return
    out[i] = cuda.syncthreads_and(x[i])


@CASES.launch(1, 64, T % 5, blank((4, 64), np.int64), gives=[
    np.where(T % 5 > k, (T % 5 > k).sum(), 77) for k in range(4)
])  # fmt: skip
def count_while_threads_leave_a_loop(x, out):
    t = cuda.threadIdx.x
    for k in range(4):
        if x[t] == k:
            return
        out[k, t] = cuda.syncthreads_count(1)


@CASES.launch(3, 40, blank(120, np.int64), gives=np.repeat([780, 77, 780], 40))
def a_whole_block_returns(out):
    s = cuda.shared.array(40, int64)
    t = cuda.threadIdx.x
    if cuda.blockIdx.x == 1:
        return
    s[t] = t
    cuda.syncthreads()
    total = 0
    for k in range(40):
        total += s[k]
    out[cuda.grid(1)] = total


@CASES.launch(1, (8, 9), blank((9, 8), np.int64), gives=np.where(np.add.outer(np.arange(9), np.arange(8)) < 9, 44, 77))
def count_in_a_2d_block_after_return(out):
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    if x + y >= 9:
        return
    out[y, x] = cuda.syncthreads_count(1)


@CASES.launch(1, 64, blank((2, 64), np.int64), gives=[until(50, 64, 50), until(30, 64, 30)])
def threads_return_between_two_barriers(out):
    t = cuda.threadIdx.x
    if t >= 50:
        return
    out[0, t] = cuda.syncthreads_count(1)
    if t >= 30:
        return
    out[1, t] = cuda.syncthreads_count(1)


@CASES.launch(1, 64, blank(64, np.int64), gives=until(10, 64, 10))
def return_under_two_ifs_in_a_loop(out):
    t = cuda.threadIdx.x
    for k in range(3):
        if k == 1:
            if t >= 10:
                return
        cuda.syncthreads()
    out[t] = cuda.syncthreads_count(1)


@CASES.launch(2, 64, np.arange(128.0), 100, blank(2, np.float64), gives=[np.arange(64).sum(), np.arange(64, 100).sum()])
def barrier_inside_the_guard(x, n, out):
    """Threads whose index is too large skip the barrier and end: they count as arrived."""
    s = cuda.shared.array(64, np.float64)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    s[t] = 0.0
    cuda.syncthreads()
    if i >= n:
        return
    s[t] = x[i]
    cuda.syncthreads()
    if t == 0:
        total = 0.0
        for k in range(64):
            total += s[k]
        out[cuda.blockIdx.x] = total


# `check=True` reports the next one with its line: some threads end while others wait.
@CASES.launch(1, 64, 40, blank(64, np.int64), gives=until(40, 64, T - 2 * (T % 2) + 1), checked=False)
def barrier_under_a_divergent_if(n, out):
    s = cuda.shared.array(64, int64)
    t = cuda.threadIdx.x
    if t < n:
        s[t] = t
        cuda.syncthreads()
        out[t] = s[t ^ 1]


# Work queues: blocks that take work until none is left.


@CASES.launch(2, 32, np.zeros(1, np.int32), blank(10, np.int64), gives=np.arange(10) * 32)
def queue_left_by_return(counter, out):
    s = cuda.shared.array(1, int32)
    while True:
        if cuda.threadIdx.x == 0:
            s[0] = cuda.atomic.add(counter, 0, 1)
        cuda.syncthreads()
        k = s[0]
        if k >= out.size:
            return
        total = cuda.syncthreads_count(1) * k
        if cuda.threadIdx.x == 7:
            out[k] = total


@CASES.launch(3, 40, np.zeros(1, np.int32), blank(9, np.int64), blank(3, np.int64), gives={1: np.arange(9) ** 2,
                                                                                          2: [5, 5, 5]})  # fmt: skip
def queue_left_by_break(counter, out, ended):
    s = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    while True:
        if t == 0:
            s[0] = cuda.atomic.add(counter, 0, 1)
        cuda.syncthreads()
        k = s[0]
        cuda.syncthreads()
        if k >= out.size:
            break
        if t == 39:
            out[k] = k * k
    if t == 3:
        ended[cuda.blockIdx.x] = 5


@CASES.launch(1, 33, np.array([3, 0, 2, -1, 5]), blank((5, 33), np.int64), gives=[
    np.full(33, v) for v in (99, 77, 66, 77, 77)
])  # fmt: skip
def queue_with_continue_and_return(x, out):
    t = cuda.threadIdx.x
    k = -1
    while True:
        k += 1
        c = cuda.syncthreads_count(1)
        if x[k] == 0:
            continue
        if x[k] < 0:
            return
        cuda.syncthreads()
        out[k, t] = c * x[k]


@CASES.launch(2, 32, np.array([3, 5]), blank((2, 32), np.int64), gives=np.repeat([[3], [5]], 32, 1))
def while_true_inside_a_for(x, out):
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    n = 0
    for _ in range(1):
        while True:
            cuda.syncthreads()
            if n >= x[b]:
                break
            n += 1
    out[b, t] = n


@CASES.launch(1, 32, 5, blank(32, np.int64), gives=np.full(32, 5))
def return_from_an_inner_uniform_loop(n, out):
    t = cuda.threadIdx.x
    out[t] = 0
    while True:
        for _ in range(3):
            cuda.syncthreads()
            if out[t] == n:
                return
            out[t] += 1


@CASES.launch(1, 64, np.array([7]), blank(64, np.int64), gives=np.full(64, 3))
def while_on_shared_memory(x, out):
    s = cuda.shared.array(1, int64)
    t = cuda.threadIdx.x
    n = 0
    if t == 0:
        s[0] = x[0]
    cuda.syncthreads()
    while s[0] > 0:
        cuda.syncthreads()
        if t == 0:
            s[0] //= 2
        n += 1
        cuda.syncthreads()
    out[t] = n


# The else of a loop, which runs unless the loop was left by break.


@CASES.launch(
    1, 64, blank((3, 64), np.int64), gives=[np.where(T < 8, T, 77), np.where(T < 8, 8, 77), np.arange(64)[::-1]]
)
def else_returns(out):
    s = cuda.shared.array(64, int64)
    t = cuda.threadIdx.x
    s[t] = t
    cuda.syncthreads()
    out[2, t] = s[63 - t]
    for j in range(8):
        if j == t:
            break
    else:
        return
    out[0, t] = j
    out[1, t] = cuda.syncthreads_count(1)


@CASES.launch(1, 64, 3, blank(64, np.int64), gives=np.full(64, 77))
def else_always_returns(n, out):
    t = cuda.threadIdx.x
    cuda.syncthreads()
    for _ in range(n):
        pass
    else:
        return
    out[t] = 1


@CASES.launch(1, 32, blank(32, np.int64), gives=np.where(np.arange(32) < 4, 2, np.where(np.arange(32) < 8, 101, 3)))
def else_jumps_out_of_a_loop_of_barriers(out):
    t = cuda.threadIdx.x
    out[t] = 0
    for i in range(3):
        cuda.syncthreads()
        for _ in range(2):
            if t < 4 and i == 2:
                break
            if 4 <= t < 8 and i == 1:
                out[t] += 100
                return
        else:
            out[t] += 1
            continue
        break


test_compiled, test_checked, test_reference = CASES.tests(default=3)
