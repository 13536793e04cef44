"""Random kernels: loops over the blocks of `philox`, in one thread or in all, with the same numbers either way.

Block i fills elements 4i .. 4i + 3 (two elements for float64 and integers). Outputs are padded to whole blocks and cut
afterwards, so that the loops have no ragged end. Their indices are unsigned: numba would test signed ones for being
negative, and the parallel loops would not vectorize. No fastmath: an element has the same bits wherever it is computed.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from miniflow.backends.cpu.loops import loop
from miniflow.backends.registry import register, register_into
from miniflow.errors import ArgumentError
from miniflow.philox import below, normal32, normal64, random_block, uniform32, uniform64

EXACT: set[str] = set()
ONE, TWO, THREE, FOUR = (np.uint64(n) for n in (1, 2, 3, 4))
FRACTION_BITS = {"float32": 24, "float16": 11, "bfloat16": 8}  # so that the largest fraction does not round up to 1


@loop(EXACT)
def fill_uniform32(out, seed, offset, low, span, top, shift, scale):
    for i in prange(out.size // 4):
        block = np.uint64(i)
        k = FOUR * block
        w0, w1, w2, w3 = random_block(seed, offset, block)
        out[k] = min(low + span * uniform32(w0, shift, scale), top)
        out[k + ONE] = min(low + span * uniform32(w1, shift, scale), top)
        out[k + TWO] = min(low + span * uniform32(w2, shift, scale), top)
        out[k + THREE] = min(low + span * uniform32(w3, shift, scale), top)


@loop(EXACT)
def fill_uniform64(out, seed, offset, low, span, top):
    for i in prange(out.size // 2):
        block = np.uint64(i)
        k = TWO * block
        w0, w1, w2, w3 = random_block(seed, offset, block)
        out[k] = min(low + span * uniform64(w0, w1), top)
        out[k + ONE] = min(low + span * uniform64(w2, w3), top)


@loop(EXACT)
def fill_normal32(out, seed, offset, mean, std):
    for i in prange(out.size // 4):
        block = np.uint64(i)
        k = FOUR * block
        w0, w1, w2, w3 = random_block(seed, offset, block)
        z0, z1 = normal32(w0, w1)
        z2, z3 = normal32(w2, w3)
        out[k] = mean + std * z0
        out[k + ONE] = mean + std * z1
        out[k + TWO] = mean + std * z2
        out[k + THREE] = mean + std * z3


@loop(EXACT)
def fill_normal64(out, seed, offset, mean, std):
    for i in prange(out.size // 2):
        block = np.uint64(i)
        k = TWO * block
        w0, w1, w2, w3 = random_block(seed, offset, block)
        z0, z1 = normal64(w0, w1, w2, w3)
        out[k] = mean + std * z0
        out[k + ONE] = mean + std * z1


@loop(EXACT)
def fill_integers(out, seed, offset, low, bound):
    for i in prange(out.size // 2):
        block = np.uint64(i)
        k = TWO * block
        w0, w1, w2, w3 = random_block(seed, offset, block)
        out[k] = low + np.int64(below(w0, w1, bound))
        out[k + ONE] = low + np.int64(below(w2, w3, bound))


@loop(EXACT)
def drop(x, y, keep, seed, offset, first, threshold, scale):
    zero = y.dtype.type(0)
    for i in prange(x.size // 4):
        block = np.uint64(i)
        k = FOUR * block
        w0, w1, w2, w3 = random_block(seed, offset, first + block)
        k0, k1, k2, k3 = w0 >= threshold, w1 >= threshold, w2 >= threshold, w3 >= threshold
        keep[k], keep[k + ONE], keep[k + TWO], keep[k + THREE] = k0, k1, k2, k3
        y[k] = x[k] * scale if k0 else zero
        y[k + ONE] = x[k + ONE] * scale if k1 else zero
        y[k + TWO] = x[k + TWO] * scale if k2 else zero
        y[k + THREE] = x[k + THREE] * scale if k3 else zero


@loop(EXACT)
def draw_mask(keep, seed, offset, first, threshold):
    for i in prange(keep.size // 4):
        block = np.uint64(i)
        k = FOUR * block
        w0, w1, w2, w3 = random_block(seed, offset, first + block)
        k0, k1, k2, k3 = w0 >= threshold, w1 >= threshold, w2 >= threshold, w3 >= threshold
        keep[k], keep[k + ONE], keep[k + TWO], keep[k + THREE] = k0, k1, k2, k3


@loop(EXACT)
def scale_kept(dy, keep, dx, scale):
    zero = dx.dtype.type(0)
    for i in prange(dy.size):
        dx[i] = dy[i] * scale if keep[i] else zero


def name_of_draw(seed: int, offset: int) -> tuple[np.uint64, np.uint64]:
    """Seed and offset as the loops take them."""
    return np.uint64(seed), np.uint64(offset)


def cut(padded: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The elements of a padded flat array, as an array like `like`."""
    return padded[: like.size].reshape(like.shape).astype(like.dtype, copy=False)


