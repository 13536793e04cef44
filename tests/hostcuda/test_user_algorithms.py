"""Algorithms of several steps as courses teach them: sorting, graphs, softmax, N-body, locks."""

import math

import numpy as np
from expectations import Table, blank
from numba import float32, int64

from miniflow.hostcuda import cuda

CASES = Table()
draw = np.random.default_rng(4)
X = draw.integers(0, 100, 1000).astype(np.float32)
ROW_PTR, COLS = np.array([0, 2, 2, 5, 6]), np.array([0, 2, 0, 1, 3, 2])
VALUES = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])


@CASES.launch(1, 32, VALUES, COLS, ROW_PTR, np.arange(1.0, 5.0), blank(4, np.float64), gives=[7, 0, 31, 18])
def sparse_matrix_vector(data, col_index, row_ptr, x, y):
    row = cuda.grid(1)
    if row < y.size:
        dot = 0.0
        for element in range(row_ptr[row], row_ptr[row + 1]):
            dot += data[element] * x[col_index[element]]
        y[row] = dot


@CASES.launch(4, 256, X, np.zeros(1, np.float64), gives=[X.sum()])
def sum_by_warps_and_atomics(x, out):
    i = cuda.grid(1)
    v = x[i] if i < x.size else float32(0)
    offset = 16
    while offset > 0:
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, offset)
        offset //= 2
    if cuda.laneid == 0:
        cuda.atomic.add(out, 0, v)


@CASES.launch(1, 64, X[:64].copy(), gives=np.sort(X[:64]))
def bitonic_sort(x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    k = 2
    while k <= 64:
        j = k >> 1
        while j > 0:
            ixj = t ^ j
            if ixj > t:
                if ((t & k) == 0 and s[t] > s[ixj]) or ((t & k) != 0 and s[t] < s[ixj]):
                    s[t], s[ixj] = s[ixj], s[t]
            cuda.syncthreads()
            j >>= 1
        k <<= 1
    x[t] = s[t]


@CASES.launch(4, 32, draw.normal(size=(4, 50)), blank((4, 50), np.float64), gives=np.zeros((4, 50)), reference=False)
def softmax_rows(x, y):
    row = cuda.blockIdx.x
    t = cuda.threadIdx.x
    m = -math.inf
    for j in range(t, x.shape[1], 32):
        m = max(m, x[row, j])
    for k in (16, 8, 4, 2, 1):
        m = max(m, cuda.shfl_xor_sync(0xFFFFFFFF, m, k))
    total = 0.0
    for j in range(t, x.shape[1], 32):
        total += math.exp(x[row, j] - m)
    for k in (16, 8, 4, 2, 1):
        total += cuda.shfl_xor_sync(0xFFFFFFFF, total, k)
    for j in range(t, x.shape[1], 32):
        y[row, j] = math.exp(x[row, j] - m) / total


def expect_softmax():
    """The expectation needs the argument that was drawn."""
    case = CASES.cases[-1]
    e = np.exp(case.arguments[0])
    case.expected[1] = e / e.sum(1, keepdims=True)
    object.__setattr__(case, "tolerance", 1e-12)


expect_softmax()
POINTS = draw.integers(-4, 5, (40, 3)).astype(np.float64)
FORCES = np.array([[np.sum((POINTS[:, d] - p[d]) * np.sum(np.abs(POINTS - p), 1)) for d in range(3)] for p in POINTS])


@cuda.jit(device=True)
def interaction(bi, bj, ai):
    rx, ry, rz = bj[0] - bi[0], bj[1] - bi[1], bj[2] - bi[2]
    s = abs(rx) + abs(ry) + abs(rz)
    return ai[0] + rx * s, ai[1] + ry * s, ai[2] + rz * s


@CASES.launch(5, 8, POINTS, blank((40, 3), np.float64), gives=FORCES)
def n_body(positions, forces):
    tile = cuda.shared.array((8, 3), np.float64)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    mine = positions[i, 0], positions[i, 1], positions[i, 2]
    acc = 0.0, 0.0, 0.0
    for start in range(0, positions.shape[0], 8):
        for d in range(3):
            tile[t, d] = positions[start + t, d]
        cuda.syncthreads()
        for j in range(8):
            acc = interaction(mine, (tile[j, 0], tile[j, 1], tile[j, 2]), acc)
        cuda.syncthreads()
    for d in range(3):
        forces[i, d] = acc[d]


BOARD = (draw.random((12, 12)) < 0.4).astype(np.int32)
AROUND = sum(np.roll(BOARD, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1) if (a, b) != (0, 0))


@CASES.launch((2, 2), (8, 8), BOARD, blank((12, 12), np.int32), gives=(AROUND == 3) | (BOARD & (AROUND == 2)))
def game_of_life(a, out):
    x, y = cuda.grid(2)
    n, m = a.shape
    if x >= n or y >= m:
        return
    total = 0
    for dx in range(-1, 2):
        for dy in range(-1, 2):
            if dx == 0 and dy == 0:
                continue
            total += a[(x + dx) % n, (y + dy) % m]
    out[x, y] = 1 if total == 3 or (a[x, y] == 1 and total == 2) else 0


LEVELS = np.array([0, 1, 1, 2, 2, 3])
EDGES_OF, EDGES = np.array([0, 2, 4, 5, 6, 7, 7]), np.array([1, 2, 0, 3, 4, 5, 5])


@CASES.launch(1, 6, EDGES_OF, EDGES, np.array([0, 99, 99, 99, 99, 99]), gives=LEVELS)
def breadth_first_search(start, edges, level):
    t = cuda.threadIdx.x
    depth = 0
    while True:
        cuda.syncthreads()
        changed = 0
        mine = level[t]
        cuda.syncthreads()
        if mine == depth:
            for e in range(start[t], start[t + 1]):
                if cuda.atomic.min(level, edges[e], depth + 1) > depth + 1:
                    changed = 1
        if cuda.syncthreads_or(changed) == 0:
            break
        depth += 1


@CASES.launch(4, 64, np.zeros(1, np.int32), np.zeros(1, np.int64), gives=[sum(range(256))])
def spin_lock(mutex, total):
    """CUDA by Example: one thread of each block adds its block's sum under a lock."""
    s = cuda.shared.array(64, int64)
    t = cuda.threadIdx.x
    s[t] = cuda.grid(1)
    cuda.syncthreads()
    if t == 0:
        mine = 0
        for k in range(64):
            mine += s[k]
        while cuda.atomic.cas(mutex, 0, 0, 1) != 0:
            pass
        cuda.threadfence()
        total[0] += mine
        cuda.threadfence()
        cuda.atomic.exch(mutex, 0, 0)


test_compiled, test_checked, test_reference = CASES.tests(default=3)
