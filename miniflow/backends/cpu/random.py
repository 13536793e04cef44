"""Random kernels: loops over blocks of `formulas.philox`, in one thread or in all, with the same numbers either way.

Block i fills elements 4i .. 4i + 3 (two elements for float64 and integers). Loops run over whole blocks, from number
`first` on, and have no ragged end. Their indices are unsigned: numba would test signed ones for being negative. No
fastmath: an element has the same bits wherever it is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from miniflow.backends.cpu.threads import share, unlocked
from miniflow.backends.registry import kernel
from miniflow.errors import ArgumentError
from miniflow.formulas.philox import below, normal32, normal64, random_block, uniform32, uniform64

EXACT: set[str] = set()
ONE, TWO, THREE, FOUR = (np.uint64(n) for n in (1, 2, 3, 4))
FRACTION_BITS = {"float32": 24, "float16": 11, "bfloat16": 8}  # so that the largest fraction does not round up to 1


@unlocked(EXACT)
def fill_uniform32(out, first, seed, offset, low, span, top, shift, scale):
    for i in range(out.size // 4):
        block = np.uint64(i)
        k = FOUR * block
        w0, w1, w2, w3 = random_block(seed, offset, first + block)
        out[k] = min(low + span * uniform32(w0, shift, scale), top)
        out[k + ONE] = min(low + span * uniform32(w1, shift, scale), top)
        out[k + TWO] = min(low + span * uniform32(w2, shift, scale), top)
        out[k + THREE] = min(low + span * uniform32(w3, shift, scale), top)


@unlocked(EXACT)
def fill_uniform64(out, first, seed, offset, low, span, top):
    for i in range(out.size // 2):
        block = np.uint64(i)
        k = TWO * block
        w0, w1, w2, w3 = random_block(seed, offset, first + block)
        out[k] = min(low + span * uniform64(w0, w1), top)
        out[k + ONE] = min(low + span * uniform64(w2, w3), top)


@unlocked(EXACT)
def fill_normal32(out, first, seed, offset, mean, std):
    for i in range(out.size // 4):
        block = np.uint64(i)
        k = FOUR * block
        w0, w1, w2, w3 = random_block(seed, offset, first + block)
        z0, z1 = normal32(w0, w1)
        z2, z3 = normal32(w2, w3)
        out[k] = mean + std * z0
        out[k + ONE] = mean + std * z1
        out[k + TWO] = mean + std * z2
        out[k + THREE] = mean + std * z3


@unlocked(EXACT)
def fill_normal64(out, first, seed, offset, mean, std):
    for i in range(out.size // 2):
        block = np.uint64(i)
        k = TWO * block
        w0, w1, w2, w3 = random_block(seed, offset, first + block)
        z0, z1 = normal64(w0, w1, w2, w3)
        out[k] = mean + std * z0
        out[k + ONE] = mean + std * z1


@unlocked(EXACT)
def fill_integers(out, first, seed, offset, low, bound):
    for i in range(out.size // 2):
        block = np.uint64(i)
        k = TWO * block
        w0, w1, w2, w3 = random_block(seed, offset, first + block)
        out[k] = low + np.int64(below(w0, w1, bound))
        out[k + ONE] = low + np.int64(below(w2, w3, bound))


@unlocked(EXACT)
def drop(y, keep, x, first, seed, offset, threshold, scale):
    zero = y.dtype.type(0)
    for i in range(x.size // 4):
        block = np.uint64(i)
        k = FOUR * block
        w0, w1, w2, w3 = random_block(seed, offset, first + block)
        k0, k1, k2, k3 = w0 >= threshold, w1 >= threshold, w2 >= threshold, w3 >= threshold
        keep[k], keep[k + ONE], keep[k + TWO], keep[k + THREE] = k0, k1, k2, k3
        y[k] = x[k] * scale if k0 else zero
        y[k + ONE] = x[k + ONE] * scale if k1 else zero
        y[k + TWO] = x[k + TWO] * scale if k2 else zero
        y[k + THREE] = x[k + THREE] * scale if k3 else zero


@unlocked(EXACT)
def draw_mask(keep, first, seed, offset, threshold):
    for i in range(keep.size // 4):
        block = np.uint64(i)
        k = FOUR * block
        w0, w1, w2, w3 = random_block(seed, offset, first + block)
        k0, k1, k2, k3 = w0 >= threshold, w1 >= threshold, w2 >= threshold, w3 >= threshold
        keep[k], keep[k + ONE], keep[k + TWO], keep[k + THREE] = k0, k1, k2, k3


def name_of_draw(seed: int, offset: int) -> tuple[np.uint64, np.uint64]:
    """Seed and offset as the loops take them."""
    return np.uint64(seed), np.uint64(offset)


def by_blocks(
    loop: Callable, per_block: int, outs: Sequence[np.ndarray], ins: Sequence[np.ndarray], *rest: Any
) -> None:
    """Run a loop over the whole blocks of flat arrays, and over the last elements in a block of their own."""
    arrays = (*outs, *ins)
    count, left = divmod(arrays[0].size, per_block)
    whole = count * per_block

    def work(start: int, stop: int) -> None:
        loop(*[a[start * per_block : stop * per_block] for a in arrays], np.uint64(start), *rest)

    share(work, count, whole)
    if left:
        last = [np.zeros(per_block, a.dtype) for a in arrays]
        for block, a in zip(last, arrays, strict=True):
            block[:left] = a[whole:]
        loop(*last, np.uint64(count), *rest)
        for block, a in zip(last, outs, strict=False):
            a[whole:] = block[:left]


def draw(y: np.ndarray, loop: Callable, dtype: type, *rest: Any) -> None:
    """Fill `y` with the numbers that a loop makes in `dtype`."""
    is_wide = y.dtype.type is dtype  # in a tenth of the time of ==
    flat = y.reshape(-1) if is_wide else np.empty(y.size, dtype)
    by_blocks(loop, 4 if dtype is np.float32 else 2, [flat], [], *rest)
    if not is_wide:
        y[...] = flat.reshape(y.shape)


def uniform_numbers(kind: np.dtype, low: float, high: float, seed: int, offset: int) -> tuple[type, tuple]:
    """The dtype in which numbers for `kind` are drawn, and what the loops take for them."""
    wide = np.float64 if kind.type is np.float64 else np.float32
    top = np.nextafter(kind.type(high), kind.type(low))  # low + span * u may round up to high, which is excluded
    numbers = (*name_of_draw(seed, offset), wide(low), wide(high - low), wide(top))
    if wide is np.float32:
        bits = FRACTION_BITS[kind.name]
        numbers += np.uint64(32 - bits), np.float32(2.0**-bits)
    return wide, numbers


@kernel("cpu", half="native")
def uniform(y: np.ndarray, like: np.ndarray, *, low: float, high: float, seed: int, offset: int) -> None:
    wide, numbers = uniform_numbers(y.dtype, low, high, seed, offset)
    draw(y, fill_uniform64 if wide is np.float64 else fill_uniform32, wide, *numbers)


@kernel("cpu", half="native")
def normal(y: np.ndarray, like: np.ndarray, *, mean: float, std: float, seed: int, offset: int) -> None:
    wide = np.float64 if y.dtype.type is np.float64 else np.float32
    loop = fill_normal64 if wide is np.float64 else fill_normal32
    draw(y, loop, wide, *name_of_draw(seed, offset), wide(mean), wide(std))


@kernel("cpu", half="native")
def integers(y: np.ndarray, like: np.ndarray | None, *, low: int, high: int, seed: int, offset: int) -> None:
    draw(y, fill_integers, np.int64, *name_of_draw(seed, offset), np.int64(low), np.uint64(high - low))


@kernel("cpu")
def bernoulli(y: np.ndarray, p: np.ndarray, *, seed: int, offset: int) -> None:
    uniform(y, p, low=0.0, high=1.0, seed=seed, offset=offset)
    np.less(y, p, out=y)


@kernel("cpu", half="native")
def permutation(y: np.ndarray, like: np.ndarray, *, seed: int, offset: int) -> None:
    """Sort random keys that carry their index in the low bits: no two are equal, so every sort gives the same order."""
    keys, index_bits = np.empty(y.size, np.int64), np.uint64(max(y.size - 1, 0).bit_length())
    integers(keys, None, low=0, high=2**64 - 1, seed=seed, offset=offset)
    keys = np.sort(keys.view(np.uint64) << index_bits | np.arange(y.size, dtype=np.uint64))
    y[...] = keys & ((np.uint64(1) << index_bits) - np.uint64(1))


@kernel("cpu")
def multinomial(
    y: np.ndarray, weights: np.ndarray, *, num_samples: int, replacement: bool, seed: int, offset: int
) -> None:
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
        found = np.searchsorted(cumulated, u[row] * cumulated[-1], side="right")
        last = np.searchsorted(cumulated, cumulated[-1])  # where u times the total rounded up to the total
        samples[row] = np.minimum(found, last)
    return samples


def exponential_race(weights: np.ndarray, u: np.ndarray, num_samples: int) -> np.ndarray:
    """Category i arrives after an exponential time of rate w_i; the first arrivals are a sample without replacement.

    Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        arrivals = np.where(weights > 0, -np.log1p(-u) / weights, np.inf)
    return np.argsort(arrivals, axis=1, kind="stable")[:, :num_samples]


@kernel("cpu")
def dropout(out: tuple[np.ndarray, np.ndarray], x: np.ndarray, *, p: float, seed: int, offset: int) -> None:
    """One pass over x: draw, compare, scale. Reads x, writes y and one byte of mask an element."""
    scale = x.dtype.type(0 if p == 1 else 1 / (1 - p))
    flat = [array.reshape(-1) for array in out]
    by_blocks(drop, 4, flat, [np.ascontiguousarray(x).reshape(-1)], *name_of_draw(seed, offset), threshold(p), scale)


@kernel("cpu")
def dropout_mask(keep: np.ndarray, *, shape: tuple[int, ...], p: float, seed: int, offset: int, device: Any) -> None:
    by_blocks(draw_mask, 4, [keep.reshape(-1)], [], *name_of_draw(seed, offset), threshold(p))


def threshold(p: float) -> np.uint64:
    """Words of 32 random bits below it come with probability p."""
    return np.uint64(round(p * 2**32))
