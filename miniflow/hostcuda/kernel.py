"""`@cuda.jit`: kernels and device functions."""

from __future__ import annotations

import ast
import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from miniflow.hostcuda import source
from miniflow.hostcuda.arguments import Kind, convert_any
from miniflow.hostcuda.choice import checks_are_on
from miniflow.hostcuda.errors import KernelArgumentError, KernelLaunchError, KernelReturnError, UnsupportedKernelError
from miniflow.hostcuda.launch import ForAll, Launch
from miniflow.hostcuda.signatures import Casts, Signature, Variant, choose, is_signature, parse
from miniflow.hostcuda.transfers import HostArrays

COMPILING = threading.RLock()
CONFIGURATIONS_KEPT = 128
WITHOUT_CONFIGURATION = (
    "{name}: a kernel is launched with its configuration: {name}[blocks_per_grid, threads_per_block](...)"
)


def jit(func_or_sig: Any = None, device: bool = False, **options: Any) -> Any:
    """Make a kernel of a function, or a device function, as `numba.cuda.jit` does.

    Args:
        func_or_sig: the function; or a signature or list of signatures, to accept those argument types only.
        device: whether it is called by kernels instead of launched.
        options: `check=True` runs the kernel in the checked executor, `profile=True` counts its memory accesses.
            numba's options (debug, opt, fastmath, inline, lineinfo, link, cache, max_registers ...) are accepted.

    Returns:
        A `Kernel`, or a decorator that makes one.

    Example:
        >>> from miniflow.hostcuda.host import grid, jit, to_device
        >>> @jit
        ... def double(x):
        ...     i = grid(1)
        ...     if i < x.size:
        ...         x[i] *= 2
        >>> double
        <kernel double(x)>
    """
    check_options(options)
    if func_or_sig is None:
        return functools.partial(jit, device=device, **options)
    if is_signature(func_or_sig):
        explicit = parse(func_or_sig, device)
        return lambda function: Kernel(function, device, options, explicit)
    if isinstance(func_or_sig, Kernel):
        raise KernelArgumentError(f"@cuda.jit was applied twice to {func_or_sig.__name__}")
    if not inspect.isfunction(func_or_sig):
        raise KernelArgumentError(f"@cuda.jit takes a Python function or a signature, got {func_or_sig!r}")
    return Kernel(func_or_sig, device, options, [])


OPTIONS = set(
    "check profile debug opt fastmath inline forceinline lineinfo link cache max_registers launch_bounds lto extensions"
    " shared_memory_carveout boundscheck nopython".split()
)


def check_options(options: dict[str, Any]) -> None:
    """Refuse unknown options, and those that ask for what cannot be done."""
    unknown = sorted(set(options) - OPTIONS)
    if unknown:
        known = ", ".join(sorted(OPTIONS))
        raise KernelArgumentError(f"@cuda.jit has no option {', '.join(unknown)}; it has {known}")
    if options.get("link"):
        raise UnsupportedKernelError("@cuda.jit(link=...): the host executor cannot run PTX or CUDA C")
    if options.get("boundscheck"):
        raise UnsupportedKernelError(
            "@cuda.jit(boundscheck=True): numba.cuda has no bounds checks; use check=True here"
        )


