"""Comparisons of checks: shape, dtype and every element, with a message that a student can work with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np


def drawn(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Random numbers between -1 and 1."""
    return rng.uniform(-1, 1, shape).astype(dtype)


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
    tail = hint and f". Hint: {hint}"
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
        close = np.isclose(found, expected, rtol, atol, True) if found.dtype.kind in "fc" else found == expected
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


def same_all(got: Sequence, expected: Iterable, what: str, hint: str = "", **tolerance: float) -> None:
    """Compare a sequence of results, each as `same` does; messages count them from 0.

    >>> same_all([1, 5], [1, 2], "powers(2)")
    Traceback (most recent call last):
        ...
    AssertionError: result 1 of powers(2): expected 2, got 5
    """
    expected = list(expected)
    same(len(got), len(expected), f"the number of results of {what}", hint)
    for number, (found, wanted) in enumerate(zip(got, expected, strict=True)):
        same(found, wanted, f"result {number} of {what}", hint, **tolerance)


def at_most(got: float, most: float, what: str, hint: str = "") -> None:
    """Fail if something that was counted is more than it has to be.

    >>> at_most(7, 4, "reads of f(x)", "keep it in a variable")
    Traceback (most recent call last):
        ...
    AssertionError: reads of f(x): expected at most 4, counted 7. Hint: keep it in a variable
    """
    if got > most:
        raise AssertionError(f"{what}: expected at most {most:,}, counted {got:,}{hint and f'. Hint: {hint}'}")


def refused(call: Callable[[], Any], error: type[Exception], what: str, *words: str) -> None:
    """Check that a call raises this error, with these words in its message.

    >>> refused(lambda: int("one"), ValueError, "int('one')", "base 10", "'one'")
    >>> refused(lambda: int("1"), ValueError, "int('1')")
    Traceback (most recent call last):
        ...
    AssertionError: int('1'): expected a ValueError, got 1
    """
    try:
        got = call()
    except error as raised:
        missing = [word for word in words if word not in str(raised)]
        if missing:
            raise AssertionError(f"{what}: expected {missing} in the message, got {str(raised)!r}") from None
    else:
        raise AssertionError(f"{what}: expected a {error.__name__}, got {got!r:.200}")
