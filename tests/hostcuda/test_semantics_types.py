"""Variables that change their type: numba gives every assignment its own, also where the variable lives on at barriers.

Products of float32 numbers tell: they are rounded to float32 before a variable becomes a float64, and not after.
"""

import numpy as np
from expectations import Table, blank

from miniflow.hostcuda import cuda

ALL = 0xFFFFFFFF
CASES = Table()
N = 64
T = np.arange(N)
X = np.random.default_rng(8).uniform(0.1, 1.0, N).astype(np.float32)
WIDE = X.astype(np.float64)
HALVED = np.where(X > 0.5, WIDE * 0.3, WIDE)  # what a float64 holds of it
HALF = X > 0.5


def floats():
    return blank(N, np.float64)


@CASES.launch(1, N, X, floats(), floats(), gives={1: X * X, 2: HALVED})
def a_float32_becomes_a_float64_under_a_condition(x, y, z):
    i = cuda.grid(1)
    v = x[i]
    cuda.syncthreads()
    y[i] = v * v
    if v > 0.5:
        v = v * 0.3
    cuda.syncthreads()
    z[i] = v


BIG = 2**60 + 1 + T


@CASES.launch(1, N, BIG, blank(N, np.int64), floats(), gives={1: BIG, 2: np.where(T % 3 == 0, 0.5, BIG.astype(float))})
def a_large_integer_becomes_a_float(x, y, z):
    i = cuda.grid(1)
    a = x[i]
    cuda.syncthreads()
    y[i] = a
    if i % 3 == 0:
        a = 0.5
    cuda.syncthreads()
    z[i] = a


INDEX = T * 5 % 32


@CASES.launch(1, N, X, floats(), floats(), gives={1: X[INDEX], 2: np.where(INDEX > 10, INDEX / 2, INDEX)})
def an_index_becomes_a_float(x, y, z):
    i = cuda.grid(1)
    a = (i * 5) % 32
    cuda.syncthreads()
    y[i] = x[a]
    if a > 10:
        a = a / 2
    cuda.syncthreads()
    z[i] = a


@CASES.launch(1, N, X, floats(), floats(), gives={1: X * X, 2: (WIDE / 4) * (WIDE / 4)}, reference=True)
def in_a_loop_around_a_barrier(x, y, z):
    i = cuda.grid(1)
    v = x[i]
    cuda.syncthreads()
    y[i] = v * v
    for _ in range(2):
        cuda.syncthreads()
        v = v * 0.5
    cuda.syncthreads()
    z[i] = v * v


@CASES.launch(
    1, N, X, blank((4, N), np.float64), floats(), 2, gives={1: np.stack([X * X] * 3 + [X * np.nan]), 2: WIDE / 3}
)
def behind_a_break(x, y, z, last):
    i = cuda.grid(1)
    v = x[i]
    for k in range(4):
        cuda.syncthreads()
        y[k, i] = v * v
        if k == last:
            v = v / 3.0
            break
    cuda.syncthreads()
    z[i] = v


@CASES.launch(1, N, X, 2, floats(), gives=X * X)
def a_loop_without_end_forgets_what_was_before(x, n, y):
    i = cuda.grid(1)
    v = 0.5
    k = 0
    while True:
        v = x[i]
        cuda.syncthreads()
        k += 1
        if k > n:
            break
    y[i] = v * v


@CASES.launch(1, N, X, 3, blank((3, N), np.float64), floats(), gives={2: np.stack([X * X] * 3), 3: WIDE / 2})
def one_type_in_each_iteration(x, n, y, z):
    i = cuda.grid(1)
    for k in range(n):
        v = x[i]
        cuda.syncthreads()
        y[k, i] = v * v
        v = v * 0.5
        if k % 2 == 0:
            continue
        cuda.syncthreads()
        y[k, i] += v * 0
    cuda.syncthreads()
    z[i] = v


@CASES.launch(1, N, X, blank(N, np.int64), blank(N, np.int64), gives={1: HALF * 2, 2: np.where(T % 2 == 0, 7, HALF)})
def a_condition_becomes_a_number(x, y, z):
    i = cuda.grid(1)
    v = x[i] > 0.5
    cuda.syncthreads()
    y[i] = 2 if v else 0
    if i % 2 == 0:
        v = 7
    cuda.syncthreads()
    z[i] = v


COMPLEX = np.where(HALF, WIDE * 2j, WIDE)


@CASES.launch(1, N, X, floats(), blank(N, np.complex128), gives={1: X * X, 2: COMPLEX})
def a_number_becomes_complex(x, y, z):
    i = cuda.grid(1)
    v = x[i]
    cuda.syncthreads()
    y[i] = v * v
    if v > 0.5:
        v = v * 2j
    cuda.syncthreads()
    z[i] = v


@CASES.launch(1, N, X, floats(), floats(), gives={1: (X * X)[T ^ 1], 2: HALVED[T ^ 3]})
def shuffled_before_and_after(x, y, z):
    i = cuda.grid(1)
    v = x[i]
    w = cuda.shfl_xor_sync(ALL, v, 1)
    y[i] = w * w
    if v > 0.5:
        v = v * 0.3
    w = cuda.shfl_xor_sync(ALL, v, 3)
    z[i] = w


@CASES.launch(1, N, X, floats(), floats(), gives={1: X * X, 2: HALVED})
def across_a_barrier_of_the_warp(x, y, z):
    i = cuda.grid(1)
    v = x[i]
    cuda.syncwarp()
    y[i] = v * v
    if v > 0.5:
        v = v * 0.3
    cuda.syncwarp()
    z[i] = v


