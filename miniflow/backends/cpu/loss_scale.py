"""Loss scaling: products with a number, and one pass over all gradients that looks for inf and nan."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from miniflow.backends.cpu.threads import SHARED_FROM, share, unlocked
from miniflow.backends.registry import kernel

EXPONENTS = {  # the bits of the exponent, which are all set in inf and nan, and the integer that has them
    np.dtype(np.float16): np.uint16(0x7C00),
    np.dtype(ml_dtypes.bfloat16): np.uint16(0x7F80),
    np.dtype(np.float32): np.uint32(0x7F800000),
    np.dtype(np.float64): np.uint64(0x7FF0000000000000),
}
BLOCK = 4096  # elements that are looked at before the search may end


@kernel("cpu", in_place=(0,))
def scale_loss(y: np.ndarray, x: np.ndarray, *, scale: float) -> None:
    np.multiply(x, x.dtype.type(scale), y)


@kernel("cpu", in_place=(0,))
def unscale_gradient(y: np.ndarray, x: np.ndarray, *, scale: float) -> None:
    np.multiply(x, x.dtype.type(1.0 / scale), y)


@unlocked()
def largest_exponent(bits, mask, start, stop):
    """The largest of the exponents in a range of words; `mask` itself once an exponent has all bits set."""
    largest = mask ^ mask
    for first in range(start, stop, BLOCK):
        for word in bits[first : min(first + BLOCK, stop)]:
            exponent = word & mask
            largest = exponent if exponent > largest else largest
        if largest == mask:
            break
    return largest


@kernel("cpu", half="native")
def any_non_finite(found: np.ndarray, *gradients: np.ndarray) -> None:
    found[...] = any([_has_non_finite(g) for g in gradients])


def _has_non_finite(x: np.ndarray) -> bool:
    mask = EXPONENTS[x.dtype]
    bits = x.reshape(-1).view(mask.dtype)  # a copy of what does not lie in one piece
    if bits.size < SHARED_FROM:
        return largest_exponent(bits, mask, 0, bits.size) == mask
    found: list[bool] = []
    share(lambda start, stop: found.append(largest_exponent(bits, mask, start, stop) == mask), bits.size, bits.size)
    return any(found)
