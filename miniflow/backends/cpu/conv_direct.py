"""Convolution in groups of few channels, by loops over padded planes.

With one channel a group (depthwise) a matrix product would have a single row, and the BLAS nothing to gain.
"""

from __future__ import annotations

import math

import numpy as np

from miniflow.backends.cpu.loops import SUMS
from miniflow.backends.cpu.threads import share, unlocked
from miniflow.backends.cpu.windows import bordered, inside, pad
from miniflow.backends.windows import Windows


def forward(x: np.ndarray, weight: np.ndarray, windows: Windows, groups: int, y: np.ndarray) -> None:
    """x (N, C, H, W), weight (O, C / groups, KH, KW) -> y (N, O, OH, OW)"""
    padded = pad(x, windows.padding)
    weight = np.ascontiguousarray(weight)
    share(
        _forward, len(x) * len(weight), _cost(y, weight), padded, weight, y, groups, *windows.stride, *windows.dilation
    )


def data_grad(dy: np.ndarray, weight: np.ndarray, windows: Windows, groups: int, dx: np.ndarray) -> None:
    """dy (N, O, OH, OW), weight (O, C / groups, KH, KW) -> dx (N, C, H, W)"""
    padded = bordered(dx, windows.padding)
    weight, dy = np.ascontiguousarray(weight), np.ascontiguousarray(dy)
    planes = len(dx) * dx.shape[1]
    share(_data_grad, planes, _cost(dy, weight), padded, weight, dy, groups, *windows.stride, *windows.dilation)
    if padded is not dx:
        np.copyto(dx, inside(padded, windows.padding))


def weight_grad(dy: np.ndarray, x: np.ndarray, windows: Windows, groups: int, dweight: np.ndarray) -> None:
    """dy (N, O, OH, OW), x (N, C, H, W) -> dweight (O, C / groups, KH, KW)"""
    padded = pad(x, windows.padding)
    dy, pairs = np.ascontiguousarray(dy), dweight.shape[0] * dweight.shape[1]
    share(_weight_grad, pairs, _cost(dy, dweight), padded, dweight, dy, groups, *windows.stride, *windows.dilation)


def _cost(y: np.ndarray, weight: np.ndarray) -> int:
    """How many elements could be touched in the time: two products take as long as one."""
    return y.size * math.prod(weight.shape[1:]) // 2


@unlocked()
def _forward(start, stop, x, weight, y, groups, sh, sw, dh, dw):
    """Planes y[n, o] from start to stop; x is padded."""
    images, outputs, oh, ow = y.shape
    _, inputs, kernel_h, kernel_w = weight.shape
    for plane in range(start, stop):
        n, o = plane // outputs, plane % outputs
        first = o // (outputs // groups) * inputs
        for i in range(oh):
            row = y[n, o, i]
            for j in range(ow):
                row[j] = 0
            for c in range(inputs):
                for a in range(kernel_h):
                    source = x[n, first + c, i * sh + a * dh]
                    if kernel_w == 3 and sw == 1:
                        w0, w1, w2 = weight[o, c, a, 0], weight[o, c, a, 1], weight[o, c, a, 2]
                        source_1, source_2 = source[dw:], source[2 * dw :]
                        for j in range(ow):
                            row[j] += w0 * source[j] + w1 * source_1[j] + w2 * source_2[j]
                    else:
                        for b in range(kernel_w):
                            w0, shifted = weight[o, c, a, b], source[b * dw :]
                            for j in range(ow):
                                row[j] += w0 * shifted[j * sw]


@unlocked()
def _data_grad(start, stop, dx, weight, dy, groups, sh, sw, dh, dw):
    """Planes dx[n, c] from start to stop, which are padded: the cotangents of all outputs of a group are added up."""
    images, channels, _, _ = dx.shape
    outputs, inputs, kernel_h, kernel_w = weight.shape
    oh, ow = dy.shape[2:]
    outputs = outputs // groups
    for plane in range(start, stop):
        n, c = plane // channels, plane % channels
        dx[n, c] = 0
        for o in range(c // inputs * outputs, (c // inputs + 1) * outputs):
            for i in range(oh):
                source = dy[n, o, i]
                for a in range(kernel_h):
                    row = dx[n, c, i * sh + a * dh]
                    for b in range(kernel_w):
                        w0, shifted = weight[o, c % inputs, a, b], row[b * dw :]
                        if sw == 1:
                            for j in range(ow):
                                shifted[j] += w0 * source[j]
                        else:
                            for j in range(ow):
                                shifted[j * sw] += w0 * source[j]


@unlocked(SUMS)
def _weight_grad(start, stop, x, dweight, dy, groups, sh, sw, dh, dw):
    """Pairs dweight[o, c] from start to stop: for each tap a row of sums over images and rows, added up at the end."""
    outputs, inputs, kernel_h, kernel_w = dweight.shape
    images, _, oh, ow = dy.shape
    for pair in range(start, stop):
        o, c = pair // inputs, pair % inputs
        channel = o // (outputs // groups) * inputs + c
        sums = np.zeros((kernel_h, kernel_w, ow), x.dtype)
        for n in range(images):
            for i in range(oh):
                cotangent = dy[n, o, i]
                for a in range(kernel_h):
                    source = x[n, channel, i * sh + a * dh]
                    for b in range(kernel_w):
                        row, shifted = sums[a, b], source[b * dw :]
                        if sw == 1:
                            for j in range(ow):
                                row[j] += cotangent[j] * shifted[j]
                        else:
                            for j in range(ow):
                                row[j] += cotangent[j] * shifted[j * sw]
        for a in range(kernel_h):
            for b in range(kernel_w):
                total = x.dtype.type(0)
                for j in range(ow):
                    total += sums[a, b, j]
                dweight[o, c, a, b] = total
