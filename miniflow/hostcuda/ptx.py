"""A kernel over the real `numba.cuda`: to compile it to PTX, or to hear what a GPU's typing says, where no GPU is.

The plain function is rebuilt with other globals and another closure: the facade becomes the `numba.cuda` package, an
intrinsic the function of that name in it, and a device function the same function decorated by `numba.cuda.jit`. The
originals stay as they are, so that both worlds live in one process. numba-cuda and its toolkit wheels must be installed
(`pip install numba-cuda[cu13]`); no GPU and no driver is needed.
"""

from __future__ import annotations

import dis
import importlib
import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CellType, CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

from miniflow.hostcuda.errors import UnsupportedKernelError
from miniflow.hostcuda.intrinsic import INTRINSICS, Intrinsic

PACKAGE = "miniflow.hostcuda"


def numba_cuda() -> Any:
    """The package `numba.cuda` of numba-cuda.

    Raises:
        ImportError: if it is not installed, or if NUMBA_ENABLE_CUDASIM=1 puts the simulator in its place.
    """
    if importlib.util.find_spec("numba_cuda") is None:
        raise ImportError("compiling to PTX needs numba-cuda and its toolkit wheels: pip install 'numba-cuda[cu13]'")
    cuda = importlib.import_module("numba.cuda")
    importlib.import_module("numba.cuda.random")  # else `cuda.random` is missing
    if "simulator" in cuda.jit.__module__:
        raise ImportError("numba's simulator stands in for numba.cuda: unset NUMBA_ENABLE_CUDASIM to compile to PTX")
    return cuda


def to_numba_cuda(kernel: Any) -> Callable:
    """The kernel as a plain function over the real `numba.cuda`, with its device functions jitted by it.

    Args:
        kernel: of `cuda.jit`, or a plain function.

    Returns:
        What `numba.cuda.jit` or `numba.cuda.compile_ptx` takes.
    """
    return _Translation(numba_cuda()).function(getattr(kernel, "py_func", kernel))


class _Translation:
    """From the host's names to numba.cuda's; each function is rebuilt once, so that two callers share it."""

    def __init__(self, cuda: Any):
        self.cuda = cuda
        self.done: dict[int, Any] = {}
        self.open: set[int] = set()
        self.namespaces = {id(v): name for name, v in INTRINSICS.items() if isinstance(v, SimpleNamespace)}

    def function(self, original: Callable) -> Callable:
        names, values = _names(original.__code__), original.__globals__
        replaced = {name: self.value(values[name], names[name]) for name in names if name in values}
        cells = tuple(
            CellType(self.value(cell.cell_contents, names.get(name, frozenset())))
            for name, cell in zip(original.__code__.co_freevars, original.__closure__ or (), strict=True)
        )
        rebuilt = FunctionType(
            original.__code__, {**values, **replaced}, original.__name__, original.__defaults__, cells or None
        )
        rebuilt.__kwdefaults__ = original.__kwdefaults__
        rebuilt.__qualname__ = original.__qualname__
        rebuilt.__module__ = original.__module__
        return rebuilt

    def value(self, value: Any, names: frozenset[str]) -> Any:
        """What takes the place of a global or of a closure's value; `names` are its attributes that are used."""
        if isinstance(value, Intrinsic):
            return self.named(value.name)
        if id(value) in self.namespaces:
            return self.named(self.namespaces[id(value)])
        if isinstance(value, ModuleType):
            return self.module(value, names)
        if _is_jitted(value):
            return self.device_function(value)
        return value

    def named(self, dotted: str) -> Any:
        found = self.cuda
        for part in dotted.split("."):
            found = getattr(found, part)
        return found

    def module(self, module: ModuleType, names: frozenset[str]) -> ModuleType:
        """numba.cuda's own module for one of ours, or the same module with what the kernel uses of it replaced."""
        if module.__name__ == f"{PACKAGE}.host":
            return self.cuda
        if module.__name__.startswith(f"{PACKAGE}."):
            inner = module.__name__.removeprefix(f"{PACKAGE}.")
            if importlib.util.find_spec(f"numba.cuda.{inner}"):
                return importlib.import_module(f"numba.cuda.{inner}")
        if module.__name__.partition(".")[0] in ("numpy", "math", "numba", "builtins"):
            return module
        found = {name: getattr(module, name) for name in sorted(names) if hasattr(module, name)}
        replaced = {name: self.value(value, names) for name, value in found.items()}
        if all(replaced[name] is value for name, value in found.items()):
            return module
        stand_in = ModuleType(module.__name__)
        vars(stand_in).update({**vars(module), **replaced})
        return stand_in

    def device_function(self, function: Any) -> Any:
        if id(function) in self.done:
            return self.done[id(function)]
        plain = function.py_func
        if plain.__module__ == f"{PACKAGE}.random":  # the generators exist in numba.cuda under the same names
            self.done[id(function)] = getattr(importlib.import_module("numba.cuda.random"), plain.__name__)
            return self.done[id(function)]
        if id(plain) in self.open:
            raise UnsupportedKernelError(f"{plain.__name__} calls itself; recursion is not supported in a kernel")
        self.open.add(id(plain))
        options = getattr(function, "options", {})
        kept = {name: options[name] for name in ("inline", "fastmath") if options.get(name)}
        self.done[id(function)] = self.cuda.jit(device=True, **kept)(self.function(plain))
        return self.done[id(function)]


