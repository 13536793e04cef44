"""Convolution with kernels 1x1: for each image the matrix product of the weight (O, C) and the pixels (C, H*W)."""

from __future__ import annotations

import numpy as np

from miniflow.backends.windows import Pair, Windows


def suits(windows: Windows) -> bool:
    """Whether this method can do the convolution."""
    return windows.kernel == (1, 1) and windows.padding == ((0, 0), (0, 0))


def _pixels(x: np.ndarray, stride: Pair) -> np.ndarray:
    """The pixels that windows see, as matrices (N, C, OH*OW): a view at stride 1."""
    if stride != (1, 1):
        x = x[:, :, :: stride[0], :: stride[1]]
    n, c, height, width = x.shape
    return x.reshape(n, c, height * width)


def forward(x: np.ndarray, weight: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """x (N, C, H, W), weight (O, C, 1, 1) -> out (N, O, OH, OW)"""
    y = out.reshape(*out.shape[:2], out.shape[2] * out.shape[3])
    np.matmul(weight.reshape(weight.shape[:2]), _pixels(x, windows.stride), out=y)


def data_grad(dy: np.ndarray, weight: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """dy (N, O, OH, OW), weight (O, C, 1, 1) -> out (N, C, H, W)"""
    n, o, oh, ow = dy.shape
    c = weight.shape[1]
    matrix, dy = weight.reshape(weight.shape[:2]).T, dy.reshape(n, o, oh * ow)
    if windows.stride == (1, 1):
        np.matmul(matrix, dy, out=out.reshape(n, c, oh * ow))
    else:
        out[...] = 0
        out[:, :, :: windows.stride[0], :: windows.stride[1]] = np.matmul(matrix, dy).reshape(n, c, oh, ow)


def weight_grad(dy: np.ndarray, x: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """dy (N, O, OH, OW), x (N, C, H, W) -> out (O, C, 1, 1)"""
    n, o, oh, ow = dy.shape
    pixels, dy = _pixels(x, windows.stride), dy.reshape(n, o, oh * ow)
    dweight = out.reshape(out.shape[:2])
    dweight[...] = 0
    part = np.empty_like(dweight)
    for image, cotangent in zip(pixels, dy, strict=True):
        dweight += np.matmul(cotangent, image.T, out=part)
