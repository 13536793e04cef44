"""`@cuda.jit`: kernels and device functions."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from miniflow.hostcuda import ptx, source
from miniflow.hostcuda.arguments import Arguments, casts_between, choose, numba_type, parse
from miniflow.hostcuda.choice import checks_are_on
from miniflow.hostcuda.devices import MAX_BLOCK, MAX_THREADS, Rank, Stream, rank_of, resident_blocks
from miniflow.hostcuda.errors import KernelArgumentError, KernelLaunchError, KernelReturnError, UnsupportedKernelError
from miniflow.hostcuda.launch import Launch, dimensions

COMPILING = threading.RLock()
CONFIGURATIONS_KEPT = 128
BLOCK_SIZES = 4
"""So many block sizes are compiled for, for each list of argument types."""
THREADS_OF_FORALL = 256
OPTIONS = set(
    "check profile debug opt fastmath inline forceinline lineinfo link cache max_registers launch_bounds lto extensions"
    " shared_memory_carveout boundscheck nopython".split()
)


def jit(func_or_sig: Any = None, device: bool = False, **options: Any) -> Any:
    """Make a kernel of a function, or a device function, as `numba.cuda.jit` does.

    It is compiled when it is launched with arguments of new types or, up to four times, with a new block size.

    Args:
        func_or_sig: the function; or a signature or list of signatures, to accept those argument types only.
        device: whether it is called by kernels instead of launched.
        options: `check=True` runs the kernel in the checked executor, `profile=True` counts its memory accesses.
            `boundscheck=False` leaves out the checks of indices, which a GPU does not have. With `debug=True`, `raise`
            and `assert` in a kernel raise on the host; without it, the former ends the thread, the latter does nothing.
            numba's options (opt, fastmath, inline, lineinfo, link, cache, max_registers ...) are accepted.

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
    if unknown := sorted(set(options) - OPTIONS):
        raise KernelArgumentError(f"@cuda.jit has no option {', '.join(unknown)}; it has {', '.join(sorted(OPTIONS))}")
    if options.get("link"):
        raise UnsupportedKernelError("@cuda.jit(link=...): the host executor cannot run PTX or CUDA C")
    if func_or_sig is None:
        return functools.partial(jit, device=device, **options)
    if inspect.isfunction(func_or_sig):
        return Kernel(func_or_sig, device, options, [])
    explicit = parse(func_or_sig, device)
    return lambda function: Kernel(function, device, options, explicit)


