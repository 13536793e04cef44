"""Kernels over the real numba.cuda: PTX without a GPU, and what its typing refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import miniflow.hostcuda as package
from miniflow.hostcuda import check
from miniflow.hostcuda import host as cuda
from miniflow.hostcuda.numba_cuda import NUMBA_CUDA, PACKAGES, Package
from miniflow.hostcuda.ptx import compile_to_ptx, typing_error, useful_line

try:
    NUMBA_CUDA.compiler()
except ImportError as error:  # it says what is missing
    pytest.skip(str(error), allow_module_level=True)

INSTALLED = [package for package in PACKAGES if package.installed]
CAPABILITIES = [(7, 5), (9, 0)]
grid = cuda.grid
TILE = 16


@cuda.jit(device=True)
def twice(x):
    return math.exp(x) * 2


@cuda.jit(device=True)
def block_total(value, sums):
    cuda.atomic.add(sums, 0, value)
    cuda.syncthreads()
    return sums[0]


@cuda.jit
def everything(x, y, states):
    tile = cuda.shared.array((TILE, TILE), np.float32)
    sums = cuda.shared.array(1, np.float32)
    i, j = grid(2)
    tile[cuda.threadIdx.y, cuda.threadIdx.x] = twice(x[i, j])
    if cuda.threadIdx.x == 0 and cuda.threadIdx.y == 0:
        sums[0] = 0
    cuda.syncthreads()
    total = block_total(tile[cuda.threadIdx.x, cuda.threadIdx.y], sums)
    total += cuda.shfl_xor_sync(0xFFFFFFFF, total, 1)
    total += cuda.random.xoroshiro128p_uniform_float32(states, i * 4 + j)
    y[i, j] = total + cuda.libdevice.sinf(total)


def arguments() -> list:
    states = cuda.random.create_xoroshiro128p_states(16, seed=1)
    return [np.ones((4, 4), np.float32), cuda.to_device(np.ones((4, 4), np.float32)), states]


@pytest.mark.parametrize("cc", CAPABILITIES)
def test_ptx_of_a_kernel_with_all_kinds_of_names(cc: tuple[int, int]):
    ptx = compile_to_ptx(everything, arguments(), cc, NUMBA_CUDA)  # the successor has no cuda.random
    assert f".target sm_{cc[0]}{cc[1]}" in ptx
    found = [word for word in (".visible .entry", "bar.sync", "shfl.sync.bfly", "atom.shared.add.f32") if word in ptx]
    assert found == [".visible .entry", "bar.sync", "shfl.sync.bfly", "atom.shared.add.f32"]


@cuda.jit(device=True)
def exp(x):
    return math.exp(x)


@cuda.jit
def named_as_in_math(x):
    x[0] = exp(x[0])


@pytest.mark.parametrize("package", INSTALLED, ids=str)
def test_a_device_function_with_the_name_of_one_of_math(package: Package):
    assert ".visible .entry" in compile_to_ptx(named_as_in_math, [np.ones(3)], package=package)


def closing_over(function: Any, factor: float) -> Any:
    @cuda.jit
    def closure(x):
        x[cuda.grid(1)] = function(x[cuda.grid(1)]) * factor

    return closure


@pytest.mark.parametrize("package", INSTALLED, ids=str)
def test_closures_over_device_functions(package: Package):
    ptx = compile_to_ptx(closing_over(twice, 3.0), [np.ones(3)], package=package)
    assert "ex2.approx" in ptx or "fma.rn.f64" in ptx


module_like = type(math)("module_like")
module_like.twice = twice


@cuda.jit
def by_a_module(x):
    x[package.cuda.grid(1)] = module_like.twice(x[0])


@pytest.mark.parametrize("package", INSTALLED, ids=str)
def test_names_reached_through_modules(package: Package):
    assert ".visible .entry" in compile_to_ptx(by_a_module, [np.ones(3)], package=package)


def test_the_host_facade_stays_as_it_is():
    before = everything.py_func.__globals__["cuda"]
    compile_to_ptx(everything, arguments(), package=NUMBA_CUDA)
    assert everything.py_func.__globals__["cuda"] is before is cuda
    x, y, states = arguments()
    y = np.zeros((4, 4), np.float32)
    check.launch(everything, [x, y, states], 1, (4, 4))
    assert (y > 0).all()


@cuda.jit(device=True)
def factorial(n):
    return 1 if n == 0 else n * factorial(n - 1)


@cuda.jit(device=True)
def endless(n):
    return endless(n - 1)


def calling(function: Any) -> Any:
    @cuda.jit
    def kernel(x):
        x[0] = function(3)

    return kernel


def test_recursion():
    assert typing_error(calling(factorial), [np.zeros(1)]) is None  # numba.cuda compiles it only where a GPU is
    assert "cannot type infer runaway recursion" in typing_error(calling(endless), [np.zeros(1)]).partition("\n")[0]


# What numba.cuda refuses


@cuda.jit
def unknown_attribute(x):
    x[0] = x.middle


@cuda.jit
def too_many_indices(x):
    x[0, 0] = 1


@cuda.jit
def size_at_run_time(x):
    tile = cuda.shared.array(x.size, np.float32)
    x[0] = tile[0]


@cuda.jit
def returns_a_value(x):
    return x[0]


REFUSED = [
    (unknown_attribute, 2, "Unknown attribute 'middle' of type array(float32, 1d, C)"),
    (too_many_indices, 0, "cannot index array(float32, 1d, C) with 2 indices: UniTuple(int64 x 2)"),
    (size_at_run_time, 0, "numba.cuda has no array(int64, class(float32))"),
    (returns_a_value, 0, "TypeError: CUDA kernel must have void return type."),
]


@pytest.mark.parametrize("kernel, offset, line", REFUSED, ids=[kernel.__name__ for kernel, *_ in REFUSED])
def test_the_useful_line_comes_first(kernel: Any, offset: int, line: str):
    error = typing_error(kernel, [np.ones(3, np.float32)])
    first = kernel.py_func.__code__.co_firstlineno
    assert error is not None
    assert error.partition("\n")[0] == f"{__file__}:{first + offset}: {line}"


def test_a_right_kernel_has_no_typing_error():
    assert typing_error(everything, arguments()) is None


def test_useful_lines():
    nested = "No implementation of function f found for signature:\n \n >>> f(int64)\n \nThere are 2 candidates:"
    assert useful_line(nested) == "numba.cuda has no f(int64)"
    assert useful_line("Failed in cuda mode pipeline (step: nopython frontend)\nNameError: x") == "NameError: x"
    assert useful_line("") == "no message"
