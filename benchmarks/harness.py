"""How everything here is measured: each framework in processes of its own, in turns, and medians of what they report.

A measurement is a function `(framework, threads, ...) -> dict` in a module of this package. `in_process` runs it in a
fresh interpreter whose thread pools have that many threads.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
PACKAGES = {
    "miniflow-edu": "miniflow",
    "numpy": "numpy",
    "numba": "numba",
    "numba-cuda": "numba_cuda",
    "torch": "torch",
}
ROUNDS = 3
LIMIT = 900  # seconds for one process


class BenchmarkError(RuntimeError):
    """A measurement failed, or the frameworks computed different things."""


def in_process(function: str, framework: str, threads: int, env: dict | None = None, **arguments: Any) -> dict:
    """Call `function`, named "module.function" inside this package, in a fresh interpreter; returns its result."""
    environment = {**os.environ, **dict.fromkeys(POOLS, str(threads)), **(env or {})}
    for unwanted in ("OPENBLAS_CORETYPE", "PYTHONDONTWRITEBYTECODE"):  # which users do not have
        environment.pop(unwanted, None)
    call = json.dumps({"framework": framework, "threads": threads, **arguments})
    command = [sys.executable, "-m", "benchmarks.harness", function, call]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT)
    if result.returncode:
        raise BenchmarkError(f"{function} {call} ended with code {result.returncode}:\n{result.stderr}")
    return json.loads(result.stdout.splitlines()[-1])


def in_turns(function: str, frameworks: Sequence[str], threads: int, rounds: int = ROUNDS, **arguments: Any) -> dict:
    """Measure each framework `rounds` times, taking turns; returns {framework: {key: median, or the list reported}}.

    Args:
        arguments: of the function; `env` of its processes.
    """
    reports: dict[str, list[dict]] = {framework: [] for framework in frameworks}
    for _ in range(rounds):
        for framework in frameworks:
            reports[framework].append(in_process(function, framework, threads, **arguments))
    return {name: {key: _middle([r[key] for r in found]) for key in found[0]} for name, found in reports.items()}


def _middle(values: list) -> Any:
    return values[0] if isinstance(values[0], list) else statistics.median(values)


def seconds_per_call(function: Callable[[], Any], threads: int, budget: float = 1.0, windows: int = 15) -> float:
    """The median over `windows` of the time of a call.

    With one thread this is the CPU time of the process, which is steady while others use the machine; with more it is
    wall time. The garbage collector rests meanwhile, as in `timeit`.
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    function()
    start = time.perf_counter()
    function()
    repeats = max(1, round(budget / windows / max(time.perf_counter() - start, 1e-7)))
    times = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(windows):
            start = clock()
            for _ in range(repeats):
                function()
            times.append((clock() - start) / repeats)
    finally:
        gc.enable()
    return statistics.median(times)


def require_equal(what: str, ours: Sequence[float], theirs: Sequence[float], tolerance: float) -> float:
    """The largest difference between two lists of losses, relative to the largest loss: late ones may be nearly 0.

    Raises:
        BenchmarkError: if it is above `tolerance`: the times then belong to different computations.
    """
    if len(ours) != len(theirs):
        raise BenchmarkError(f"{what}: got {len(ours)} and {len(theirs)} losses; expected equally many")
    difference = max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / max(map(abs, theirs))
    if not difference <= tolerance:
        raise BenchmarkError(f"{what}: losses {ours} and {theirs} differ by {difference:.1e}; expected {tolerance:.0e}")
    return difference


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join([f"\n{title}\n", *lines])


def machine() -> str:
    """The versions and the hardware that the figures belong to."""
    names = [name for name, module in PACKAGES.items() if importlib.util.find_spec(module)]
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    system = f"Python {platform.python_version()}, {platform.system()}"
    return f"{versions}, {system}\n{_cpu()}, {os.cpu_count()} cores; {_coretype()}; {_blas()}"


def _coretype() -> str:
    given = os.environ.get("OPENBLAS_CORETYPE")
    return f"OPENBLAS_CORETYPE unset (was {given})" if given else "OPENBLAS_CORETYPE unset"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _blas() -> str:
    import numpy as np

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"numpy uses {blas['name']} {blas['version']}"


def main() -> None:
    """The child's side: call the function and print its result as one line of JSON."""
    module, function = sys.argv[1].split(".")
    arguments = json.loads(sys.argv[2])
    if module != "startup":  # startup measures the import; elsewhere the framework comes first, as in users' scripts
        importlib.import_module(arguments["framework"].split(".")[0])
    result = getattr(importlib.import_module(f"benchmarks.{module}"), function)(**arguments)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