@register("cpu", "Uniform", half="native")
def uniform(like: np.ndarray, *, low: float, high: float, seed: int, offset: int) -> np.ndarray:
    kind = like.dtype.type
    top = np.nextafter(kind(high), kind(low))  # low + span * u may round up to high, which is excluded
    wide = np.float64 if kind is np.float64 else np.float32
    out = np.empty(-(-like.size // 4) * 4, wide)
    arguments = (out, *name_of_draw(seed, offset), wide(low), wide(high - low), wide(top))
    if wide is np.float64:
        fill_uniform64(*arguments)
    else:
        bits = FRACTION_BITS[like.dtype.name]
        fill_uniform32(*arguments, np.uint64(32 - bits), np.float32(2.0**-bits))
    return cut(out, like)


@register("cpu", "Normal", half="native")
def normal(like: np.ndarray, *, mean: float, std: float, seed: int, offset: int) -> np.ndarray:
    wide = np.float64 if like.dtype == np.float64 else np.float32
    out = np.empty(-(-like.size // 4) * 4, wide)
    fill = fill_normal64 if wide is np.float64 else fill_normal32
    fill(out, *name_of_draw(seed, offset), wide(mean), wide(std))
    return cut(out, like)


@register("cpu", "Integers", half="native")
def integers(like: np.ndarray, *, low: int, high: int, seed: int, offset: int) -> np.ndarray:
    out = np.empty(-(-like.size // 2) * 2, np.int64)
    fill_integers(out, *name_of_draw(seed, offset), np.int64(low), np.uint64(high - low))
    return cut(out, like)


@register("cpu", "Bernoulli")
def bernoulli(p: np.ndarray, *, seed: int, offset: int) -> np.ndarray:
    if not ((p >= 0) & (p <= 1)).all():
        raise ArgumentError("bernoulli: got probabilities outside [0, 1] or nan; expected each from 0 to 1")
    return (uniform(p, low=0.0, high=1.0, seed=seed, offset=offset) < p).astype(p.dtype)


@register("cpu", "Permutation", half="native")
def permutation(like: np.ndarray, *, seed: int, offset: int) -> np.ndarray:
    """Sort random keys that carry their index in the low bits: no two are equal, so every sort gives the same order."""
    n = like.size
    index_bits = np.uint64(max(n - 1, 0).bit_length())
    keys = integers(np.empty(n, np.int64), low=0, high=2**64 - 1, seed=seed, offset=offset).view(np.uint64)
    keys = np.sort(keys << index_bits | np.arange(n, dtype=np.uint64))
    return (keys & ((np.uint64(1) << index_bits) - np.uint64(1))).astype(like.dtype)


@register("cpu", "Multinomial")
def multinomial(weights: np.ndarray, *, num_samples: int, replacement: bool, seed: int, offset: int) -> np.ndarray:
    rows = np.atleast_2d(weights).astype(np.float64)
    if not (np.isfinite(rows).all() and (rows >= 0).all()):
        raise ArgumentError("multinomial: got weights that are negative, infinite or nan; expected finite weights >= 0")
    if (np.count_nonzero(rows, axis=1) < (1 if replacement else num_samples)).any():
        raise ArgumentError(
            "multinomial: got a row with too few categories of positive weight to sample without replacement, or none; "
            f"expected at least {1 if replacement else num_samples} in each row"
        )
    pick = inverse_cdf if replacement else exponential_race
    samples = pick(rows, num_samples, seed, offset)
    return samples.reshape(*weights.shape[:-1], num_samples)


def inverse_cdf(weights: np.ndarray, num_samples: int, seed: int, offset: int) -> np.ndarray:
    """The first category whose cumulated weight exceeds u times the total."""
    u = uniform(np.empty((len(weights), num_samples)), low=0.0, high=1.0, seed=seed, offset=offset)
    samples = np.empty(u.shape, np.int64)
    for row, cumulated in enumerate(np.cumsum(weights, axis=1)):
        found = np.searchsorted(cumulated, u[row] * cumulated[-1], side="right")
        last = np.searchsorted(cumulated, cumulated[-1])  # where u times the total rounded up to the total
        samples[row] = np.minimum(found, last)
    return samples


def exponential_race(weights: np.ndarray, num_samples: int, seed: int, offset: int) -> np.ndarray:
    """Category i arrives after an exponential time of rate w_i; the first arrivals are a sample without replacement.

    Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006.
    """
    u = uniform(np.empty(weights.shape), low=0.0, high=1.0, seed=seed, offset=offset)
    with np.errstate(divide="ignore", invalid="ignore"):
        arrivals = np.where(weights > 0, -np.log1p(-u) / weights, np.inf)
    return np.argsort(arrivals, axis=1, kind="stable")[:, :num_samples]


@register("cpu", "Dropout")
def dropout(x: np.ndarray, *, p: float, seed: int, offset: int) -> tuple[np.ndarray, np.ndarray]:
    """One pass over x: draw, compare, scale. Reads x, writes y and one byte of mask an element."""
    out = np.empty(x.shape, x.dtype), np.empty(x.shape, np.bool_)
    dropout_into(out, x, p=p, seed=seed, offset=offset)
    return out


@register_into("cpu", "Dropout")
def dropout_into(out: tuple[np.ndarray, np.ndarray], x: np.ndarray, *, p: float, seed: int, offset: int) -> None:
    flat = np.ascontiguousarray(x).reshape(-1)
    y, keep = (array.reshape(-1) for array in out)
    threshold, scale = np.uint64(round(p * 2**32)), flat.dtype.type(0 if p == 1 else 1 / (1 - p))
    key = name_of_draw(seed, offset)
    drop(flat, y, keep, *key, np.uint64(0), threshold, scale)
    whole = flat.size // 4 * 4
    if whole < flat.size:
        last, last_y, last_keep = np.zeros(4, x.dtype), np.empty(4, x.dtype), np.empty(4, np.bool_)
        last[: flat.size - whole] = flat[whole:]
        drop(last, last_y, last_keep, *key, np.uint64(whole // 4), threshold, scale)
        y[whole:], keep[whole:] = last_y[: flat.size - whole], last_keep[: flat.size - whole]


@register("cpu", "DropoutGrad")
def dropout_grad(dy: np.ndarray, keep: np.ndarray, *, scale: float) -> np.ndarray:
    dx = np.empty(dy.shape, dy.dtype)
    dropout_grad_into(dx, dy, keep, scale=scale)
    return dx


@register_into("cpu", "DropoutGrad")
def dropout_grad_into(dx: np.ndarray, dy: np.ndarray, keep: np.ndarray, *, scale: float) -> None:
    flat = np.ascontiguousarray(dy).reshape(-1)
    scale_kept(flat, keep.reshape(-1), dx.reshape(-1), flat.dtype.type(scale))


@register_into("cpu", "DropoutMask", half="native")
def dropout_mask_into(keep: np.ndarray, *, shape: tuple[int, ...], p: float, seed: int, offset: int, device) -> None:
    flat, name, threshold = keep.reshape(-1), name_of_draw(seed, offset), np.uint64(round(p * 2**32))
    whole = flat.size // 4 * 4
    draw_mask(flat, *name, np.uint64(0), threshold)
    if whole < flat.size:
        last = np.empty(4, np.bool_)
        draw_mask(last, *name, np.uint64(whole // 4), threshold)
        flat[whole:] = last[: flat.size - whole]


@register("cpu", "DropoutMask", half="native")
def dropout_mask(*, shape: tuple[int, ...], p: float, seed: int, offset: int, device) -> np.ndarray:
    keep = np.empty(shape, np.bool_)
    dropout_mask_into(keep, shape=shape, p=p, seed=seed, offset=offset, device=device)
    return keep
