"""Dropout: one pass, and at most one more launch for the elements after the last block of four."""

from __future__ import annotations

from typing import Any

from miniflow.backends.cpu.random import name_of_draw, threshold
from miniflow.backends.cuda.array import DeviceArray, bits, contiguous
from miniflow.backends.cuda.launch import each, launch
from miniflow.backends.registry import kernel
from miniflow.kernels import dropout as kernels


@kernel("cuda")
def dropout(out: tuple[DeviceArray, DeviceArray], x: DeviceArray, *, p: float, seed: int, offset: int) -> None:
    y, keep = out
    flat = contiguous(x).reshape(-1), y.reshape(-1), bits(keep.reshape(-1))
    arguments = (*flat, *name_of_draw(seed, offset), threshold(p), x.dtype.type(0 if p == 1 else 1 / (1 - p)))
    by_blocks(kernels.drop, kernels.drop_rest, x.size, *arguments)


@kernel("cuda")
def dropout_mask(keep: DeviceArray, *, shape: tuple[int, ...], p: float, seed: int, offset: int, device: Any) -> None:
    arguments = bits(keep.reshape(-1)), *name_of_draw(seed, offset), threshold(p)
    by_blocks(kernels.draw_mask, kernels.draw_rest_of_mask, keep.size, *arguments)


def by_blocks(blocks: Any, rest: Any, size: int, *arguments: Any) -> None:
    """Launch a kernel over the whole blocks of four elements, and another for the elements that are left."""
    each(blocks, size // 4, *arguments)
    if size % 4:
        launch(rest, 1, 4, *arguments)
