"""`python -m miniflow.ops` and docs/operators.md."""

import importlib
import subprocess
import sys
from pathlib import Path

import miniflow as flow
from miniflow.dispatch.dispatcher import Op

ROOT = Path(flow.__file__).parent.parent
table = importlib.import_module("miniflow.ops.__main__")


def test_the_page_is_current():
    page = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    assert page == table.markdown(), "run python -m miniflow.ops --markdown > docs/operators.md"


def test_what_the_table_says():
    done = subprocess.run([sys.executable, "-m", "miniflow.ops"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    found = {line.split()[0]: line for line in done.stdout.splitlines()}
    file, line = found["relu"].split()[1].split(":")
    source = (ROOT / file).read_text(encoding="utf-8").splitlines()
    assert any("def relu(x)" in text for text in source[int(line) - 1 : int(line) + 2])
    assert found["add"].endswith("cpu, cuda  x, y  gray  S of any dim; P of x, y")
    assert "cpu, cuda  yes  gray  signatures(" in found["layer_norm"] and found["bernoulli"].endswith("  B")
    assert "mul_grad" not in found and "fused_adam_update" not in found
    assert {"Matmul", "Exp"} <= Op.by_name.keys() and {"matmul", "exp", "sgd_update"} <= found.keys()
