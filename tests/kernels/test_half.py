"""float16 and bfloat16 in registers: every bit pattern is widened and rounded as NumPy does it."""

import ml_dtypes
import numpy as np
import pytest
from kernel_cases import CAPABILITIES, Case, compile_case, run_checked

from miniflow.hostcuda import cuda
from miniflow.kernels import half

FUNCTIONS = {
    np.float16: (half.widen_float16, half.narrow_float16, half.round_float16),
    ml_dtypes.bfloat16: (half.widen_bfloat16, half.narrow_bfloat16, half.round_bfloat16),
}


def kernel_of(widen, narrow, round_):
    @cuda.jit
    def kernel(bits, x, widened, narrowed, rounded):
        i = cuda.grid(1)
        if i < bits.size:
            widened[i] = widen(bits[i])
            narrowed[i] = narrow(x[i])
            rounded[i] = round_(x[i])

    return kernel


@pytest.mark.parametrize("kind", FUNCTIONS, ids=["float16", "bfloat16"])
def test_every_pattern(kind):
    bits = np.arange(2**16, dtype=np.uint16)
    exact = bits.view(kind).astype(np.float32)
    steps = np.random.default_rng(0).integers(-(2**13), 2**13, bits.size)
    x = (exact.view(np.int32) + steps.astype(np.int32)).view(np.float32)
    x[::3] = (exact.view(np.uint32) + np.uint32(0x8000 if kind is ml_dtypes.bfloat16 else 0x1000)).view(np.float32)[::3]
    widened, narrowed, rounded = np.full(bits.size, 7, np.float32), np.full(bits.size, 7, np.uint16), np.zeros_like(x)
    kernel_of(*FUNCTIONS[kind])[256, 256](bits, x, widened, narrowed, rounded)
    with np.errstate(over="ignore", invalid="ignore"):
        want = x.astype(kind)
    np.testing.assert_array_equal(widened, exact)
    np.testing.assert_array_equal(narrowed.view(kind).astype(np.float32), want.astype(np.float32))
    np.testing.assert_array_equal(rounded, want.astype(np.float32))


def case_of(kind):
    def arguments():
        bits = np.random.default_rng(1).integers(0, 2**16, 70, np.uint16)
        x = np.random.default_rng(2).standard_normal(70).astype(np.float32)
        return [bits, x, np.full(70, np.nan, np.float32), np.full(70, 7, np.uint16), np.full(70, np.nan, np.float32)]

    return Case(np.dtype(kind).name, kernel_of(*FUNCTIONS[kind]), arguments, grid=2, block=64)


CASES = [case_of(kind) for kind in FUNCTIONS]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    compile_case(case, cc)
