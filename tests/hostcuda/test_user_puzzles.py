"""Solutions of GPU-Puzzles, and minitorch's kernels, as students hand them in."""

import math

import numba
import numpy as np
from expectations import Table, blank
from numba import float32

from miniflow.hostcuda import cuda

CASES = Table()
TPB = 8
MAX_CONV = 4
TPB_MAX_CONV = TPB + MAX_CONV
FOUR = np.arange(4.0)
draw = np.random.default_rng(5)
M2 = draw.integers(-4, 5, (2, 2)).astype(np.float32)
M8A, M8B = (draw.integers(-4, 5, (8, 8)).astype(np.float32) for _ in range(2))
X15 = draw.integers(-9, 10, 15).astype(np.float32)
K4 = np.array([1, 2, 3, 4], np.float32)


@CASES.launch(1, 4, blank(4, np.float64), FOUR, gives={0: FOUR + 10})
def puzzle_map(out, a):
    local_i = cuda.threadIdx.x
    out[local_i] = a[local_i] + 10


@CASES.launch(1, 4, blank(4, np.float64), FOUR, FOUR, gives={0: FOUR * 2})
def puzzle_zip(out, a, b):
    local_i = cuda.threadIdx.x
    out[local_i] = a[local_i] + b[local_i]


@CASES.launch(1, 8, blank(4, np.float64), FOUR, 4, gives={0: FOUR + 10})
def puzzle_guard(out, a, size):
    local_i = cuda.threadIdx.x
    if local_i < size:
        out[local_i] = a[local_i] + 10


@CASES.launch(1, (3, 3), blank((2, 2), np.float32), M2, 2, gives={0: M2 + 10})
def puzzle_map_2d(out, a, size):
    local_i = cuda.threadIdx.x
    local_j = cuda.threadIdx.y
    if local_i < size and local_j < size:
        out[local_i, local_j] = a[local_i, local_j] + 10


@CASES.launch(1, (3, 3), blank((2, 2), np.float64), np.array([[1.0], [2.0]]), np.array([[10.0, 20.0]]), 2,
              gives={0: [[11, 21], [12, 22]]})  # fmt: skip
def puzzle_broadcast(out, a, b, size):
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
    if i < size and j < size:
        out[i, j] = a[i, 0] + b[0, j]


@CASES.launch(2, 4, blank(8, np.float64), np.arange(8.0), 8, gives={0: np.arange(8) + 10})
def puzzle_shared(out, a, size):
    shared = cuda.shared.array(4, numba.float32)
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    local_i = cuda.threadIdx.x
    if i < size:
        shared[local_i] = a[i]
        cuda.syncthreads()
        out[i] = shared[local_i] + 10


@CASES.launch(1, 8, blank(8, np.float64), np.arange(8.0), 8, gives={0: [0, 1, 3, 6, 9, 12, 15, 18]})
def puzzle_pooling(out, a, size):
    shared = cuda.shared.array(TPB, numba.float32)
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    local_i = cuda.threadIdx.x
    if i < size:
        shared[local_i] = a[i]
    cuda.syncthreads()
    if i == 0:
        out[i] = shared[0]
    elif i == 1:
        out[i] = shared[0] + shared[1]
    elif i < size:
        out[i] = shared[local_i - 2] + shared[local_i - 1] + shared[local_i]


@CASES.launch(1, 8, blank(1, np.float64), np.arange(8.0), np.arange(8.0), 8, gives={0: [140.0]})
def puzzle_dot(out, a, b, size):
    shared = cuda.shared.array(TPB, numba.float32)
    i = cuda.grid(1)
    local_i = cuda.threadIdx.x
    if i < size:
        shared[local_i] = a[i] * b[i]
    cuda.syncthreads()
    if local_i == 0:
        total = 0.0
        for j in range(size):
            total += shared[j]
        out[0] = total


@CASES.launch(2, 8, blank(15, np.float32), X15, K4, 15, 4, gives={
    0: [sum(X15[i + j] * K4[j] for j in range(4) if i + j < 15) for i in range(15)]
})  # fmt: skip
def puzzle_conv(out, a, b, a_size, b_size):
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    local_i = cuda.threadIdx.x
    shared_a = cuda.shared.array(TPB_MAX_CONV, numba.float32)
    shared_b = cuda.shared.array(MAX_CONV, numba.float32)
    if i < a_size:
        shared_a[local_i] = a[i]
    if local_i < b_size:
        shared_b[local_i] = b[local_i]
    else:
        local_i2 = local_i - b_size
        i2 = i - b_size
        if i2 + TPB < a_size and local_i2 < b_size:
            shared_a[TPB + local_i2] = a[i2 + TPB]
    cuda.syncthreads()
    acc = 0
    for k in range(b_size):
        if i + k < a_size:
            acc += shared_a[local_i + k] * shared_b[k]
    if i < a_size:
        out[i] = acc


