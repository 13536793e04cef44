"""Compiles a kernel for the CPU: the way from its source to machine code, and the two caches on it.

    resolve             names are replaced by what they stand for             source, names, constants
    inline              barriers and shuffles become statements               inline
    live_ranges         one name for each variable                            ssa
    arrays              one name for each array                               aliases
    types               numba types one thread; one name for each type        one_thread, inference, ssa
    exits               no return or break jumps over a barrier               exits
    loops               loops that count, loops that threads run together     canonicalise, interchange, divergence
    regions             regions between barriers, and where variables live    region_tree, storage, liveness
    python              loops over blocks, warps and threads                  emit, thread_loops

That is the order of `PASSES`; `kernel.inspect_host(stage="exits")` prints the kernel after one of them. numba and LLVM
make machine code of the last (runtime, atomics).

The generated text is kept in a file named after everything it depends on; numba keeps the machine code beside it. A
second process finds both.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import re
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.core.errors import NumbaError
from numba.np.numpy_support import as_dtype

from miniflow.hostcuda import runtime
from miniflow.hostcuda.accesses import CheckedAccess
from miniflow.hostcuda.affine import Affine
from miniflow.hostcuda.aliases import propagate_copies
from miniflow.hostcuda.cache import cache_folder, keep, package_digest
from miniflow.hostcuda.canonicalise import WarpNames, count_with_range
from miniflow.hostcuda.devices import Rank
from miniflow.hostcuda.divergence import Divergence
from miniflow.hostcuda.emit import Emitter
from miniflow.hostcuda.errors import DivergentBarrierError, KernelIndexError, UnsupportedKernelError
from miniflow.hostcuda.exits import Exits
from miniflow.hostcuda.inference import infer, unified
from miniflow.hostcuda.inline import Expander
from miniflow.hostcuda.interchange import interchange
from miniflow.hostcuda.names import DeviceFunction, normalise
from miniflow.hostcuda.one_thread import one_thread
from miniflow.hostcuda.signs import METADATA, dotted
from miniflow.hostcuda.source import is_own
from miniflow.hostcuda.spinning import CountRounds
from miniflow.hostcuda.ssa import split_live_ranges, split_types
from miniflow.hostcuda.stages import ir, regions
from miniflow.hostcuda.storage import Storage, assign_storage
from miniflow.hostcuda.syntax import WARP, Compilation, Sync, statements, text
from miniflow.hostcuda.thread_loops import dtype_text, private_arrays
from miniflow.hostcuda.workers import run_blocks

LAUNCH_TYPES = (*(types.int64,) * 9, types.int64[::1])  # first, last, gridDim, blockDim, dynamic_bytes, error

ERROR_FIELDS = 6
HEADER = '''"""{name}, {filename}: line numbers are those of that file.

