"""All that this project touches of numba-cuda and numba-cuda-mlir beyond the documented names of `cuda`.

NVIDIA maintains numba-cuda, `numba.cuda`, and develops its successor numba-cuda-mlir, `numba_cuda_mlir.cuda`, for
Python 3.11 and newer. `numba.cuda` below stands for the one that is used: the successor where it is installed. What has
to change with them lies here:

    to compile without a GPU    numba.cuda.typing.typeof: typeof, typeof_impl.register; numba.cuda.types.Type;
                                numba.cuda.descriptor.cuda_target.typing_context.resolve_value_type, of the successor
                                numba_cuda_mlir.descriptor.mlir_target in the place of cuda_target;
                                numba.cuda.dispatcher.get_current_device, of the successor
                                numba_cuda_mlir.tools._cached_cc: replaced while PTX is made
    what the successor lacks    numba_cuda_mlir.extending: lower_builtin, refresh_registries; see `fill_gaps`
    memory of a GPU             numba.cuda.cudadrv.driver: MemoryPointer, device_to_host, host_to_device,
                                device_to_device, CudaAPIError; numba.cuda.cudadrv.devicearray.DeviceNDArray;
                                Context.memalloc
    launches                    numba.cuda.core.config.CUDA_LOW_OCCUPANCY_WARNINGS
    the simulator               numba.cuda.simulator.cudadrv.devicearray.FakeCUDAArray (numba-cuda alone has one)

Of the documented names, this package uses jit, compile_ptx, random, is_available and cuda_error, and the backend gpus,
current_context, select_device, stream, default_stream, event and event_elapsed_time. Both packages are imported when
one of these functions is first called.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Package:
    """A compiler of CUDA kernels written in Python.

    Attributes:
        distribution: what pip installs.
        folder: what it puts beside others.
        language: the module with the documented names.
        internals: the package whose modules have the other names.
    """

    distribution: str
    folder: str
    language: str
    internals: str

    def __str__(self) -> str:
        return self.distribution

    @property
    def installed(self) -> bool:
        """Whether it can be imported; a stand-in has no loader."""
        spec = importlib.util.find_spec(self.folder)
        return spec is not None and spec.loader is not None

    @property
    def version(self) -> str:
        """Its name and number."""
        return f"{self.distribution}-{version(self.distribution)}"

    def module(self, name: str) -> ModuleType:
        """The module of that name among its internals."""
        return importlib.import_module(f"{self.internals}.{name}")

    def cuda(self) -> Any:
        """The module of the documented names."""
        cuda = importlib.import_module(self.language)
        self.module("random")  # which importing numba.cuda alone leaves out
        if self is SUCCESSOR:
            fill_gaps()
        return cuda

    def compiler(self) -> Any:
        """The same, for compiling to PTX.

        Raises:
            ImportError: if it is not installed, or if the simulator (NUMBA_ENABLE_CUDASIM=1) or the host executor
                (`drop_in`) stands in its place.
        """
        if hasattr(sys.modules.get(self.language), "is_host_executor"):
            raise ImportError(f"the host executor stands in for {self}: import it from miniflow.hostcuda for PTX")
        if not self.installed:
            raise ImportError(
                f"compiling to PTX needs {self} and its toolkit wheels: pip install '{self.distribution}[cu13]'"
            )
        cuda = self.cuda()
        if is_simulator(cuda):
            raise ImportError(
                "numba's simulator stands in for numba.cuda: unset NUMBA_ENABLE_CUDASIM to compile to PTX"
            )
        return cuda

    @property
    def typing_context(self) -> Any:
        """What knows the types of global names."""
        if self is SUCCESSOR:
            return importlib.import_module("numba_cuda_mlir.descriptor").mlir_target.typing_context
        return self.module("descriptor").cuda_target.typing_context

    def types_of(self, values: Sequence[Any]) -> tuple:
        """Its types of NumPy arrays, numbers, tuples, or types themselves."""
        known = self.module("types").Type, importlib.import_module("numba.core.types").Type
        return tuple(
            self._own_type(value) if isinstance(value, known) else self.module("typing.typeof").typeof(value)
            for value in values
        )

    def _own_type(self, given: Any) -> Any:
        """The type for one of numba's; numba-cuda takes those as they are."""
        types, names = self.module("types"), {"Array": ("dtype", "ndim", "layout"), "Tuple": ("types",)}
        if isinstance(given, types.Type) or self is not SUCCESSOR:
            return given
        kind = "Tuple" if hasattr(given, "types") else type(given).__name__
        if kind not in names:
            return getattr(types, given.name)
        parts = [getattr(given, name) for name in names[kind]]
        parts[0] = self._own_type(parts[0]) if kind == "Array" else tuple(map(self._own_type, parts[0]))
        return getattr(types, kind)(*parts)

    def register_types(self, stand_ins: dict[type, Callable[[Any], Any]]) -> None:
        """Objects of these classes have the type of that which the function gives for them, unless it is None."""
        context = self.typing_context
        for kind, stand_in in stand_ins.items():

            def typeof(value: Any, purpose: Any, stand_in: Callable[[Any], Any] = stand_in) -> Any:
                object_ = stand_in(value)
                if self is SUCCESSOR and hasattr(object_, "py_func"):  # a device function, found by value as well
                    value.__numba_cuda_mlir_jitable__, value._numba_cuda_mlir_device_dispatcher = True, object_
                return None if object_ is None else context.resolve_value_type(object_)

            self.module("typing.typeof").typeof_impl.register(kind, typeof)

    @contextmanager
    def capability(self, cc: tuple[int, int]) -> Iterator[None]:
        """Device functions are compiled for the current device, for which the driver is asked: answer in its place."""
        if self is SUCCESSOR:
            place, name, answer = importlib.import_module("numba_cuda_mlir.tools"), "_cached_cc", cc
        else:
            place, name = self.module("dispatcher"), "get_current_device"
            answer = lambda: SimpleNamespace(compute_capability=cc)  # noqa: E731
        asked = getattr(place, name)
        setattr(place, name, answer)
        try:
            yield
        finally:
            setattr(place, name, asked)