@CASES.launch(2, 8, blank(2, np.float32), X15, 15, gives={0: [X15[:8].sum(), X15[8:].sum()]})
def puzzle_prefix_sum(out, a, size):
    cache = cuda.shared.array(TPB, numba.float32)
    i = cuda.grid(1)
    local_i = cuda.threadIdx.x
    if i < size:
        cache[local_i] = a[i]
    else:
        cache[local_i] = 0.0
    cuda.syncthreads()
    for k in range(3):
        p = 2**k
        if local_i % (p * 2) == 0:
            cache[local_i] += cache[local_i + p]
        cuda.syncthreads()
    if local_i == 0:
        out[cuda.blockIdx.x] = cache[local_i]


@CASES.launch((1, 4), 8, blank((4, 1), np.float64), np.arange(24.0).reshape(4, 6), 6, gives={
    0: np.arange(24.0).reshape(4, 6).sum(1, keepdims=True)
})  # fmt: skip
def puzzle_axis_sum(out, a, size):
    cache = cuda.shared.array(TPB, numba.float32)
    i = cuda.grid(1)
    local_i = cuda.threadIdx.x
    batch = cuda.blockIdx.y
    cache[local_i] = 0
    if i < size:
        cache[local_i] = a[batch, i]
    cuda.syncthreads()
    for k in range(3):
        p = 2**k
        if local_i % (p * 2) == 0:
            cache[local_i] = cache[local_i] + cache[local_i + p]
        cuda.syncthreads()
    if local_i == 0:
        out[batch, 0] = cache[0]


@CASES.launch((3, 3), (3, 3), blank((8, 8), np.float32), M8A, M8B, 8, gives={0: M8A @ M8B}, checked=False)
def puzzle_matmul(out, a, b, size):
    a_shared = cuda.shared.array((3, 3), numba.float32)
    b_shared = cuda.shared.array((3, 3), numba.float32)
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    j = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    local_i = cuda.threadIdx.x
    local_j = cuda.threadIdx.y
    acc = 0.0
    for k in range(0, size, 3):
        if i < size and k + local_j < size:
            a_shared[local_i, local_j] = a[i, k + local_j]
        if j < size and k + local_i < size:
            b_shared[local_i, local_j] = b[k + local_i, j]
        cuda.syncthreads()
        for local_k in range(min(3, size - k)):
            acc += a_shared[local_i, local_k] * b_shared[local_k, local_j]
        cuda.syncthreads()
    if i < size and j < size:
        out[i, j] = acc


# minitorch. Its zip reads one element of the index more than it uses, which the checked mode reports.

MAX_DIMS = 32


@cuda.jit(device=True)
def to_index(ordinal, shape, out_index):
    cur_ord = ordinal + 0
    for i in range(len(shape) - 1, -1, -1):
        sh = shape[i]
        out_index[i] = int(cur_ord % sh)
        cur_ord = cur_ord // sh


@cuda.jit(device=True)
def index_to_position(index, strides):
    position = 0
    for ind, stride in zip(index, strides):  # noqa: B905
        position += ind * stride
    return position


@cuda.jit(device=True)
def broadcast_index(big_index, big_shape, shape, out_index):
    for i, s in enumerate(shape):
        if s > 1:
            out_index[i] = big_index[i + (len(big_shape) - len(shape))]
        else:
            out_index[i] = 0
    return None


@cuda.jit(device=True)
def negate(x):
    return -x


@cuda.jit(device=True)
def add(x, y):
    return x + y


SHAPE23, STRIDES23 = np.array([2, 3]), np.array([3, 1])
SIX = np.arange(6.0)


@CASES.launch(1, 32, blank(6, np.float64), SHAPE23, STRIDES23, 6, np.arange(3.0), np.array([1, 3]), np.array([3, 1]),
              gives={0: -np.tile(np.arange(3.0), 2)}, checked=False)  # fmt: skip
def tensor_map(out, out_shape, out_strides, out_size, in_storage, in_shape, in_strides):
    out_index = cuda.local.array(MAX_DIMS, numba.int32)
    in_index = cuda.local.array(MAX_DIMS, numba.int32)
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < out_size:
        to_index(i, out_shape, out_index)
        broadcast_index(out_index, out_shape, in_shape, in_index)
        o = index_to_position(out_index, out_strides)
        j = index_to_position(in_index, in_strides)
        out[o] = negate(in_storage[j])


@CASES.launch(1, 32, blank(6, np.float64), SHAPE23, STRIDES23, 6, SIX, SIX * 10, gives={0: SIX * 11}, checked=False)
def tensor_zip(out, out_shape, out_strides, out_size, a_storage, b_storage):
    out_index = cuda.local.array(MAX_DIMS, numba.int32)
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < out_size:
        to_index(i, out_shape, out_index)
        o = index_to_position(out_index, out_strides)
        out[o] = add(a_storage[o], b_storage[o])


