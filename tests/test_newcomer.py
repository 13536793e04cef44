"""A newcomer gets through the first command of README.md and a lesson, in an environment of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="the newcomer types bash commands")
def test_a_newcomer_gets_through(tmp_path):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path), "setuptools"]
    index = subprocess.run(command, capture_output=True, text=True)
    if index.returncode:
        pytest.skip("pip reaches no package index here, so nothing can be installed")
    done = subprocess.run([sys.executable, ROOT / "tools" / "newcomer.py"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("A newcomer gets through.\n"), done.stdout + done.stderr
