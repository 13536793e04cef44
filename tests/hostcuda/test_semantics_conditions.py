"""Votes and barriers in `and`, `or`, `a if c else b` and the condition of `while`: a value decides who gets there."""

import numpy as np
from expectations import Table, blank
from numba import int32

from miniflow.hostcuda import cuda

ALL = 0xFFFFFFFF
CASES = Table()
T = np.arange(64)
X = (T % 7).astype(np.int32)


@CASES.launch(1, 64, X, 4, blank(64, np.int64), gives=np.full(64, 4), name="while, ended by the count")
@CASES.launch(1, 64, X, 40, blank(64, np.int64), gives=np.full(64, 6), name="while, ended by the vote")
def vote_in_a_while(x, n, y):
    t = cuda.threadIdx.x
    rounds, p = 0, x[t]
    while rounds < n and cuda.syncthreads_or(int32(p > 0)):
        rounds += 1
        p -= 1
    y[t] = rounds


@CASES.launch(1, 64, X, 5, blank(64, np.int64), gives=np.full(64, 10), name="or, decided by the left")
@CASES.launch(1, 64, X, 1, blank(64, np.int64), gives=np.full(64, 20), name="or, decided by the vote")
@CASES.launch(1, 64, X + 1, 1, blank(64, np.int64), gives=np.full(64, 10), name="or, true by the vote")
def vote_after_or(x, n, y):
    t = cuda.threadIdx.x
    if n > 3 or cuda.syncthreads_and(x[t]):
        y[t] = 10
    else:
        y[t] = 20


@CASES.launch(1, 64, X, 5, blank(64, np.int64), gives=np.full(64, (X > 2).sum()), name="choice, of the vote")
@CASES.launch(1, 64, X, 1, blank(64, np.int64), gives=np.full(64, -1), name="choice, of the other")
def vote_in_a_choice(x, n, y):
    t = cuda.threadIdx.x
    y[t] = cuda.syncthreads_count(int32(x[t] > 2)) if n > 3 else -1


@CASES.launch(1, 64, X, 5, blank(64, np.int64), gives=np.full(64, 1 + 64), name="chain, to its end")
@CASES.launch(1, 64, X, 2, blank(64, np.int64), gives=np.full(64, 1), name="chain, to its middle")
@CASES.launch(1, 64, X, 1, blank(64, np.int64), gives=np.full(64, 1), name="chain, to its beginning")
def a_chain_within_a_sum(x, n, y):
    t = cuda.threadIdx.x
    y[t] = 1 + (n > 1 and cuda.syncthreads_count(int32(x[t] > 5)) < n + 5 and cuda.syncthreads_count(1))


@CASES.launch(1, 64, X, blank(64, np.int64), gives=np.where(T < 32, (T % 7 > 2) * 3 + 4, 0))
def a_vote_of_some_warps(x, y):
    t = cuda.threadIdx.x
    y[t] = 0
    if t < 32 and cuda.any_sync(ALL, x[t] > 5):
        y[t] = 4
        y[t] += 3 if x[t] > 2 else 0


@CASES.launch(1, 64, X, 1, blank(64, np.int64), gives=X[T ^ 1], name="shuffled")
@CASES.launch(1, 64, X, 0, blank(64, np.int64), gives=X, name="not shuffled")
def a_shuffle_in_a_choice(x, n, y):
    t = cuda.threadIdx.x
    y[t] = cuda.shfl_xor_sync(ALL, x[t], 1) if n else x[t]


@cuda.jit(device=True)
def neighbour(s, value):
    t = cuda.threadIdx.x
    s[t] = value
    cuda.syncthreads()
    found = s[t ^ 1]
    cuda.syncthreads()
    return found


@CASES.launch(1, 64, X, 1, blank(64, np.int64), gives=X[T ^ 1] + X, name="one meets")
@CASES.launch(1, 64, X, 0, blank(64, np.int64), gives=2 * X[T ^ 1] + X, name="the other meets")
def functions_with_barriers_in_a_choice(x, n, y):
    t = cuda.threadIdx.x
    s = cuda.shared.array(64, int32)
    y[t] = (neighbour(s, x[t]) if n else neighbour(s, 2 * x[t])) + x[t]


test_compiled, test_checked, test_reference = CASES.tests(default=2)
