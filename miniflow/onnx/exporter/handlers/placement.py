"""Where tensors are: a model of ONNX is of logical tensors on no device, so moving them becomes nothing."""

from __future__ import annotations

from miniflow.onnx.exporter.registry import handler

for name in ("to_device", "boxing"):
    handler(name)(lambda g, x, **where: g.name(x))
