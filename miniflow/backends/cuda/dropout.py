"""Dropout: one launch, and at most one more for the elements after the last block of four."""

from __future__ import annotations

from miniflow.backends.cpu.random import draw_key, threshold
from miniflow.backends.cuda.array import bits, contiguous
from miniflow.backends.cuda.launch import each, launch
from miniflow.backends.registry import kernel
from miniflow.kernels import dropout as kernels


@kernel("cuda")
def dropout(out, x, *, p, seed, offset):
    y, keep = out
    flat = contiguous(x).reshape(-1), y.reshape(-1), bits(keep.reshape(-1))
    arguments = (*flat, *draw_key(seed, offset), threshold(p), x.dtype.type(0 if p == 1 else 1 / (1 - p)))
    each(kernels.drop, x.size // 4, *arguments)
    if x.size % 4:
        launch(kernels.drop_rest, 1, 4, *arguments)
