"""GPU tests of other projects on the host executor, and in numba's simulator where that can run them.

    python tools/foreign_projects.py FOLDER [project ...] [--mirrors MIRRORS] [--simulator] [--details]

Each project is cloned into FOLDER at the revision below, from its public address or from a bare repository
MIRRORS/owner+name/repo. Nothing of it is built or installed: its tests run from its sources, and what they import has
to be installed, as `packages` says. Printed is the table of docs/foreign_projects.md; `--details` adds why tests fail.

As a plugin of pytest, this file gives tests of numba-cuda and numba-cuda-mlir the modules that only they import.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import resource
import shutil
import subprocess
import sys
import time
import unittest
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

TOOLS, ROOT = Path(__file__).resolve().parent, Path(__file__).resolve().parents[1]
LIMIT = 1800  # seconds for a run


@dataclass
class Project:
    """A repository, and the tests in it.

    Attributes:
        name: owner/name.
        revision: the commit.
        packages: to be installed for the tests.
        paths: what of the repository is needed.
        tests: files, relative to `start`.
        start: the folder in which pytest starts; it is copied first if `apart`, away from the packages around it.
        options: of pytest.
    """

    name: str
    revision: str
    packages: str
    tests: str
    paths: str = "."
    start: str = "."
    apart: bool = False
    options: str = ""


KERNEL_TESTS = " ".join(
    f"cudapy/test_{name}.py"
    for name in (
        "atomics constmem cooperative_groups forall globals idiv lang laplace localmem mandel matmul montecarlo nondet "
        "operator reduction slicing sm sync transpose userexc warp_ops"
    ).split()
)
"""Of the tests of numba-cuda, and their copies in numba-cuda-mlir: those that run kernels, not those of compilers."""
PROJECTS = [
    Project(
        "TDAmeritrade/stumpy", "423c679fdfcdd547744d2b9a2aed7565124fd6e1", "pandas<3 polars scipy dask distributed",
        "tests/test_gpu_*.py tests/test_core.py", "stumpy tests conftest.py pytest.ini", options="-k gpu",
    ),
    Project(
        "algotom/algotom", "50536a400f094d832d3cd4178161f798abf5a0a4", "scipy pywavelets pillow h5py joblib",
        "tests/test_rec/test_*.py tests/test_util/test_correlation.py",
    ),
    Project(
        "NVIDIA/numba-cuda", "b18b944b2f88a4e840424e49a1b0d29488263b40", "scipy",
        f"{KERNEL_TESTS} doc_examples/test_*.py", "numba_cuda/numba/cuda/tests", "numba_cuda/numba/cuda/tests", True,
    ),
    Project(
        "NVIDIA/numba-cuda-mlir", "10ece76b48edd680c2b9bad05a8081921b46f6fc", "scipy",
        KERNEL_TESTS.replace("cudapy", "numba_cuda_tests/cudapy"), "tests", "tests", True,
    ),
]  # fmt: skip


def checkout(project: Project, folder: Path, mirrors: Path | None) -> Path:
    """The sources of a project."""
    clone = folder / project.name.split("/")[1]
    if not clone.exists():
        mirror = mirrors and mirrors / project.name.replace("/", "+") / "repo"
        address = str(mirror) if mirror else f"https://github.com/{project.name}.git"
        subprocess.run(["git", "clone", "--no-checkout", address, clone], check=True)
        subprocess.run(["git", "-C", clone, "checkout", project.revision, "--", *project.paths.split()], check=True)
    if not project.apart:
        return clone / project.start
    apart = folder / f"{clone.name}-tests"
    if not apart.exists():
        shutil.copytree(clone / project.start, apart)
        for configuration in ("conftest.py", "__init__.py"):
            (apart / configuration).unlink(missing_ok=True)
    return apart


def run(project: Project, start: Path, simulator: bool) -> tuple[Counter, Counter, float, float]:
    """Outcomes, the reasons of those that fail, seconds of CPU and of the clock."""
    report = start / f"report-{'simulator' if simulator else 'hostcuda'}.xml"
    report.unlink(missing_ok=True)
    tests = [str(path.relative_to(start)) for pattern in project.tests.split() for path in sorted(start.glob(pattern))]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    command += ["--continue-on-collection-errors", "-p", "foreign_projects", *project.options.split(), *tests]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, TOOLS, start))), "MPLBACKEND": "agg"}
    env |= {"NUMBA_ENABLE_CUDASIM": "1"} if simulator else {"MINIFLOW_CUDA": "host"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with contextlib.suppress(subprocess.TimeoutExpired), (start / "output.txt").open("w") as output:
        subprocess.run(command, cwd=start, env=env, stdout=output, stderr=subprocess.STDOUT, timeout=LIMIT)
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    outcomes, reasons = outcomes_of(report) if report.exists() else (Counter(), Counter({"no end": 1}))
    return outcomes, reasons, cpu, seconds


def outcomes_of(report: Path) -> tuple[Counter, Counter]:
    """How many tests passed, failed, were skipped; and why those failed."""
    outcomes, reasons = Counter(), Counter()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        kinds = {child.tag: child for child in case if child.tag in ("failure", "error", "skipped")}
        kind = next(iter(kinds), "passed")
        outcomes["failed" if kind in ("failure", "error") else kind] += 1
        if kind in ("failure", "error"):
            text = kinds[kind].text or ""
            lines = [line[1:].strip() for line in text.split("\n") if line.startswith("E ")]
            reason = lines[0] if lines else kinds[kind].get("message", "")
            reasons[re.sub(r"\S*/(\S+\.py:\d+: \w+:)?", "", reason)[:160]] += 1
    return outcomes, reasons


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("projects", nargs="*", default=[p.name for p in PROJECTS])
    parser.add_argument("--mirrors", type=Path)
    parser.add_argument("--simulator", action="store_true")
    parser.add_argument("--details", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    print("| project | passed | failed | skipped | CPU s | s | on |\n| --- | --- | --- | --- | --- | --- | --- |")
    for project in (p for p in PROJECTS if p.name in given.projects):
        start = checkout(project, given.folder, given.mirrors)
        for simulator in (False, True) if given.simulator else (False,):
            outcomes, reasons, cpu, seconds = run(project, start, simulator)
            counts = " | ".join(str(outcomes[kind]) for kind in ("passed", "failed", "skipped"))
            where = "simulator" if simulator else "hostcuda"
            print(f"| {project.name} | {counts} | {cpu:.0f} | {seconds:.0f} | {where} |", flush=True)
            for reason, count in reasons.most_common() if given.details else ():
                print(f"    {count:3} {reason}")


# The plugin: modules of numba-cuda that only its own tests need


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Install the host executor, unless the simulator is asked for, and the modules for tests."""
    from miniflow.hostcuda.choice import simulator_asked_for
    from miniflow.hostcuda.drop_in import install

    if simulator_asked_for():
        return
    install()
    import numba

    class Testing(ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name.startswith("skip_unless_cudasim"):
                return lambda reason: unittest.skip(reason)
            if name.startswith(("skip_", "linux_only", "x86_only", "xfail_")):
                return passed_through
            if name.startswith("cc_X") or name == "_safe_cc_check":
                return lambda *capability: True
            raise AttributeError(name)

    testing = Testing("testing")
    vars(testing).update(
        unittest=unittest, CUDATestCase=Case, NumbaCUDATestCase=Case, TestCase=Case, SerialMixin=object,
        captured_stdout=captured_stdout, override_config=override_config, load_testsuite=None,
        tempfile=None,
    )  # fmt: skip
    numpy_support = SimpleNamespace(**vars(numba.np.numpy_support))
    for package in ("numba.cuda", "numba_cuda_mlir", "numba_cuda_mlir.cuda", "numba_cuda_mlir.numba_cuda"):
        tests, own = ModuleType("tests"), sys.modules[package]
        tests.load_testsuite, tests.support = None, testing
        np_module = SimpleNamespace(numpy_support=numpy_support)
        modules = {"testing": testing, "tests": tests, "tests.support": testing, "np": np_module}
        sys.modules |= {f"{package}.{name}": module for name, module in modules.items()}
        sys.modules |= {f"{package}.np.numpy_support": numpy_support}
        vars(own).update(testing=testing, tests=tests)
    capability = SimpleNamespace(get_gpu_compute_capability=lambda kind=tuple: (9, 0))
    sys.modules["numba_cuda_mlir"].tools = sys.modules["numba_cuda_mlir.tools"] = capability


def passed_through(*arguments: Any) -> Any:
    """A decorator that changes nothing, with or without a reason."""
    return arguments[0] if arguments and not isinstance(arguments[0], str) else lambda test: test


class Case(unittest.TestCase):
    """A test case with the comparison that numba's have."""

    def assertPreciseEqual(self, first: Any, second: Any, **options: Any) -> None:  # noqa: N802
        """Equal values; the last bits of floats may differ."""
        np.testing.assert_allclose(first, second, rtol=1e-6)


@contextlib.contextmanager
def captured_stdout() -> Iterator[io.StringIO]:
    """What is printed in the block."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        yield text


@contextlib.contextmanager
def override_config(name: str, value: Any) -> Iterator[None]:
    """numba's settings with another value in the block."""
    from numba.core import config

    before: Callable | Any = getattr(config, name, None)
    setattr(config, name, value)
    try:
        yield
    finally:
        setattr(config, name, before)


if __name__ == "__main__":
    main()
