"""Which `cuda` a program gets."""

import ctypes
import os
import subprocess
import sys
import warnings

import pytest

from miniflow.hostcuda import CudaDeviceError, choice, host
from miniflow.hostcuda.numba_cuda import NUMBA_CUDA


@pytest.fixture(autouse=True)
def no_choice(monkeypatch):
    monkeypatch.delenv("MINIFLOW_CUDA", raising=False)
    monkeypatch.delenv("NUMBA_ENABLE_CUDASIM", raising=False)
    monkeypatch.delenv("MINIFLOW_CHECK", raising=False)


def run(code: str, **environment: str) -> str:
    """What a fresh Python prints."""
    unset = {"MINIFLOW_CUDA", "MINIFLOW_CHECK", "NUMBA_ENABLE_CUDASIM"}
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**inherited, **environment}, capture_output=True, text=True, timeout=120
    )
    return done.stdout.strip() + done.stderr.strip()


def test_without_a_gpu_the_host_executor_is_chosen(monkeypatch):
    monkeypatch.setattr(choice, "gpu_count", lambda: 0)
    assert choice.choose() is host
    assert host.is_available() and host.is_host_executor


def test_the_host_executor_can_be_forced(monkeypatch):
    monkeypatch.setattr(choice, "gpu_count", lambda: pytest.fail("the driver was asked"))
    monkeypatch.setenv("MINIFLOW_CUDA", " Host ")
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    assert choice.choose() is host


def test_checks_choose_the_host_executor(monkeypatch):
    monkeypatch.setenv("MINIFLOW_CHECK", "1")
    monkeypatch.setattr(choice, "gpu_count", lambda: 1)
    assert choice.choose() is host
    for other in ("gpu", "simulator"):
        monkeypatch.setenv("MINIFLOW_CUDA", other)
        with pytest.raises(
            CudaDeviceError, match=f"MINIFLOW_CUDA={other}, but MINIFLOW_CHECK=1 needs the host executor"
        ):
            choice.choose()


def test_an_unknown_choice_is_refused(monkeypatch):
    monkeypatch.setenv("MINIFLOW_CUDA", "cpu")
    with pytest.raises(CudaDeviceError, match="MINIFLOW_CUDA is 'cpu'; expected one of gpu, host, simulator, or unset"):
        choice.choose()


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setenv("MINIFLOW_CUDA", "gpu")
    monkeypatch.setattr(choice, "gpu_count", lambda: 0)
    with pytest.raises(CudaDeviceError, match="no driver, no GPU, or CUDA_VISIBLE_DEVICES.*MINIFLOW_CUDA=host"):
        choice.choose()


def test_gpu_and_simulator_contradict_each_other(monkeypatch):
    monkeypatch.setenv("MINIFLOW_CUDA", "gpu")
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    with pytest.raises(CudaDeviceError, match="MINIFLOW_CUDA=gpu, but NUMBA_ENABLE_CUDASIM asks for the simulator"):
        choice.choose()


def stand_in(monkeypatch, usable):
    """A numba.cuda that says whether it can use its GPU."""
    import types

    module = types.ModuleType("numba.cuda")
    module.is_available = lambda: usable
    module.cuda_error = lambda: "" if usable else "driver too old"
    monkeypatch.setattr(choice, "package", lambda: NUMBA_CUDA)
    monkeypatch.setitem(sys.modules, "numba.cuda", module)
    monkeypatch.setitem(sys.modules, "numba.cuda.random", types.ModuleType("numba.cuda.random"))
    monkeypatch.setattr(choice, "gpu_count", lambda: 1)
    return module


def test_a_usable_gpu_is_taken(monkeypatch):
    module = stand_in(monkeypatch, usable=True)
    assert choice.choose() is module
    monkeypatch.setenv("MINIFLOW_CUDA", "gpu")
    assert choice.choose() is module


def test_a_gpu_that_numba_cannot_use_is_left_with_a_warning(monkeypatch):
    stand_in(monkeypatch, usable=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert choice.choose() is host
    assert "numba-cuda cannot use it (driver too old)" in str(caught[0].message)
    assert "MINIFLOW_CUDA=host says so silently" in str(caught[0].message)
    monkeypatch.setenv("MINIFLOW_CUDA", "gpu")
    with pytest.raises(CudaDeviceError, match="numba-cuda cannot use it .driver too old."):
        choice.choose()


class Driver:
    """A CUDA driver with `devices` GPUs, or one whose initialisation fails."""

    def __init__(self, devices: int, status: int = 0):
        self.devices, self.status = devices, status

    def cuInit(self, flags):
        return self.status

    def cuDeviceGetCount(self, count):
        count._obj.value = self.devices
        return 0


@pytest.mark.parametrize(("driver", "count"), [(Driver(3), 3), (Driver(0), 0), (Driver(2, status=100), 0)])
def test_the_driver_is_asked_for_devices(monkeypatch, driver, count):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    assert choice.gpu_count() == count


def test_no_driver_means_no_device(monkeypatch):
    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert choice.gpu_count() == 0


SIMULATED = """
from miniflow.hostcuda import cuda
import numpy as np
@cuda.jit
def double(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= 2
x = np.arange(5)
double[1, 8](x)
print(cuda.jit.__module__, x)
"""


@pytest.mark.parametrize("variable", ["MINIFLOW_CUDA=simulator", "NUMBA_ENABLE_CUDASIM=1"])
def test_the_simulator(variable):
    name, value = variable.split("=")
    printed = run(SIMULATED, **{name: value})
    assert "numba.cuda.simulator" in printed and "[0 2 4 6 8]" in printed


def test_the_device_of_the_simulator():
    code = "import miniflow as flow; print(flow.ones(3, device='cuda').device)"
    assert run(code, MINIFLOW_CUDA="simulator") == "cuda:0"


def test_the_simulator_comes_too_late_after_numba_cuda():
    code = "import numba.cuda; from miniflow.hostcuda import cuda"
    printed = run(code, MINIFLOW_CUDA="simulator")
    assert "CudaDeviceError: the simulator is asked for, but numba.cuda is already imported without it" in printed


ALONE = """
import sys, types
package = types.ModuleType("miniflow")
package.__path__ = [{path!r}]
sys.modules["miniflow"] = package
from miniflow.hostcuda import cuda
device_array = cuda.to_device([1.0, 2.0])
@cuda.jit
def kernel(x):
    x[0] = 1
kernel[2, 32]
loaded = {{name.split(".")[0] for name in sys.modules}}
print(sorted(loaded & {{"numba", "llvmlite", "matplotlib"}}), [m for m in sys.modules if m.startswith("miniflow.")
      and not m.startswith("miniflow.hostcuda")])
"""


def test_the_host_executor_stands_alone_and_loads_numba_only_to_compile():
    path = os.path.dirname(os.path.dirname(choice.__file__))
    assert run(ALONE.format(path=path), MINIFLOW_CUDA="host") == "[] []"
