"""The `cuda` of a machine without a GPU: the names of `numba.cuda` that kernels and host programs use.

Names of kernels (`grid`, `shared.array`, `atomic.add` ...) are markers that the compiler knows; the rest is for hosts.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

from miniflow.hostcuda import allocate as devicearray
from miniflow.hostcuda import devices, random
from miniflow.hostcuda.allocate import (
    as_cuda_array,
    auto_device,
    device_array,
    device_array_like,
    is_cuda_array,
    to_device,
)
from miniflow.hostcuda.arguments import In, InOut, Out
from miniflow.hostcuda.devices import (
    close,
    current_context,
    detect,
    get_current_device,
    gpus,
    list_devices,
    select_device,
)
from miniflow.hostcuda.errors import UnsupportedKernelError
from miniflow.hostcuda.intrinsic import INTRINSICS
from miniflow.hostcuda.kernel import jit
from miniflow.hostcuda.libdevice import libdevice
from miniflow.hostcuda.mapped import (
    managed_array,
    mapped,
    mapped_array,
    mapped_array_like,
    pinned,
    pinned_array,
    pinned_array_like,
)
from miniflow.hostcuda.reduce import Reduce
from miniflow.hostcuda.streams import (
    Event,
    Stream,
    default_stream,
    defer_cleanup,
    event,
    event_elapsed_time,
    external_stream,
    legacy_default_stream,
    per_thread_default_stream,
    profile_start,
    profile_stop,
    profiling,
    stream,
    synchronize,
)

globals().update(INTRINSICS)

__all__ = [  # noqa: PLE0604
    *INTRINSICS,
    "Event",
    "In",
    "InOut",
    "Out",
    "Reduce",
    "Stream",
    "as_cuda_array",
    "auto_device",
    "close",
    "cuda_error",
    "cudadrv",
    "current_context",
    "declare_device",
    "default_stream",
    "defer_cleanup",
    "detect",
    "device_array",
    "device_array_like",
    "devicearray",
    "devices",
    "event",
    "event_elapsed_time",
    "external_stream",
    "get_current_device",
    "gpus",
    "implementation",
    "is_available",
    "is_bfloat16_supported",
    "is_cuda_array",
    "is_float16_supported",
    "is_fp8_supported",
    "is_host_executor",
    "is_supported_version",
    "jit",
    "legacy_default_stream",
    "libdevice",
    "list_devices",
    "managed_array",
    "mapped",
    "mapped_array",
    "mapped_array_like",
    "per_thread_default_stream",
    "pinned",
    "pinned_array",
    "pinned_array_like",
    "profile_start",
    "profile_stop",
    "profiling",
    "random",
    "reduce",
    "require_context",
    "select_device",
    "stream",
    "synchronize",
    "to_device",
]

is_host_executor = True
"""Only the host executor's `cuda` has this name: `getattr(cuda, "is_host_executor", False)`."""

implementation = "miniflow host executor"
reduce = Reduce
cudadrv = SimpleNamespace(devicearray=devicearray, devices=devices)
"""Where programs look for `cuda.cudadrv.devicearray.DeviceNDArray`."""


def is_available() -> bool:
    """True: kernels run. numba.cuda says False without a GPU; programs ask in order to know whether to launch."""
    return True


def cuda_error() -> None:
    """None: there is no driver that could have failed."""


def is_supported_version() -> bool:
    """True: there is no CUDA runtime that could be too new."""
    return True


def is_float16_supported() -> bool:
    """True: arrays of float16 can be stored; kernels that compute with them are not compiled for the CPU."""
    return True


def is_bfloat16_supported() -> bool:
    """False: numba has no bfloat16 on the CPU. Device arrays can store it."""
    return False


def is_fp8_supported() -> bool:
    """False, as `is_bfloat16_supported`."""
    return False


def require_context(fn: Callable) -> Callable:
    """For functions that need a current device, which there always is."""
    return fn


def declare_device(name: str, sig: Any, **options: Any) -> NoReturn:
    """Refused: a foreign device function is machine code of a GPU."""
    raise UnsupportedKernelError(f"declare_device({name!r}): the host executor cannot call CUDA C or PTX")


def __getattr__(name: str) -> Any:
    """Types, as `cuda.float32` and `cuda.types`, come from numba when asked for."""
    if not name.startswith("_"):
        from numba import types

        if name == "types":
            return types
        found = getattr(types, name, None)
        if isinstance(found, types.Type):
            return found
    raise AttributeError(
        f"the host executor's cuda has no {name!r}: numba.cuda may have it, but kernels on the CPU cannot use it"
    )
