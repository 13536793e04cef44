"""A kernel over the real `numba.cuda`: to compile it to PTX, or to hear what a GPU's typing says, where no GPU is.

The plain function is rebuilt with other globals and another closure: the facade becomes the `numba.cuda` package, an
intrinsic the function of that name in it, and a device function the same function decorated by `numba.cuda.jit`. The
originals stay as they are, so that both worlds live in one process. numba-cuda and its toolkit wheels must be installed
(`pip install numba-cuda[cu13]`); no GPU and no driver is needed.
"""

from __future__ import annotations

import dis
import re
from collections.abc import Callable, Sequence
from types import CellType, CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

from miniflow.hostcuda import numba_cuda
from miniflow.hostcuda.intrinsic import INTRINSICS, Intrinsic
from miniflow.hostcuda.libdevice import fp16, libdevice

PACKAGE = "miniflow.hostcuda"


def to_numba_cuda(kernel: Any) -> Callable:
    """The kernel as a plain function over the real `numba.cuda`, with its device functions jitted by it.

    Args:
        kernel: of `cuda.jit`, or a plain function.

    Returns:
        What `numba.cuda.jit` or `numba.cuda.compile_ptx` takes.
    """
    return _Translation(numba_cuda.package()).function(getattr(kernel, "py_func", kernel))


class _Translation:
    """From the host's names to numba.cuda's; each function is rebuilt once, so that two callers share it."""

    def __init__(self, cuda: Any):
        self.cuda = cuda
        self.done: dict[int, Any] = {}
        self.open: set[int] = set()
        groups = {**INTRINSICS, "libdevice": libdevice, "fp16": fp16}
        self.namespaces = {id(v): name for name, v in groups.items() if isinstance(v, SimpleNamespace)}

    def function(self, original: Callable) -> Callable:
        values = original.__globals__
        replaced = {name: self.value(values[name]) for name in names_in(original.__code__) if name in values}
        cells = tuple(CellType(self.value(cell.cell_contents)) for cell in original.__closure__ or ())
        rebuilt = FunctionType(
            original.__code__, {**values, **replaced}, original.__name__, original.__defaults__, cells or None
        )
        rebuilt.__kwdefaults__ = original.__kwdefaults__
        rebuilt.__qualname__ = original.__qualname__
        rebuilt.__module__ = original.__module__
        return rebuilt

    def value(self, value: Any) -> Any:
        """What takes the place of a global, of a closure's value, or of what a module holds."""
        if isinstance(value, Intrinsic):
            return self.named(value.name)
        if id(value) in self.namespaces:
            return self.named(self.namespaces[id(value)])
        if isinstance(value, ModuleType):
            return self.module(value)
        if isinstance(getattr(value, "py_func", None), FunctionType) and type(value).__module__.startswith(PACKAGE):
            return self.device_function(value)
        return value

    def named(self, dotted: str) -> Any:
        found = self.cuda
        for part in dotted.split("."):
            found = getattr(found, part)
        return found

    def module(self, module: ModuleType) -> ModuleType:
        """numba.cuda's own module for one of ours; for another, one whose names are translated when they are read."""
        if module.__name__ == f"{PACKAGE}.host":
            return self.cuda
        if module.__name__ == f"{PACKAGE}.random":
            return self.cuda.random
        if module.__name__.partition(".")[0] in ("numpy", "math", "numba", "builtins"):
            return module
        stand_in = ModuleType(module.__name__)
        stand_in.__getattr__ = lambda name: self.value(getattr(module, name))
        return stand_in

    def device_function(self, function: Any) -> Any:
        if id(function) in self.done:
            return self.done[id(function)]
        plain = function.py_func
        if plain.__module__ == f"{PACKAGE}.random":  # the generators exist in numba.cuda under the same names
            return getattr(self.cuda.random, plain.__name__)
        if id(plain) in self.open:
            raise RecursionError(f"{plain.__name__} calls itself, which numba.cuda compiles only where a GPU is")
        self.open.add(id(plain))
        options = {name: function.options[name] for name in ("inline", "fastmath") if function.options.get(name)}
        self.done[id(function)] = self.cuda.jit(device=True, **options)(self.function(plain))
        return self.done[id(function)]


