"""Rules for all tests: a test that made no comparison is an error, and the fresh seed is printed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import checks
import numpy as np
import pytest
from asserts import certainly_asserts


def pytest_report_header() -> str:
    return f"fresh seed: {checks.FRESH_SEED} (MINIFLOW_TEST_SEED={checks.FRESH_SEED} repeats it)"


@pytest.fixture(params=["fixed", "fresh"])
def seed(request: pytest.FixtureRequest) -> int:
    """A randomised test runs twice: with seed 0, and with the fresh seed that the header prints."""
    return 0 if request.param == "fixed" else checks.FRESH_SEED


def _counting(function: Any) -> Any:
    def counted(*args: Any, **kwargs: Any) -> Any:
        checks.count_comparison()
        return function(*args, **kwargs)

    return counted


def pytest_configure(config: pytest.Config) -> None:
    """Count what is compared without `checks`: expected errors, and NumPy's assertions."""
    pytest.raises = _counting(pytest.raises)
    for name in ("assert_allclose", "assert_array_equal", "assert_equal"):
        setattr(np.testing, name, _counting(getattr(np.testing, name)))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    before = checks.comparisons_made()
    result = yield
    if checks.comparisons_made() == before and not certainly_asserts(pyfuncitem.function):
        pytest.fail(
            "no comparison was made for sure: assert outside of loops that may be empty, or use tests/checks.py",
            pytrace=False,
        )
    return result