SUCCESSOR = Package("numba-cuda-mlir", "numba_cuda_mlir", "numba_cuda_mlir.cuda", "numba_cuda_mlir.numba_cuda")
NUMBA_CUDA = Package("numba-cuda", "numba_cuda", "numba.cuda", "numba.cuda")
PACKAGES = SUCCESSOR, NUMBA_CUDA


@functools.cache
def package() -> Package:
    """The one that this process uses: the first that is installed."""
    return next((package for package in PACKAGES if package.installed), NUMBA_CUDA)


@functools.cache
def fill_gaps() -> None:
    """Teach numba-cuda-mlir 0.6 what kernels have that numba.cuda compiles and it does not:

    type(x)(0.5)         a constant in the type of a number
    x.view(np.int32)     the bits of a number
    f(x)                 of a function that `numba.njit` decorated
    """
    from numba.core.dispatcher import Dispatcher
    from numba_cuda_mlir import cuda
    from numba_cuda_mlir._mlir.dialects import arith
    from numba_cuda_mlir.extending import lower_builtin, refresh_registries
    from numba_cuda_mlir.numba_cuda import types
    from numba_cuda_mlir.numba_cuda.cpython.unsafe.numbers import viewer

    @lower_builtin(type, types.Any)
    def type_of(builder: Any, target: Any, args: Any, kwargs: Any) -> None:
        builder.store_var(target, builder.get_numba_type(target.name))  # what is called is found by its type

    @lower_builtin(viewer, types.Any, types.Any)  # for the types alone
    @lower_builtin((types.Integer, "view"), types.Integer, types.Any)
    @lower_builtin((types.Float, "view"), types.Float, types.Any)
    def view(builder: Any, target: Any, args: Any, kwargs: Any) -> None:
        builder.store_var(target, arith.bitcast(builder.get_mlir_type(target), builder.load_var(args[0])))

    refresh_registries()
    SUCCESSOR.register_types({Dispatcher: lambda function: cuda.jit(device=True)(function.py_func)})