Generated for {signature}.
blocks(first, last, ...) runs the blocks numbered first to last - 1. Every loop over threads is a region between two
barriers; variable_of[thread] holds the value that `variable` has for a thread from one region to the next.
"""

import math

import numpy as np
from numba import njit, types
from miniflow.hostcuda.runtime import *
'''


class Translation:
    """The generated module of a kernel, from the cache or made now.

    Attributes:
        text: of the module.
        parameters: of the kernel.
        captured_arrays: constant arrays from outside the kernel, passed as further arguments.
        shared_bytes, local_bytes: of the arrays that the kernel makes, for a block and for a thread.
        const_bytes: of the captured arrays.
        cooperative: whether its blocks wait for each other.
    """

    imports = ""
    checked = False

    def __init__(
        self, kernel: Any, argument_types: tuple[types.Type, ...], rank: Rank, natural: bool, last: str = "python"
    ):
        self.kernel, self.argument_types, self.rank, self.natural = kernel, argument_types, rank, natural
        function = kernel.py_func
        self.compilation = compilation = Compilation(function.__name__, function.__code__.co_filename)
        compilation.taken |= runtime.RESERVED
        compilation.checked, compilation.debug = self.checked, bool(kernel.options.get("debug"))
        compilation.boundscheck = not self.checked and bool(kernel.options.get("boundscheck", not is_own(function)))
        self.storage: Storage | None = None
        for name, run in PASSES.items():
            if name == "types" and last == "python" and self.path.exists():
                self.text = self.path.read_text()
                break
            run(self)
            if name == last:
                break

    def _resolve(self) -> None:
        self.tree = normalise(self.kernel, self.compilation)
        self.parameters = [a.arg for a in self.tree.args.args]
        self.named = named = dict(zip(self.parameters, self.argument_types, strict=True))
        Fields(named).visit(self.tree)
        self.compilation.tuples = {n for n, t in named.items() if isinstance(t, types.BaseTuple)}
        integers = {n: t for n, t in named.items() if isinstance(t, types.Integer)}
        self.integers = {n for n, t in integers.items() if t.signed or t.bitwidth < 64}
        self.unsigned = {n for n, t in integers.items() if not t.signed}
        self.naturals = {n for n, t in integers.items() if self.natural or not t.signed}

    def _inline(self) -> None:
        self.tree.body = Expander(self.compilation).block(self.tree.body)
        settle_dtypes(self.compilation, self.tree, self.named)
        if not any(isinstance(s, Sync) and s.level == WARP for s in statements(self.tree.body)):
            self.rank = self.rank._replace(whole_warps=True)  # it makes no difference
        if self.rank.axes == 1:
            WarpNames(self.tree).visit(self.tree)

    def _rename_arrays(self) -> None:
        compilation, captured = self.compilation, self.compilation.captured_arrays
        self.arrays = {n for n, t in self.named.items() if isinstance(t, types.Array)} | set(captured)
        propagate_copies(self.tree, compilation, self.arrays)
        self.captured_arrays = tuple(captured.values())
        self.types = (*LAUNCH_TYPES, *self.argument_types, *(numba.typeof(np.array(a)) for a in self.captured_arrays))
        self.shared_bytes, self.local_bytes = compilation.nbytes("shared"), compilation.nbytes("local")
        self.const_bytes, self.cooperative = sum(a.nbytes for a in self.captured_arrays), compilation.cooperative
        self.path = cache_folder() / f"{self.kernel.__name__}_{self._key()}.py"

    def _write(self) -> None:
        self.text = keep(self.path, self._translate())

    def _key(self) -> str:
        """A digest of everything that the text depends on."""
        compilation, options = self.compilation, sorted((k, repr(v)) for k, v in self.kernel.options.items())
        facts = [
            *self._facts(), package_digest(), numba.__version__, sys.version_info[:2], self.rank, self.argument_types,
            sorted(self.naturals), compilation.boundscheck, options, ast.dump(self.tree, include_attributes=True),
            [ast.dump(d.tree) for d in compilation.devices], sorted(compilation.arrays.items()),
            sorted(compilation.captured_arrays), compilation.fingerprint,
        ]  # fmt: skip
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:20]

    def _facts(self) -> list:
        """What the text of another mode depends on as well."""
        return []

    def _affine(self) -> Affine:
        """Facts about the integers of the tree as it is now."""
        return Affine(self.tree, self.integers, self.naturals, self.compilation.tuples, self.unsigned)

    def _split_live_ranges(self) -> None:
        split_live_ranges(self.tree, self.compilation)

    def _split_types(self) -> None:
        if not self.checked:
            CountRounds(self.compilation).visit(self.tree)
        self.kinds = VariableTypes(self._infer)
        self.divergence = Divergence(self.tree, self.compilation, self.compilation.tuples)
        if max(self.divergence.definitions.values(), default=0) > 1:
            self.kinds.types = split_types(self.tree, self.compilation, self._infer)

    def _remove_exits(self) -> None:
        self.tree.body = Exits(self.compilation).function(self.tree.body)

    def _order_loops(self) -> None:
        tree, compilation, divergence = self.tree, self.compilation, self.divergence
        count_with_range(tree, compilation, self._affine())
        divergence.update()
        interchange(tree, compilation, divergence, self._affine(), "xy" if self.rank.axes > 1 else "x")
        divergence.update()

    def _build_regions(self) -> None:
        compilation = self.compilation
        self.storage = assign_storage(self.tree, compilation, self.divergence, self.kinds)
        for variable, kind in self.storage.private.items():
            try:
                private_arrays(variable, kind)
            except TypeError:
                called = compilation.original.get(variable, variable)
                raise UnsupportedKernelError(
                    f"{compilation.filename}: {compilation.name}: the variable {called} holds {kind} "
                    "across a barrier, which is not supported: assign it once at the top of the kernel, or again after "
                    "the barrier"
                ) from None

    def _translate(self) -> str:
        arrays = self.arrays | self.compilation.arrays.keys()
        written = self._emitter(self.storage, self._affine(), arrays, self.rank).write()
        functions = self._functions()
        sites = f"SITES = {self.compilation.sites}\n\n\n" if self.compilation.boundscheck else ""
        # numba loads recursive functions with addresses of old; functions of numba depend on their globals, those of
        # this package on its text, which is in the key
        cached = not any(device.recursive for device in self.compilation.devices)
        functions_of_numba = [f.py_func for f in self.compilation.injected.values() if hasattr(f, "py_func")]
        cached &= all(is_own(f) and f.__closure__ is None for f in functions_of_numba)
        return self._head() + functions + sites + f"@njit(cache={cached}, no_cfunc_wrapper=True, **OPTIONS)\n" + written

    def _emitter(self, storage: Storage, *args: Any) -> Emitter:
        return Emitter(self.tree, self.compilation, storage, *args)

    def _functions(self) -> str:
        """The texts of the device functions that are called."""
        trees = [self.tree, *(d.tree for d in self.compilation.devices)]
        called = {n.id for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Name)}
        texts = [
            device_text(d, self.compilation) for d in self.compilation.devices if not d.must_inline and d.name in called
        ]
        return "".join(f"{text}\n\n\n" for text in texts)

    def _head(self) -> str:
        options = self.kernel.options
        fast = bool(options.get("fastmath")) and not self.checked or {"contract"}
        njit_options = {"nogil": True, "error_model": "numpy", "fastmath": fast}
        signature = ", ".join(str(t) for t in self.types[len(LAUNCH_TYPES) :])
        head = HEADER.format(
            name=self.compilation.name, filename=Path(self.compilation.filename).name, signature=signature
        )
        return f"{head}{self.imports}\nOPTIONS = {njit_options}\n\n\n"

    def _module(self, text: str, identifier: str) -> ModuleType:
        module = ModuleType(identifier)
        module.__file__ = str(self.path)
        vars(module).update(self.compilation.injected)
        exec(compile(text, str(self.path), "exec"), vars(module))
        return module

    def _infer(self) -> dict[str, list[types.Type]]:
        module = self._module(self._head() + Translation._functions(self), "miniflow_hostcuda_probe")
        exec(compile(one_thread(self.tree, self.compilation), self.compilation.filename, "exec"), vars(module))
        try:
            return infer(module.one_thread, self.types[len(LAUNCH_TYPES) :])
        except NumbaError as error:
            raise UnsupportedKernelError(self._explain(error)) from error

    def _explain(self, error: NumbaError) -> str:
        """The reason of an error of numba's, with the line of the kernel where it is known."""
        name = Path(self.compilation.filename).name
        numbers = re.findall(rf'{re.escape(name)}"?(?:, line | \()(\d+)', str(error))
        types_of_arguments = ", ".join(str(t) for t in self.types[len(LAUNCH_TYPES) :])
        line = numbers[0] if numbers else self.tree.lineno
        return f"{self.compilation.location(line)}: {reason_of(error)}; the arguments are ({types_of_arguments})"

    def compile(self) -> Callable:
        """Machine code: a function of `blocks`' arguments."""
        module = self._module(self.text, f"miniflow_hostcuda_{self.path.stem}")
        sys.modules[module.__name__] = module  # numba looks its globals up there
        self.sites = getattr(module, "SITES", [])
        try:
            return module.blocks.compile(self.types)
        except NumbaError as error:
            self._infer()  # raises it for the kernel as written
            raise UnsupportedKernelError(self._explain(error)) from error

    def locate(self, caught: Exception, error: np.ndarray, grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        """Add line, block and thread to what an exception says that the kernel raised."""
        if error[0] == 2:
            said = ": ".join(map(str, [self.compilation.location(int(error[1])), *caught.args[:1]]))
            caught.args = (f"{said}; {thread_of(error, grid, block)}", *caught.args[1:])


PASSES: dict[str, Callable[[Translation], None]] = {
    "resolve": Translation._resolve,
    "inline": Translation._inline,
    "live_ranges": Translation._split_live_ranges,
    "arrays": Translation._rename_arrays,
    "types": Translation._split_types,
    "exits": Translation._remove_exits,
    "loops": Translation._order_loops,
    "regions": Translation._build_regions,
    "python": Translation._write,
}
"""The stages of the compiler, in their order. From "types" on, the cache may know the outcome."""


class Compiled(Translation):
    """A kernel compiled for the CPU, for one list of argument types and one rank of blocks.

    Args:
        kernel: has `py_func`, the plain function, and `options`.
        argument_types: numba's types of the arguments.
        rank: of the blocks.
        natural: whether the machine code assumes that integer arguments are not negative.

    Raises:
        UnsupportedKernelError: for a construct that is not translated, or a kernel that numba cannot type.
    """

    def __init__(self, kernel: Any, argument_types: tuple[types.Type, ...], rank: Rank, natural: bool = True):
        super().__init__(kernel, argument_types, rank, natural)
        self.code = self.compile()
        self.signed = [i for i, t in enumerate(argument_types) if natural and isinstance(t, types.Integer) and t.signed]

    @cached_property
    def general(self) -> Compiled:
        """The same kernel for arguments of which one is negative."""
        return Compiled(self.kernel, self.argument_types, self.rank, False)

    def stage(self, stage: str) -> str:
        """The kernel after a stage of the compiler."""
        if stage not in PASSES:
            raise ValueError(f"inspect_host(stage={stage!r}): expected one of {', '.join(map(repr, PASSES))}")
        if stage == "python":
            return self.text
        again = Translation(self.kernel, self.argument_types, self.rank, True, stage)
        return regions(again.storage) if again.storage else ir(again.tree, again.compilation)

    def run(
        self, arguments: tuple, grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int = 0
    ) -> None:
        """Run all blocks.

        Args:
            arguments: NumPy arrays and scalars, as `argument_types` says.
            grid, block: the launch configuration.
            shared_bytes: of dynamic shared memory.

        Raises:
            DivergentBarrierError: if threads of a block disagree about a condition around a barrier.
            KernelIndexError: if an index is outside of its array; only kernels with boundscheck look.
        """
        for i in self.signed:
            if arguments[i] < 0:
                return self.general.run(arguments, grid, block, shared_bytes)
        total = grid[0] * grid[1] * grid[2]
        error = np.zeros(ERROR_FIELDS, np.int64)
        further = (*grid, *block, shared_bytes, error, *arguments, *self.captured_arrays)
        try:
            if total == 1 or self.cooperative:
                status = self.code(0, total, *further)
            else:
                status = run_blocks(lambda first, last: self.code(first, last, *further), total)
        except Exception as caught:
            if error[0] == 1:
                raise self._index_error(error, grid, block) from None
            self.locate(caught, error, grid, block)
            raise
        if status:
            raise DivergentBarrierError(
                f"{self.compilation.location(status)}: threads of a block disagree about the condition "
                "around a barrier, so that some would wait for ever: move the barrier out of the branch or loop, or "
                "make the condition the same for the whole block"
            )

    def _index_error(self, error: np.ndarray, grid: tuple[int, ...], block: tuple[int, ...]) -> KernelIndexError:
        """The error for an index outside of an array, from the numbers that `runtime.inside` left in `error`."""
        _, site, index, size, *_ = map(int, error)  # as runtime wrote it
        line, access = self.sites[site]
        return KernelIndexError(
            f"{self.compilation.location(line)}: index {index} of {access} is out of bounds: that dim has "
            f"{size} elements; {thread_of(error, grid, block)}. Guard it, as in `if i < x.size`; the arrays hold "
            "what was written so far"
        )


def thread_of(error: np.ndarray, grid: tuple[int, ...], block: tuple[int, ...]) -> str:
    """The block and the thread that `error` names."""
    indices = [tuple(map(int, np.unravel_index(*at, "F"))) for at in ((error[4], grid), (error[5], block))]
    return f"block {indices[0]}, thread {indices[1]}"


class Fields(ast.NodeTransformer):
    """Reads fields with the names of attributes of arrays, such as `size`, by subscript."""

    def __init__(self, kinds: dict[str, types.Type]):
        self.kinds = kinds

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        element = isinstance(node.value, ast.Subscript)
        kind = self.kinds.get(dotted(node.value.value if element else node.value))
        kind = getattr(kind, "dtype", None) if element else kind
        fields = getattr(kind, "fields", ())
        if node.attr not in METADATA or node.attr not in fields:
            return node
        index = node.attr if isinstance(kind, types.Record) else fields.index(node.attr)
        return ast.copy_location(ast.Subscript(node.value, ast.Constant(index), node.ctx), node)


def settle_dtypes(compilation: Compilation, tree: ast.FunctionDef, arguments: dict[str, types.Type]) -> None:
    """Replace the dtype of an argument, as in `cuda.shared.array(32, x.dtype)`, by the one that it has.

    Raises:
        UnsupportedKernelError: if a device function has one for arguments of different dtypes.
    """
    for variable, array in compilation.arrays.items():
        texts = sorted(compilation.dtypes.get(variable, {array.dtype}))
        elements = {getattr(arguments.get(t.removesuffix(".dtype")), "dtype", None) for t in texts if ".dtype" in t}
        if len(elements) > 1:
            what = f"the array {array.source_name} in a device function, of dtype {' and '.join(texts)},"
            compilation.refuse(ast.Pass(lineno=tree.lineno), what, "allocate it in the kernel, and pass it")
        array.dtype = texts[0]
        if elements and isinstance(element := elements.pop(), types.Number | types.Boolean):
            array.dtype, array.itemsize = dtype_text(element), as_dtype(element).itemsize


class VariableTypes:
    """The types of a kernel's variables, inferred when the first is asked for: many kernels need none."""

    def __init__(self, infer: Callable[[], dict[str, list[types.Type]]]):
        self.infer, self.types = infer, None

    def get(self, variable: str) -> types.Type | None:
        """The type that holds all values of a variable; None if the variable is never set."""
        if self.types is None or variable not in self.types:
            self.types = self.infer()
        return unified(self.types.get(variable, []))


def device_text(device: DeviceFunction, compilation: Compilation) -> str:
    """The text of a device function; further parameters are the coordinates that it reads."""
    tree = copy.deepcopy(device.tree)
    body = (tree if compilation.checked else CountRounds(compilation).visit(tree)).body
    if compilation.boundscheck:
        access = CheckedAccess(compilation, None, set(), None)
        body = [access.visit(statement) for statement in body]
    parameters = ", ".join([a.arg for a in device.tree.args.args] + device.coordinates)
    lines = "\n".join("    " + line for s in body for line in text(s).split("\n"))
    head = "@njit(no_cfunc_wrapper=True, no_cpython_wrapper=True, **OPTIONS)"
    return f"{head}\ndef {device.name}({parameters}):\n{lines}"


def reason_of(error: NumbaError) -> str:
    """The line of numba's error that names the reason."""
    lines = [line.strip() for line in str(error).split("\n")]
    calls = [line.removeprefix(">>>").strip() for line in lines if line.startswith(">>>")]
    if calls:
        return f"numba cannot compile {calls[0]}"
    reasons = [line for line in lines if line and not line.startswith(("Failed in", "During:", "File "))]
    return reasons[0].rstrip(".:") if reasons else "numba cannot compile it"