def _names(code: CodeType) -> dict[str, frozenset[str]]:
    """Every global and closure variable that a function or one nested in it loads, with the attributes used of it."""
    names: dict[str, frozenset[str]] = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            for name, attributes in _names(constant).items():
                names[name] = names.get(name, frozenset()) | attributes
    loaded = ""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_DEREF"):
            loaded = instruction.argval
            names.setdefault(loaded, frozenset())
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and loaded:
            names[loaded] |= {instruction.argval}  # also those of its attributes: `package.cuda.grid`
        else:
            loaded = ""
    return names


def _is_jitted(value: Any) -> bool:
    return isinstance(getattr(value, "py_func", None), FunctionType) and type(value).__module__.startswith(PACKAGE)


def numba_types(arguments: Sequence[Any]) -> tuple:
    """numba.cuda's types of a launch's arguments: host arrays, device arrays, numbers, tuples, or types themselves."""
    numba_cuda()
    typeof = importlib.import_module("numba.cuda.typing.typeof").typeof
    base = importlib.import_module("numba.cuda.types").Type
    core = importlib.import_module("numba.core.types").Type

    def one(argument: Any) -> Any:
        if isinstance(argument, base | core):
            return argument
        return typeof(_plain(argument))

    return tuple(one(argument) for argument in arguments)


def _plain(argument: Any) -> Any:
    """The NumPy array behind a device array, also inside tuples."""
    if isinstance(argument, tuple):
        return tuple(_plain(item) for item in argument)
    return getattr(argument, "host", argument)


@contextmanager
def _capability(cc: tuple[int, int]) -> Iterator[None]:
    """Device functions are compiled for the current device, which numba.cuda asks the driver for: answer for it."""
    dispatcher = importlib.import_module("numba.cuda.dispatcher")
    asked = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=cc)
    try:
        yield
    finally:
        dispatcher.get_current_device = asked


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
    cuda = numba_cuda()
    fastmath = bool(getattr(kernel, "options", {}).get("fastmath"))
    with _capability(cc):
        ptx, _ = cuda.compile_ptx(to_numba_cuda(kernel), numba_types(arguments), cc=cc, fastmath=fastmath)
    return ptx


def typing_error(kernel: Any, arguments: Sequence[Any]) -> str | None:
    """Why a kernel would not compile for a GPU: the useful line first, numba's whole message after it; or None.

    Returns None too where numba-cuda or its toolkit is not there to be asked.
    """
    try:
        numba_cuda()
    except ImportError:
        return None
    try:
        compile_to_ptx(kernel, arguments)
    except Exception as error:  # typing, lowering and bytecode analysis each raise classes of their own
        if TOOLKIT_ERRORS & {base.__name__ for base in type(error).__mro__}:
            return None
        function = getattr(kernel, "py_func", kernel)
        own = any(base.__name__ == "NumbaError" for base in type(error).__mro__)
        name = "" if own else f"{type(error).__name__}: "
        return f"{_where(error, function)}: {name}{useful_line(str(error))}\n{error}"
    return None


TOOLKIT_ERRORS = {
    "OSError",
    "ImportError",
    "NvvmError",
    "NvvmSupportError",
    "CudaSupportError",
    "DynamicLibNotFoundError",
}
"""numba-cuda is there, but not the toolkit that it compiles with: nothing is known about the kernel."""


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
