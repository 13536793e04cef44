"""float16 in kernels, against NumPy's float16."""

import math
import operator

import numpy as np
import pytest
from expectations import Table, blank
from numba import float32
from numba.types import float16

from miniflow.hostcuda import cuda
from miniflow.hostcuda.host import fp16

CASES = Table()
HALF = np.float16
RANDOM = np.random.default_rng(3)
SPECIAL = np.array([0.0, -0.0, 1.0, -2.5, 6e-8, -6e-5, 65504, -65504, math.inf, -math.inf, math.nan, 0.1], HALF)
X, Y = (a.ravel() for a in np.meshgrid(SPECIAL, SPECIAL))
PAIRS = 144
A = RANDOM.normal(size=64).astype(HALF)


def quiet(function, *arguments):
    with np.errstate(all="ignore"):
        return function(*arguments)


@CASES.launch(1, PAIRS, X, Y, blank((4, PAIRS), HALF), gives=[
    quiet(f, X, Y) for f in (operator.add, operator.sub, operator.mul, operator.truediv)
])  # fmt: skip
def arithmetic(x, y, out):
    t = cuda.threadIdx.x
    out[0, t] = x[t] + y[t]
    out[1, t] = x[t] - y[t]
    out[2, t] = x[t] * y[t]
    out[3, t] = x[t] / y[t]


@CASES.launch(1, PAIRS, X, Y, blank((6, PAIRS), np.int32), gives=[
    f(X, Y) for f in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
])  # fmt: skip
def comparisons(x, y, out):
    t = cuda.threadIdx.x
    out[0, t] = x[t] == y[t]
    out[1, t] = x[t] != y[t]
    out[2, t] = x[t] < y[t]
    out[3, t] = x[t] <= y[t]
    out[4, t] = x[t] > y[t]
    out[5, t] = x[t] >= y[t]


@CASES.launch(1, 64, A, A[::-1].copy(), blank(64, HALF), gives=(A * A[::-1] + A) / A[::-1] - A)
def each_operation_is_rounded(x, y, out):
    t = cuda.threadIdx.x
    v = x[t] * y[t]
    v += x[t]
    v /= y[t]
    v -= x[t]
    out[t] = v


@CASES.launch(1, 64, A, np.float32(0.1), 3, blank((4, 64), np.float64), gives=[
    A.astype(np.float32) * np.float32(0.1), A.astype(np.float64) + 3, A * np.int8(3), A.astype(np.float64) * 0.1
])  # fmt: skip
def mixed_with_other_types(x, single, n, out):
    t = cuda.threadIdx.x
    out[0, t] = x[t] * single
    out[1, t] = x[t] + n
    out[2, t] = x[t] * np.int8(n)
    out[3, t] = x[t] * 0.1


@CASES.launch(1, 64, A, blank((3, 64), HALF), gives=[-A, abs(A), np.maximum(A, A[::-1])])
def signs_and_extremes(x, out):
    t = cuda.threadIdx.x
    out[0, t] = -x[t]
    out[1, t] = abs(x[t])
    out[2, t] = max(x[t], x[63 - t])


@CASES.launch(1, 64, A, blank(64, np.int64), gives=np.where(A == 0, 0, np.rint(A * HALF(8)).astype(np.int64)))
def conditions_and_integers(x, out):
    t = cuda.threadIdx.x
    out[t] = int(x[t] * np.float16(8)) if x[t] != 0 else 0


ENDS = [1 + 2**-11 + 2**-40, 65519.9999999, 65520.0, 2**-25 + 2**-60, 2**-25, 1e300, -1e300, 5e-324, math.nan, math.inf]
WIDE = np.concatenate([RANDOM.normal(size=40) * 2.0 ** RANDOM.integers(-26, 17, 40), ENDS])


