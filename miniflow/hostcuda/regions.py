"""The parts that generated code is put together from: the head of the function, and regions.

A region is a loop over the threads of a block (or of a warp), x innermost, around statements in which nobody meets.
"""

from __future__ import annotations

import ast
import copy
import math
import re
from contextlib import contextmanager

import numpy as np
from numba.core import types

from miniflow.hostcuda.analysis import Facts, is_pure_call
from miniflow.hostcuda.clips import Clip, clip_of
from miniflow.hostcuda.liveness import Flow
from miniflow.hostcuda.syntax import (
    BLOCK,
    WARP,
    Allocation,
    Unit,
    reads,
    statements,
    target_names,
    text,
)
from miniflow.hostcuda.translate import Returns, Rewriter

INDENT = "    "
CELLS = 1040  # one for each thread a block can have, and 16, so that neighbouring arrays do not share their cache sets
STACK = 2**20  # bytes of shared memory and private variables that go on the stack
UNNEEDED = (
    "thread",
    "lane",
    "warp",
    "row_of_threads",
    "threadIdx_x",
    "threadIdx_y",
    "threadIdx_z",
)  # unless they are read
HERE = {BLOCK: "[:]", WARP: "[warp_first:warp_end]"}


class RegionWriter:
    """Lines of text, the head of the function, and regions. `fission.Writer` says what the attributes are."""

    def __init__(
        self, facts: Facts, unit: Unit, rank: int, kinds: dict[str, types.Type] | None, first: RegionWriter | None
    ):
        self.facts, self.unit, self.rank, self.kinds = facts, unit, rank, kinds
        self.lines: list[str] = []
        self.depth = 1
        self.loops: list[tuple] = []  # the loops in which threads meet, around the place that is being written
        self.crossing: set[str] = set() if first is None else first.crossing
        self.regions: dict[str, set] = {}  # local array -> regions that use it
        self.region_count = 0
        self.first = first
        self.private: dict[str, types.Type] = {}
        self.synthetic: set[str] = set()
        self.messages: list[int] = []
        self.returns = any(isinstance(s, ast.Return) for s in statements(facts.tree.body))
        self.exits = self.returns and (first is None or first.region_count > 1)
        self.serial = 0
        self.stacked = 0
        self.each: dict[str, ast.expr] = {}  # varying targets of uniform loops -> the loop's own variable

    def line(self, content: str) -> None:
        """One line at the present depth."""
        self.lines.append(f"{INDENT * self.depth}{content}")

    @contextmanager
    def indented(self, head: str):
        """A compound statement; `pass` if nothing is written inside."""
        self.line(head)
        self.depth += 1
        before = len(self.lines)
        yield
        if not any(line.strip() and not line.strip().startswith("#") for line in self.lines[before:]):
            self.line("pass")
        self.depth -= 1

    def fresh(self, stem: str) -> str:
        """A variable of the compiler's own; both writings give it the same name."""
        self.serial += 1
        made = f"{stem}_{self.serial}"
        self.synthetic.add(made)
        return made

    def _head(self) -> None:
        parameters = [a.arg for a in self.facts.tree.args.args] + list(self.unit.hidden)
        launch = "first, last, gridDim_x, gridDim_y, gridDim_z, blockDim_x, blockDim_y, blockDim_z, dynamic_bytes"
        self.lines.append(f"def blocks({', '.join([launch, *parameters])}):")
        if self.rank == 1:
            self.line("threads = blockDim_x")
            self.line("threadIdx_y = threadIdx_z = 0")
            self.line("blockDim_y = blockDim_z = 1")
        else:
            self.line("threads = blockDim_x * blockDim_y * blockDim_z")
        lead = "last, " if self.unit.cooperative else ""
        suffix = "_all" if self.unit.cooperative else ""
        dynamic = [n for n, a in self.unit.arrays.items() if a.kind == "dynamic"]
        if dynamic:
            self.line(f"dynamic{suffix} = np.empty(({lead}dynamic_bytes,), np.uint8)")
        for variable, array in self.unit.arrays.items():
            self._allocate(variable, array, lead, suffix)
        for variable, kind in sorted(self.private.items()):
            for cell, dtype in self._cells(variable, kind):
                if self._fits(CELLS * np.dtype(dtype.removeprefix("np.")).itemsize):
                    self.line(f"{cell} = carray(stack({CELLS}, {dtype}), ({CELLS},))")
                else:
                    self.line(f"{cell}{suffix} = np.empty(({lead}threads,), {dtype})")
        if self.exits:
            if self.kinds:
                self.line(f"exited_of{suffix} = np.zeros(({lead}threads,), np.bool_)")
            elif self.unit.cooperative:
                self.line("exited = False")

    def _fits(self, size: int) -> bool:
        """Whether there is room for so many more bytes on the stack."""
        self.stacked += size
        return self.stacked <= STACK and not self.unit.cooperative

    def _allocate(self, variable: str, array: Allocation, lead: str, suffix: str) -> None:
        shape = "".join(f"{n}, " for n in array.shape)
        size = math.prod(array.shape)
        if array.kind == "shared" and self._fits(size * 16):
            memory = f"carray(stack({size}, {array.dtype}), ({shape.rstrip(', ')}{',' * (len(array.shape) == 1)}))"
            self.line(f"{variable} = {memory}  # shared, line {array.line}")
        elif array.kind == "shared":
            self.line(f"{variable}{suffix} = np.empty(({lead}{shape}), {array.dtype})  # shared, line {array.line}")
        elif array.kind == "dynamic" and not suffix:
            self._view_dynamic(variable, array)
        elif array.kind == "local":
            if self._is_kept(variable):
                self.line(
                    f"{variable}_of{suffix} = np.empty(({lead}threads, {shape}), {array.dtype})  # line {array.line}"
                )
            else:
                self.line(f"{variable} = np.empty(({shape}), {array.dtype})  # local, line {array.line}")

    def _view_dynamic(self, variable: str, array: Allocation) -> None:
        if array.dtype.endswith(".dtype"):
            size = array.dtype.removesuffix("dtype") + "itemsize"
        else:
            known = self.unit.injected.get(array.dtype)
            size = (np.dtype(array.dtype.removeprefix("np.")) if known is None else known).itemsize
        self.line(f"{variable} = dynamic[: dynamic.size // {size} * {size}].view({array.dtype})  # line {array.line}")

    def _is_kept(self, variable: str) -> bool:
        """Whether a local array must be kept for every thread, since more than one region uses it."""
        uses = self.first.regions.get(variable, set()) if self.first else set()
        return len(uses) > 1 or any(looped for _, looped in uses)

    def _cells(self, variable: str, kind: types.Type) -> list[tuple[str, str]]:
        """The arrays that hold a private variable: one, or one for each member of a tuple."""
        if isinstance(kind, types.BaseTuple):
            members = [self._cells(f"{variable}_{i}", k) for i, k in enumerate(kind.types)]
            return [cell for member in members for cell in member]
        return [(f"{variable}_of", dtype_text(kind))]

    def _block_coordinates(self, lines: list[str]) -> None:
        used = "\n".join(lines)
        formulas = {
            "blockIdx_x": "block % gridDim_x",
            "blockIdx_y": "block // gridDim_x % gridDim_y",
            "blockIdx_z": "block // (gridDim_x * gridDim_y)",
        }
        for coordinate, formula in formulas.items():
            if coordinate in used:
                self.line(f"{coordinate} = {formula}")

    def region(self, block: list[ast.stmt], scope: int, guards: list) -> None:
        """A loop over threads around statements in which nobody meets."""
        block = [s for s in block if not isinstance(s, ast.Pass)]
        if not block:
            return
        self.region_count += 1
        if self.kinds:
            block = [s for s in block if not self._is_repeated(s)]
            if not block:
                return
            block, guards = self._clipped(block, scope, guards)
        flow = Flow(block)
        self._note(flow)
        lines = sorted({s.lineno for s in block if getattr(s, "lineno", 0)})
        guards = [*(["exited"] if self.exits and self._may_have_exited() else []), *guards]
        clips = [g for g in guards if isinstance(g, Clip)]
        for variable in sorted(flow.assigned & set(self.unit.neutral)):
            if guards and self.kinds and variable in self.private:
                self.line(f"{variable}_of{HERE[scope]} = {self.unit.neutral[variable]}")
        if lines:
            self.line(f"# line {lines[0]}" if len(lines) == 1 else f"# lines {lines[0]} to {lines[-1]}")
        depth, head = self.depth, len(self.lines)
        self._thread_loops(scope, clips)
        body = len(self.lines)
        self._bind(flow)
        masks = [g for g in guards if not isinstance(g, Clip)]
        if masks:
            self.line(f"if {' and '.join(self._guard(g) for g in masks)}:")
            self.depth += 1
        self._recompute(flow)
        self._load(flow)
        start = len(self.lines)
        self._thread_body(block)
        self._store(flow)
        if len(self.lines) == start:
            self.line("pass")
        self.depth = depth
        written = "\n".join(self.lines[body:])
        for position in reversed(range(head, body)):  # the region may not need all coordinates
            variable = self.lines[position].strip().partition(" = ")[0]
            if variable in UNNEEDED and not re.search(rf"\b{variable}\b", written):
                del self.lines[position]
            else:
                written = self.lines[position] + "\n" + written

    def _is_repeated(self, statement: ast.stmt) -> bool:
        """Whether a statement sets variables that every region computes for itself."""
        targets = set(target_names(statement))
        if not isinstance(statement, ast.Assign) or not all(isinstance(t, ast.Name) for t in statement.targets):
            return False
        if not targets <= self.crossing - set(self.private):
            return False
        return all(self.facts.is_recomputable(t, True) for t in targets)

    def _clipped(self, block: list[ast.stmt], scope: int, guards: list) -> tuple[list[ast.stmt], list]:
        """If all that a region does stands under one condition, let the loops over threads end where it does."""
        last = block[-1]
        if not isinstance(last, ast.If) or last.orelse:
            return block, guards
        for statement in block[:-1]:
            if not isinstance(statement, ast.Assign) or any(not isinstance(t, ast.Name) for t in statement.targets):
                return block, guards
            if any(isinstance(n, ast.Call) and not is_pure_call(n) for n in ast.walk(statement.value)):
                return block, guards
            if set(target_names(statement)) & set(self.private):
                return block, guards
        clip = clip_of(last.test, self.facts)
        return ([*block[:-1], *last.body], [*guards, clip]) if self._can_clip(clip, scope) else (block, guards)

    def _may_have_exited(self) -> bool:
        return self.region_count > 1 or bool(self.loops)

    def _thread_loops(self, scope: int, clips: list[Clip]) -> None:
        if scope == WARP and self.rank == 3:
            self.line("for thread in range(warp_first, warp_end):")
            self.depth += 1
            self.line("lane = thread - warp_first")
            self.line("threadIdx_x = thread % blockDim_x")
            self.line("threadIdx_y = thread // blockDim_x % blockDim_y")
            self.line("threadIdx_z = thread // (blockDim_x * blockDim_y)")
            return
        if self.rank == 3:
            self.line("for threadIdx_z in range(blockDim_z):")
            self.depth += 1
            self.line("for threadIdx_y in range(blockDim_y):")
            self.depth += 1
            self.line("row_of_threads = (threadIdx_z * blockDim_y + threadIdx_y) * blockDim_x")
        conditions = [self.value(condition) for clip in clips for condition in clip.row]
        if conditions:
            self.line(f"if {' and '.join(conditions)}:")
            self.depth += 1
        limits = [
            f"warp_first + {self.value(count)}" if across == "lane" else self.value(count)
            for clip in clips
            for across, count in clip.limits
        ]
        end = "warp_end" if scope == WARP else "blockDim_x"
        end = f"min({', '.join([end, *limits])})" if limits else end
        self.line(f"for threadIdx_x in range({'warp_first, ' if scope == WARP else ''}{end}):")
        self.depth += 1
        self.line("thread = threadIdx_x" if self.rank == 1 else "thread = row_of_threads + threadIdx_x")
        self.line("lane = thread - warp_first" if scope == WARP else "lane = thread % 32")
        if scope == BLOCK:
            self.line("warp = thread // 32")

    def _note(self, flow: Flow) -> None:
        """First writing: learn which variables cross from region to region."""
        for variable in flow.exposed:
            array = self.unit.arrays.get(variable)
            if array is not None and array.kind == "local":
                self.regions.setdefault(variable, set()).add((self.region_count, bool(self.loops)))
            if variable in self.facts.definitions or variable in self.synthetic:
                if variable in self.facts.varying or variable in self.synthetic:
                    if variable not in self.unit.arrays and variable not in self.facts.outcomes:
                        self.crossing.add(variable)

    def _bind(self, flow: Flow) -> None:
        for variable in sorted(flow.exposed):
            array = self.unit.arrays.get(variable)
            if array is not None and array.kind == "local" and self._is_kept(variable):
                self.line(f"{variable} = {variable}_of[unsigned(thread)]")

    def _guard(self, guard: str) -> str:
        cell = f"{guard}_of[unsigned(thread)]" if self.kinds else guard
        return f"not {cell}" if guard == "exited" else cell

    def _recompute(self, flow: Flow) -> None:
        if self.kinds is None:
            wanted = {v for v in flow.exposed if self.facts.is_recomputable(v)}
        else:
            wanted = {v for v in flow.exposed if v in self.crossing and v not in self.private}
        order = self.facts.straight
        needed = set(wanted)
        for statement in reversed(order):
            if needed & set(target_names(statement)):
                needed |= {r for r in reads(statement.value) if r in self.facts.single and r in self.facts.varying}
        for statement in order:
            if needed & set(target_names(statement)):
                self.source(statement, [])

    def _load(self, flow: Flow) -> None:
        if self.kinds:
            wanted = flow.exposed | (flow.assigned - flow.certain)
            for variable in sorted(wanted & set(self.private)):
                self.line(f"{variable} = {self._value(variable, self.private[variable])}")

    def _value(self, variable: str, kind: types.Type) -> str:
        if isinstance(kind, types.BaseTuple):
            return f"({''.join(self._value(f'{variable}_{i}', k) + ', ' for i, k in enumerate(kind.types))})"
        return f"{variable}_of[unsigned(thread)]"

    def _store(self, flow: Flow) -> None:
        if self.kinds:
            for variable in sorted(flow.assigned & set(self.private)):
                self._store_value(variable, variable, self.private[variable])

    def _store_value(self, cell: str, value: str, kind: types.Type) -> None:
        if isinstance(kind, types.BaseTuple):
            for i, k in enumerate(kind.types):
                self._store_value(f"{cell}_{i}", f"{value}[{i}]", k)
        else:
            self.line(f"{cell}_of[unsigned(thread)] = {value}")

    def _thread_body(self, block: list[ast.stmt]) -> None:
        returns_in_loops = any(
            isinstance(r, ast.Return)
            for s in statements(block)
            if isinstance(s, ast.For | ast.While)
            for r in statements(s.body)
        )
        left = self.fresh("left") if returns_in_loops else ""
        if left:
            self.line(f"{left} = False")
        for statement in Returns(self, left).block(copy.deepcopy(block), 0):
            self.source(statement, [])

    def source(self, statement: ast.stmt, guards: list) -> None:
        """Write a statement as it stands, indices and lane reads translated."""
        statement = Rewriter(self).visit(copy.deepcopy(statement))
        for content in text(statement).split("\n"):
            self.line(content)

    def value(self, node: ast.expr) -> str:
        """The text of an expression, indices and lane reads translated."""
        return text(Rewriter(self).visit(copy.deepcopy(node)))


def dtype_text(kind: types.Type) -> str:
    """NumPy's dtype of a scalar type, as text.

    Raises:
        TypeError: for anything that no array can hold.
    """
    kind = types.unliteral(kind)
    if isinstance(kind, types.Boolean):
        return "np.bool_"
    if isinstance(kind, types.Integer | types.Float | types.Complex):
        return f"np.{kind.name}"
    raise TypeError(f"no array holds values of type {kind}")
