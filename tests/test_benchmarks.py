"""The benchmarks measure what they say: fresh processes, equal computations, medians."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import harness

ROOT = Path(__file__).resolve().parent.parent


def test_a_measurement_runs_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    found = harness.in_process("ops.time_numpy", "numpy", 1)
    assert set(found) == {"x + y", "x * y", "x + 1.5", "exp(x)", "relu(x)", "x @ y", "x.sum()", "x.reshape(-1)",
                          "x.transpose(0, 1)"}  # fmt: skip
    assert all(0.01 < microseconds < 1000 for microseconds in found.values())
    assert "unset (was Haswell)" in harness._coretype()


def test_a_failing_measurement_shows_its_traceback():
    with pytest.raises(harness.BenchmarkError, match="(?s)training.time_step .* ended with code 1.*KeyError: 'vgg'"):
        harness.in_process("training.time_step", "miniflow", 1, network="vgg", batch=1)


def test_the_network_learns_and_repeats():
    first, second = (harness.in_process("training.time_step", "miniflow", 1, network="mlp", batch=16) for _ in range(2))
    assert first["losses"] == second["losses"]
    assert first["losses"][-1] < 0.8 * first["losses"][0] and first["ms"] > 0.05


def test_seconds_per_call_is_the_time_of_one_call():
    def spin():
        end = time.process_time() + 0.002
        while time.process_time() < end:
            pass

    assert 0.002 <= harness.seconds_per_call(spin, threads=1, budget=0.2, windows=5) < 0.004


def test_different_losses_are_refused():
    assert harness.require_equal("mlp", [2.0, 1.0], [2.0, 1.0001], 1e-4) == pytest.approx(5e-5)
    with pytest.raises(harness.BenchmarkError, match="mlp: losses .* differ by 5.0e-04; expected 1e-04"):
        harness.require_equal("mlp", [2.0, 1.0], [2.0, 1.001], 1e-4)
    with pytest.raises(harness.BenchmarkError, match="differ by nan"):
        harness.require_equal("mlp", [float("nan")], [2.0], 1e-4)
    with pytest.raises(harness.BenchmarkError, match="got 1 and 2 losses"):
        harness.require_equal("mlp", [2.0], [2.0, 1.0], 1e-4)


def test_table_lines_up():
    text = harness.table("Title", ["a", "long name"], [["x", 1], ["wide cell", 2.5]])
    assert text.splitlines()[3:] == [
        "| a         | long name |",
        "|-----------|-----------|",
        "| x         | 1         |",
        "| wide cell | 2.5       |",
    ]


def test_unknown_table_is_an_error():
    command = [sys.executable, "-m", "benchmarks", "speed"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert "there is no table speed; expected some of ops, training, startup" in result.stderr
