"""`cuda.random`: the xoroshiro128+ generator of numba.cuda, one state a thread, giving the same numbers.

Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2018. A state is 128 bits. A jump advances it by
2^64 steps: the states of an array are one jump apart, so that threads never draw the same subsequence.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from miniflow.hostcuda.kernel import jit
from miniflow.hostcuda.memory import DeviceNDArray, device_array

xoroshiro128p_dtype = np.dtype([("s0", np.uint64), ("s1", np.uint64)], align=True)

TWO_PI_FLOAT32 = np.float32(2 * math.pi)
TWO_PI_FLOAT64 = np.float64(2 * math.pi)


# Device functions. All arithmetic is on uint64: mixed with a signed integer it would become floating point.


@jit(device=True)
def init_xoroshiro128p_state(states, index, seed):
    """Set `states[index]` from a 64-bit seed, stirred by one step of SplitMix64 so that small seeds will do."""
    z = np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    states[index]["s0"] = z
    states[index]["s1"] = z


@jit(device=True)
def rotl(x, k):
    """The 64 bits of x rotated left by k."""
    return (np.uint64(x) << np.uint64(k)) | (np.uint64(x) >> np.uint64(64 - k))


@jit(device=True)
def xoroshiro128p_next(states, index):
    """The next random uint64; advances `states[index]`."""
    s0 = states[index]["s0"]
    s1 = states[index]["s1"]
    result = s0 + s1
    s1 = s1 ^ s0
    states[index]["s0"] = rotl(s0, 55) ^ s1 ^ (s1 << np.uint64(14))
    states[index]["s1"] = rotl(s1, 36)
    return result


@jit(device=True)
def xoroshiro128p_jump(states, index):
    """Advance `states[index]` by 2^64 steps."""
    s0 = np.uint64(0)
    s1 = np.uint64(0)
    for bit in range(128):
        word = np.uint64(0xBEAC0467EBA5FACB) if bit < 64 else np.uint64(0xD86B048B86AA9922)
        if (word >> np.uint64(bit % 64)) & np.uint64(1):
            s0 = s0 ^ states[index]["s0"]
            s1 = s1 ^ states[index]["s1"]
        xoroshiro128p_next(states, index)
    states[index]["s0"] = s0
    states[index]["s1"] = s1


@jit(device=True)
def uint64_to_unit_float64(x):
    """The upper 53 bits as a float64 in [0, 1)."""
    return (np.uint64(x) >> np.uint64(11)) * (np.float64(1) / np.float64(9007199254740992))


@jit(device=True)
def uint64_to_unit_float32(x):
    """The same rounded to float32, which may give 1.0."""
    return np.float32(uint64_to_unit_float64(x))


@jit(device=True)
def xoroshiro128p_uniform_float32(states, index):
    """A float32 uniform in [0, 1); advances `states[index]`."""
    return uint64_to_unit_float32(xoroshiro128p_next(states, index))


@jit(device=True)
def xoroshiro128p_uniform_float64(states, index):
    """A float64 uniform in [0, 1); advances `states[index]`."""
    return uint64_to_unit_float64(xoroshiro128p_next(states, index))


@jit(device=True)
def xoroshiro128p_normal_float32(states, index):
    """A float32 of the standard normal distribution by Box and Muller; advances `states[index]` twice."""
    u1 = xoroshiro128p_uniform_float32(states, index)
    u2 = xoroshiro128p_uniform_float32(states, index)
    return math.sqrt(-np.float32(2.0) * math.log(u1)) * math.cos(TWO_PI_FLOAT32 * u2)


@jit(device=True)
def xoroshiro128p_normal_float64(states, index):
    """A float64 of the standard normal distribution, from float32 uniforms as in numba; advances the state twice."""
    u1 = xoroshiro128p_uniform_float32(states, index)
    u2 = xoroshiro128p_uniform_float32(states, index)
    return math.sqrt(-np.float64(2.0) * math.log(u1)) * math.cos(TWO_PI_FLOAT64 * u2)


@jit(check=False)
def fill_with_states(states, seed, subsequence_start):
    """One thread makes all states; each is the one before it, jumped."""
    init_xoroshiro128p_state(states, 0, seed)
    for _ in range(subsequence_start):
        xoroshiro128p_jump(states, 0)
    for i in range(1, states.size):
        states[i]["s0"] = states[i - 1]["s0"]
        states[i]["s1"] = states[i - 1]["s1"]
        xoroshiro128p_jump(states, i)


def init_xoroshiro128p_states(states: DeviceNDArray, seed: int, subsequence_start: int = 0, stream: Any = 0) -> None:
    """Fill a device array with states that are one jump, 2^64 steps, apart.

    Args:
        states: 1-D, of dtype `xoroshiro128p_dtype`.
        seed: of the first state; 64 bits count.
        subsequence_start: how many jumps the first state is ahead of the seed's own.
    """
    if states.size:
        fill_with_states[1, 1, stream](states, np.uint64(int(seed) % 2**64), np.uint64(subsequence_start))


def create_xoroshiro128p_states(n: int, seed: int, subsequence_start: int = 0, stream: Any = 0) -> DeviceNDArray:
    """A new device array of n states, as `init_xoroshiro128p_states` fills it.

    >>> create_xoroshiro128p_states(64, seed=1).shape
    (64,)
    """
    states = device_array(n, xoroshiro128p_dtype, stream=stream)
    init_xoroshiro128p_states(states, seed, subsequence_start, stream)
    return states
