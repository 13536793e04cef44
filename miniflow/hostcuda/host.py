"""The `cuda` of a machine without a GPU: the names of `numba.cuda` that kernels and host programs use.

Names of kernels (`grid`, `shared.array`, `atomic.add` ...) are markers that the compiler knows; the rest is for hosts.
"""

# ruff: noqa: F401, F403  (what is imported is what programs find here)

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from miniflow.hostcuda import arguments as args
from miniflow.hostcuda import devices, random
from miniflow.hostcuda import memory as devicearray
from miniflow.hostcuda.arguments import In, InOut, Out
from miniflow.hostcuda.devices import *
from miniflow.hostcuda.errors import CudaDeviceError, KernelLaunchError
from miniflow.hostcuda.intrinsic import INTRINSICS
from miniflow.hostcuda.kernel import Kernel, jit
from miniflow.hostcuda.libdevice import fp16, libdevice
from miniflow.hostcuda.memory import *
from miniflow.hostcuda.vectorize import CUDAGUFuncVectorize, CUDAVectorize, Reduce, guvectorize, vectorize

globals().update(INTRINSICS)

HAS_NUMBA = True
is_host_executor = True
"""Only the host executor's `cuda` has this name: `getattr(cuda, "is_host_executor", False)`."""

reduce = Reduce
shared_array, local_array = INTRINSICS["shared"].array, INTRINSICS["local"].array
CudaSupportError, KernelRuntimeError = CudaDeviceError, KernelLaunchError
dispatcher = SimpleNamespace(CUDADispatcher=Kernel)
vectorizers = SimpleNamespace(CUDAVectorize=CUDAVectorize, CUDAGUFuncVectorize=CUDAGUFuncVectorize)
cudadrv = SimpleNamespace(
    devicearray=devicearray,
    devices=devices,
    driver=SimpleNamespace(
        Context=devices.Device, Device=devices.Device, Stream=devices.Stream, Event=devices.Event,
        MemoryInfo=devices.MemoryInfo, CudaAPIError=CudaDeviceError,
    ),
    error=SimpleNamespace(CudaSupportError=CudaDeviceError, CudaDriverError=CudaDeviceError),
)  # fmt: skip
"""Where programs look for `cuda.cudadrv.devicearray.DeviceNDArray` and other classes."""


def is_available() -> bool:
    """True: kernels run. numba.cuda says False without a GPU; programs ask in order to know whether to launch."""
    return True


def cuda_error() -> None:
    """None: nothing failed."""


def is_float16_supported() -> bool:
    """True: kernels compute with float16, rounded after each operation."""
    return True


def is_bfloat16_supported() -> bool:
    """False: kernels do not compute with bfloat16."""
    return False


is_fp8_supported = is_bfloat16_supported


def __getattr__(name: str) -> Any:
    """Types, as `cuda.float32` and `cuda.types`, come from numba when asked for."""
    if not name.startswith("_"):
        import numba
        from numba import types

        if name == "types":
            return types
        if name == "literal_unroll":
            return numba.literal_unroll
        if name in ("config", "core", "errors"):
            return numba.core if name == "core" else getattr(numba.core, name)
        numba_type = getattr(types, name, None)
        if isinstance(numba_type, types.Type):
            return numba_type
    raise AttributeError(
        f"the host executor's cuda has no {name!r}: numba.cuda may have it, but kernels on the CPU cannot use it"
    )
