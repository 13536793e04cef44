"""Kernels with the arrays that they must leave. Each runs compiled, checked, and in the reference executor.

CASES = Table()

@CASES.launch(2, 64, x, blank(128, np.int32), gives=x + 1)
def increment(x, out):
    i = cuda.grid(1)
    out[i] = x[i] + 1

test_compiled, test_checked, test_reference = CASES.tests(default=3)

`gives` is what the last argument holds afterwards; a dict says it for several positions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from reference import run_reference

from miniflow.hostcuda import cuda
from miniflow.hostcuda.kernel import Kernel


def blank(shape: int | tuple[int, ...], dtype: Any) -> np.ndarray:
    """An output: NaN, or 77, so that an element that stays unwritten is seen."""
    dtype = np.dtype(dtype)
    if dtype.names:
        return np.zeros(shape, dtype)
    return np.full(shape, np.nan if dtype.kind in "fc" else 77 if dtype.kind in "iu" else False, dtype)


@dataclass(frozen=True)
class Expectation:
    """One launch.

    Attributes:
        kernel: of `cuda.jit`.
        arguments: copied for each run.
        expected: position of an argument -> what it holds afterwards.
        shared: bytes of dynamic shared memory.
        tolerance: relative; 0 compares exactly.
        checked: whether the checked mode must agree, and report nothing.
        reference: whether the reference executor must agree.
        name: what pytest shows.
    """

    kernel: Kernel
    grid: Any
    block: Any
    arguments: Sequence[Any]
    expected: dict[int, np.ndarray]
    shared: int
    tolerance: float
    checked: bool
    reference: bool
    name: str

    def __str__(self) -> str:
        return self.name

    def copies(self) -> list[Any]:
        return [copied(argument) for argument in self.arguments]

    def compare(self, arguments: Sequence[Any]) -> None:
        for position, expected in self.expected.items():
            same(arguments[position], expected, self.tolerance)

    def run(self, **options: Any) -> None:
        """Launch as a user does, and compare."""
        arguments = self.copies()
        launch(with_options(self.kernel, **options), self.grid, self.block, arguments, self.shared)
        self.compare(arguments)

    def run_reference(self, order: str = "forward") -> None:
        arguments = self.copies()
        run_reference(self.kernel.py_func, self.grid, self.block, arguments, self.shared, order=order)
        self.compare(arguments)


def copied(argument: Any) -> Any:
    if isinstance(argument, tuple) and not hasattr(argument, "_fields"):
        return tuple(copied(item) for item in argument)
    return argument.copy() if isinstance(argument, np.ndarray) else argument


def with_options(kernel: Kernel, **options: Any) -> Kernel:
    """The same function, jitted with further options."""
    if not options:
        return kernel
    return cuda.jit(**{name: value for name, value in kernel.options.items() if value}, **options)(kernel.py_func)


def launch(kernel: Any, grid: Any, block: Any, arguments: Sequence[Any], shared: int = 0) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that NumPy arrays are transferred at each launch, and of overflows
        kernel[grid, block, 0, shared](*arguments)


def same(got: np.ndarray, expected: Any, tolerance: float = 0.0) -> None:
    """Equal elements, NaN equal to NaN; within a relative tolerance if one is given."""
    expected = np.asarray(expected)
    assert got.shape == expected.shape, f"shape {got.shape}, expected {expected.shape}"
    if got.dtype.names:
        for field in got.dtype.names:
            same(got[field], expected[field], tolerance)
    elif tolerance:
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(got, expected)


class Table:
    """The cases of one test module."""

    def __init__(self) -> None:
        self.cases: list[Expectation] = []

    def launch(
        self,
        grid: Any,
        block: Any,
        *arguments: Any,
        gives: Any,
        shared: int = 0,
        tolerance: float = 0.0,
        checked: bool = True,
        reference: bool = True,
        name: str = "",
    ) -> Callable[[Any], Any]:
        """A decorator that adds a kernel (jitted here, unless it is already) with one launch of it."""
        expected = gives if isinstance(gives, dict) else {len(arguments) - 1: gives}

        def add(function: Any) -> Any:
            kernel = function if isinstance(function, Kernel) else cuda.jit(function)
            title = name or kernel.__name__
            case = Expectation(
                kernel, grid, block, arguments, expected, shared, tolerance, checked, reference, title
            )  # fmt: skip
            self.cases.append(case)
            return function

        return add

    def tests(self, default: int) -> tuple[Callable, Callable, Callable]:
        """Three tests over all cases; so many cases of each run in the default tier."""

        @pytest.mark.few(default)
        @pytest.mark.parametrize("case", self.cases, ids=str)
        def test_compiled(case):
            case.run()

        @pytest.mark.few(default)
        @pytest.mark.parametrize("case", [case for case in self.cases if case.checked], ids=str)
        def test_checked(case):
            case.run(check=True)

        @pytest.mark.few(default)
        @pytest.mark.parametrize("case", [case for case in self.cases if case.reference], ids=str)
        def test_reference(case):
            case.run_reference()
            case.run_reference("backward")

        return test_compiled, test_checked, test_reference
