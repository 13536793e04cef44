"""Sliding windows over images: the geometry that convolution and pooling share.

Along one dimension of size n, window number i covers the positions `i * stride - before + t * dilation` for taps t < kernel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Pair = tuple[int, int]


class Windows(NamedTuple):
    """How windows lie on an image; each field has one entry for the rows and one for the columns."""

    kernel: Pair
    stride: Pair
    padding: tuple[Pair, Pair]  # ((top, bottom), (left, right))
    dilation: Pair

    def counts(self, size: Pair) -> Pair:
        """How many windows fit on an image of `size` (rows, columns)."""
        rows, columns = (
            (n + sum(p) - d * (k - 1) - 1) // s + 1
            for n, k, s, p, d in zip(size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        )
        return rows, columns


def pad(x: np.ndarray, padding: tuple[Pair, Pair]) -> np.ndarray:
    """`x` (N, C, H, W) with a border of zeros: a contiguous array, `x` itself where nothing changes."""
    (top, bottom), (left, right) = padding
    if not (top or bottom or left or right):
        return np.ascontiguousarray(x)
    n, c, h, w = x.shape
    padded = np.empty((n, c, h + top + bottom, w + left + right), x.dtype)
    padded[:, :, :top] = 0
    padded[:, :, top + h :] = 0
    padded[:, :, top : top + h, :left] = 0
    padded[:, :, top : top + h, left + w :] = 0
    padded[:, :, top : top + h, left : left + w] = x
    return padded


def taps(padded: np.ndarray, windows: Windows, counts: Pair) -> np.ndarray:
    """A view (N, C, KH, KW, OH, OW) of a padded image: the element that each tap of each window sees."""
    n, c, h, w = padded.strides
    (sh, sw), (dh, dw) = windows.stride, windows.dilation
    shape = (*padded.shape[:2], *windows.kernel, *counts)
    return np.lib.stride_tricks.as_strided(padded, shape, (n, c, h * dh, w * dw, h * sh, w * sw), writeable=False)
