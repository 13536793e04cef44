"""Read the files of ONNX: nothing in them is trusted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto


def read_model(source: Any) -> tuple[ModelProto, Callable[[TensorProto], np.ndarray]]:
    """A model that has been checked, and the function that reads the values of its tensors."""
    if isinstance(source, bytes):
        model = ModelProto.FromString(source)
    elif isinstance(source, ModelProto):
        model = source
    else:
        model = onnx.load(Path(source))
    return model, onnx.numpy_helper.to_array
