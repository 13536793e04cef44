"""Exported models, run by onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.reference
import pytest

onnxruntime = pytest.importorskip("onnxruntime")


def tensors(x) -> list:
    return [t for part in x for t in tensors(part)] if isinstance(x, tuple | list) else [x]


def run(model: onnx.ModelProto, arrays) -> list[np.ndarray]:
    """What onnxruntime computes, or onnx's reference where that lacks an operator."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        session = onnx.reference.ReferenceEvaluator(model)
    names = [value.name for value in model.graph.input]
    return session.run(None, dict(zip(names, arrays, strict=True)))