@CASES.launch(2, 32, blank(2, np.float64), np.arange(40.0), 40, gives={0: [496.0, 284.0]})
def minitorch_sum_practice(out, a, size):
    """The size of the shared array is a local constant."""
    BLOCK_DIM = 32
    cache = cuda.shared.array(BLOCK_DIM, numba.float64)
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    pos = cuda.threadIdx.x
    if i < size:
        cache[pos] = a[i]
    else:
        cache[pos] = 0.0
    cuda.syncthreads()
    stride = 1
    while stride < BLOCK_DIM:
        if pos % (2 * stride) == 0:
            cache[pos] += cache[pos + stride]
        stride *= 2
        cuda.syncthreads()
    if pos == 0:
        out[cuda.blockIdx.x] = cache[0]


@CASES.launch(2, 1024, blank(2, np.float64), np.array([2]), np.array([2, 7]), np.arange(14.0), 1, 0.0, gives={
    0: [21.0, 70.0]
})  # fmt: skip
def tensor_reduce(out, out_shape, a_shape, a_storage, reduce_dim, reduce_value):
    BLOCK_DIM = 1024
    cache = cuda.shared.array(BLOCK_DIM, numba.float64)
    out_index = cuda.local.array(MAX_DIMS, numba.int32)
    out_pos = cuda.blockIdx.x
    pos = cuda.threadIdx.x
    if out_pos < out.size:
        to_index(out_pos, out_shape, out_index)
        size = a_shape[reduce_dim]
        cache[pos] = a_storage[out_pos * size + pos] if pos < size else reduce_value
        cuda.syncthreads()
        reduction = 1
        while reduction < BLOCK_DIM:
            if pos % (2 * reduction) == 0:
                cache[pos] = add(cache[pos], cache[pos + reduction])
            reduction *= 2
            cuda.syncthreads()
        if pos == 0:
            out[out_pos] = cache[0]


@CASES.launch(1, (32, 32), blank(64, np.float64), M8A.ravel(), M8B.ravel(), 8, gives={0: (M8A @ M8B).ravel()},
              reference=False)  # fmt: skip
def minitorch_mm_practice(out, a, b, size):
    BLOCK_DIM = 32
    a_shared = cuda.shared.array((BLOCK_DIM, BLOCK_DIM), numba.float64)
    b_shared = cuda.shared.array((BLOCK_DIM, BLOCK_DIM), numba.float64)
    i = cuda.threadIdx.x
    j = cuda.threadIdx.y
    if i < size and j < size:
        a_shared[i, j] = a[size * i + j]
        b_shared[i, j] = b[size * i + j]
    cuda.syncthreads()
    if i >= size or j >= size:
        return
    total = 0.0
    for k in range(size):
        total += a_shared[i, k] * b_shared[k, j]
    out[size * i + j] = total


@CASES.launch((2, 2, 2), (4, 4, 1), blank((2, 6, 6), np.float64), np.arange(48.0).reshape(2, 6, 4) % 7,
              np.arange(48.0).reshape(2, 4, 6) % 5, gives={0: (np.arange(48.0).reshape(2, 6, 4) % 7) @ (
                  np.arange(48.0).reshape(2, 4, 6) % 5)})  # fmt: skip
def batched_matmul(out, a, b):
    SHAPE = (4, 4)
    a_shared = cuda.shared.array(SHAPE, numba.float64)
    b_shared = cuda.shared.array(SHAPE, numba.float64)
    batch = cuda.blockIdx.z
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    j = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    pi, pj = cuda.threadIdx.x, cuda.threadIdx.y
    acc = 0.0
    for k in range(0, a.shape[2], 4):
        a_shared[pi, pj] = a[batch, i, k + pj] if i < out.shape[1] else 0
        b_shared[pi, pj] = b[batch, k + pi, j] if j < out.shape[2] else 0
        cuda.syncthreads()
        for e in range(4):
            acc += a_shared[pi, e] * b_shared[e, pj]
        cuda.syncthreads()
    if i < out.shape[1] and j < out.shape[2]:
        out[batch, i, j] = acc


LOGITS = np.array([-1.0, 0.0, 1.0, 2.0, -3.0, 0.5, 0.25, 4.0])


@CASES.launch(1, 8, blank(8, np.float64), LOGITS, tolerance=1e-14, gives={0: 1 / (1 + np.exp(-LOGITS))})
def stable_sigmoid(out, x):
    i = cuda.grid(1)
    if x[i] >= 0:
        out[i] = 1.0 / (1.0 + math.exp(-x[i]))
    else:
        out[i] = math.exp(x[i]) / (1.0 + math.exp(x[i]))


@CASES.launch(
    1, 8, blank(8, np.float32), np.arange(8, dtype=np.float32) - 4, gives={0: np.maximum(np.arange(8) - 4, 0)}
)
def relu(out, x):
    i = cuda.grid(1)
    out[i] = max(x[i], float32(0))


test_compiled, test_checked, test_reference = CASES.tests(default=3)
