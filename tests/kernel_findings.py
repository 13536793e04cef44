"""What the tests of the checked executor's findings share: where a line stands, and comparing a whole message."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from miniflow.hostcuda import KernelCheckError, check
from miniflow.hostcuda import host as cuda


def place(kernel: Any, text: str) -> str:
    """file:line of the only line of a kernel that contains a text."""
    lines, first = inspect.getsourcelines(kernel.py_func)
    (found,) = [first + i for i, line in enumerate(lines) if text in line]
    return f"{Path(kernel.py_func.__code__.co_filename).name}:{found}"


def findings(kernel: Any, arguments: list, grid: Any, block: Any, shared: int = 0) -> KernelCheckError:
    with pytest.raises(KernelCheckError) as caught:
        check.launch(kernel, arguments, grid, block, shared)
    return caught.value


def says(error: KernelCheckError, *lines: str) -> None:
    """The whole message, without the first line if that says there is one finding."""
    head, _, body = str(error).partition("\n")
    assert head.endswith("1 finding" if len(error.findings) == 1 else f"{len(error.findings)} findings")
    np.testing.assert_equal(body.split("\n"), list(lines))


@cuda.jit
def asserts(x):
    """Stands here since pytest rewrites the assertions of test modules."""
    i = cuda.grid(1)
    assert i < x.size, "too many threads"
    assert x[i] == 0
    x[i] = 2 * i
