"""Each kernel family lists small launches of its kernels; all are run in the checks, and compiled to PTX.

CASES = [Case("scale by two", scale, lambda: [x(), np.zeros(70, np.float32)], grid=2, block=64), ...]

@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)

@pytest.mark.parametrize("cc", CAPABILITIES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    compile_case(case, cc)
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from miniflow.hostcuda import cuda

CAPABILITIES = [(7, 5), (9, 0)]
ON_HOST = cuda.__name__ == "miniflow.hostcuda.host"
draw = np.random.default_rng(0)  # for the arguments of cases, which are the same in every run and order of tests
START = draw.bit_generator.state


@dataclass(frozen=True)
class Case:
    """One launch.

    Attributes:
        name: what pytest shows.
        kernel: of `cuda.jit`.
        arguments: makes fresh arguments: NumPy arrays, numbers, tuples. Arrays that the kernel only writes are filled
            with NaN (or with a value that stands out), so that a cell that it forgets is seen.
        grid: number of blocks, or a tuple.
        block: threads of each, or a tuple.
        shared: bytes of dynamic shared memory.
        tolerance: relative, between the checked and the compiled executor, which round in other places.
    """

    name: str
    kernel: Any
    arguments: Callable[[], Sequence[Any]]
    grid: int | tuple[int, ...]
    block: int | tuple[int, ...]
    shared: int = 0
    tolerance: float = 1e-5

    def __str__(self) -> str:
        return self.name

    def made(self) -> list[Any]:
        """Its arguments."""
        draw.bit_generator.state = START
        return list(self.arguments())

    def launch(self, arguments: Sequence[Any]) -> list[np.ndarray]:
        """Run as any user would; returns the arrays afterwards."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that NumPy arrays are transferred at each launch
            self.kernel[self.grid, self.block, 0, self.shared](*arguments)
        return arrays(arguments)


def arrays(arguments: Sequence[Any]) -> list[np.ndarray]:
    """All NumPy arrays among the arguments, also in tuples."""
    found: list[np.ndarray] = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            found.append(argument)
        elif isinstance(argument, tuple):
            found.extend(arrays(argument))
    return found


def run_checked(case: Case) -> None:
    """The checks find nothing, and both executors leave the same arrays."""
    if not ON_HOST:
        pytest.skip(f"the checks belong to the host executor; cuda is {cuda.__name__} here")
    from miniflow.hostcuda import check

    arguments = case.made()
    before = [array.copy() for array in arrays(arguments)]
    check.launch(case.kernel, arguments, case.grid, case.block, case.shared)  # raises with the findings
    checked = [array.copy() for array in arrays(arguments)]
    for array, content in zip(arrays(arguments), before, strict=True):
        array[...] = content
    compiled = case.launch(arguments)
    for got, expected in zip(checked, compiled, strict=True):
        compare(got, expected, case.tolerance)


def compare(got: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Equal NaNs, equal integers, floats within the tolerance."""
    assert got.dtype == expected.dtype and got.shape == expected.shape
    if got.dtype.names:
        for field in got.dtype.names:
            compare(got[field], expected[field], tolerance)
    elif got.dtype.kind in "fc":
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        np.testing.assert_array_equal(got, expected)


def compile_case(case: Case, cc: tuple[int, int] = (7, 5)) -> dict[str, str]:
    """Each of the installed compilers compiles the kernel for this compute capability; returns the PTX by its name."""
    if not ON_HOST:
        pytest.skip(f"kernels of the host executor are compiled to PTX; cuda is {cuda.__name__} here")
    from miniflow.hostcuda.numba_cuda import PACKAGES
    from miniflow.hostcuda.ptx import compile_to_ptx

    compilers = [package for package in PACKAGES if package.installed]
    if not compilers:
        pytest.skip(f"none of {', '.join(map(str, PACKAGES))} is installed")
    made = {str(package): compile_to_ptx(case.kernel, case.made(), cc, package) for package in compilers}
    kinds = {(re.search(r"\.target (\w+)", ptx)[1], ".visible .entry" in ptx) for ptx in made.values()}
    assert kinds == {(f"sm_{cc[0]}{cc[1]}", True)}
    return made


def spilled(made: dict[str, str]) -> list[str]:
    """The compilers in whose PTX floating-point numbers of a thread lie in memory instead of in registers."""
    return [compiler for compiler, ptx in made.items() if re.search(r"(ld|st)\.local\.(v\d\.)?f", ptx)]
