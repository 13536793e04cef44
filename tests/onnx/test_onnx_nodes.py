"""ONNX's own node tests, operator by operator, against the table in docs/onnx.md, which says how many pass and why not
the others."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest

from miniflow.onnx import OnnxError
from miniflow.onnx.loader.registry import OPERATORS
from miniflow.onnx.loader.unsupported import UNSUPPORTED
from tools import onnx_models
from tools import onnx_table as table

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "onnx.md").read_text(encoding="utf-8")
OPERATOR_LINES = PAGE.split(table.MODELS)[0].splitlines()
ROWS = {line.split(" | ")[0].removeprefix("| "): line + "\n" for line in OPERATOR_LINES if line.startswith("| ")}
ROWS.pop("operator")
CURRENT = f"in onnx {onnx.__version__}:" in PAGE
HOW = "run python tools/onnx_table.py > docs/onnx.md"

pytestmark = pytest.mark.skipif(not CURRENT, reason=f"docs/onnx.md is of another version than onnx {onnx.__version__}")


@pytest.mark.parametrize("operator", [name for name, row in ROWS.items() if " of " in row.split(" | ")[2]])
def test_node_tests(operator):
    failed = table.failures(operator)
    for name, error in failed.items():
        if table.REASONS.get(name) in (table.RANDOM, table.ROUNDED):
            assert isinstance(error, AssertionError), f"{name}: {error}"
        elif name in table.REASONS:
            assert isinstance(error, OnnxError | AttributeError), f"{name}: {error}"
        else:
            assert operator in UNSUPPORTED, f"{name}: {error}"
            assert "not supported" in str(error), f"{name}: {error}"
    names = {case.name for case in table.node_cases()[operator]}
    assert not (set(table.REASONS) & names) - set(failed), "these pass by now: take them out of tools/onnx_table.py"
    assert table.row(operator, list(failed)) == ROWS[operator], HOW


def test_every_operator_of_onnx_has_a_row():
    assert list(ROWS) == list(table.schemas()), HOW


def test_at_least_85_percent_pass():
    counts = [tuple(map(int, found.groups())) for row in ROWS.values() if (found := re.search(r"(\d+) of (\d+)", row))]
    passed, total = map(sum, zip(*counts, strict=True))
    assert total == sum(map(len, table.node_cases().values())) > 1000
    assert passed / total >= 0.85
    assert f"{passed:,} of {total:,} pass,\n{100 * passed / total:.1f} %" in PAGE, HOW


def test_reasons_are_of_operators_and_cases_that_exist():
    assert not set(UNSUPPORTED) - set(table.schemas())
    assert not set(UNSUPPORTED) & set(OPERATORS), "these are supported by now"
    names = {case.name for cases in table.node_cases().values() for case in cases}
    assert not set(table.REASONS) - names


def test_every_operator_is_supported_or_says_why_not():
    missing = [name for name in ROWS if name not in OPERATORS and name not in UNSUPPORTED]
    assert all(onnx.defs.get_schema(name).has_function or has_body(name) for name in missing)


def has_body(name: str) -> bool:
    return onnx.defs.get_schema(name).has_context_dependent_function


def test_the_page_has_the_table_of_models():
    """tools/onnx_models.py, which needs the frameworks, writes it."""
    tables = Path(table.__file__).with_name("onnx_models.md").read_text(encoding="utf-8")
    assert PAGE.endswith(table.MODELS + tables), HOW
    for framework, families in onnx_models.MODELS.items():
        part = tables.split(f"\n{framework}, ")[-1].split("\n\n| architecture")[1].split("\n\n")[0]
        rows = [line.strip("| ").split(" | ") for line in part.splitlines()[2:]]
        assert [row[:2] for row in rows] == [[f, name] for f, names in families.items() for name in names.split()]
        assert all(float(difference) < onnx_models.WORST for _, _, difference in rows)