@CASES.launch(1, 50, WIDE, WIDE.astype(np.float32), blank((2, 50), HALF), gives=[
    quiet(WIDE.astype, HALF), quiet(WIDE.astype(np.float32).astype, HALF)
])  # fmt: skip
def rounded_once(x, single, out):
    t = cuda.threadIdx.x
    out[0, t] = x[t]
    out[1, t] = np.float16(single[t])


N = np.array([0, 1, -1, 2049, 2051, -4099, 65504, 65519, 65520, 10**9, -(2**62)])


@CASES.launch(1, 11, N, blank((3, 11), HALF), gives=[
    quiet(N.astype, HALF), quiet(N.astype(np.uint64).astype, HALF), N.astype(np.int8).astype(HALF)
])  # fmt: skip
def integers_as_halves(n, out):
    t = cuda.threadIdx.x
    out[0, t] = float16(n[t])
    out[1, t] = np.uint64(n[t])
    out[2, t] = np.int8(n[t])


@CASES.launch(2, 64, np.tile(A, 2), HALF(0.3), blank(128, HALF), gives=np.tile(A[::-1] * HALF(0.3) + A, 2))
def shared_local_and_kept_values(x, scale, out):
    room = cuda.shared.array(64, float16)
    own = cuda.local.array(2, np.float16)
    t = cuda.threadIdx.x
    kept = x[cuda.grid(1)]
    room[t] = kept * scale
    own[0] = kept
    cuda.syncthreads()
    own[1] = room[63 - t]
    cuda.syncthreads()
    out[cuda.grid(1)] = own[1] + own[0] if kept == own[0] else kept


RECORDS = np.zeros(8, [("a", HALF), ("n", np.int32)])
RECORDS["a"] = A[:8]


@CASES.launch(1, 8, RECORDS, blank(8, HALF), gives=A[:8] * A[:8], reference=False)
def fields_of_records(r, out):
    t = cuda.threadIdx.x
    out[t] = r[t].a * r[t].a


@CASES.launch(1, 64, abs(A) + HALF(0.1), blank((9, 64), np.float64), gives=[
    f((abs(A) + HALF(0.1)).astype(np.float32)).astype(HALF)
    for f in (np.exp, np.log, np.sqrt, np.sin, np.cos, np.tanh, np.floor, np.ceil, np.log2)
], tolerance=1e-3, reference=False)  # fmt: skip
def functions_of_math(x, out):
    t = cuda.threadIdx.x
    out[0, t] = math.exp(x[t])
    out[1, t] = math.log(x[t])
    out[2, t] = math.sqrt(x[t])
    out[3, t] = math.sin(x[t])
    out[4, t] = math.cos(x[t])
    out[5, t] = math.tanh(x[t])
    out[6, t] = math.floor(x[t])
    out[7, t] = math.ceil(x[t])
    out[8, t] = math.log2(x[t])


@CASES.launch(1, 64, A, A[::-1].copy(), blank((8, 64), HALF), gives=[
    A + A[::-1], A - A[::-1], A * A[::-1], A / A[::-1], -A, abs(A), np.maximum(A, A[::-1]), np.minimum(A, A[::-1])
], reference=False)  # fmt: skip
def fp16_arithmetic(x, y, out):
    t = cuda.threadIdx.x
    out[0, t] = fp16.hadd(x[t], y[t])
    out[1, t] = cuda.fp16.hsub(x[t], y[t])
    out[2, t] = fp16.hmul(x[t], y[t])
    out[3, t] = fp16.hdiv(x[t], y[t])
    out[4, t] = fp16.hneg(x[t])
    out[5, t] = fp16.habs(x[t])
    out[6, t] = fp16.hmax(x[t], y[t])
    out[7, t] = fp16.hmin(x[t], y[t])


