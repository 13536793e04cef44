"""docs/ADD_AN_OPERATOR.md: its steps are carried out in a copy of the sources, and its row is tested there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
USE = """
import miniflow as flow

x = flow.tensor([-1.0, 3.0])
assert flow.softsign(x).tolist() == x.softsign().tolist() == flow.nn.Softsign()(x).tolist() == [-0.5, 0.75]
assert flow.nn.functional.softsign(x, inplace=True) is x and x.tolist() == [-0.5, 0.75]
assert (-x + x + 3).softsign_().tolist() == [0.75, 0.75]
with flow.autocast("cpu"):
    assert flow.softsign(flow.ones(2, dtype=flow.bfloat16)).dtype is flow.bfloat16


class Graph(flow.nn.Graph):
    def build(self, x):
        return x.softsign() * 2 + 1


graph = Graph()
assert graph(flow.full((64, 64), 3.0)).tolist()[0][0] == 2.5
assert "fused_elementwise" in str(graph.ir) and "softsign" in str(graph.ir)
"""


@pytest.mark.slow
def test_the_steps_of_the_document(tmp_path):
    document = (ROOT / "docs" / "ADD_AN_OPERATOR.md").read_text(encoding="utf-8")
    definition, row, layer = re.findall(r"```python\n(.*?)```", document, re.DOTALL)
    for name in ("miniflow", "tests", "setup.cfg"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    family, table = tmp_path / "miniflow" / "ops" / "activation.py", tmp_path / "tests" / "samples.py"
    layers = tmp_path / "miniflow" / "nn" / "modules" / "activation.py"
    family.write_text(f"{family.read_text()}\n\n{definition}")
    layers.write_text(f"{layers.read_text()}\n\n{layer}")
    table.write_text(table.read_text().replace('    Row("silu"', f'    {row.strip()},\n    Row("silu"'))
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTEST_ADDOPTS": ""}
    pytest_command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--all", "-k", "softsign"]
    pytest_command += [f"tests/{folder}/test_samples.py" for folder in ("ops", "kernels", "graph")]
    tested = subprocess.run(pytest_command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert tested.returncode == 0 and " passed" in tested.stdout, tested.stdout[-2000:]
    used = subprocess.run(
        [sys.executable, "-c", USE], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert used.returncode == 0, used.stderr
