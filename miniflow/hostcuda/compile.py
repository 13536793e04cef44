"""Compiles a kernel for the CPU: the way from its source to machine code, and the two caches on it.

    read, normalise     names are replaced by what they stand for           source, normalise
    meetings            barriers and shuffles become statements             meetings
    shape up            early returns, lanes; one name for each variable    shape_up, webs
    facts               what is uniform, never negative, coalesced          analysis, signs, splits, clips
    fission             regions between barriers become loops over threads  fission, regions, translate, liveness
    inference           numba types the variables kept across regions       inference
    njit                numba and LLVM make machine code                    runtime, atomics

The generated text is kept in a file named after everything it depends on; numba keeps the machine code beside it. A
second process finds both.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.core.errors import NumbaError

from miniflow.hostcuda import runtime
from miniflow.hostcuda.analysis import Facts
from miniflow.hostcuda.cache import cache_folder, keep
from miniflow.hostcuda.errors import DivergentBarrierError, UnsupportedKernelError
from miniflow.hostcuda.fission import Writer
from miniflow.hostcuda.inference import infer
from miniflow.hostcuda.meetings import Expander
from miniflow.hostcuda.normalise import DeviceFunction, normalise
from miniflow.hostcuda.regions import dtype_text
from miniflow.hostcuda.shape_up import WarpNames, nest_returns, split_tuples
from miniflow.hostcuda.signs import is_metadata
from miniflow.hostcuda.syntax import Unit, statements
from miniflow.hostcuda.webs import separate
from miniflow.hostcuda.workers import run_blocks

LAUNCH_TYPES = (types.int64,) * 9  # first, last, gridDim, blockDim, dynamic_bytes

HEADER = '''"""{name}, {filename}: line numbers are those of that file.

Generated for {signature}.
blocks(first, last, ...) runs the blocks numbered first to last - 1. Every loop over threads is a region between two
places where threads meet; variable_of[thread] is what `variable` is for a thread from one region to the next.
"""

import math

import numpy as np
from numba import carray, njit, types
from miniflow.hostcuda.runtime import *
'''


class Compiled:
    """A kernel compiled for one list of argument types and one rank of blocks.

    Attributes:
        text: the generated module.
    """

    def __init__(self, kernel: Any, argument_types: tuple[types.Type, ...], rank: int):
        self.kernel, self.argument_types, self.rank = kernel, argument_types, rank
        self.signed = [i for i, t in enumerate(argument_types) if isinstance(t, types.Integer) and t.signed]
        self.entries: dict[bool, tuple[Callable, tuple, bool]] = {}
        self.text = ""
        self._entry(True)

    def _entry(self, natural: bool) -> tuple[Callable, tuple, bool]:
        """Machine code that assumes (or not) that integer arguments are not negative, and its further arguments."""
        if natural not in self.entries:
            translation = Translation(self.kernel, self.argument_types, self.rank, natural)
            self.text = self.text or translation.text
            self.entries[natural] = (translation.compile(), translation.hidden, translation.unit.cooperative)
        return self.entries[natural]

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
        """
        natural = True
        for i in self.signed:
            if arguments[i] < 0:
                natural = False
        code, hidden, cooperative = self.entries.get(natural) or self._entry(natural)
        total = grid[0] * grid[1] * grid[2]
        rest = (*grid, *block, shared_bytes, *arguments, *hidden)
        if total == 1 or cooperative:
            status = code(0, total, *rest)
        else:
            status = run_blocks(lambda first, last: code(first, last, *rest), total)
        if status:
            raise DivergentBarrierError(
                f"{self.kernel.py_func.__code__.co_filename}:{status}: {self.kernel.py_func.__name__}: threads of a "
                "block disagree about the condition around a barrier, so that some would wait for ever: move the "
                "barrier out of the branch or loop, or make the condition the same for the whole block"
            )


