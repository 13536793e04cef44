"""All that this project touches of numba-cuda beyond the documented names of `numba.cuda`.

NVIDIA maintains numba-cuda, and names numba-cuda-mlir as its successor. What has to change for that lies here:

    to compile without a GPU    numba.cuda.typing.typeof: typeof, typeof_impl.register; numba.cuda.types.Type;
                                numba.cuda.descriptor.cuda_target.typing_context.resolve_value_type;
                                numba.cuda.dispatcher.get_current_device (replaced while PTX is made)
    memory of a GPU             numba.cuda.cudadrv.driver: MemoryPointer, device_to_host, host_to_device, CudaAPIError;
                                numba.cuda.cudadrv.devicearray.DeviceNDArray; Context.memalloc
    the simulator               numba.cuda.simulator.cudadrv.devicearray.FakeCUDAArray

Of the documented names, this package uses jit, compile_ptx, random, is_available and cuda_error, and the backend gpus,
current_context, select_device, stream, default_stream, event and event_elapsed_time. numba-cuda is imported when one of
these functions is first called.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np


def submodule(name: str) -> ModuleType:
    """The module `numba.cuda.<name>`."""
    return importlib.import_module(f"numba.cuda.{name}")


def package() -> Any:
    """The package `numba.cuda` of numba-cuda, for compiling to PTX.

    Raises:
        ImportError: if it is not installed, or if the simulator (NUMBA_ENABLE_CUDASIM=1) or the host executor
            (`drop_in`) stands in its place.
    """
    if hasattr(sys.modules.get("numba.cuda"), "is_host_executor"):
        raise ImportError("the host executor stands in for numba.cuda: import it from miniflow.hostcuda for PTX")
    if importlib.util.find_spec("numba_cuda") is None:
        raise ImportError("compiling to PTX needs numba-cuda and its toolkit wheels: pip install 'numba-cuda[cu13]'")
    cuda = submodule("random").cuda  # which importing numba.cuda alone leaves out
    if is_simulator(cuda):
        raise ImportError("numba's simulator stands in for numba.cuda: unset NUMBA_ENABLE_CUDASIM to compile to PTX")
    return cuda


def is_simulator(cuda: Any) -> bool:
    """Whether `numba.cuda` is numba's simulator."""
    return "simulator" in cuda.jit.__module__


def types_of(values: Sequence[Any]) -> tuple:
    """numba.cuda's types of NumPy arrays, numbers, tuples, or types themselves."""
    known = (submodule("types").Type, importlib.import_module("numba.core.types").Type)
    typeof = submodule("typing.typeof").typeof
    return tuple(value if isinstance(value, known) else typeof(value) for value in values)


def register_types(stand_ins: dict[type, Callable[[Any], Any]]) -> None:
    """Objects of these classes have the type of that which the function gives for them, unless it is None."""
    context = submodule("descriptor").cuda_target.typing_context
    for kind, stand_in in stand_ins.items():

        def typeof(value: Any, purpose: Any, stand_in: Callable[[Any], Any] = stand_in) -> Any:
            object_ = stand_in(value)
            return None if object_ is None else context.resolve_value_type(object_)

        submodule("typing.typeof").typeof_impl.register(kind, typeof)


@contextmanager
def capability(cc: tuple[int, int]) -> Iterator[None]:
    """Device functions are compiled for the current device, which numba.cuda asks the driver for: answer for it."""
    dispatcher = submodule("dispatcher")
    asked = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=cc)
    try:
        yield
    finally:
        dispatcher.get_current_device = asked


@functools.cache
def context_of(device_index: int) -> Any:
    """The context of a GPU."""
    cuda = importlib.import_module("numba.cuda")
    with cuda.gpus[device_index]:
        return cuda.current_context()


def allocate(nbytes: int, device_index: int) -> tuple[Any, int]:
    """New memory of a GPU, which lives as long as the first result; and its address. MemoryError if there is none."""
    context = context_of(device_index)
    with importlib.import_module("numba.cuda").gpus[device_index]:
        try:
            pointer = context.memalloc(nbytes)
        except submodule("cudadrv.driver").CudaAPIError as error:
            raise MemoryError(str(error)) from error
    return pointer, int(pointer.device_ctypes_pointer.value or 0)


def pointer_to(layout: np.ndarray, device_index: int) -> Any:
    """A pointer to the first element of an array whose address is one of a GPU. It does not keep the memory."""
    address = ctypes.c_void_p(layout.__array_interface__["data"][0])
    return submodule("cudadrv.driver").MemoryPointer(context_of(device_index), address, layout.nbytes)


def argument(layout: np.ndarray, device_index: int) -> Any:
    """An array whose address is one of a GPU, as an argument of a launch."""
    device_array = submodule("cudadrv.devicearray").DeviceNDArray
    return device_array(layout.shape, layout.strides, layout.dtype, gpu_data=pointer_to(layout, device_index))


def copy_to_host(target: np.ndarray, layout: np.ndarray, device_index: int, stream: Any) -> None:
    """Copy a row-major array of a GPU into a row-major array of the host; `stream` says when it is done."""
    submodule("cudadrv.driver").device_to_host(target, pointer_to(layout, device_index), target.nbytes, stream=stream)


def copy_to_device(layout: np.ndarray, source: np.ndarray, device_index: int, stream: Any) -> None:
    """Copy a row-major array of the host into a row-major array of a GPU."""
    submodule("cudadrv.driver").host_to_device(pointer_to(layout, device_index), source, source.nbytes, stream=stream)


def simulated(layout: np.ndarray) -> Any:
    """A host array, as an argument of a launch in the simulator."""
    return submodule("simulator.cudadrv.devicearray").FakeCUDAArray(layout)
