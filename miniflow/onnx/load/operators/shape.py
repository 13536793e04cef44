"""Shapes: reshape, transpose, expand."""

from __future__ import annotations

import numpy as np

from miniflow.onnx.load.registry import Ints, operator
from miniflow.tensor import Tensor


@operator("Shape")
def shape(data, *, start: int = 0, end: int | None = None) -> np.ndarray:
    return np.array(data.shape[start:end], np.int64)


@operator("Reshape")
def reshape(data, shape: Ints, *, allowzero: int = 0) -> Tensor:
    sizes = [data.shape[i] if n == 0 and not allowzero else n for i, n in enumerate(shape)]
    return data.reshape(sizes)