def compile_kernel(kernel: Any, argument_types: tuple[types.Type, ...], rank: int) -> Compiled:
    """Compile a kernel for the CPU.

    Args:
        kernel: has `py_func`, the plain function, and `options`.
        argument_types: numba's types of the arguments.
        rank: 1 if blocks extend along x only, else 3.

    Raises:
        UnsupportedKernelError: for a construct that is not translated, or a kernel that numba cannot type.
    """
    return Compiled(kernel, argument_types, rank)


class Translation:
    """The generated module of a kernel, from the cache or made now."""

    def __init__(self, kernel: Any, argument_types: tuple[types.Type, ...], rank: int, natural: bool):
        self.kernel, self.rank = kernel, rank
        function = kernel.py_func
        self.unit = unit = Unit(function.__name__, function.__code__.co_filename)
        unit.taken |= runtime.RESERVED
        self.tree = normalise(kernel, unit)
        self.parameters = [a.arg for a in self.tree.args.args]
        if len(self.parameters) != len(argument_types):
            raise UnsupportedKernelError(
                f"{function.__name__} takes {len(self.parameters)} arguments, got {len(argument_types)}"
            )
        self.tree.body = nest_returns(split_tuples(Expander(unit).block(self.tree.body)))
        if rank == 1:
            WarpNames(self.tree).visit(self.tree)
        separate(self.tree, unit)
        self.hidden = tuple(unit.hidden.values())
        hidden_types = tuple(numba.typeof(np.array(a)) for a in self.hidden)
        self.types = LAUNCH_TYPES + argument_types + hidden_types
        named = dict(zip(self.parameters, argument_types, strict=True))
        self.tuples = {n for n, t in named.items() if isinstance(t, types.BaseTuple)}
        self.naturals = {n for n, t in named.items() if isinstance(t, types.Integer) and (natural or not t.signed)}
        self.path = cache_folder() / f"{function.__name__}_{self._key(argument_types)}.py"
        self.text = self.path.read_text() if self.path.exists() else keep(self.path, self._translate())

    def _key(self, argument_types: tuple[types.Type, ...]) -> str:
        """A digest of everything that the text depends on."""
        facts = [
            compiler_digest(), numba.__version__, sys.version_info[:2], self.rank, argument_types,
            sorted(self.naturals), sorted((k, repr(v)) for k, v in self.kernel.options.items()),
            ast.dump(self.tree, include_attributes=True), [sync_facts(s) for s in statements(self.tree.body)],
            [ast.dump(d.tree) for d in self.unit.functions.values()], sorted(self.unit.arrays.items()),
            sorted(self.unit.hidden), self.unit.fingerprint,
        ]  # fmt: skip
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:20]

    def _translate(self) -> str:
        facts = Facts(self.tree, self.unit, self.tuples, self.naturals, self.rank)
        probe = Writer(facts, self.unit, self.rank, None, None)
        text = probe.write()
        kinds = self._infer(text) if probe.crossing or not self._indexes_only_known() else self._known_kinds()
        final = Writer(facts, self.unit, self.rank, kinds, probe)
        for variable in sorted(probe.crossing):
            if variable in self.unit.arrays:
                continue
            kind = kinds.get(variable)
            if kind is None or facts.is_recomputable(variable, isinstance(kind, types.Array)):
                continue
            final.private[variable] = self._check_private(variable, kind)
        return self._head() + "@njit(cache=True, no_cfunc_wrapper=True, **OPTIONS)\n" + final.write()

    def _known_kinds(self) -> dict[str, types.Type]:
        """The types of parameters, and that the arrays which the kernel allocates are arrays."""
        known = dict(zip([*self.parameters, *self.unit.hidden], self.types[len(LAUNCH_TYPES) :], strict=True))
        return {"": types.none, **known, **{n: types.Array(types.int8, 1, "C") for n in self.unit.arrays}}

    def _indexes_only_known(self) -> bool:
        """Whether only arrays of known type are indexed: no views that the kernel takes of them."""
        bases = [n.value for n in ast.walk(self.tree) if isinstance(n, ast.Subscript) and not is_metadata(n)]
        return all(isinstance(b, ast.Name) and b.id in self._known_kinds() for b in bases)

    def _check_private(self, variable: str, kind: types.Type) -> types.Type:
        members = [kind]
        while members:
            member = members.pop()
            if isinstance(member, types.BaseTuple):
                members += list(member.types)
                continue
            try:
                dtype_text(member)
            except TypeError:
                called = self.unit.original.get(variable, variable)
                raise UnsupportedKernelError(
                    f"{self.unit.filename}: {self.unit.name}: the variable {called} holds {member} across a barrier, "
                    "which is not supported: assign it once at the top of the kernel, or again after the barrier"
                ) from None
        return kind

    def _head(self) -> str:
        options = self.kernel.options
        given = {
            "nogil": True,
            "error_model": "numpy",
            "fastmath": True if options.get("fastmath") else {"contract"} if options.get("fma", True) else False,
            "boundscheck": bool(options.get("debug")),
        }
        signature = ", ".join(str(t) for t in self.types[len(LAUNCH_TYPES) :])
        head = HEADER.format(
            name=self.unit.name,
            filename=Path(self.unit.filename).name,
            signature=signature,
        )
        functions = [device_text(d) for d in self.unit.functions.values() if not d.meets]
        return "\n\n".join([f"{head}\nOPTIONS = {given}", *functions]) + "\n\n\n"

    def _module(self, text: str, path: str, identifier: str) -> ModuleType:
        module = ModuleType(identifier)
        module.__file__ = path
        vars(module).update(self.unit.injected)
        exec(compile(text, path, "exec"), vars(module))
        return module

    def _infer(self, text: str) -> dict[str, types.Type]:
        module = self._module(self._head() + text, str(self.path), "miniflow_hostcuda_probe")
        try:
            return infer(module.blocks, self.types)
        except NumbaError as error:
            raise UnsupportedKernelError(self._explain(error, self._head() + text)) from error

    def _explain(self, error: NumbaError, text: str) -> str:
        """What numba has to say, about lines of the kernel where it can be told."""
        kinds = ", ".join(str(t) for t in self.types[len(LAUNCH_TYPES) :])
        return f"{self.unit.filename}: {self.unit.name}: numba cannot type it for ({kinds}): {error}"

    def compile(self) -> Callable:
        """Machine code: a function of `blocks`' arguments."""
        identifier = f"miniflow_hostcuda_{self.path.stem}"
        module = self._module(self.text, str(self.path), identifier)
        sys.modules[identifier] = module  # numba looks its globals up there
        try:
            return module.blocks.compile(self.types)
        except NumbaError as error:
            raise UnsupportedKernelError(self._explain(error, self.text)) from error


def device_text(device: DeviceFunction) -> str:
    """The text of a device function; further parameters are the coordinates that it reads."""
    parameters = ", ".join([a.arg for a in device.tree.args.args] + device.coordinates)
    body = "\n".join("    " + line for s in device.tree.body for line in ast.unparse(s).split("\n"))
    head = "@njit(no_cfunc_wrapper=True, no_cpython_wrapper=True, **OPTIONS)"
    return f"{head}\ndef {device.name}({parameters}):\n{body}"


@cache
def compiler_digest() -> str:
    """A digest of this package, so that a changed one does not find what the old one wrote."""
    folder = Path(__file__).parent
    return hashlib.sha256(b"".join(module.read_bytes() for module in sorted(folder.glob("*.py")))).hexdigest()


def sync_facts(statement: ast.stmt) -> tuple:
    """What ast.dump does not show of a meeting."""
    return (getattr(statement, "what", ""), getattr(statement, "collective", None), getattr(statement, "lineno", 0))
