"""hostcuda in the place of numba.cuda and numba_cuda_mlir.cuda: imports, programs, pytest, documentation."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from miniflow.hostcuda import drop_in, findings

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "test_without_a_gpu.md").read_text(encoding="utf-8")

SPELLINGS = """
import sys
import numba
from numba import cuda
import numba.cuda as second
import numba.cuda.cudadrv.devicearray as devicearray
import numba.cuda.random
from numba.cuda import float32, grid, jit, libdevice
from numba.cuda.cudadrv.devicearray import DeviceNDArray, is_cuda_ndarray
from numba.cuda.cudadrv.driver import CudaAPIError
from numba.cuda.libdevice import sqrtf
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32
from numba.cuda.types import int64
from numba_cuda_mlir import cuda as third, types
import numba_cuda_mlir.cuda as fourth
import numba_cuda_mlir.numba_cuda.cudadrv.devicearray
import numpy as np
from beside import length

assert cuda is second is third is fourth is numba.cuda and cuda.is_host_executor
assert cuda.types.int64 is types.int64 is int64 is numba.int64 and issubclass(CudaAPIError, RuntimeError)
assert devicearray.DeviceNDArray is DeviceNDArray is cuda.cudadrv.devicearray.DeviceNDArray
assert libdevice.sqrtf is sqrtf and numba.cuda.random.create_xoroshiro128p_states is create_xoroshiro128p_states

@jit
def kernel(x, states):
    i = grid(1)
    if i < x.size:
        x[i] = sqrtf(x[i]) + float32(xoroshiro128p_uniform_float32(states, i) < 2)

x = cuda.to_device(np.arange(5, dtype=np.float32))
kernel[1, 32](x, create_xoroshiro128p_states(5, seed=1))
assert is_cuda_ndarray(x)
np.testing.assert_allclose(x, np.sqrt(np.arange(length)) + 1, rtol=1e-6)

@numba.vectorize(["float32(float32, float32)"], target="cuda")
def product(a, b):
    return a * b

@numba.guvectorize(["void(float32[:], float32[:])"], "(n)->()", target="cuda")
def total(row, result):
    result[0] = 0
    for v in row:
        result[0] += v

assert isinstance(product(x, x), DeviceNDArray)
print(product(np.float32([2, 3]), np.float32(4)), total(np.ones((2, 3), np.float32)), sys.argv[1:], __name__)
"""


def run(*arguments, cwd, **variables):
    """The result of `python ARGUMENTS`; variables that are None are unset."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MINIFLOW_CUDA": "host", **variables}
    env = {name: value for name, value in env.items() if value is not None}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)


@pytest.fixture
def spellings(tmp_path):
    (tmp_path / "beside.py").write_text("length = 5\n")
    (tmp_path / "spellings.py").write_text(SPELLINGS)
    return tmp_path


@pytest.mark.parametrize("program", [["spellings.py"], ["-m", "spellings"]])
def test_every_spelling_of_an_import_is_the_host_executor(spellings, program):
    result = run("-m", "miniflow.hostcuda", *program, "--n", "1", cwd=spellings)
    assert result.stderr == "" and result.stdout == "[ 8. 12.] [3. 3.] ['--n', '1'] __main__\n"


def test_what_it_has_not_is_not_found_and_a_program_is_named(tmp_path):
    (tmp_path / "program.py").write_text("import numba.cuda.codegen\n")
    result = run("-m", "miniflow.hostcuda", "program.py", cwd=tmp_path)
    assert "ModuleNotFoundError: No module named 'numba.cuda.codegen'" in result.stderr and result.returncode == 1
    for nothing in ([], ["-m"], ["--help"]):
        result = run("-m", "miniflow.hostcuda", *nothing, cwd=tmp_path)
        assert result.stderr.startswith("usage: python -m miniflow.hostcuda script.py") and result.returncode == 1


def test_where_something_else_is_chosen_nothing_changes(monkeypatch):
    before = dict(sys.modules)
    gpu = type(os)("numba.cuda")
    monkeypatch.setattr(drop_in, "choose", lambda: gpu)
    assert drop_in.install() == "numba.cuda itself (numba.cuda)" and sys.modules == before


def test_an_earlier_import_is_replaced(tmp_path):
    (tmp_path / "program.py").write_text(
        "import sys\nfor name in ('numba.cuda', 'numba.cuda.compiler', 'numba_cuda_mlir.extending'):\n"
        "    sys.modules[name] = sys\nfrom miniflow.hostcuda import drop_in\n"
        "print(drop_in.install())\nimport numba.cuda\n"
        "print(numba.cuda.__name__, {'numba.cuda.compiler', 'numba_cuda_mlir.extending'} & {*sys.modules})\n"
    )
    result = run("program.py", cwd=tmp_path)
    expected = "miniflow's host executor, on the CPU (miniflow.hostcuda.host)\nminiflow.hostcuda.host set()\n"
    assert result.stdout == expected, result.stderr


# The page of the documentation


def test_the_page_lists_every_kind_of_finding():
    assert sorted(re.findall(r"^\| `(.+?)` \|", PAGE, flags=re.MULTILINE)) == sorted(findings.ORDER)


@pytest.fixture
def project(tmp_path):
    """The example of the page, and the commands of its workflow that run tests."""
    kernel, test = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "blocksum.py").write_text(kernel)
    (tmp_path / "test_blocksum.py").write_text(test)
    return tmp_path


@pytest.mark.slow
def test_the_workflow_of_the_documentation_runs_its_example(project):
    (workflow,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    install, plain, checked = re.findall(r"- run: (.*)", workflow)
    assert install == "pip install ci/*.whl pytest" and checked == f"MINIFLOW_CHECK=1 {plain}"
    assert plain.startswith("python -m pytest -p ") and "MINIFLOW_CUDA: host" in workflow
    for variables in ({"MINIFLOW_CHECK": None}, {"MINIFLOW_CHECK": "1"}):
        result = run(*plain.split()[1:], cwd=project, **variables)
        assert "1 passed" in result.stdout, result.stdout + result.stderr
        assert "numba.cuda: miniflow's host executor, on the CPU" in result.stdout


@pytest.mark.slow
def test_checks_find_a_fault_in_its_example(project):
    kernel = project / "blocksum.py"
    kernel.write_text(kernel.read_text().replace("cuda.syncthreads()\n    step", "step"))
    result = run("-m", "pytest", "-p", "miniflow.hostcuda.pytest_plugin", cwd=project, MINIFLOW_CHECK="1")
    assert "KernelCheckError: kernel block_sums" in result.stdout and "race" in result.stdout


@pytest.mark.slow
def test_worker_processes_of_pytest_have_it_too(project):
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    result = run("-m", "pytest", "-n", "1", "-p", "miniflow.hostcuda.pytest_plugin", cwd=project)
    assert "1 passed" in result.stdout and result.returncode == 0, result.stdout + result.stderr
