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
    a_block = 2 if dtype in (np.float64, np.int64) else 4
    blocks = -(-y.size // a_block)
    fits = y.dtype == dtype and y.size % a_block == 0
    padded = y.reshape(-1) if fits else empty((blocks * a_block,), dtype, y.device_index)
    each(kernel, blocks, padded, *numbers)
    if not fits:
        copy_into(y, padded[: y.size].reshape(y.shape))


@kernel("cuda", half="native")
def uniform(y: DeviceArray, like: DeviceArray, *, low: float, high: float, seed: int, offset: int) -> None:
    wide, numbers = cpu.uniform_numbers(y.dtype, low, high, seed, offset)
    draw(y, kernels.uniform_float64 if wide is np.float64 else kernels.uniform_float32, wide, *numbers)


@kernel("cuda", half="native")
def normal(y: DeviceArray, like: DeviceArray, *, mean: float, std: float, seed: int, offset: int) -> None:
    wide = np.float64 if y.dtype == np.float64 else np.float32
    kernel = kernels.normal_float64 if wide is np.float64 else kernels.normal_float32
    draw(y, kernel, wide, *cpu.name_of_draw(seed, offset), wide(mean), wide(std))


@kernel("cuda", half="native")
def integers(y: DeviceArray, like: DeviceArray, *, low: int, high: int, seed: int, offset: int) -> None:
    draw(y, kernels.integers, np.int64, *cpu.name_of_draw(seed, offset), np.int64(low), np.uint64(high - low))


@kernel("cuda")
def bernoulli(y: DeviceArray, p: DeviceArray, *, seed: int, offset: int) -> None:
    uniform(y, p, low=0.0, high=1.0, seed=seed, offset=offset)
    pointwise("lt", y, y, p)


@kernel("cuda", half="native")
def permutation(y: DeviceArray, like: DeviceArray, *, seed: int, offset: int) -> None:
    host = np.empty(y.shape, y.dtype)
    cpu.permutation(host, host, seed=seed, offset=offset)
    copy_into(y, from_host(host, y.device_index))


@kernel("cuda")
def multinomial(y: DeviceArray, weights: DeviceArray, **attrs: Any) -> None:
    host = np.empty(y.shape, y.dtype)
    cpu.multinomial(host, weights.numpy(), **attrs)
    copy_into(y, from_host(host, y.device_index))
