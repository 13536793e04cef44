"""`kernels.clip_grad`: norms and bounds against NumPy in float64, and against the cpu over dtypes and layouts."""

import math

import numpy as np
import pytest
from both import on_device
from compare import assert_close
from kernel_cases import CAPABILITIES, Case, compile_case, run_checked

from miniflow.backends.registry import KERNELS
from miniflow.dispatch.dispatcher import kernel_on
from miniflow.kernels import clip_grad
from miniflow.kernels.clip_grad import THREADS
from miniflow.nn.utils.clip_grad import TotalNorm

SHAPES = [(5, 7), (3,), (0,), (), (4097,), (1,), (256,), (257,), (2, 2), (5,), (600,)]  # more than one launch takes


def values(size, seed):
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("p", [1, 2.0, 3.5, math.inf])
def test_total_norm(p, dtype, layout):
    arrays = [values(shape, k).astype(dtype) for k, shape in enumerate(SHAPES)]
    want = np.linalg.norm(np.concatenate([x.ravel().astype(np.float64) for x in arrays]), p)
    for device, placed in (("cpu", arrays), ("cuda", [on_device(x, layout) for x in arrays])):
        got = kernel_on(TotalNorm, device)(*placed, norm_type=p)
        got = got if device == "cpu" else got.numpy()
        assert got.shape == () and got.dtype == (np.float64 if dtype == np.float64 else np.float32)
        np.testing.assert_allclose(got, want, rtol=1e-12 if dtype == np.float64 else 3e-7)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("p", [1, 2.0, 3.5, math.inf])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_total_norm_that_is_not_finite(bad, p, device):
    arrays = [values(300, 0), np.float32([1, bad, 2]), np.empty(0, np.float32)]
    placed = arrays if device == "cpu" else [on_device(x, "contiguous") for x in arrays]
    got = kernel_on(TotalNorm, device)(*placed, norm_type=p)
    np.testing.assert_array_equal(got if device == "cpu" else got.numpy(), np.float32(bad))


def test_squares_beyond_float32_do_not_overflow():
    x = np.float32([3e30, 4e30])
    assert kernel_on(TotalNorm, "cpu")(x, norm_type=2.0) == np.float32(5e30)
    assert kernel_on(TotalNorm, "cuda")(on_device(x, "contiguous"), norm_type=2.0).numpy() == np.float32(5e30)


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_clipping_agrees_with_the_cpu(dtype, layout):
    arrays = [values(shape, k).astype(dtype) for k, shape in enumerate(SHAPES)]
    placed = [on_device(x, layout) for x in arrays]
    norms = [np.array(n, np.float32) for n in (0.5, 2, 0, math.nan, 8, 3, 0.9, 1, math.inf, 4, 100)]
    KERNELS["cpu"]["ClipGradNorm"].run(arrays, norms, max_norm=1.5)
    KERNELS["cuda"]["ClipGradNorm"].run(placed, [on_device(x, "contiguous") for x in norms], max_norm=1.5)
    for got, want in zip(placed, arrays, strict=True):
        assert_close(got.numpy(), want)
    KERNELS["cpu"]["ClipGradValue"].run(arrays, clip_value=0.25)
    KERNELS["cuda"]["ClipGradValue"].run(placed, clip_value=0.25)
    for got, want in zip(placed, arrays, strict=True):
        assert_close(got.numpy(), want)


def test_each_gradient_goes_by_its_norm():
    gradients = [np.float32([3, 4]), np.float32([1]), np.float32([8])]
    KERNELS["cpu"]["ClipGradNorm"].run(gradients, [np.float32(5), np.float32(1), np.float32(8)], max_norm=2)
    for got, want in zip(gradients, ([1.2, 1.6], [1], [2]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


STARTS = (0, 1, 2, 3)


def several():
    return tuple(values(n, n) for n in (70, 3, 64))


def bounded(numbers, max_norm):
    """A launch of an update, whose results do not depend on the parameters."""

    def made():
        norms = tuple(np.float32([n]) for n in (2, 0.1, np.nan))
        return [(0, 2, 3, 4), tuple(zip(several(), several(), strict=True)), (numbers,) * 3, norms, max_norm]

    return made


CASES = [
    *[
        Case(f"partial {p}", norm, lambda p=p: [STARTS, several(), 60, p, True, 1, np.full(4, np.nan)], 3, THREADS)
        for p, norm in ((2.0, clip_grad.norm), (math.inf, clip_grad.largest), (3.0, clip_grad.norm))
    ],
    Case("finish", clip_grad.norm,
         lambda: [(0, 1), (values(300, 0).astype(np.float64) ** 2,), 300, 2.0, False, 0, np.float32([np.nan])], 1,
         THREADS),
    Case("scale", clip_grad.scale, bounded((np.float32(0),), 1.0), 4, 64),
    Case("clamp", clip_grad.clamp, bounded((np.float32(0.3),), -1.0), 4, 64),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    compile_case(case, cc)