class Kernel:
    """A kernel or, with device=True, a device function.

    Attributes:
        py_func: the function as written.
        device: whether it is a device function.
        options: of `cuda.jit`; `check` and `profile` may be changed.
        signatures: the argument types that it accepts, if they were given; else those that it was launched with.
        variants: block rank (1 or 3) -> kinds of arguments -> how to run them.
        compiled: (types, block rank) -> what the compiler made.
    """

    def __init__(self, py_func: Callable, device: bool, options: dict[str, Any], explicit: Sequence[Signature]):
        functools.update_wrapper(self, py_func)
        self.py_func = py_func
        self.device = device
        self.options = {"check": checks_are_on(), "profile": False, **options}
        self.explicit = list(explicit)
        self.variants: dict[int, dict[tuple[Kind, ...], Variant]] = {1: {}, 3: {}}
        self.compiled: dict[tuple[tuple, int], Any] = {}
        self.parameters = tuple(inspect.signature(py_func).parameters)
        self.profile: Any = None
        self._known_to_return_nothing = device
        self._configurations: dict[tuple, Launch] = {}
        for signature in explicit:
            self._check_count(len(signature.types), "the signature has")

    @property
    def watched(self) -> bool:
        """Whether launches go to the checked executor, which also profiles."""
        return bool(self.options["check"] or self.options["profile"])

    def __getitem__(self, configuration: Any) -> Launch:
        """`kernel[grid, block]`, `kernel[grid, block, stream]` or `kernel[grid, block, stream, shared_bytes]`."""
        try:
            return self._configurations[configuration]
        except KeyError:
            pass
        except TypeError:  # a list, which cannot be a key
            return self.configure(*self._checked(configuration))
        if len(self._configurations) >= CONFIGURATIONS_KEPT:
            self._configurations.clear()
        launch = self._configurations[configuration] = self.configure(*self._checked(configuration))
        return launch

    def _checked(self, configuration: Any) -> tuple:
        if not isinstance(configuration, tuple) or not 2 <= len(configuration) <= 4:
            raise KernelLaunchError(
                f"{self.__name__}[...] takes grid and block, then perhaps a stream and bytes of dynamic shared memory; "
                f"got {configuration!r}"
            )
        return configuration

    def configure(self, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: Any = 0) -> Launch:
        """What indexing the kernel gives.

        Raises:
            KernelLaunchError: if no GPU could launch it so.
        """
        if self.device:
            raise KernelLaunchError(f"{self.__name__} is a device function: it is called by kernels, not launched")
        return Launch(self, griddim, blockdim, stream, sharedmem)

    def forall(self, ntasks: int, tpb: int = 0, stream: Any = 0, sharedmem: int = 0) -> ForAll:
        """A 1-D launch of at least `ntasks` threads in blocks of `tpb` (256): the kernel guards with `if i < n`."""
        return ForAll(self, ntasks, tpb, stream, sharedmem)

    def __call__(self, *arguments: Any, **keywords: Any) -> NoReturn:
        if self.device:
            raise KernelLaunchError(
                f"{self.__name__} is a device function: kernels call it. On the host, call {self.__name__}.py_func"
            )
        raise KernelLaunchError(WITHOUT_CONFIGURATION.format(name=self.__name__))

    def variant(self, kinds: tuple[Kind, ...], rank: int) -> Variant:
        """What runs for arguments of these kinds: compiled now, or found on disk, if it is their first launch."""
        self.check_call(len(kinds))
        types, casts = self._fit(kinds)
        variant = self.variants[rank][kinds] = Variant(self._compile(types, rank), casts)
        return variant

    def _fit(self, kinds: Sequence[Kind]) -> tuple[tuple, Casts | None]:
        """The types that the kernel has for arguments of these kinds, and how to convert them if that is necessary."""
        given = tuple(kind.type for kind in kinds)
        if not self.explicit:
            return given, None
        types = choose(self.explicit, given, self.__name__)
        return types, Casts.between(given, types, self.parameters)

    def compile(self, sig: Any, rank: int = 1) -> Any:
        """Compile for the argument types of a signature, and blocks that extend along x (rank 1) or further (3)."""
        (signature,) = parse(sig, self.device)
        self.check_call(len(signature.types))
        return self._compile(signature.types, rank)

    def _compile(self, types: tuple, rank: int) -> Any:
        with COMPILING:
            if (types, rank) not in self.compiled:
                from miniflow.hostcuda.compile import compile_kernel

                self.compiled[types, rank] = compile_kernel(self, types, rank)
            return self.compiled[types, rank]

    def check_call(self, count: int) -> None:
        """Refuse a wrong number of arguments, and a kernel that returns something."""
        self._check_count(count, "got")
        if not self._known_to_return_nothing:
            text = source.read(self.py_func)
            line = line_of_result(text.tree)
            if line:
                raise KernelReturnError(
                    f"{text.filename}:{line}: the kernel {self.__name__} returns a value; "
                    "write results to an array that is an argument"
                )
            self._known_to_return_nothing = True

    def _check_count(self, count: int, got: str) -> None:
        if count != len(self.parameters):
            names = ", ".join(self.parameters)
            raise KernelArgumentError(
                f"{self.__name__} takes {len(self.parameters)} arguments, ({names}); {got} {count}"
            )

    def run_watched(self, launch: Launch, arguments: tuple) -> None:
        """Run in the checked executor, which gets device arrays as such."""
        from miniflow.hostcuda import check

        self.check_call(len(arguments))
        hosts = HostArrays(checked=True)
        converted = [convert_any(argument, position, hosts) for position, argument in enumerate(arguments)]
        values = [value for _, value in converted]
        if self.explicit:
            _, casts = self._fit([kind for kind, _ in converted])
            values = casts(values) if casts else values
        profile = None
        if self.options["profile"]:
            from miniflow.hostcuda.profile import Profile

            profile = self.profile = Profile()
        check.run(self, values, launch.griddim, launch.blockdim, launch.sharedmem, profile=profile)
        hosts.write_back()

    @property
    def signatures(self) -> list[tuple]:
        if self.explicit:
            return [signature.types for signature in self.explicit]
        return list(self.overloads)

    @property
    def overloads(self) -> dict[tuple, Any]:
        """Argument types -> what the compiler made for them."""
        return {types: compiled for (types, _), compiled in list(self.compiled.items())}

    def inspect_host(self, signature: Any = None) -> str:
        """The Python source that was generated: loops over blocks and threads.

        Args:
            signature: argument types, as "void(float32[:], int64)"; without them, of all launches so far.

        Raises:
            KernelLaunchError: if there is neither a signature nor a launch.
        """
        if signature is not None:
            return self.compile(signature).text
        for explicit in () if self.compiled else self.explicit:
            self._compile(explicit.types, 1)
        if not self.compiled:
            raise KernelLaunchError(
                f"{self.__name__}.inspect_host(): the source depends on the argument types: launch the kernel first, "
                "or give them, as in inspect_host('void(float32[:], int64)')"
            )
        return "\n\n".join(dict.fromkeys(compiled.text for compiled in self.compiled.values()))

    def inspect_asm(self, signature: Any = None, cc: tuple[int, int] = (7, 5)) -> str | dict[tuple, str]:
        """The PTX that numba.cuda makes of the kernel for a GPU of compute capability `cc`; no GPU is needed.

        Args:
            signature: argument types; without them, of each list of types launched so far, as a dict.

        Raises:
            ImportError: if numba-cuda and its toolkit wheels are not installed.
        """
        from miniflow.hostcuda.ptx import compile_to_ptx

        if signature is None:
            return {types: compile_to_ptx(self, types, cc) for types in self.signatures}
        return compile_to_ptx(self, parse(signature, self.device)[0].types, cc)

    def __repr__(self) -> str:
        what = "device function" if self.device else "kernel"
        return f"<{what} {self.__name__}({', '.join(self.parameters)})>"


def line_of_result(tree: ast.FunctionDef) -> int:
    """The line on which a function returns something other than None; 0 if it does not."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Return) and node.value is not None:
            if not (isinstance(node.value, ast.Constant) and node.value.value is None):
                return node.lineno
        waiting += ast.iter_child_nodes(node)
    return 0


DeviceFunction = Kernel
"""A device function is a Kernel whose `device` is True."""
