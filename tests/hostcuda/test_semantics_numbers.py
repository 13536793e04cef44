"""Numbers in kernels: casts, mixed types, division, and floats that do not fit an integer.

PYTEST_DONT_REWRITE: a kernel here has an assert of its own.
"""

import math

import numpy as np
from expectations import Table, blank
from numba import float32, int8, int16, int32, int64, uint8, uint32

from miniflow.hostcuda import cuda

CASES = Table()
I = np.arange(512)  # noqa: E741
NAN = float("nan")


# Conditions in floats.


@CASES.launch(1, 32, np.zeros(9), gives=[1, 1, 1, 1, 1, 0, 0, 0, 0])
def half_of_an_odd_size(x):
    i = cuda.grid(1)
    if i < x.size / 2:
        x[i] = 1


@CASES.launch(1, 32, 10, blank(32, np.int64), gives=np.where(np.arange(32) <= 3, 1, 0))
def a_third_of_an_argument(n, out):
    t = cuda.threadIdx.x
    out[t] = 1 if t < n / 3 else 0


@CASES.launch(1, 32, blank(32, np.int64), gives=np.where(np.arange(32) * 0.5 < 5.25, 1, 0))
def thread_times_a_half(out):
    t = cuda.threadIdx.x
    out[t] = 0
    if t * 0.5 < 5.25:
        out[t] = 1


@CASES.launch(1, 32, 2.5, blank(32, np.int64), gives=np.where(np.arange(32) > 2.5, 1, 0))
def compared_with_a_float_argument(limit, out):
    t = cuda.threadIdx.x
    out[t] = 0
    if t > limit:
        out[t] = 1


@CASES.launch(2, 32, 40.5, np.zeros(64), gives=np.arange(64) < 41)
def return_at_a_float(limit, x):
    i = cuda.grid(1)
    if i > limit:
        return
    x[i] = 1


@CASES.launch(1, 32, 7, blank(32, np.int64), gives=[sum(j for j in range(7) if j < t / 4) for t in range(32)])
def loop_guarded_by_a_quotient(n, out):
    t = cuda.threadIdx.x
    total = 0
    for j in range(n):
        if j < t / 4:
            total += j
    out[t] = total


# Casts that wrap.


@CASES.launch(1, 100, np.arange(128), blank(100, np.int64), gives=(np.arange(100) + 200 - 256) % 128)
def index_that_wraps_to_int8(x, out):
    i = cuda.grid(1)
    k = np.int8(i + 200)
    out[i] = x[k] if k >= 0 else x[128 + k]


@CASES.launch(1, 100, np.arange(128), blank(100, np.int64), gives=(np.arange(100) + 200 - 256) % 128,
              checked=False)  # fmt: skip
def negative_index_from_int8(x, out):
    i = cuda.grid(1)
    out[i] = x[np.int8(i + 200)]


@CASES.launch(1, 512, np.zeros(1, np.int32), gives=[10])
def uint8_of_the_thread_index(count):
    if np.uint8(cuda.threadIdx.x) < 5:
        cuda.atomic.add(count, 0, 1)


@CASES.launch(1, 512, np.arange(256), blank(512, np.int64), gives=I % 256)
def gather_by_uint8(x, out):
    t = cuda.threadIdx.x
    out[t] = x[uint8(t)]


@CASES.launch(1, 512, np.arange(256), blank(512, np.int64), gives=I * 3 % 256)
def gather_by_uint8_of_a_product(x, out):
    t = cuda.threadIdx.x
    k = np.uint8(t * 3)
    out[t] = x[k]


@CASES.launch(1, 512, blank((3, 512), np.int64), gives=[
    (I * 77).astype(np.int8), (I * 777 - 9000).astype(np.int16), (I * 777 - 9000).astype(np.uint16)
])  # fmt: skip
def narrow_casts(out):
    t = cuda.threadIdx.x
    out[0, t] = int8(t * 77)
    out[1, t] = int16(t * 777 - 9000)
    out[2, t] = np.uint16(t * 777 - 9000)


@CASES.launch(1, 512, blank(512, np.int64), gives=np.where(I.astype(np.int8) < 0, -1, 1))
def branch_on_int8_of_the_thread_index(out):
    t = cuda.threadIdx.x
    if np.int8(t) < 0:
        out[t] = -1
    else:
        out[t] = 1


@CASES.launch(
    1, 64, blank(64, np.int64), gives=np.where(np.arange(64) < 5, 2**32 - 5 + np.arange(64), np.arange(64) - 5)
)
def uint32_below_zero(out):
    t = cuda.threadIdx.x
    out[t] = uint32(t - 5)


@CASES.launch(1, 64, blank(64, np.int64), gives=np.where(np.arange(64) < 5, 0, 1))
def uint32_below_zero_in_a_guard(out):
    t = cuda.threadIdx.x
    out[t] = 0
    if uint32(t - 5) < 100:
        out[t] = 1


@CASES.launch(1, 300, blank(300, np.int64), gives=[sum(range(t % 256)) for t in range(300)])
def range_of_uint8(out):
    t = cuda.threadIdx.x
    total = 0
    for k in range(np.uint8(t)):
        total += k
    out[t] = total


