"""Fourier transforms as products with their matrix, so for lengths up to some thousands."""

from __future__ import annotations

import numpy as np

import miniflow as flow
from miniflow.onnx.loader.body import Node
from miniflow.onnx.loader.registry import Ints, operator
from miniflow.tensor import Tensor, constant_like


@operator("DFT")
def dft(
    input, dft_length: Ints = None, axis: Ints = None, *, node: Node, inverse: int = 0, onesided: int = 0
) -> Tensor:
    return transformed(input, dft_length, axis[0] if axis else 1 if node.opset < 20 else -2, inverse, onesided)


def transformed(x: Tensor, length: Ints, axis: int, inverse: int, onesided: int) -> Tensor:
    """Of real numbers (..., 1) or of complex ones (..., 2); what is missing to the length is zero."""
    x = x.movedim(axis % x.ndim, -2)
    n, c = x.shape[-2:]
    to_real = inverse and onesided
    length = length[0] if length else 2 * (n - 1) if to_real else n
    count = length // 2 + 1 if onesided and not inverse else length
    n = min(n, length)
    angle = np.outer(np.arange(n), np.arange(count)) % length * (2 * np.pi / length * (1 if inverse else -1))
    wave = np.exp(1j * angle) / (length if inverse else 1)
    if to_real:  # those with a conjugate twin count twice
        k = np.arange(n)[:, None]
        wave = wave * np.where((k == 0) | (2 * k == length), 1, 2)
    parts = np.stack([wave, 1j * wave][:c], 1)  # (n, c, count)
    matrix = np.stack([parts.real, parts.imag][: 1 if to_real else 2], -1).astype(x._array.dtype)
    rows = x[..., :n, :].flatten(-2)
    y = flow.matmul(rows, constant_like(x, matrix.reshape(n * c, -1)))
    return y.reshape(*y.shape[:-1], count, matrix.shape[-1]).movedim(-2, axis % x.ndim)


@operator("STFT")
def stft(signal, frame_step: Ints, window=None, frame_length: Ints = None, *, onesided: int = 1) -> Tensor:
    length = frame_length[0] if frame_length else len(window)
    starts = np.arange(0, signal.shape[1] - length + 1, frame_step[0])
    index = constant_like(signal, (starts[:, None] + np.arange(length)).ravel())
    frames = signal.index_select(1, index).reshape(len(signal), len(starts), length, -1)
    return transformed(frames if window is None else frames * window[:, None], None, 2, 0, onesided)
