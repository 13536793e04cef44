"""Random draws: the numbers of the cpu kernels, from the same (seed, offset).

Outputs are padded to whole blocks of Philox, and cut by a view. What needs a sort, or a search in sums, goes through
the host: permutations and `multinomial` are drawn once an epoch, not in a training step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from miniflow.backends.cpu import random as cpu
from miniflow.backends.cuda.array import DeviceArray, empty, from_host
from miniflow.backends.cuda.driver import driver
from miniflow.backends.cuda.launch import each
from miniflow.backends.cuda.pointwise import pointwise
from miniflow.backends.registry import register
from miniflow.errors import ArgumentError
from miniflow.kernels import random as kernels


def draw(kernel: Any, like: DeviceArray, dtype: Any, *arguments: Any) -> DeviceArray:
    """Run a kernel that fills blocks, and cut its output to the shape and dtype of `like`."""
    size, shape, a_block = like.size, like.shape, 4 if dtype == np.float32 else 2
    blocks = -(-size // a_block)
    out = empty((blocks * a_block,), dtype, like.device_index)
    each(kernel, blocks, out, *arguments)
    out = out.view(lambda a: a[:size].reshape(shape))
    return out if out.dtype == like.dtype else out.astype(like.dtype)


@register("cuda", "Uniform", half="native")
def uniform(like: DeviceArray, *, low: float, high: float, seed: int, offset: int) -> DeviceArray:
    kind = like.dtype.type
    wide = np.float64 if kind is np.float64 else np.float32
    top = np.nextafter(kind(high), kind(low))  # low + span * u may round up to high, which is excluded
    arguments = (*cpu.name_of_draw(seed, offset), wide(low), wide(high - low), wide(top))
    if wide is np.float64:
        return draw(kernels.uniform_float64, like, wide, *arguments)
    bits = cpu.FRACTION_BITS[like.dtype.name]
    return draw(kernels.uniform_float32, like, wide, *arguments, np.uint64(32 - bits), np.float32(2.0**-bits))


@register("cuda", "Normal", half="native")
def normal(like: DeviceArray, *, mean: float, std: float, seed: int, offset: int) -> DeviceArray:
    wide = np.float64 if like.dtype == np.float64 else np.float32
    kernel = kernels.normal_float64 if wide is np.float64 else kernels.normal_float32
    return draw(kernel, like, wide, *cpu.name_of_draw(seed, offset), wide(mean), wide(std))


@register("cuda", "Integers", half="native")
def integers(like: DeviceArray, *, low: int, high: int, seed: int, offset: int) -> DeviceArray:
    key = cpu.name_of_draw(seed, offset)
    return draw(kernels.integers, like, np.int64, *key, np.int64(low), np.uint64(high - low))


@register("cuda", "Bernoulli")
def bernoulli(p: DeviceArray, *, seed: int, offset: int) -> DeviceArray:
    if driver().emulated:  # on a GPU the host would have to wait for the values; there a NaN gives 0
        values = p.numpy()
        if not ((values >= 0) & (values <= 1)).all():
            raise ArgumentError("bernoulli: got probabilities outside [0, 1] or nan; expected each from 0 to 1")
    u = uniform(p, low=0.0, high=1.0, seed=seed, offset=offset)
    out = empty(p.shape, p.dtype, p.device_index)
    pointwise("lt", out, u, p)
    return out


@register("cuda", "Permutation", half="native")
def permutation(like: DeviceArray, *, seed: int, offset: int) -> DeviceArray:
    host = np.empty(like.shape, like.dtype)
    return from_host(cpu.permutation(host, seed=seed, offset=offset), like.device_index)


@register("cuda", "Multinomial")
def multinomial(weights: DeviceArray, *, num_samples: int, replacement: bool, seed: int, offset: int) -> DeviceArray:
    samples = cpu.multinomial(
        weights.numpy(), num_samples=num_samples, replacement=replacement, seed=seed, offset=offset
    )
    return from_host(samples, weights.device_index)