@CASES.launch(1, 300, blank(300, np.int64), gives=(np.arange(300) + 1).astype(np.uint8))
def shared_array_of_uint8(out):
    s = cuda.shared.array(300, uint8)
    t = cuda.threadIdx.x
    s[t] = t + 1
    cuda.syncthreads()
    out[t] = s[t]


@CASES.launch(1, 32, np.full(32, 2**31 - 1, np.int32), blank((2, 32), np.int64), gives=[
    np.full(32, 2**31), np.full(32, -(2**31))
])  # fmt: skip
def int32_sums_are_int64(x, out):
    t = cuda.threadIdx.x
    out[0, t] = x[t] + 1
    out[1, t] = int32(x[t] + 1)


@CASES.launch(1, 4, np.array([200, 100, 255, 1], np.uint8), blank(4, np.int64), gives=[400, 200, 510, 2])
def uint8_sums_are_wide(x, out):
    t = cuda.threadIdx.x
    out[t] = x[t] + x[t]


@CASES.launch(1, 4, np.array([1, 2, 2**63, 3], np.uint64), blank(4, np.uint64), gives=np.array(
    [2**64 - 1, 0, 2**63 - 2, 1], np.uint64
))  # fmt: skip
def uint64_wraps(x, out):
    t = cuda.threadIdx.x
    out[t] = x[t] - np.uint64(2)


@CASES.launch(1, 4, np.array([2**64 - 1, 5, 0, 2**63], np.uint64), -1, blank(4, np.int64), gives=[0, 0, 0, 0])
def uint64_is_never_below_minus_one(x, n, out):
    t = cuda.threadIdx.x
    out[t] = 1 if x[t] < n else 0


# Division.


@CASES.launch(1, 20, np.arange(20) - 10, blank((4, 20), np.int64), gives=[
    (np.arange(20) - 10) // 3, (np.arange(20) - 10) % 3, (np.arange(20) - 10) // -4, (np.arange(20) - 10) % -4
])  # fmt: skip
def division_of_negatives(x, out):
    t = cuda.threadIdx.x
    out[0, t] = x[t] // 3
    out[1, t] = x[t] % 3
    out[2, t] = x[t] // -4
    out[3, t] = x[t] % -4


@CASES.launch(1, 20, blank((3, 20), np.int64), gives=[
    -np.arange(20) // 4, (np.arange(20) - 7) % 5, (np.arange(20) - 10) // 8 % 3
])  # fmt: skip
def division_of_thread_indices(out):
    t = cuda.threadIdx.x
    out[0, t] = -t // 4
    out[1, t] = (t - 7) % 5
    out[2, t] = (t - 10) // 8 % 3


@CASES.launch(1, 20, np.arange(20) * 0.75 - 7, blank((2, 20), np.float64), gives=[
    np.floor_divide(np.arange(20) * 0.75 - 7, 2), np.remainder(np.arange(20) * 0.75 - 7, 2)
])  # fmt: skip
def division_of_floats(x, out):
    t = cuda.threadIdx.x
    out[0, t] = x[t] // 2
    out[1, t] = x[t] % 2


@CASES.launch(1, 8, np.arange(8) - 4, blank((2, 8), np.int64), gives=[(np.arange(8) - 4) >> 1, (np.arange(8) - 4) & 3])
def shift_and_mask_of_negatives(x, out):
    t = cuda.threadIdx.x
    out[0, t] = x[t] >> 1
    out[1, t] = x[t] & 3


# Floats.

THIRD = np.float32(1) / np.float32(3)


@CASES.launch(1, 4, np.full(4, THIRD), blank((2, 4), np.float64), gives=[np.full(4, THIRD * THIRD), np.full(
    4, np.float64(THIRD) * 3
)])  # fmt: skip
def float32_products_stay_float32(x, out):
    t = cuda.threadIdx.x
    out[0, t] = x[t] * x[t]
    out[1, t] = x[t] * 3


@CASES.launch(1, 4, np.full(4, 0.1), blank(4, np.float64), gives=np.full(4, np.float64(np.float32(0.1))))
def float32_of_a_float64(x, out):
    t = cuda.threadIdx.x
    out[t] = float32(x[t])


@CASES.launch(1, 4, np.array([2.5, 3.5, -2.5, 0.5]), blank((2, 4), np.int64), gives=[[2, 4, -2, 0], [2, 3, -2, 0]])
def round_and_int(x, out):
    t = cuda.threadIdx.x
    out[0, t] = round(x[t])
    out[1, t] = int(x[t])


@CASES.launch(1, 4, np.array([1e20, -1e20, 3.99, -3.99]), blank(4, np.int64), gives=[2**31 - 1, -(2**31), 3, -3])
def int32_saturates(x, out):
    t = cuda.threadIdx.x
    out[t] = int32(x[t])


@CASES.launch(1, 4, np.array([NAN, 1e10, -1e10, 7.9], np.float32), blank(4, np.int64), gives=[
    0, 2**31 - 1, -(2**31), 7
])  # fmt: skip
def int32_of_float32_with_nan(x, out):
    t = cuda.threadIdx.x
    out[t] = int32(x[t])


