"""`cuda.random`: the states and the numbers of numba.cuda's generator."""

import math

import numpy as np
import pytest

from miniflow.hostcuda import host as cuda
from miniflow.hostcuda.random import (
    create_xoroshiro128p_states,
    init_xoroshiro128p_states,
    xoroshiro128p_dtype,
    xoroshiro128p_jump,
    xoroshiro128p_next,
    xoroshiro128p_normal_float32,
    xoroshiro128p_normal_float64,
    xoroshiro128p_uniform_float32,
    xoroshiro128p_uniform_float64,
)

MASK = 2**64 - 1
jit = cuda.jit(boundscheck=False)  # with checks, each expression is compiled twice


def seeded(seed):
    """The state of a 64-bit seed: one step of SplitMix64, in both words, of which s0 is the low one."""
    z = (seed + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    z ^= z >> 31
    return z | z << 64


def advanced(state):
    """The state one step later."""
    s0, s1 = state & MASK, state >> 64
    s1 ^= s0
    return rotated(s0, 55) ^ s1 ^ ((s1 << 14) & MASK) | rotated(s1, 36) << 64


def rotated(x, k):
    return ((x << k) | (x >> (64 - k))) & MASK


@pytest.fixture(scope="module")
def numba_random():
    """numba.cuda's own functions, of which those that compute are compiled for the CPU."""
    return pytest.importorskip("numba.cuda.random", reason="numba without CUDA")


@pytest.mark.parametrize(
    ("n", "seed", "start"), [(0, 1, 0), (1, 0, 0), (2, 1, 0), (100, -7, 5), (33, 2**64 - 1, 70), (129, 2**70 + 3, 0)]
)
def test_states_are_those_of_numba(numba_random, n, seed, start):
    expected = np.empty(n, xoroshiro128p_dtype)
    numba_random.init_xoroshiro128p_states_cpu(expected, np.uint64(seed & MASK), start)
    states = create_xoroshiro128p_states(n, seed, start)
    assert states.dtype == numba_random.xoroshiro128p_dtype
    np.testing.assert_array_equal(states.copy_to_host(), expected)


def test_the_first_numbers_are_known():
    """Against the authors' C code: seed 42 stirred by splitmix64, then xoroshiro128+ of 2016 (55, 14, 36)."""

    @jit
    def kernel(states, out):
        for k in range(out.size):
            out[k] = xoroshiro128p_next(states, 0)

    out = cuda.device_array(3, np.uint64)
    kernel[1, 1](create_xoroshiro128p_states(1, seed=42), out)
    drawn, state = out.copy_to_host().tolist(), seeded(42)
    z = 13679457532755275413  # splitmix64's published first output for seed 42
    assert state == z | z << 64 and drawn[0] == 2 * z & MASK
    assert drawn[1] == z << 55 & MASK | z >> 9  # s1 ^ s0 = 0 after the first step
    twice = advanced(advanced(state))
    assert drawn[2] == (twice & MASK) + (twice >> 64) & MASK


def test_states_can_be_set_again():
    states = create_xoroshiro128p_states(5, seed=1)
    init_xoroshiro128p_states(states, seed=2)
    np.testing.assert_array_equal(states.copy_to_host(), create_xoroshiro128p_states(5, seed=2).copy_to_host())


@jit
def draw(states, bits, uniform32, uniform64, normal32, normal64):
    i = cuda.grid(1)
    if i < states.size:
        for k in range(bits.shape[1]):
            bits[i, k] = xoroshiro128p_next(states, i)
            uniform32[i, k] = xoroshiro128p_uniform_float32(states, i)
            uniform64[i, k] = xoroshiro128p_uniform_float64(states, i)
            normal32[i, k] = xoroshiro128p_normal_float32(states, i)
            normal64[i, k] = xoroshiro128p_normal_float64(states, i)


def test_numbers_are_those_of_numba(numba_random):
    n, count = 70, 3
    states = create_xoroshiro128p_states(n, seed=5)
    expected_states = states.copy_to_host()
    dtypes = [np.uint64, np.float32, np.float64, np.float32, np.float64]
    results = [cuda.device_array((n, count), dtype) for dtype in dtypes]
    draw[3, 32](states, *results)
    names = ["next", "uniform_float32", "uniform_float64", "normal_float32", "normal_float64"]
    functions = [getattr(numba_random, f"xoroshiro128p_{name}") for name in names]
    expected = [np.empty((n, count), dtype) for dtype in dtypes]
    for i in range(n):
        for k in range(count):
            for function, values in zip(functions, expected, strict=True):
                values[i, k] = function(expected_states, i)
    np.testing.assert_array_equal(states.copy_to_host(), expected_states)
    for result, values in zip(results[:3], expected[:3], strict=True):
        np.testing.assert_array_equal(result.copy_to_host(), values, strict=True)
    for result, values in zip(results[3:], expected[3:], strict=True):  # another libm may round otherwise
        np.testing.assert_allclose(result.copy_to_host(), values, rtol=1e-5, atol=1e-6)


def test_normal_numbers_by_box_and_muller():
    states = create_xoroshiro128p_states(64, seed=9)
    before = states.copy_to_host()

    @jit
    def kernel(states, out):
        i = cuda.grid(1)
        out[i] = xoroshiro128p_normal_float64(states, i)

    out = cuda.device_array(64)
    kernel[2, 32](states, out)
    expected = []
    for s0, s1 in before.tolist():
        state, uniform = s0 | s1 << 64, []
        for _ in range(2):
            uniform.append(float(np.float32((((state & MASK) + (state >> 64) & MASK) >> 11) * 2.0**-53)))
            state = advanced(state)
        expected.append(math.sqrt(-2 * math.log(uniform[0])) * math.cos(2 * math.pi * uniform[1]))
    np.testing.assert_allclose(out.copy_to_host(), expected, rtol=1e-5, atol=1e-6)


def test_a_jump_in_a_kernel_leads_to_the_next_state():
    states = create_xoroshiro128p_states(6, seed=3)

    @jit
    def kernel(states):
        i = cuda.grid(1)
        if i < states.size:
            xoroshiro128p_jump(states, i)

    kernel[1, 32](states)
    expected = create_xoroshiro128p_states(7, seed=3).copy_to_host()
    np.testing.assert_array_equal(states.copy_to_host(), expected[1:])


def test_a_state_can_be_set_in_a_kernel():
    states = create_xoroshiro128p_states(3, seed=3)

    @jit
    def kernel(states):
        i = cuda.grid(1)
        if i < states.size:
            cuda.random.init_xoroshiro128p_state(states, i, 11 + i)

    kernel[1, 32](states)
    found = states.copy_to_host()
    assert [s0 | s1 << 64 for s0, s1 in found.tolist()] == [seeded(11 + i) for i in range(3)]


def test_the_checked_executor_draws_the_same_numbers():
    """After each of them, so that the states are compared as well."""

    @jit
    def kernel(states, uniform, normal):
        i = cuda.grid(1)
        if i < states.size:
            uniform[i] = xoroshiro128p_uniform_float64(states, i)
            normal[i] = xoroshiro128p_normal_float32(states, i)

    found = []
    for executor in (kernel, cuda.jit(check=True)(kernel.py_func)):
        states = create_xoroshiro128p_states(3, seed=5)
        results = cuda.device_array(3), cuda.device_array(3, np.float32)
        executor[1, 32](states, *results)
        found.append([result.copy_to_host() for result in (states, *results)])
    compiled, checked = found
    np.testing.assert_array_equal(compiled[0], checked[0])
    np.testing.assert_array_equal(compiled[1], checked[1])
    np.testing.assert_allclose(compiled[2], checked[2], rtol=1e-5, atol=1e-6)
