"""Convolution with kernels 1x1: for each image the matrix product of the weight (O, C) and the pixels (C, H*W)."""

from __future__ import annotations

import numpy as np

from miniflow.backends.windows import Pair, Windows

PIXELS_FROM = 196  # below, conv_columns takes several images into one product


def suits(x_shape: tuple[int, ...], windows: Windows) -> bool:
    """Whether this method can do the convolution, and the images are large enough."""
    if windows.kernel != (1, 1) or windows.padding != ((0, 0), (0, 0)):
        return False
    rows, columns = windows.counts(x_shape[2:])
    return rows * columns >= PIXELS_FROM


def _pixels(x: np.ndarray, stride: Pair) -> np.ndarray:
    """The pixels that windows see, as matrices (N, C, OH*OW): a view at stride 1."""
    if stride != (1, 1):
        x = x[:, :, :: stride[0], :: stride[1]]
    return x.reshape(*x.shape[:2], -1)


def forward(x: np.ndarray, weight: np.ndarray, windows: Windows) -> np.ndarray:
    """x (N, C, H, W), weight (O, C, 1, 1) -> y (N, O, OH, OW)"""
    y = np.matmul(weight.reshape(weight.shape[:2]), _pixels(x, windows.stride))
    return y.reshape(len(x), len(weight), *windows.counts(x.shape[2:]))


def data_grad(dy: np.ndarray, weight: np.ndarray, windows: Windows, size: Pair) -> np.ndarray:
    """dy (N, O, OH, OW), weight (O, C, 1, 1) -> dx (N, C, *size)"""
    n, o, oh, ow = dy.shape
    seen = np.matmul(weight.reshape(weight.shape[:2]).T, dy.reshape(n, o, oh * ow)).reshape(n, -1, oh, ow)
    if windows.stride == (1, 1):
        return seen
    dx = np.zeros((n, weight.shape[1], *size), dy.dtype)
    dx[:, :, :: windows.stride[0], :: windows.stride[1]] = seen
    return dx


def weight_grad(dy: np.ndarray, x: np.ndarray, windows: Windows) -> np.ndarray:
    """dy (N, O, OH, OW), x (N, C, H, W) -> dweight (O, C, 1, 1)"""
    pixels, dy = _pixels(x, windows.stride), dy.reshape(*dy.shape[:2], -1)
    dweight = np.zeros((dy.shape[1], x.shape[1]), x.dtype)
    part = np.empty_like(dweight)
    for image, cotangent in zip(pixels, dy, strict=True):
        dweight += np.matmul(cotangent, image.T, out=part)
    return dweight.reshape(*dweight.shape, 1, 1)