def is_simulator(cuda: Any) -> bool:
    """Whether `numba.cuda` is numba's simulator."""
    return "simulator" in cuda.jit.__module__


@functools.cache
def context_of(device_index: int) -> Any:
    """The context of a GPU."""
    cuda = package().cuda()
    with cuda.gpus[device_index]:
        return cuda.current_context()


# What follows is called where the context of the device is current: CUDA begins each thread without one.


def allocate(nbytes: int, device_index: int) -> tuple[Any, int]:
    """New memory of a GPU, which lives as long as the first result; and its address. MemoryError if there is none."""
    try:
        pointer = context_of(device_index).memalloc(nbytes)
    except package().module("cudadrv.driver").CudaAPIError as error:
        raise MemoryError(str(error)) from error
    return pointer, int(pointer.device_ctypes_pointer.value or 0)


def pointer_to(layout: np.ndarray, device_index: int) -> Any:
    """A pointer to the first element of an array whose address is one of a GPU. It does not keep the memory."""
    address = ctypes.c_void_p(layout.__array_interface__["data"][0])
    return package().module("cudadrv.driver").MemoryPointer(context_of(device_index), address, layout.nbytes)


def argument(layout: np.ndarray, device_index: int) -> Any:
    """An array whose address is one of a GPU, as an argument of a launch."""
    device_array = package().module("cudadrv.devicearray").DeviceNDArray
    return device_array(layout.shape, layout.strides, layout.dtype, gpu_data=pointer_to(layout, device_index))


def copy_to_host(target: np.ndarray, layout: np.ndarray, device_index: int, stream: Any) -> None:
    """Copy a row-major array of a GPU into a row-major array of the host; `stream` says when it is done."""
    source = pointer_to(layout, device_index)
    package().module("cudadrv.driver").device_to_host(as_bytes(target), source, target.nbytes, stream=stream)


def copy_to_device(layout: np.ndarray, source: np.ndarray, device_index: int, stream: Any) -> None:
    """Copy a row-major array of the host into a row-major array of a GPU."""
    target = pointer_to(layout, device_index)
    package().module("cudadrv.driver").host_to_device(target, as_bytes(source), source.nbytes, stream=stream)


def copy_between(layout: np.ndarray, device_index: int, source: np.ndarray, source_index: int, stream: Any) -> None:
    """Copy a row-major array of a GPU into one of another GPU; `stream` is one of the former."""
    target, start = pointer_to(layout, device_index), pointer_to(source, source_index)
    package().module("cudadrv.driver").device_to_device(target, start, source.nbytes, stream=stream)


def as_bytes(array: np.ndarray) -> np.ndarray:
    """The memory of a row-major array: bfloat16 and dates are not among the elements that Python's buffers can have."""
    return array.reshape(-1).view(np.uint8)


def launch(kernel: Any, configuration: tuple, arguments: Sequence[Any]) -> None:
    """`kernel[configuration](*arguments)`, without numba's warning of grids of fewer than 128 blocks."""
    config = package().module("core.config")
    warns, config.CUDA_LOW_OCCUPANCY_WARNINGS = config.CUDA_LOW_OCCUPANCY_WARNINGS, 0
    try:
        configured = kernel[configuration]
    finally:
        config.CUDA_LOW_OCCUPANCY_WARNINGS = warns
    configured(*arguments)


def simulated(layout: np.ndarray) -> Any:
    """A host array, as an argument of a launch in the simulator."""
    return NUMBA_CUDA.module("simulator.cudadrv.devicearray").FakeCUDAArray(layout)
