"""Shapes: reshape, transpose, expand."""

from __future__ import annotations

from typing import Any

from miniflow.onnx.export.recording import Size
from miniflow.onnx.export.registry import handler
from miniflow.onnx.export.writer import Value, Writer


@handler("view")
def view(g: Writer, x: Value, *, shape: Any) -> str:
    sizes = list(g.call.outputs[0].shape)
    if sum(isinstance(n, Size) for n in sizes) == 1 and 0 not in sizes:
        return g("Reshape", x, g.ints(*[-1 if isinstance(n, Size) else n for n in sizes]))
    return g("Reshape", x, g.sizes(sizes))


@handler("transpose")
def transpose(g: Writer, x: Value, *, dim0: int, dim1: int) -> str:
    order = list(range(len(x.shape)))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return g("Transpose", x, perm=order)
