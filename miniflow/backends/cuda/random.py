"""Random draws: the numbers of the cpu kernels, from the same (seed, offset).

What does not end with a block of Philox is drawn into padded memory. What needs a sort, or a search in sums, goes
through the host: permutations and `multinomial` are drawn once an epoch, not in a training step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from miniflow.backends.cpu import random as cpu
from miniflow.backends.cuda.array import DeviceArray, empty, from_host
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.launch import each
from miniflow.backends.cuda.pointwise import pointwise
from miniflow.backends.registry import kernel
from miniflow.kernels import random as kernels


def draw(y: DeviceArray, kernel: Any, dtype: type, *numbers: Any) -> None:
    """Fill `y` with the numbers that a kernel makes in `dtype`, in whole blocks."""
    per_block = 2 if dtype in (np.float64, np.int64) else 4
    blocks = -(-y.size // per_block)
    fits = y.dtype == dtype and y.size % per_block == 0
    padded = y.reshape(-1) if fits else empty((blocks * per_block,), dtype, y.device_index)
    each(kernel, blocks, padded, *numbers)
    if not fits:
        copy_into(y, padded[: y.size].reshape(y.shape))


@kernel("cuda", half="native")
def uniform(y, like, *, low, high, seed, offset):
    real, numbers = cpu.uniform_numbers(y.dtype, low, high, seed, offset)
    draw(y, kernels.uniform_float64 if real is np.float64 else kernels.uniform_float32, real, *numbers)


@kernel("cuda", half="native")
def normal(y, like, *, mean, std, seed, offset):
    real = np.float64 if y.dtype == np.float64 else np.float32
    kernel = kernels.normal_float64 if real is np.float64 else kernels.normal_float32
    draw(y, kernel, real, *cpu.draw_key(seed, offset), real(mean), real(std))


@kernel("cuda", half="native")
def integers(y, like, *, low, high, seed, offset):
    draw(y, kernels.integers, np.int64, *cpu.draw_key(seed, offset), np.int64(low), np.uint64(high - low))


@kernel("cuda")
def bernoulli(y, p, *, seed, offset):
    uniform(y, p, low=0.0, high=1.0, seed=seed, offset=offset)
    pointwise("lt", y, y, p)


@kernel("cuda", half="native")
def permutation(y, like, *, seed, offset):
    host = np.empty(y.shape, y.dtype)
    cpu.permutation(host, host, seed=seed, offset=offset)
    copy_into(y, from_host(host, y.device_index))


@kernel("cuda")
def multinomial(y, weights, **attrs):
    host = np.empty(y.shape, y.dtype)
    cpu.multinomial(host, weights.numpy(), **attrs)
    copy_into(y, from_host(host, y.device_index))
