"""Padded images, and what windows see of them."""

from __future__ import annotations

import numpy as np

from miniflow.backends.windows import Padding, Pair, Windows


def pad(x: np.ndarray, padding: Padding) -> np.ndarray:
    """`x` (N, C, H, W) with a border of zeros, contiguous; `x` itself where nothing changes."""
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


def bordered(x: np.ndarray, padding: Padding) -> np.ndarray:
    """Memory for `x` (N, C, H, W) and a border around it; `x` itself if there is none."""
    (top, bottom), (left, right) = padding
    if not (top or bottom or left or right):
        return x
    n, c, h, w = x.shape
    return np.empty((n, c, h + top + bottom, w + left + right), x.dtype)


def inside(padded: np.ndarray, padding: Padding) -> np.ndarray:
    """A padded image (N, C, H, W) without its border: a view."""
    (top, bottom), (left, right) = padding
    return padded[:, :, top : padded.shape[2] - bottom, left : padded.shape[3] - right]


def taps(padded: np.ndarray, windows: Windows, counts: Pair) -> np.ndarray:
    """A view (N, C, KH, KW, OH, OW) of a padded image: the element that each tap of each window sees."""
    n, c, h, w = padded.strides
    (sh, sw), (dh, dw) = windows.stride, windows.dilation
    shape = (*padded.shape[:2], *windows.kernel, *counts)
    return np.lib.stride_tricks.as_strided(padded, shape, (n, c, h * dh, w * dw, h * sh, w * sw), writeable=False)
