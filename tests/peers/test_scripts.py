"""Ordinary PyTorch programs print the same losses under PyTorch and under `python -m miniflow.mock_torch`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

FOLDER = Path(__file__).parents[1] / "scripts"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "common")


def printed(command: list[str], script: str) -> np.ndarray:
    """The numbers that a script prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, *command, str(FOLDER / f"{script}.py")],
        capture_output=True, text=True, timeout=300, env=environment, cwd=FOLDER,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    return np.array([float(word) for word in result.stdout.split()])


@pytest.mark.parametrize("script", SCRIPTS)
def test_losses_are_those_of_pytorch(script):
    ours, theirs = printed(["-m", "miniflow.mock_torch"], script), printed([], script)
    assert len(theirs) >= 3
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=2e-4)
