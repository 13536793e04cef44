"""Vector types, and loads and stores with hints to caches."""

import numpy as np
import pytest
from expectations import Table, blank
from numba import float32

from miniflow.hostcuda import UnsupportedKernelError, cuda

CASES = Table()
X = np.arange(64, dtype=np.float32) / 4


@CASES.launch(1, 16, X, blank(16, np.float32), gives=X.reshape(16, 4).sum(axis=1), reference=False)
def fields(x, out):
    t = cuda.threadIdx.x
    v = cuda.float32x4(x[4 * t], x[4 * t + 1], x[4 * t + 2], x[4 * t + 3])
    out[t] = v.x + v.y + v.z + v.w


@CASES.launch(1, 16, X, blank((4, 16), np.float64), gives=[X[:16], X[1:17], X[2:18].astype(np.int32), np.full(16, 7)],
              reference=False)  # fmt: skip
def made_of_shorter_vectors(x, out):
    t = cuda.threadIdx.x
    pair = cuda.float2(x[t], x[t + 1])
    four = cuda.float64x4(pair.x, cuda.float64x2(pair.y, cuda.int32x1(x[t + 2]).x), 7)
    out[0, t] = four.x
    out[1, t] = four.y
    out[2, t] = four.z
    out[3, t] = four.w


@CASES.launch(1, 64, X, blank(64, np.float32), gives=X + X[::-1], reference=False)
def kept_across_a_barrier(x, out):
    room = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    v = cuda.float32x2(x[t], t)
    room[t] = v.x
    cuda.syncthreads()
    out[int(v.y)] = v.x + room[63 - t]


WRAPPED = [np.arange(16), (np.arange(16) * 77).astype(np.uint8), np.full(16, -1)]


@CASES.launch(1, 16, blank((3, 16), np.int64), gives=WRAPPED, reference=False)
def integers_wrap(out):
    t = cuda.threadIdx.x
    v = cuda.uint8x2(t, t * 77)
    out[0, t] = v.x
    out[1, t] = v.y
    out[2, t] = cuda.longlong1(-1).x


@CASES.launch(1, 64, X, blank((2, 64), np.float32), gives=[X * 5, X], reference=False, checked=False)
def hints_to_caches(x, out):
    # numba-cuda takes a tuple of one integer type for stcg's index
    t = cuda.threadIdx.x
    v = cuda.ldca(x, t) + cuda.ldcg(x, t) + cuda.ldcs(x, t) + cuda.ldlu(x, t) + cuda.ldcv(x, t)
    cuda.stcg(out, (0, t), v)
    cuda.stcs(out, (1, t), 0)
    cuda.stwb(out, (1, t), 1)
    cuda.stwt(out, (1, t), x[t])


test_compiled, test_checked, _ = CASES.tests(default=3)


def test_a_wrong_number_of_fields_is_refused():
    @cuda.jit
    def kernel(out):
        out[0] = cuda.float32x2(1, 2, 3).x

    with pytest.raises(UnsupportedKernelError, match="float32x2"):
        kernel[1, 1](np.zeros(1))
