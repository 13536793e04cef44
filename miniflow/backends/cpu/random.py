"""Random kernels: loops over blocks of `formulas.philox`; the numbers do not depend on the threads.

Block i fills elements 4i .. 4i + 3 (two elements for float64 and integers). Loops run over whole blocks, starting with
number `first`. Their indices are unsigned: numba would test whether signed ones are negative. There is no fastmath, so
that an element has the same bits wherever it is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.backends.cpu.threads import share, unlocked
from miniflow.backends.registry import kernel
from miniflow.errors import ArgumentError
from miniflow.formulas.philox import (
    LOW32,
    SHIFT32,
    below,
    normal32,
    normal64,
    philox_round,
    random_block,
    uniform32,
    uniform64,
)

EXACT: set[str] = set()
TWO, FOUR = np.uint64(2), np.uint64(4)
FRACTION_BITS = {"float32": 24, "float16": 11, "bfloat16": 8}  # so that the largest fraction does not round up to 1


@unlocked(EXACT)
def fill_uniform32(out, first, seed, offset, low, span, top, shift, scale):
    for i in range(out.size // 4):
        words = random_block(seed, offset, first + np.uint64(i))
        for k in range(4):
            out[FOUR * np.uint64(i) + np.uint64(k)] = min(low + span * uniform32(words[k], shift, scale), top)


def fill_uniform32_by_numpy(out, first, seed, offset, low, span, top, shift, scale):
    """The same numbers by NumPy, which takes 30 times as long, and needs no compilation of 0.7 s."""
    index = first + np.arange(out.size // 4, dtype=np.uint64)
    state = (index & LOW32, index >> SHIFT32, offset & LOW32, offset >> SHIFT32, seed & LOW32, seed >> SHIFT32)
    for _ in range(10):
        state = philox_round.py_func(*state)
    for k, words in enumerate(state[:4]):
        out[k::4] = np.minimum(low + span * uniform32.py_func(words, shift, scale), top)


@unlocked(EXACT)
def fill_uniform64(out, first, seed, offset, low, span, top):
    for i in range(out.size // 2):
        words = random_block(seed, offset, first + np.uint64(i))
        for k in range(2):
            u = uniform64(words[2 * k], words[2 * k + 1])
            out[TWO * np.uint64(i) + np.uint64(k)] = min(low + span * u, top)


@unlocked(EXACT)
def fill_normal32(out, first, seed, offset, mean, std):
    for i in range(out.size // 4):
        w0, w1, w2, w3 = random_block(seed, offset, first + np.uint64(i))
        for k, z in enumerate((*normal32(w0, w1), *normal32(w2, w3))):
            out[FOUR * np.uint64(i) + np.uint64(k)] = mean + std * z


@unlocked(EXACT)
def fill_normal64(out, first, seed, offset, mean, std):
    for i in range(out.size // 2):
        w0, w1, w2, w3 = random_block(seed, offset, first + np.uint64(i))
        for k, z in enumerate(normal64(w0, w1, w2, w3)):
            out[TWO * np.uint64(i) + np.uint64(k)] = mean + std * z


@unlocked(EXACT)
def fill_integers(out, first, seed, offset, low, bound):
    for i in range(out.size // 2):
        words = random_block(seed, offset, first + np.uint64(i))
        for k in range(2):
            number = below(words[2 * k], words[2 * k + 1], bound)
            out[TWO * np.uint64(i) + np.uint64(k)] = low + np.int64(number)


@unlocked(EXACT)
def fill_mask(out, first, seed, offset, threshold):
    for i in range(out.size // 4):
        words = random_block(seed, offset, first + np.uint64(i))
        for k in range(4):
            out[FOUR * np.uint64(i) + np.uint64(k)] = words[k] >= threshold


def draw_key(seed: int, offset: int) -> tuple[np.uint64, np.uint64]:
    """Seed and offset as the loops take them."""
    return np.uint64(seed), np.uint64(offset)


def fill_blocks(loop: Callable, per_block: int, out: np.ndarray, *numbers: Any) -> None:
    """Run a loop over the whole blocks of a flat array, and over the last elements in a block of their own."""
    count, remaining = divmod(out.size, per_block)

    def work(start: int, stop: int) -> None:
        loop(out[start * per_block : stop * per_block], np.uint64(start), *numbers)

    share(work, count, count * per_block)
    if remaining:
        block = np.empty(per_block, out.dtype)
        loop(block, np.uint64(count), *numbers)
        out[count * per_block :] = block[:remaining]


class FirstNumbers:
    """The weights of small networks come from NumPy: no loop is compiled that is used once.

    Attributes:
        left: how many elements it still draws in this process, each call counts as many; once the loop is there, none.
    """

    left, each = 2**19, 2**14

    def loop(self, size: int) -> Callable:
        """What draws uniform float32 numbers."""
        if fill_uniform32.signatures or self.left < size:
            return fill_uniform32
        self.left -= max(size, self.each)
        return fill_uniform32_by_numpy


first_numbers = FirstNumbers()


def draw(y: np.ndarray, loop: Callable, dtype: type, *numbers: Any) -> None:
    """Fill `y` with the numbers that a loop makes in `dtype`."""
    is_drawn_directly = y.dtype.type is dtype  # ten times as fast as ==
    flat = y.reshape(-1) if is_drawn_directly else np.empty(y.size, dtype)
    fill_blocks(loop, 4 if dtype is np.float32 else 2, flat, *numbers)
    if not is_drawn_directly:
        y[...] = flat.reshape(y.shape)


def uniform_numbers(dtype: np.dtype, low: float, high: float, seed: int, offset: int) -> tuple[type, tuple]:
    """The dtype in which numbers for `dtype` are drawn, and the arguments of the loop."""
    real = np.float64 if dtype.type is np.float64 else np.float32
    top = np.nextafter(dtype.type(high), dtype.type(low))  # low + span * u may round up to high, which is excluded
    numbers = (*draw_key(seed, offset), real(low), real(high - low), real(top))
    if real is np.float32:
        bits = FRACTION_BITS[dtype.name]
        numbers += np.uint64(32 - bits), np.float32(2.0**-bits)
    return real, numbers


@kernel("cpu", half="native")
def uniform(y, like, *, low, high, seed, offset):
    real, numbers = uniform_numbers(y.dtype, low, high, seed, offset)
    draw(y, fill_uniform64 if real is np.float64 else first_numbers.loop(y.size), real, *numbers)


@kernel("cpu", half="native")
def normal(y, like, *, mean, std, seed, offset):
    real = np.float64 if y.dtype.type is np.float64 else np.float32
    loop = fill_normal64 if real is np.float64 else fill_normal32
    draw(y, loop, real, *draw_key(seed, offset), real(mean), real(std))


@kernel("cpu", half="native")
def integers(y, like, *, low, high, seed, offset):
    draw(y, fill_integers, np.int64, *draw_key(seed, offset), np.int64(low), np.uint64(high - low))


@kernel("cpu")
def bernoulli(y, p, *, seed, offset):
    uniform(y, p, low=0.0, high=1.0, seed=seed, offset=offset)
    np.less(y, p, out=y)


@kernel("cpu", half="native")
def permutation(y, like, *, seed, offset):
    """Sort random keys that carry their index in the low bits: no two are equal, so every sort gives the same order."""
    keys, index_bits = np.empty(y.size, np.int64), np.uint64(max(y.size - 1, 0).bit_length())
    integers(keys, None, low=0, high=2**64 - 1, seed=seed, offset=offset)
    keys = np.sort(keys.view(np.uint64) << index_bits | np.arange(y.size, dtype=np.uint64))
    y[...] = keys & ((np.uint64(1) << index_bits) - np.uint64(1))


@kernel("cpu")
def multinomial(y, weights, *, num_samples, replacement, seed, offset):
    rows = np.atleast_2d(weights).astype(np.float64)
    if not (np.isfinite(rows).all() and (rows >= 0).all()):
        raise ArgumentError("multinomial: got weights that are negative, infinite or nan; expected finite weights >= 0")
    if (np.count_nonzero(rows, axis=1) < (1 if replacement else num_samples)).any():
        raise ArgumentError(
            "multinomial: got a row with too few categories of positive weight to sample without replacement, or none; "
            f"expected at least {1 if replacement else num_samples} in each row"
        )
    u = np.empty((len(rows), num_samples) if replacement else rows.shape)
    uniform(u, u, low=0.0, high=1.0, seed=seed, offset=offset)
    y[...] = (inverse_cdf(rows, u) if replacement else exponential_race(rows, u, num_samples)).reshape(y.shape)


def inverse_cdf(weights: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The first category whose cumulated weight exceeds u times the total."""
    samples = np.empty(u.shape, np.int64)
    for row, cumulated in enumerate(np.cumsum(weights, axis=1)):
        categories = np.searchsorted(cumulated, u[row] * cumulated[-1], side="right")
        last = np.searchsorted(cumulated, cumulated[-1])  # where u times the total rounded up to the total
        samples[row] = np.minimum(categories, last)
    return samples


def exponential_race(weights: np.ndarray, u: np.ndarray, num_samples: int) -> np.ndarray:
    """Category i arrives after an exponential time of rate w_i; the first arrivals are a sample without replacement.

    Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        arrivals = np.where(weights > 0, -np.log1p(-u) / weights, np.inf)
    return np.argsort(arrivals, axis=1, kind="stable")[:, :num_samples]


@unlocked()
def scale_kept(start, stop, y, keep, x, scale):
    zero = y.dtype.type(0)
    for i in range(start, stop):
        y[i] = x[i] * scale if keep[i] else zero


@kernel("cpu")
def dropout(out, x, *, p, seed, offset):
    y, keep = [array.reshape(-1) for array in out]
    fill_blocks(fill_mask, 4, keep, *draw_key(seed, offset), threshold(p))
    scale = x.dtype.type(0 if p == 1 else 1 / (1 - p))
    share(scale_kept, x.size, x.size, y, keep, np.ascontiguousarray(x).reshape(-1), scale)


def threshold(p: float) -> np.uint64:
    """A word of 32 random bits is below this number with probability p."""
    return np.uint64(round(p * 2**32))
