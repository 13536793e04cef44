"""Which `cuda` a program gets: the real one, numba's simulator, or the host executor; and its current device."""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import sys
import warnings
from types import ModuleType
from typing import Any

from miniflow.hostcuda.errors import CudaDeviceError
from miniflow.hostcuda.numba_cuda import is_simulator, package

CHOICES = ("gpu", "host", "simulator")


def choose() -> ModuleType:
    """`numba.cuda` where a GPU is usable or its simulator is asked for, else the host executor.

    MINIFLOW_CUDA=gpu|host|simulator decides; without it NUMBA_ENABLE_CUDASIM=1, then whether there is a GPU. Only the
    host executor can check kernels: MINIFLOW_CHECK=1 chooses it, even where there is a GPU.

    Raises:
        CudaDeviceError: if the choice is unknown or impossible here.
    """
    choice = os.environ.get("MINIFLOW_CUDA", "").strip().lower()
    if choice and choice not in CHOICES:
        raise CudaDeviceError(f"MINIFLOW_CUDA is {choice!r}; expected one of {', '.join(CHOICES)}, or unset")
    if checks_are_on() and choice in ("gpu", "simulator"):
        raise CudaDeviceError(
            f"MINIFLOW_CUDA={choice}, but MINIFLOW_CHECK=1 needs the host executor: unset one of them"
        )
    if choice == "host" or checks_are_on():
        return host()
    if choice == "simulator" or (not choice and simulator_asked_for()):
        return simulator()
    if choice == "gpu":
        return gpu()
    try:
        return gpu() if gpu_count() else host()
    except CudaDeviceError as error:
        warnings.warn(f"{error}\nKernels run on the CPU; MINIFLOW_CUDA=host says so silently", stacklevel=3)
        return host()


def checks_are_on() -> bool:
    """Whether MINIFLOW_CHECK asks for the checked executor."""
    return os.environ.get("MINIFLOW_CHECK", "0").strip() not in ("", "0")


def host() -> ModuleType:
    """The host executor."""
    return importlib.import_module("miniflow.hostcuda.host")


def simulator_asked_for() -> bool:
    """Whether NUMBA_ENABLE_CUDASIM is set to a number other than 0."""
    return os.environ.get("NUMBA_ENABLE_CUDASIM", "0").strip() not in ("", "0")


def gpu_count() -> int:
    """How many GPUs the CUDA driver sees; 0 without a driver. numba is not asked, as it takes long to load."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def gpu() -> ModuleType:
    """`numba.cuda` on a GPU, or its successor; see `numba_cuda.package`.

    Raises:
        CudaDeviceError: if there is none, or numba cannot use it.
    """
    if simulator_asked_for():
        raise CudaDeviceError("MINIFLOW_CUDA=gpu, but NUMBA_ENABLE_CUDASIM asks for the simulator: unset one of them")
    if gpu_count() == 0:
        raise CudaDeviceError(
            "a GPU is asked for, but there is no driver, no GPU, or CUDA_VISIBLE_DEVICES hides it; "
            "MINIFLOW_CUDA=host runs kernels on the CPU"
        )
    try:
        cuda = package().cuda()
    except ImportError as error:
        raise CudaDeviceError(f"there is a GPU, but {package()} cannot be imported ({error})") from error
    if not cuda.is_available():
        reason = cuda.cuda_error() or "no NVVM: the CUDA toolkit is missing"
        raise CudaDeviceError(
            f"there is a GPU, but {package()} cannot use it ({reason}); "
            "pip install 'miniflow-edu[cuda]' brings the toolkit"
        )
    return cuda


def simulator() -> ModuleType:
    """numba's simulator.

    Raises:
        CudaDeviceError: if numba.cuda was already imported for real, as one process cannot have both.
    """
    if "numba.cuda" not in sys.modules:
        os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
        importlib.import_module("numba.core.config").reload_config()
    cuda = importlib.import_module("numba.cuda")
    importlib.import_module("numba.cuda.random")  # for `cuda.random`
    if not is_simulator(cuda):
        raise CudaDeviceError(
            "the simulator is asked for, but numba.cuda is already imported without it: "
            "import miniflow.hostcuda.cuda first, or start Python with NUMBA_ENABLE_CUDASIM=1"
        )
    return cuda


def local_rank() -> int | None:
    """The rank among those of the MPI world that run on this machine; None without MPI."""
    names = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK")
    return next((int(os.environ[name]) for name in names if name in os.environ), None)


def current_device() -> int:
    """The number of the device. In an MPI rank, that of the rank on its machine is selected first, in turns."""
    cuda = cuda_of_process()
    return 0 if is_simulator(cuda) else cuda.get_current_device().id


@functools.cache
def cuda_of_process() -> Any:
    """`cuda` of this process, after its device was selected."""
    cuda = importlib.import_module(__package__).cuda
    rank = local_rank()
    if rank:
        cuda.select_device(rank % len(cuda.gpus))
    return cuda
