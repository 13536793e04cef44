"""Compare arrays element by element, and count that it was done."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np

import miniflow as flow
from miniflow.backends.memory import to_host
from miniflow.tensor import Tensor

FRESH_SEED = int(os.environ.setdefault("MINIFLOW_TEST_SEED", str(random.SystemRandom().randrange(2**31))))
TOLERANCE = {  # of values, by dtype: relative, absolute
    "float64": (1e-10, 1e-12),
    "float32": (2e-5, 2e-6),
    "float16": (2e-3, 1e-3),
    "bfloat16": (1.6e-2, 8e-3),
}

_made = 0


def comparisons_made() -> int:
    """How many comparisons this process has made so far."""
    return _made


def count_comparison() -> None:
    """Count one comparison: a value that could have been wrong was looked at."""
    global _made
    _made += 1


def as_array(x: Any) -> np.ndarray:
    """A NumPy array with the values of a Tensor, of a torch tensor, or of anything NumPy understands."""
    if isinstance(x, Tensor):
        return to_host(x._array)
    if hasattr(x, "detach"):
        x = x.detach()
        return x.float().numpy().astype(flow.bfloat16.numpy) if str(x.dtype) == "torch.bfloat16" else x.numpy()
    return np.asarray(x)


def assert_close(
    actual: Any, expected: Any, *, rtol: float | None = None, atol: float | None = None, what: str = "value"
) -> None:
    """Compare dtype, shape and every element; a NaN or an infinity must stand where the expected one stands.

    Tolerances default to those of the coarser dtype. An `expected` that is not an array (a number) sets no dtype.
    """
    count_comparison()
    got, want = as_array(actual), as_array(expected)
    if hasattr(expected, "dtype"):
        assert got.dtype == want.dtype, f"{what}: got dtype {got.dtype}, expected {want.dtype}"
    assert_elements(got, want, rtol, atol, what)


def assert_same(actual: Any, expected: Any, *, what: str = "value") -> None:
    """Compare dtype and shape, and every element exactly."""
    assert_close(actual, expected, rtol=0.0, atol=0.0, what=what)


def assert_elements(got: np.ndarray, want: np.ndarray, rtol: float | None, atol: float | None, what: str) -> None:
    assert got.shape == want.shape, f"{what}: got shape {got.shape}, expected {want.shape}"
    rough = TOLERANCE.get(got.dtype.name, (0.0, 0.0))
    rtol, atol = rough[0] if rtol is None else rtol, rough[1] if atol is None else atol
    wide = [np.asarray(a, np.float64) if a.dtype.kind in "fV" else a for a in (got, want)]
    equal = np.isclose(*wide, rtol=rtol, atol=atol, equal_nan=True) if rtol or atol else identical(*wide)
    if not equal.all():
        index = tuple(int(i) for i in np.argwhere(~equal)[0])
        raise AssertionError(
            f"{what}: {int((~equal).sum())} of {equal.size} elements differ; at {index} got {got[index]!r}, expected "
            f"{want[index]!r} (rtol {rtol:g}, atol {atol:g}, fresh seed {FRESH_SEED})"
        )


def identical(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a == b) | ((a != a) & (b != b))


def add_note(error: Exception, text: str) -> None:
    """Say more about an error; before Python 3.11 errors have no notes."""
    if hasattr(error, "add_note"):
        error.add_note(text)
