"""The rule that a test which made no comparison is an error, and how asserts are found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from asserts import certainly_asserts

ROOT = Path(__file__).parents[1]
EMPTY: list[int] = []
FULL = [1, 2]


def plain():
    assert FULL


def in_a_block():
    with open(__file__) as file:
        assert file


def over_a_literal():
    for x in (1, 2):
        assert x


def over_a_local():
    cases = {"a": 1}
    for name, x in cases.items():
        assert name and x


def over_a_global():
    for i, x in enumerate(FULL):
        assert i + 1 == x


def in_both_branches():
    if FULL:
        assert FULL
    else:
        assert not FULL


def in_a_function_that_it_calls():
    plain()


def without():
    FULL.copy()


def over_an_empty_list():
    for x in EMPTY:
        assert x


def over_what_it_cannot_know(items=()):
    for x in items:
        assert x


def in_one_branch():
    if EMPTY:
        assert EMPTY


def in_a_function_that_it_defines():
    def inner():
        assert FULL

    return inner


CERTAIN = [
    plain,
    in_a_block,
    over_a_literal,
    over_a_local,
    over_a_global,
    in_both_branches,
    in_a_function_that_it_calls,
]
UNCERTAIN = [without, over_an_empty_list, over_what_it_cannot_know, in_one_branch, in_a_function_that_it_defines]


@pytest.mark.parametrize("function", CERTAIN)
def test_certain_asserts_are_found(function):
    assert certainly_asserts(function)


@pytest.mark.parametrize("function", UNCERTAIN)
def test_uncertain_asserts_do_not_count(function):
    assert not certainly_asserts(function)


SUITE = """
import numpy as np
import pytest
from checks import assert_same

def test_nothing(): pass
def test_empty_loop():
    for x in []: assert x
def test_assert(): assert True
def test_helper(): assert_same(np.ones(2), np.ones(2))
def test_numpy(): np.testing.assert_allclose(np.ones(2), np.ones(2))
def test_raises():
    with pytest.raises(ZeroDivisionError): 1 / 0
def test_skip(): pytest.skip("no such machine")
"""


def test_a_test_without_a_comparison_fails(tmp_path):
    (tmp_path / "test_some.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-o", f"pythonpath={ROOT / 'tests'}", "-q", "-rfs"]
    environment = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
        "PATH": "/usr/bin:/bin",
        "MINIFLOW_TEST_SEED": "11",
    }
    result = subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1, result.stdout + result.stderr
    assert "2 failed, 4 passed, 1 skipped" in result.stdout
    assert result.stdout.count("no comparison was made for sure") >= 2
    for name in ("test_nothing", "test_empty_loop"):
        assert f"FAILED test_some.py::{name}" in result.stdout
