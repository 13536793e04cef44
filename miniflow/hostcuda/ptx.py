"""Kernels compiled by the real `numba.cuda`: to PTX, or for the typing errors of a GPU, without a GPU.

numba.cuda learns that a name of ours has the type of its own name, and a device function that of the same function
decorated by `numba.cuda.jit`. Kernels stay as they are. numba-cuda-mlir or numba-cuda must be installed, with its
toolkit wheels (`pip install miniflow-edu[cuda]`); no GPU and no driver is needed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

from miniflow.hostcuda import numba_cuda
from miniflow.hostcuda.intrinsic import INTRINSICS, Intrinsic
from miniflow.hostcuda.libdevice import fp16, libdevice

PACKAGE = "miniflow.hostcuda"
KERNELS: list[type] = []
"""The class of kernels and device functions: `kernel`, which imports this module, enters it."""


@functools.cache
def _register_types(package: numba_cuda.Package) -> Any:
    """Tell a compiler the types of our names; its `cuda`."""
    from miniflow.hostcuda.memory import DeviceNDArray

    cuda = package.compiler()
    modules = {f"{PACKAGE}.host": cuda, f"{PACKAGE}.random": cuda.random}
    namespaces = {id(value): name for name, value in {**INTRINSICS, "libdevice": libdevice, "fp16": fp16}.items()}

    def named(dotted: str) -> Any:
        return functools.reduce(getattr, dotted.split("."), cuda)

    @functools.cache
    def device_function(kernel: Any) -> Any:
        function = kernel.py_func
        if function.__module__ == f"{PACKAGE}.random":  # the generators exist in numba.cuda under the same names
            return getattr(cuda.random, function.__name__)
        options = {name: kernel.options[name] for name in ("inline", "fastmath") if kernel.options.get(name)}
        return cuda.jit(device=True, **options)(function)

    stand_ins = {
        Intrinsic: lambda intrinsic: named(intrinsic.name),
        SimpleNamespace: lambda group: named(namespaces[id(group)]) if id(group) in namespaces else None,
        ModuleType: lambda module: modules.get(module.__name__),
        **dict.fromkeys(KERNELS, device_function),
        DeviceNDArray: lambda array: array.host,
    }
    package.register_types(stand_ins)
    return cuda


def numba_types(arguments: Sequence[Any], package: numba_cuda.Package | None = None) -> tuple:
    """numba.cuda's types of a launch's arguments: host arrays, device arrays, numbers, tuples, or types themselves."""
    package = package or numba_cuda.package()
    _register_types(package)
    return package.types_of(arguments)


def compile_to_ptx(
    kernel: Any, arguments: Sequence[Any], cc: tuple[int, int] = (7, 5), package: numba_cuda.Package | None = None
) -> str:
    """The PTX that `numba.cuda` compiles a kernel to.

    Args:
        kernel: of `cuda.jit`.
        arguments: as for a launch, or numba types.
        cc: the compute capability, as (9, 0) for an H100 or H200.
        package: what compiles; None for the one of this process.

    Raises:
        ImportError: if it is not installed.
        numba.cuda's own errors: if the kernel does not compile for a GPU.
    """
    package = package or numba_cuda.package()
    fastmath = bool(getattr(kernel, "options", {}).get("fastmath"))
    function, types = getattr(kernel, "py_func", kernel), numba_types(arguments, package)
    with package.capability(cc):
        return _register_types(package).compile_ptx(function, types, cc=cc, fastmath=fastmath)[0]


TOOLKIT_ERRORS = set("OSError ImportError NvvmError NvvmSupportError CudaSupportError DynamicLibNotFoundError".split())
"""The package, or what it needs to compile the kernel, is not there: nothing is known about the kernel."""


def typing_error(kernel: Any, arguments: Sequence[Any]) -> str | None:
    """Why a kernel would not compile for a GPU: the useful line first, numba's whole message after it; or None.

    numba-cuda is asked: its successor refuses less, and some that is right (in 0.6 the generators of `cuda.random`).
    Returns None too where it or its toolkit is not there to be asked.
    """
    try:
        compile_to_ptx(kernel, arguments, package=numba_cuda.NUMBA_CUDA)
    except Exception as error:  # typing, lowering and bytecode analysis each raise classes of their own
        bases = {base.__name__ for base in type(error).__mro__}
        if TOOLKIT_ERRORS & bases or "insert_unresolved_ref" in str(error):  # the latter: recursion, without a GPU
            return None
        name = "" if "NumbaError" in bases else f"{type(error).__name__}: "
        return f"{_where(error, getattr(kernel, 'py_func', kernel))}: {name}{useful_line(str(error))}\n{error}"
    return None


def _where(error: Exception, function: Callable) -> str:
    loc = getattr(error, "loc", None)
    if loc is not None and loc.line:
        return f"{loc.filename}:{loc.line}"
    frames = re.findall(r'File "([^"]+)", line (\d+)', str(error))
    lines = [line for name, line in frames if function.__code__.co_filename.endswith(name)]
    return f"{function.__code__.co_filename}:{lines[0] if lines else function.__code__.co_firstlineno}"


BOILERPLATE = ("Failed in cuda mode pipeline", "During:", "File ", "There are ", "Invalid use of")


def useful_line(message: str) -> str:
    """The one line of a numba error that names the reason.

    Example:
        >>> useful_line("Failed in cuda mode pipeline (step: nopython frontend)\\nUnknown attribute 'foo'")
        "Unknown attribute 'foo'"
    """
    specific = re.search(r"raised a specific error:\s*(?:\w*Error: )?(.*)", message)
    missing = re.match(r"(?:Failed in.*\n)*No implementation of function.*\s*>>> (.*)", message)
    if specific or missing:
        return specific[1].strip() if specific else f"numba.cuda has no {missing[1].strip()}"
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["no message"]
    return next((line for line in lines if not line.startswith(BOILERPLATE)), lines[0])