@CASES.launch(1, N, X, floats(), floats(), gives={1: X * X, 2: HALVED})
def across_votes(x, y, z):
    i = cuda.grid(1)
    v = x[i]
    if cuda.syncthreads_or(np.int32(v > 0.5)):
        y[i] = v * v
    if cuda.any_sync(ALL, i >= 0) and v > 0.5:
        v = v * 0.3
    z[i] = v + 0 * cuda.syncthreads_count(1)


@cuda.jit(device=True)
def meeting(value, y, i):
    cuda.syncthreads()
    y[i] = value * value
    if value > 0.5:
        value = value * 0.3
    cuda.syncthreads()
    return value


@CASES.launch(1, N, X, floats(), floats(), gives={1: X * X, 2: HALVED})
def in_an_inlined_function(x, y, z):
    i = cuda.grid(1)
    v = meeting(x[i], y, i)
    z[i] = v


@cuda.jit(device=True)
def two_returns(value):
    cuda.syncthreads()
    if value > 0.5:
        return value
    cuda.syncthreads()
    return value * 0.25


@CASES.launch(1, 1, np.float32([0.3]), blank(1, np.float64), gives=np.float32([0.3]) * 0.25)
@CASES.launch(1, 1, np.float32([0.7]), blank(1, np.float64), gives=np.float32([0.7]) * 1.0)
def returns_of_two_types(x, y):
    y[0] = two_returns(x[0])


@CASES.launch(1, N, blank(N, np.int64), floats(), gives={0: T // 2, 1: np.where(T % 3 == 0, T + 0.5, T)})
def added_to(y, z):
    i = cuda.grid(1)
    v = i
    cuda.syncthreads()
    y[i] = v // 2
    if i % 3 == 0:
        v += 0.5
    cuda.syncthreads()
    z[i] = v


THREE = np.where(T % 3 == 0, WIDE, np.where(T % 3 == 1, T, WIDE / 3))


@CASES.launch(1, N, X, floats(), gives=THREE)
def a_type_in_each_branch(x, z):
    i = cuda.grid(1)
    if i % 3 == 0:
        v = x[i]
    elif i % 3 == 1:
        v = i
    else:
        v = x[i] / 3.0
    cuda.syncthreads()
    z[i] = v


@CASES.launch(1, N, X, blank(N, np.int64), floats(), gives={1: T, 2: np.where(T % 2 == 0, 0.5, T) + X})
def members_of_a_tuple(x, y, z):
    i = cuda.grid(1)
    p = (i, x[i])
    cuda.syncthreads()
    y[i] = p[0]
    if i % 2 == 0:
        p = (0.5, x[i])
    cuda.syncthreads()
    z[i] = p[0] + p[1]


@CASES.launch(1, N, X, 9, floats(), floats(), gives={2: np.full(N, X[9]), 3: np.full(N, 4.5)}, name="uniform, taken")
@CASES.launch(1, N, X, 2, floats(), floats(), gives={2: np.full(N, X[2]), 3: np.full(N, 2.0)}, name="uniform, not")
def a_uniform_variable(x, n, y, z):
    i = cuda.grid(1)
    a = n
    cuda.syncthreads()
    y[i] = x[a]
    if n > 3:
        a = a / 2
        cuda.syncthreads()
    z[i] = a


@CASES.launch(
    1, N, X, floats(), floats(), gives={1: np.where(T < 40, X * X, np.nan), 2: np.where(T < 40, HALVED, np.nan)}
)
def where_threads_have_returned(x, y, z):
    i = cuda.grid(1)
    v = x[i]
    if i >= 40:
        return
    cuda.syncthreads()
    y[i] = v * v
    if v > 0.5:
        v = v * 0.3
    cuda.syncthreads()
    z[i] = v


ROUNDS = np.where(HALF, T % 4, 0)


@CASES.launch(1, N, X, floats(), floats(), gives={1: X * X, 2: np.where(ROUNDS > 0, WIDE * 0.5**ROUNDS, WIDE)})
def in_a_loop_of_one_thread(x, y, z):
    i = cuda.grid(1)
    v = x[i]
    cuda.syncthreads()
    y[i] = v * v
    if v > 0.5:
        for _ in range(i % 4):
            v = v * 0.5
    cuda.syncthreads()
    z[i] = v


@CASES.launch(1, N, X, floats(), floats(), floats(), gives={1: X * X, 2: HALVED, 3: X * X})
def back_to_the_first_type(x, y, z, w):
    i = cuda.grid(1)
    v = x[i]
    cuda.syncthreads()
    y[i] = v * v
    if v > 0.5:
        v = v * 0.3
    cuda.syncthreads()
    z[i] = v
    v = x[i]
    cuda.syncthreads()
    w[i] = v * v


@CASES.launch(1, N, X, floats(), gives=np.where(HALF, WIDE * 0.3 * (WIDE * 0.3), WIDE * WIDE), reference=False)
def what_paths_join_has_the_wider_type_on_both(x, z):
    i = cuda.grid(1)
    v = x[i]
    cuda.syncthreads()
    if v > 0.5:
        v = v * 0.3
    cuda.syncthreads()
    z[i] = v * v


@CASES.launch(1, (8, 8), X.reshape(8, 8), floats(), floats(), gives={1: X * X * 0 + X * X, 2: WIDE * 8})
def sums_of_a_loop_over_an_array(x, y, z):
    i = cuda.threadIdx.y * 8 + cuda.threadIdx.x
    v = x[cuda.threadIdx.y, cuda.threadIdx.x]
    y[i] = v * v
    total = 0
    for _ in range(8):
        total += v
    z[i] = total


test_compiled, test_checked, test_reference = CASES.tests(default=3)