@CASES.launch(1, 4, np.array([-1.0, 1e10, 3e9, -0.5]), blank(4, np.int64), gives=[0, 2**32 - 1, 3 * 10**9, 0])
def uint32_saturates(x, out):
    t = cuda.threadIdx.x
    out[t] = uint32(x[t])


@CASES.launch(1, 4, np.array([1e30, -1e30, math.inf, -math.inf]), blank(4, np.int64), gives=[
    2**63 - 1, -(2**63), 2**63 - 1, -(2**63)
])  # fmt: skip
def int64_saturates(x, out):
    t = cuda.threadIdx.x
    out[t] = int64(x[t])


@CASES.launch(1, 4, np.array([1e30, -5.0, 3.5, 2.0**63]), blank(4, np.uint64), gives=np.array(
    [2**64 - 1, 0, 3, 2**63], np.uint64
))  # fmt: skip
def uint64_saturates(x, out):
    t = cuda.threadIdx.x
    out[t] = np.uint64(x[t])


@CASES.launch(1, 3, np.array([1e20, -1e20, 5.5]), blank(3, np.int32), gives=[2**31 - 1, -(2**31), 5])
def a_store_saturates(x, out):
    t = cuda.threadIdx.x
    out[t] = x[t]


@CASES.launch(1, 3, np.array([0.0, 7.0, 5.0]), np.array([0.0, 2.0, 3.0]), blank(3, np.float64), gives=[NAN, -1.0, -1.0])
def ieee_remainder(x, y, out):
    t = cuda.threadIdx.x
    out[t] = math.remainder(x[t], y[t])


@CASES.launch(1, 4, np.array([1.0, 0.0, -1.0, 0.0]), np.array([0.0, 0.0, 0.0, 2.0]), blank(4, np.float64), gives=[
    math.inf, NAN, -math.inf, 0.0
])  # fmt: skip
def float_division_by_zero(x, y, out):
    t = cuda.threadIdx.x
    out[t] = x[t] / y[t]


@CASES.launch(1, 3, np.array([-1.0, 0.0, 4.0]), blank((2, 3), np.float64), gives=[
    [NAN, 0.0, 2.0], [NAN, -math.inf, np.log(4.0)]
], tolerance=1e-15)  # fmt: skip
def math_outside_of_its_domain(x, out):
    t = cuda.threadIdx.x
    out[0, t] = math.sqrt(x[t])
    out[1, t] = math.log(x[t])


@CASES.launch(1, 1, np.array([1000.0]), blank(1, np.float64), gives=[math.inf])
def exp_overflows_to_infinity(x, out):
    out[0] = math.exp(x[0])


@CASES.launch(1, 4, np.array([3.0, NAN, 9.0, NAN]), np.array([5.0, 1.0]), gives=[9.0, 1.0])
def atomic_max_ignores_nan(x, best):
    t = cuda.threadIdx.x
    cuda.atomic.max(best, 0, x[t])
    if t == 1 or t == 3:
        cuda.atomic.max(best, 1, x[t])


@CASES.launch(1, 4, np.array([3.0, NAN, -9.0, NAN], np.float32), np.array([5.0], np.float32), gives=[-9.0])
def atomic_min_ignores_nan(x, best):
    cuda.atomic.min(best, 0, x[cuda.threadIdx.x])


@CASES.launch(1, 3, np.array([3.0, NAN, 2.0]), np.array([NAN, NAN]), gives=[NAN, 3.0])
def a_nan_location_of_atomic_max_and_nanmax(x, best):
    t = cuda.threadIdx.x
    cuda.atomic.max(best, 0, x[t])
    cuda.atomic.nanmax(best, 1, x[t])


@CASES.launch(1, 5, np.array([0, 1, -1, 5, 7]), blank(5, np.int64), gives=[0, 1, 0, 1, 1], checked=False)
def assert_is_ignored_without_debug(x, out):
    t = cuda.threadIdx.x
    assert x[t] > 100
    out[t] = 1 if x[t] > 0 else 0


@CASES.launch(1, 8, np.arange(8).astype(np.complex64) * (1 + 2j), blank(8, np.complex64), gives=(
    np.arange(8) ** 2 * (1 + 2j) ** 2 + 1j
).astype(np.complex64))  # fmt: skip
def complex_numbers(z, out):
    t = cuda.threadIdx.x
    w = z[t] * z[t]
    cuda.syncthreads()
    out[t] = w + 1j


@CASES.launch(5, 64, np.zeros(300), np.uint32(9), np.uint32(90), gives={0: np.zeros(300)}, name="wrapped")
@CASES.launch(5, 64, np.zeros(300), np.uint32(90), np.uint32(9), gives={0: np.arange(300) >= 81}, name="not_wrapped")
def difference_of_unsigned_integers_as_a_bound(out, w, h):
    i = cuda.grid(1)
    if i >= w - h and i < out.size:
        out[i] = 1


test_compiled, test_checked, test_reference = CASES.tests(default=3)
