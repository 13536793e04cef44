"""Comparisons of checks: shape, dtype and every element, with a message that a student can work with."""

from __future__ import annotations

from typing import Any

import numpy as np


def same(got: Any, expected: Any, what: str, hint: str = "", *, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Compare a result with what is expected, its shape and dtype too.

    Args:
        got: a number, a tuple, a NumPy array or a tensor; None never passes.
        expected: the same, computed without the student's code.
        what: the call on its input, such as "broadcast_shape((2, 1), (3,))".
        hint: what to think about if it is wrong.
        rtol, atol: tolerances for floating-point numbers; whatever else is compared exactly.

    Raises:
        AssertionError: saying what was expected, and on which input.

    >>> same(3, 3, "one_more(2)")
    >>> same(4, 3, "one_more(2)", "how much is one?")
    Traceback (most recent call last):
        ...
    AssertionError: one_more(2): expected 3, got 4. Hint: how much is one?
    """
    tail = f". Hint: {hint}" if hint else ""
    if isinstance(expected, np.ndarray):
        found = got.detach().numpy() if hasattr(got, "detach") else got
        if not isinstance(found, np.ndarray | np.generic):  # a reduction to shape () gives a NumPy scalar
            raise AssertionError(f"{what}: expected an array, got {got!r:.200}{tail}")
        found = np.asarray(found)
        if (found.shape, found.dtype) != (expected.shape, expected.dtype):
            raise AssertionError(
                f"{what}: expected shape {expected.shape} and {expected.dtype}, got {found.shape} and "
                f"{found.dtype}{tail}"
            )
        close = (
            np.isclose(found, expected, rtol, atol, equal_nan=True) if found.dtype.kind in "fc" else found == expected
        )
        if not close.all():
            at = tuple(int(i) for i in np.argwhere(~close)[0])
            raise AssertionError(
                f"{what}: expected {expected[at]!s} at {list(at)}, got {found[at]!s}; {np.count_nonzero(~close)} of "
                f"{close.size} elements are wrong{tail}"
            )
        return
    if isinstance(expected, float) and isinstance(got, float | np.floating):
        equal = bool(np.isclose(got, expected, rtol, atol, equal_nan=True))
    else:
        equal = type(got) is type(expected) and got == expected
    if not equal:
        raise AssertionError(f"{what}: expected {expected!r:.200}, got {got!r:.200}{tail}")