def names_in(code: CodeType) -> set[str]:
    """The names of the globals that a function, or one nested in it, reads."""
    nested = [names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}.union(*nested)


def numba_types(arguments: Sequence[Any]) -> tuple:
    """numba.cuda's types of a launch's arguments: host arrays, device arrays, numbers, tuples, or types themselves."""
    numba_cuda.package()
    return numba_cuda.types_of([_plain(argument) for argument in arguments])


def _plain(argument: Any) -> Any:
    """The NumPy array behind a device array, also inside tuples."""
    if isinstance(argument, tuple):
        items = [_plain(item) for item in argument]
        return type(argument)(*items) if hasattr(argument, "_fields") else tuple(items)
    return getattr(argument, "host", argument)


def compile_to_ptx(kernel: Any, arguments: Sequence[Any], cc: tuple[int, int] = (7, 5)) -> str:
    """The PTX that `numba.cuda` compiles a kernel to.

    Args:
        kernel: of `cuda.jit`.
        arguments: as for a launch, or numba types.
        cc: the compute capability, as (9, 0) for an H100 or H200.

    Raises:
        ImportError: if numba-cuda is not installed.
        numba.cuda's own errors: if the kernel does not compile for a GPU.
    """
    fastmath = bool(getattr(kernel, "options", {}).get("fastmath"))
    compile_ptx = numba_cuda.package().compile_ptx
    with numba_cuda.capability(cc):
        return compile_ptx(to_numba_cuda(kernel), numba_types(arguments), cc=cc, fastmath=fastmath)[0]


TOOLKIT_ERRORS = set(
    "OSError ImportError NvvmError NvvmSupportError CudaSupportError DynamicLibNotFoundError RecursionError".split()
)
"""numba-cuda, or what it needs to compile the kernel, is not there: nothing is known about the kernel."""


def typing_error(kernel: Any, arguments: Sequence[Any]) -> str | None:
    """Why a kernel would not compile for a GPU: the useful line first, numba's whole message after it; or None.

    Returns None too where numba-cuda or its toolkit is not there to be asked.
    """
    try:
        compile_to_ptx(kernel, arguments)
    except Exception as error:  # typing, lowering and bytecode analysis each raise classes of their own
        bases = {base.__name__ for base in type(error).__mro__}
        if TOOLKIT_ERRORS & bases:
            return None
        name = "" if "NumbaError" in bases else f"{type(error).__name__}: "
        return f"{_where(error, getattr(kernel, 'py_func', kernel))}: {name}{useful_line(str(error))}\n{error}"
    return None


def _where(error: Exception, function: Callable) -> str:
    loc = getattr(error, "loc", None)
    if loc is not None and loc.line:
        return f"{loc.filename}:{loc.line}"
    places = re.findall(r'File "([^"]+)", line (\d+)', str(error))
    own = [line for name, line in places if function.__code__.co_filename.endswith(name)]
    return f"{function.__code__.co_filename}:{own[0] if own else function.__code__.co_firstlineno}"


BOILERPLATE = ("Failed in cuda mode pipeline", "During:", "File ", "There are ", "Invalid use of")


def useful_line(message: str) -> str:
    """The one line of a numba error that says what is wrong.

    Example:
        >>> useful_line("Failed in cuda mode pipeline (step: nopython frontend)\\nUnknown attribute 'foo'")
        "Unknown attribute 'foo'"
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    for line, following in zip(lines, lines[1:], strict=False):
        if line.endswith("raised a specific error:"):
            return re.sub(r"^\w*Error: ", "", following)
    for line, following in zip(lines, [*lines[1:], ""], strict=False):
        if line.startswith("No implementation of function") and following.startswith(">>>"):
            return f"numba.cuda has no {following.removeprefix('>>>').strip()}"
        if not line.startswith(BOILERPLATE):
            return line
    return lines[0] if lines else "no message"