@CASES.launch(1, PAIRS, X, Y, blank((8, PAIRS), HALF), gives=[
    f(X, Y) for f in (np.fmax, np.fmin, np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)
], reference=False)  # fmt: skip
def fp16_of_special_numbers(x, y, out):
    t = cuda.threadIdx.x
    out[0, t] = fp16.hmax(x[t], y[t])
    out[1, t] = fp16.hmin(x[t], y[t])
    out[2, t] = fp16.heq(x[t], y[t])
    out[3, t] = fp16.hne(x[t], y[t])
    out[4, t] = fp16.hlt(x[t], y[t])
    out[5, t] = fp16.hle(x[t], y[t])
    out[6, t] = fp16.hgt(x[t], y[t])
    out[7, t] = fp16.hge(x[t], y[t])


P = abs(A) + HALF(0.1)
S = P.astype(np.float32)
FUNCTIONS = [np.exp, np.exp2, lambda x: 10**x, np.log, np.log2, np.log10, np.sin, np.cos, np.sqrt, np.tanh]
FUNCTIONS += [lambda x: 1 / np.sqrt(x), lambda x: 1 / x, np.rint, np.floor, np.ceil, np.trunc]


@CASES.launch(
    1, 64, P, blank((16, 64), HALF), gives=[f(S).astype(HALF) for f in FUNCTIONS], tolerance=1e-3, reference=False
)
def fp16_functions(x, out):
    t = cuda.threadIdx.x
    out[0, t] = fp16.hexp(x[t])
    out[1, t] = fp16.hexp2(x[t])
    out[2, t] = fp16.hexp10(x[t])
    out[3, t] = fp16.hlog(x[t])
    out[4, t] = fp16.hlog2(x[t])
    out[5, t] = fp16.hlog10(x[t])
    out[6, t] = fp16.hsin(x[t])
    out[7, t] = fp16.hcos(x[t])
    out[8, t] = fp16.hsqrt(x[t])
    out[9, t] = fp16.htanh(x[t])
    out[10, t] = fp16.hrsqrt(x[t])
    out[11, t] = fp16.hrcp(x[t])
    out[12, t] = fp16.hrint(x[t])
    out[13, t] = fp16.hfloor(x[t])
    out[14, t] = fp16.hceil(x[t])
    out[15, t] = fp16.htrunc(x[t])


FUSED = A.astype(np.float64) * A[::-1].astype(np.float64) + A


@CASES.launch(1, 64, A, A[::-1].copy(), blank(64, HALF), gives=FUSED.astype(HALF))
def fp16_multiplies_and_adds_with_one_rounding(x, y, out):
    t = cuda.threadIdx.x
    out[t] = cuda.fp16.hfma(x[t], y[t], x[t])


test_compiled, test_checked, test_reference = CASES.tests(default=4)


def test_a_matrix_product_that_accumulates_in_float32():
    @cuda.jit
    def product(a, b, out):
        i, j = cuda.grid(2)
        if i < out.shape[0] and j < out.shape[1]:
            total = float32(0)
            for k in range(a.shape[1]):
                total += a[i, k] * np.float32(b[k, j])
            out[i, j] = total

    a, b = RANDOM.normal(size=(17, 30)).astype(HALF), RANDOM.normal(size=(30, 9)).astype(HALF)
    out = np.full((17, 9), math.nan, HALF)
    product[(3, 2), (8, 8)](a, b, out)
    np.testing.assert_allclose(out, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-3, atol=1e-3)


def test_atomics():
    @cuda.jit
    def kernel(x, out):
        t = cuda.threadIdx.x
        cuda.atomic.add(out, 0, x[t])
        cuda.atomic.max(out, 1, x[t])
        cuda.atomic.min(out, 2, x[t])
        cuda.atomic.cas(out, 3, 0, 5)

    x = np.array([1, -2.5, math.nan, 3], HALF)
    out = np.array([math.nan, 1.5, 0, 0], HALF)
    kernel[1, 4](x, out)
    np.testing.assert_array_equal(out, np.array([math.nan, 3, -2.5, 5], HALF))


def test_every_function_exists_in_numba_cuda():
    theirs = pytest.importorskip("numba.cuda.fp16", reason="numba without CUDA's half precision")
    assert not [name for name in vars(fp16) if not hasattr(theirs, name)]