class Kernel:
    """A kernel or, with device=True, a device function.

    Attributes:
        py_func: the function as written.
        device: whether it is a device function.
        options: of `cuda.jit`; `check` and `profile` may be changed.
        explicit: the lists of argument types that it accepts, if they were given.
        compiled: (types, rank of blocks) -> what the compiler made.
        checked: (types, rank, whether accesses are counted) -> the same with checks.
        overloads: types -> what is known of the kernel compiled for them.
    """

    def __init__(self, py_func: Callable, device: bool, options: dict[str, Any], explicit: Sequence[tuple]):
        functools.update_wrapper(self, py_func)
        refuse_foreign(py_func)
        self.py_func = py_func
        self.device = device
        self.options = {"check": checks_are_on(), "profile": False, **options}
        self.explicit = list(explicit)
        self.compiled: dict[tuple[tuple, Rank], Any] = {}
        self.checked: dict[tuple[tuple, Rank, bool], Any] = {}
        self.overloads: dict[tuple, Overload] = {}
        self.parameters = tuple(inspect.signature(py_func).parameters)
        self.profile: Any = None
        self._configurations: dict[tuple, tuple[tuple, Launch]] = {}
        for types in explicit:
            self.check_call(len(types), "the signature has")

    @property
    def watched(self) -> bool:
        """Whether launches go to the checked executor, which also profiles."""
        return bool(self.options["check"] or self.options["profile"])

    def __getitem__(self, configuration: Any) -> Launch:
        """`kernel[grid, block]`, `kernel[grid, block, stream]` or `kernel[grid, block, stream, shared_bytes]`."""
        try:
            known, launch = self._configurations[configuration]
            if known is configuration or all_ints(configuration):
                return launch
        except (KeyError, TypeError):  # a new one, or a list, which cannot be a key
            pass
        if not isinstance(configuration, tuple) or not 2 <= len(configuration) <= 4:
            raise KernelLaunchError(
                f"{self.__name__}[...] takes grid and block, then perhaps a stream and bytes of dynamic shared memory; "
                f"got {configuration!r}"
            )
        launch = self.configure(*configuration)
        if all_ints(configuration):
            if len(self._configurations) >= CONFIGURATIONS_KEPT:
                self._configurations.clear()
            self._configurations[configuration] = configuration, launch
        return launch

    def configure(self, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: Any = 0) -> Launch:
        """A launch configuration, as `kernel[grid, block, stream, shared]`.

        Raises:
            KernelLaunchError: if no GPU could launch it so.
        """
        if self.device:
            raise KernelLaunchError(f"{self.__name__} is a device function: it is called by kernels, not launched")
        return Launch(self, griddim, blockdim, stream, sharedmem)

    def forall(self, ntasks: int, tpb: int = 0, stream: Any = 0, sharedmem: int = 0) -> Callable:
        """A 1-D launch of at least `ntasks` threads in blocks of `tpb` (256): the kernel guards with `if i < n`."""
        block = tpb or THREADS_OF_FORALL
        return self[-(-ntasks // block), block, stream, sharedmem] if ntasks else lambda *arguments: None

    def __call__(self, *arguments: Any, **keywords: Any) -> NoReturn:
        if self.device:
            raise KernelLaunchError(
                f"{self.__name__} is a device function: kernels call it. On the host, call {self.__name__}.py_func"
            )
        raise KernelLaunchError(
            f"{self.__name__}: a kernel is launched with its configuration: "
            f"{self.__name__}[blocks_per_grid, threads_per_block](...)"
        )

    def types_for(self, kinds: tuple) -> tuple[tuple, list | None]:
        """The types that the kernel has for arguments of these kinds, and how to convert them if that is necessary."""
        self.check_call(len(kinds))
        argument_types = tuple(map(numba_type, kinds))
        if not self.explicit:
            return argument_types, None
        types = choose(self.explicit, argument_types, self.__name__)
        return types, casts_between(argument_types, types)

    def compiled_for(self, types: tuple, block: tuple[int, int, int], natural: bool) -> Any:
        """The compiled kernel for arguments of these types: compiled now, or found on disk, at their first launch.

        A user's kernel is compiled for each of the first block sizes that it is launched with, and then once for all
        others of a rank. The package's own kernels have many block sizes, and are compiled for any. If no integer of
        the first launch is negative (`natural`), what is compiled relies on it, until one is.

        Of what the compiler makes, this file and `launch` use `run(values, grid, block, shared_bytes)`, `stage`, the
        sizes of its arrays `shared_bytes`, `local_bytes` and `const_bytes`, and `cooperative`: whether it waits for
        the grid.
        """
        rank = rank_of(block)
        with COMPILING:
            sizes_compiled = [sized for kinds, sized in self.compiled if kinds == types and sized.sizes]
            sized = rank._replace(sizes=block)
            fresh = len(sizes_compiled) < BLOCK_SIZES and not source.is_own(self.py_func)
            return self._compiled(types, sized if fresh or sized in sizes_compiled else rank, natural)

    def _compiled(self, types: tuple, rank: Rank, natural: bool = True) -> Any:
        with COMPILING:
            if (types, rank) not in self.compiled:
                from miniflow.hostcuda.compile import Compiled

                with source.compiling(self.py_func):
                    compiled = self.compiled[types, rank] = Compiled(self, types, rank, natural)
                self.overloads.setdefault(types, Overload(self, compiled))
            return self.compiled[types, rank]

    def compile(self, sig: Any) -> Overload:
        """Compile for the argument types of a signature, and blocks along x, if the kernel has not been for any."""
        (types,) = parse(sig, self.device)
        self.check_call(len(types))
        if types not in self.overloads:
            self._compiled(types, Rank(1, True))
        return self.overloads[types]

    def specialize(self, *arguments: Any) -> Kernel:
        """A kernel that accepts the types of these arguments only."""
        types = tuple(map(numba_type, Arguments(arguments, checked=True).kinds))
        return Kernel(self.py_func, self.device, self.options, [types])

    def check_call(self, count: int, got: str = "got") -> None:
        """Refuse a wrong number of arguments, and a kernel that returns something."""
        if count != len(self.parameters):
            names = ", ".join(self.parameters)
            raise KernelArgumentError(
                f"{self.__name__} takes {len(self.parameters)} arguments, ({names}); {got} {count}"
            )
        if line := 0 if self.device else line_of_result(self.py_func):
            raise KernelReturnError(
                f"{self.py_func.__code__.co_filename}:{line}: the kernel {self.__name__} returns a value; "
                "write results to an array that is an argument"
            )

    @property
    def signatures(self) -> list[tuple]:
        """The argument types that it accepts, if they were given; else those that it was compiled for."""
        return self.explicit or list(self.overloads)

    nopython_signatures = signatures

    @property
    def specialized(self) -> bool:
        """Whether it accepts one list of argument types only."""
        return len(self.explicit) == 1

    def inspect_host(self, signature: Any = None, stage: str = "python") -> str:
        """The kernel after a stage of the compiler.

        Args:
            signature: argument types, as "void(float32[:], int64)"; without them, of all launches so far.
            stage: "resolve", "inline", "live_ranges", "arrays", "types", "exits" or "loops": what one thread does after
                this pass; "regions": the tree of what all threads do between barriers, and where variables live;
                "python": the generated loops over blocks and threads.

        Raises:
            KernelLaunchError: if there is neither a signature nor a launch.
            ValueError: for another stage.
        """
        if signature is not None:
            return self.compile(signature).compiled.stage(stage)
        for types in () if self.compiled else self.explicit:
            self.compile(types)
        if not self.compiled:
            raise KernelLaunchError(
                f"{self.__name__}.inspect_host(): the source depends on the argument types: launch the kernel first, "
                "or give them, as in inspect_host('void(float32[:], int64)')"
            )
        return "\n\n".join(dict.fromkeys(compiled.stage(stage) for compiled in self.compiled.values()))

    def inspect_asm(self, signature: Any = None, cc: tuple[int, int] = (7, 5)) -> str | dict[tuple, str]:
        """The PTX that numba.cuda makes of the kernel for a GPU of compute capability `cc`; no GPU is needed.

        Args:
            signature: argument types; without them, of each list of types launched so far, as a dict.

        Raises:
            ImportError: if numba-cuda and its toolkit wheels are not installed.
        """
        if signature is None:
            return {types: ptx.compile_to_ptx(self, types, cc) for types in self.signatures}
        return ptx.compile_to_ptx(self, parse(signature, self.device)[0], cc)

    def __repr__(self) -> str:
        what = "device function" if self.device else "kernel"
        return f"<{what} {self.__name__}({', '.join(self.parameters)})>"


def _metadata(name: str) -> Callable:
    def get(self: Kernel, signature: Any = None) -> Any:
        """The attribute for a signature; or a dict of it for all types that the kernel was compiled for."""
        if signature is None:
            return {types: getattr(one, name) for types, one in self.overloads.items()}
        return getattr(self.compile(signature), name)

    return get


for _name in "const_mem_size local_mem_per_thread max_threads_per_block regs_per_thread shared_mem_per_block".split():
    setattr(Kernel, f"get_{_name}", _metadata(_name))


ptx.KERNELS.append(Kernel)


class Overload:
    """A kernel compiled for one list of argument types, with the attributes that it has in numba.cuda."""

    def __init__(self, kernel: Kernel, compiled: Any):
        self.kernel, self.compiled, self.max_threads_per_block = kernel, compiled, MAX_THREADS
        self.const_mem_size, self.local_mem_per_thread = compiled.const_bytes, compiled.local_bytes
        self.shared_mem_per_block = compiled.shared_bytes

    @property
    def regs_per_thread(self) -> NoReturn:
        raise UnsupportedKernelError(
            f"{self.kernel.__name__}: registers are assigned by NVIDIA's assembler, so that only a GPU's compiler "
            "knows how many a thread has"
        )

    def max_cooperative_grid_blocks(self, blockdim: Any, dynsmemsize: int = 0) -> int:
        """How many blocks may wait for each other by `grid.sync()`: as many as an H100 runs at once."""
        threads = math.prod(dimensions(blockdim, "block", MAX_BLOCK, self.kernel.__name__))
        return resident_blocks(threads, self.shared_mem_per_block + dynsmemsize)


def all_ints(configuration: tuple) -> bool:
    """Whether a configuration consists of ints, and tuples of them, and a stream: 2.0 and True would be found for 2."""
    flat = [n for part in configuration for n in (part if part.__class__ is tuple else (part,))]
    return all([n.__class__ is int or n.__class__ is Stream for n in flat])


def refuse_foreign(function: Callable) -> None:
    """Refuse what a kernel takes from numba.cuda itself: only the names of its stand-in mean something here."""
    values = source.free_names(function)
    for name in (*function.__code__.co_names, *function.__code__.co_freevars):
        value = values.get(name)
        home = str(value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", ""))
        if home.startswith("numba.cuda"):
            spelling = f" and cuda.random.{value.__name__}" if home == "numba.cuda.random" else ""
            raise UnsupportedKernelError(
                f"{function.__name__}: {name} is of numba.cuda, which needs a GPU: write "
                f"`from miniflow.hostcuda import cuda`{spelling}"
            )


@functools.cache
def line_of_result(function: Callable) -> int:
    """A line on which a function returns something other than None; 0 if there is none."""
    nodes: list[ast.AST] = [*source.read(function).tree.body]
    for node in nodes:
        if isinstance(node, ast.Return) and getattr(node.value, "value", node.value) is not None:
            return node.lineno
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            nodes += ast.iter_child_nodes(node)
    return 0
