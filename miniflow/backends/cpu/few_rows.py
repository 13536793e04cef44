"""x weight^T for few rows x.

A BLAS first copies the whole weight into another order, element by element, which only pays when many rows follow. For
the fewest rows loops over inner products are faster, tiles of 4x4 of them at a time in registers: for 16 rows OpenBLAS
takes 2.5 times as long. For more rows it computes weight x^T instead, where it need not turn the weight, and x and the
result are turned here: for 64 rows with 0.85 of its time. It has a faster way for the smallest products of all.
"""

from __future__ import annotations

import numba
import numpy as np

from miniflow.backends.cpu.loops import SUMS
from miniflow.backends.cpu.threads import SERIAL_PRODUCT, share, unlocked
from miniflow.backends.cpu.transpose import transpose_into

ROWS = 96  # up to so many
LOOP_ROWS, LOOP_ROWS_OF_ONE_THREAD = 16, 48  # with several threads OpenBLAS shares its work out at less cost
INNER_FROM, WEIGHTS_FROM, SMALL_ROWS = 64, 32_768, 8
TILE = 4


def suits(x: np.ndarray, weight: np.ndarray) -> bool:
    """Whether this way of computing x weight^T, for x (M, K) and weight (N, K), is the fastest."""
    return (
        x.ndim == 2 == weight.ndim
        and 2 <= x.shape[0] <= ROWS
        and x.dtype.char == "f" == weight.dtype.char
        and x.shape[1] == weight.shape[1] >= INNER_FROM
        and weight.size >= WEIGHTS_FROM
        and (x.shape[0] >= SMALL_ROWS or x.shape[0] * weight.size > SERIAL_PRODUCT)
        and x.flags.c_contiguous
        and weight.flags.c_contiguous
    )


def product(x: np.ndarray, weight: np.ndarray, out: np.ndarray) -> np.ndarray:
    """x (M, K), weight (N, K) -> out (M, N) = x weight^T, which is returned too"""
    loop_rows = LOOP_ROWS if numba.get_num_threads() > 1 else LOOP_ROWS_OF_ONE_THREAD
    if len(x) <= loop_rows:
        share(_tiles, -(-weight.shape[0] // TILE), len(x) * weight.size // 16, x, weight, out)
        return out
    right, turned = np.empty(x.shape[::-1], x.dtype), np.empty(out.shape[::-1], x.dtype)
    transpose_into(x, right)
    np.matmul(weight, right, out=turned)
    transpose_into(turned, out)
    return out


@unlocked(SUMS)
def _tiles(start, stop, x, weight, y):
    """Columns from 4 start to 4 stop, so that a column is always computed in the same way."""
    rows, inner = x.shape
    whole = rows - rows % 4
    zero = x.dtype.type(0)
    for first in range(4 * start, min(4 * stop, weight.shape[0]), 4):
        if first + 4 > weight.shape[0]:
            for n in range(first, weight.shape[0]):
                w0 = weight[n]
                for m in range(rows):
                    x0, s00 = x[m], zero
                    for k in range(inner):
                        s00 += x0[k] * w0[k]
                    y[m, n] = s00
            break
        w0, w1, w2, w3 = weight[first], weight[first + 1], weight[first + 2], weight[first + 3]
        for m in range(0, whole, 4):
            x0, x1, x2, x3 = x[m], x[m + 1], x[m + 2], x[m + 3]
            s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = zero
            s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = zero
            for k in range(inner):
                a0, a1, a2, a3, b0, b1, b2, b3 = x0[k], x1[k], x2[k], x3[k], w0[k], w1[k], w2[k], w3[k]
                s00, s01, s02, s03 = s00 + a0 * b0, s01 + a0 * b1, s02 + a0 * b2, s03 + a0 * b3
                s10, s11, s12, s13 = s10 + a1 * b0, s11 + a1 * b1, s12 + a1 * b2, s13 + a1 * b3
                s20, s21, s22, s23 = s20 + a2 * b0, s21 + a2 * b1, s22 + a2 * b2, s23 + a2 * b3
                s30, s31, s32, s33 = s30 + a3 * b0, s31 + a3 * b1, s32 + a3 * b2, s33 + a3 * b3
            y0, y1, y2, y3 = y[m, first:], y[m + 1, first:], y[m + 2, first:], y[m + 3, first:]
            y0[0], y0[1], y0[2], y0[3] = s00, s01, s02, s03
            y1[0], y1[1], y1[2], y1[3] = s10, s11, s12, s13
            y2[0], y2[1], y2[2], y2[3] = s20, s21, s22, s23
            y3[0], y3[1], y3[2], y3[3] = s30, s31, s32, s33
        for m in range(whole, rows):
            x0, y0 = x[m], y[m, first:]
            s00 = s01 = s02 = s03 = zero
            for k in range(inner):
                a0 = x0[k]
                s00, s01, s02, s03 = s00 + a0 * w0[k], s01 + a0 * w1[k], s02 + a0 * w2[k], s03 + a0 * w3[k]
            y0[0], y0[1], y0[2], y0[3] = s00, s01, s02, s03
