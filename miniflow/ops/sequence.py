"""Making tensors of evenly spaced numbers, and the identity matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.dtype import as_dtype, dtype, get_default_dtype, int64
from miniflow.errors import ArgumentError
from miniflow.ops.creation import Number, floating_dtype, new_leaf, sizes_to_shape
from miniflow.tensor import Tensor


def arange(
    start: Number, end: Number | None = None, step: Number = 1, *, dtype: dtype | None = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """start, start + step, ... below (for a negative step: above) `end`: ceil((end - start) / step) numbers.

    For integer dtypes `start` and `step` are cut to integers; for int64 they are, and `end` is, before it is counted.

    Args:
        start: the first number; with one argument it is the end, and counting starts at 0.
        end: exclusive.
        step: not zero.
        dtype: None for int64 if all arguments are integers, else the default floating dtype.
        device, requires_grad: as for `empty`.

    Raises:
        ArgumentError: for a step of zero or of the wrong sign.

    >>> arange(3), arange(1, 2, 0.5)
    (tensor([0, 1, 2], dtype=miniflow.int64), tensor([1.0000, 1.5000], dtype=miniflow.float32))

    Source: `torch.arange`.
    """
    if end is None:
        start, end = 0, start
    start, end, step = (v.item() if isinstance(v, Tensor | np.generic) else v for v in (start, end, step))
    integral = all(isinstance(v, int) for v in (start, end, step))
    kind = (int64 if integral else get_default_dtype()) if dtype is None else as_dtype(dtype)
    finite = all(map(math.isfinite, (start, end, step)))
    if kind is int64 and finite:
        start, end, step, integral = int(start), int(end), int(step), True
    if step == 0 or not finite or (end - start) * (1 if step > 0 else -1) < 0:
        wanted = "finite bounds and a nonzero step that leads from start to end"
        raise ArgumentError(f"arange: got start={start}, end={end}, step={step}; expected {wanted}")
    count = -((start - end) // step) if integral else math.ceil((end - start) / step)
    if kind.category == 1:
        start, step = int(start), int(step)
    return new_leaf((start + np.arange(count) * step).astype(kind.numpy), device, requires_grad)


def _between(op: str, start: Number, end: Number, steps: int, kind: np.dtype) -> np.ndarray:
    """`steps` equally spaced float64 numbers, symmetric in rounding; the ends are exact, but cut for integer dtypes."""
    if steps < 0:
        raise ArgumentError(f"{op}: got steps={steps}; expected at least 0")
    start, end = (float(int(v) if kind.kind in "iu" else v) for v in (start, end))
    if steps < 2:
        return np.full(steps, start)
    step, i = (end - start) / (steps - 1), np.arange(steps)
    return np.where(i < steps // 2, start + i * step, end - (steps - 1 - i) * step)


def linspace(
    start: Number, end: Number, steps: int, *, dtype: dtype | None = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """y_i = start + i (end - start) / (steps - 1): `steps` numbers from `start` to `end`, both included.

    Args:
        start, end: the ends.
        steps: how many numbers.
        dtype: None for the default floating dtype.
        device, requires_grad: as for `empty`.

    Raises:
        ArgumentError: for negative `steps`.

    >>> linspace(0, 1, 3)
    tensor([0.0000, 0.5000, 1.0000], dtype=miniflow.float32)

    Source: `torch.linspace`.
    """
    kind = floating_dtype(dtype)
    return new_leaf(_between("linspace", start, end, steps, kind).astype(kind), device, requires_grad)


def logspace(
    start: Number, end: Number, steps: int, base: float = 10.0, *, dtype: dtype | None = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """y_i = base ** linspace(start, end, steps)_i.

    Raises:
        ArgumentError: for negative `steps`.

    >>> logspace(0, 2, 3)
    tensor([  1.,  10., 100.], dtype=miniflow.float32)

    Source: `torch.logspace`.
    """
    kind = floating_dtype(dtype)
    powers = np.power(float(base), _between("logspace", start, end, steps, kind))
    return new_leaf(powers.astype(kind), device, requires_grad)


def eye(
    n: int, m: int | None = None, *, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """The matrix of shape (n, m) with ones on the diagonal and zeros elsewhere; `m` is `n` unless given.

    Raises:
        ShapeError: for a negative size.

    >>> eye(2, 3)
    tensor([[1., 0., 0.],
            [0., 1., 0.]], dtype=miniflow.float32)

    Source: `torch.eye`.
    """
    rows, columns = sizes_to_shape("eye", (n, n if m is None else m))
    return new_leaf(np.eye(rows, columns, dtype=floating_dtype(dtype)), device, requires_grad)


def tril_indices(
    row: int, col: int, offset: int = 0, dtype: Any = int64, *, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """The rows and the columns of the places that `tril` keeps of a matrix (row, col): (2, number of places).

    Args:
        row, col: the sizes of the matrix.
        offset: the diagonal at which the part ends; 0 for the main one, positive above it.
        dtype, device, requires_grad: of the result.

    Raises:
        ShapeError: for a negative size.

    >>> tril_indices(2, 2).tolist()
    [[0, 1, 1], [0, 0, 1]]

    Source: `torch.tril_indices`.
    """
    return _places("tril_indices", np.tril, row, col, offset, dtype, device, requires_grad)


def triu_indices(
    row: int, col: int, offset: int = 0, dtype: Any = int64, *, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """The rows and the columns of the places that `triu` keeps of a matrix (row, col): (2, number of places).

    Args, Raises: as of `tril_indices`.

    Source: `torch.triu_indices`.
    """
    return _places("triu_indices", np.triu, row, col, offset, dtype, device, requires_grad)


def _places(name: str, part: Callable, row, col, offset, kind, device, requires_grad) -> Tensor:
    shape = sizes_to_shape(name, (row, col))
    offset = max(-row - 1, min(offset, col + 1))
    places = np.stack(np.nonzero(part(np.ones(shape, bool), offset)))
    return new_leaf(places.astype(as_dtype(kind).numpy), device, requires_grad)
