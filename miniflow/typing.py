"""Annotations of job functions: `import miniflow.typing as tp`.

    @flow.global_function(type="predict")
    def job(x: tp.Numpy.Placeholder((8, 3), dtype=flow.float32)) -> tp.Numpy: ...

Source: `oneflow.typing` of OneFlow 0.4 and before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from miniflow.dtype import as_dtype, dtype, float32
from miniflow.errors import ArgumentError


class Placeholder:
    """The shape and dtype of an argument of a job function.

    Args:
        shape: the sizes of all dimensions.
        dtype: the element type.

    Raises:
        ArgumentError: for sizes that are not integers of at least 0.

    >>> Placeholder((8, 3))
    Placeholder((8, 3), dtype=miniflow.float32)
    """

    def __init__(self, shape: Sequence[int], dtype: Any = float32):
        if not isinstance(shape, tuple | list) or any(type(n) is not int or n < 0 for n in shape):
            raise ArgumentError(f"Placeholder: got shape={shape!r}; expected a tuple of sizes, integers of at least 0")
        self.shape = tuple(shape)
        self.dtype: dtype = as_dtype(dtype)

    def __repr__(self) -> str:
        return f"Placeholder({self.shape}, dtype={self.dtype})"


class Numpy:
    """As the annotation of a result: the job returns NumPy arrays. `Numpy.Placeholder` stands for an argument."""

    Placeholder = Placeholder


__all__ = ["Numpy", "Placeholder"]
