"""Third step of the compiler: the code of one thread becomes the code of a block.

Between two places where threads meet, every thread of the block runs the same stretch of code, a *region*: a loop over
threads, x innermost, so that LLVM vectorizes it. A loop or branch around a meeting becomes a loop or branch around
regions. This is the barrier fission of MCUDA (Stratton, Stone and Hwu, LCPC 2008) and pocl (Jaaskelainen et al., 2015).

    variables   of one region stay scalars; those that are read in a later one get an array with an entry a thread,
                except what is uniform (kept once) or recomputable (computed again)
    conditions  around a barrier are evaluated once if they are uniform, else by all threads, who must agree
    divergence  around meetings of a warp, and around loops that are split for speed, is a mask with an entry a thread

The text is written twice: first with scalars everywhere, only for numba to infer the types of variables, then for good.
"""

from __future__ import annotations

import ast
import copy
import re
from contextlib import contextmanager

import numpy as np
from numba.core import types

from miniflow.hostcuda.analysis import Clip, Facts, Replace, clip_of, is_metadata, is_natural, is_pure_call, loop_form
from miniflow.hostcuda.errors import UnsupportedKernelError
from miniflow.hostcuda.liveness import Flow
from miniflow.hostcuda.syntax import (
    BLOCK,
    GRID,
    LANE_READ,
    SPLIT,
    THREAD,
    WARP,
    Allocation,
    Renamer,
    Sync,
    Unit,
    assign,
    bodies,
    expression,
    loop_exits,
    name,
    reads,
    statements,
    target_names,
    text,
)

INDENT = "    "
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
RANGE = {BLOCK: "0, threads", WARP: "warp_first, warp_end"}
OUTCOME = {"count": "np.int32(0)", "ballot": "np.uint32(0)", "all_of": "True", "any_of": "True", "same": "True"}


class Writer:
    """Writes the function `blocks(first, last, ...)` that runs some blocks of a launch.

    Args:
        rank: 1 if blocks extend along x only, else 3.
        kinds: numba's type of every variable; None writes the text for type inference.
        crossing: variables that are read in another region than the one that assigned them (an outcome of the first
            writing).
    """

    def __init__(self, facts: Facts, unit: Unit, rank: int, kinds: dict[str, types.Type] | None, first: Writer | None):
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
        self.body_start = 0

    # text

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

    def write(self) -> str:
        """The text of the function."""
        body = self.facts.tree.body
        self.depth = 2
        if self.unit.cooperative:
            self.depth = 1
            self.lower(body, GRID, [])
        else:
            self.lower(body, BLOCK, [])
        lines, self.lines = self.lines, []
        self.depth = 1
        self._head()
        if not self.unit.cooperative:
            self.line("for block in range(first, last):")
            self.depth = 2
            self._block_coordinates(lines)
            if self.exits:
                self.line("exited_of[:] = False" if self.kinds else "exited = False")
            self.depth = 1
        self.lines += lines
        self.line("return 0")
        return "\n".join(self.lines) + "\n"

    # the head: coordinates, shared memory, private variables

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
                self.line(f"{cell}{suffix} = np.empty(({lead}threads,), {dtype})")
        if self.exits:
            if self.kinds:
                self.line(f"exited_of{suffix} = np.zeros(({lead}threads,), np.bool_)")
            elif self.unit.cooperative:
                self.line("exited = False")

    def _allocate(self, variable: str, array: Allocation, lead: str, suffix: str) -> None:
        shape = "".join(f"{n}, " for n in array.shape)
        if array.kind == "shared":
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

    # statement lists

    def lower(self, block: list[ast.stmt], scope: int, guards: list) -> None:
        """Write a statement list for all units of `scope` at once: the grid's blocks, a block's threads, a warp's."""
        inner = scope - 1
        if scope == WARP or (scope == BLOCK and all(s.level not in (WARP,) for s in block)):
            self._units(block, scope, guards)
            return
        run: list[ast.stmt] = []
        for statement in [*block, None]:
            if statement is not None and statement.level <= inner:
                run.append(statement)
                continue
            if run:
                self._run(run, scope, guards)
                run = []
            if statement is not None:
                self._units([statement], scope, guards)

    def _run(self, run: list[ast.stmt], scope: int, guards: list) -> None:
        """Statements in which only units of the next lower scope meet: each of these does them all in turn."""
        if scope == BLOCK and all(s.level < WARP for s in run):
            self._units(run, scope, guards)
            return
        flow = Flow(run)
        steered = sorted(v for v in flow.exposed & flow.assigned if v not in self.facts.varying)
        for variable in steered:
            self.line(f"{variable}_before = {variable}")
        if scope == GRID:
            start = len(self.lines)
            self.line("for block in range(first, last):")
            self.depth += 1
            self._restore(steered)
            self._bind_block()
            inside = len(self.lines)
            self.lower(run, BLOCK, guards)
            written = self.lines[inside:]
            self.lines = self.lines[:inside]
            self._block_coordinates(written)
            self.lines += written
            self.depth -= 1
            del start
        else:
            with self.indented("for warp_first in range(0, threads, 32):"):
                self.line("warp_end = min(warp_first + 32, threads)")
                if self.rank == 1:
                    self.line("warp = warp_first // 32")
                self._restore(steered)
                self.lower(run, WARP, guards)

    def _restore(self, steered: list[str]) -> None:
        for variable in steered:
            self.line(f"{variable} = {variable}_before")

    def _bind_block(self) -> None:
        """In a kernel whose grid meets, every block has its own memory all the time."""
        for variable, array in self.unit.arrays.items():
            if array.kind == "shared":
                self.line(f"{variable} = {variable}_all[block]")
            elif array.kind == "dynamic":
                self.line("dynamic = dynamic_all[block]")
                self._view_dynamic(variable, array)
            elif array.kind == "local" and self._is_kept(variable):
                self.line(f"{variable}_of = {variable}_of_all[block]")
        names = [c for v, k in sorted((self.private if self.kinds else {}).items()) for c, _ in self._cells(v, k)]
        names += ["exited_of"] if self.exits and self.kinds else []
        for cell in names:
            self.line(f"{cell} = {cell}_all[block]")

    def _units(self, block: list[ast.stmt], scope: int, guards: list) -> None:
        pending: list[ast.stmt] = []
        for statement in block:
            if statement.level > THREAD:
                self._flush(pending, scope, guards)
                self._meeting(statement, scope, guards)
            elif self.facts.is_uniform_statement(statement) and not isinstance(statement, ast.Break | ast.Continue):
                targets = {n for s in statements([statement]) for n in target_names(s)}
                if any(targets & Flow([p]).exposed for p in pending):
                    self._flush(pending, scope, guards)
                self.source(statement, guards)
            elif self._leaves_block(statement, scope, guards):
                self._flush(pending, scope, guards)
                with self.indented(f"if {text(statement.test)}:"):
                    self.line("continue")
            else:
                pending.append(statement)
        self._flush(pending, scope, guards)

    def _leaves_block(self, statement: ast.stmt, scope: int, guards: list) -> bool:
        """Whether a statement is `if uniform: return`, where that ends the block."""
        return (
            scope == BLOCK
            and not self.loops
            and not guards
            and not self.unit.cooperative
            and isinstance(statement, ast.If)
            and not statement.orelse
            and len(statement.body) == 1
            and isinstance(statement.body[0], ast.Return)
            and self.facts.is_uniform(statement.test)
        )

    def _flush(self, pending: list[ast.stmt], scope: int, guards: list) -> None:
        if pending:
            self.region(list(pending), scope, guards)
            pending.clear()

    # regions

    def region(self, block: list[ast.stmt], scope: int, guards: list) -> None:
        """A loop over threads around statements in which nobody meets."""
        if scope == GRID:
            self._run(block, scope, guards)
            return
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

    # where threads meet

    def _meeting(self, node: ast.stmt, scope: int, guards: list) -> None:
        if isinstance(node, Sync):
            self._sync(node, scope)
        elif isinstance(node, ast.If):
            self._if(node, scope, guards)
        elif isinstance(node, ast.While):
            self._while(node, scope, guards)
        elif isinstance(node, ast.For):
            self._for(node, scope, guards)
        elif isinstance(node, ast.Break | ast.Continue):
            self._leave(node, scope, guards)
        else:
            raise AssertionError(f"a {type(node).__name__} in which threads meet")

    def _sync(self, node: Sync, scope: int) -> None:
        self.line(f"# cuda.{node.what} of line {node.lineno}")
        if node.collective:
            function, voted, outcome = node.collective
            self.crossing.add(voted)
            if self.kinds:
                self.line(f"{outcome} = {function}({voted}_of, {RANGE[scope]})")
            else:
                self.line(f"{outcome} = {OUTCOME[function]}")

    def _if(self, node: ast.If, scope: int, guards: list) -> None:
        if self.facts.is_uniform(node.test):
            self._branch(self.value(node.test), node, scope, guards)
        elif node.level >= BLOCK:
            self._branch(self._agreed(node.test, scope, guards, node), node, scope, guards)
        elif scope == WARP and self.rank == 1 and self.facts.is_warp_uniform(self.facts.expanded(node.test)):
            self._branch(self.value(self.facts.expanded(node.test)), node, scope, guards)
        elif not node.orelse and self._can_clip(clip := clip_of(node.test, self.facts), scope):
            self.lower(node.body, scope, [*guards, clip])
        else:
            yes, no = self.fresh("mask"), self.fresh("mask") if node.orelse else ""
            self._masked([yes, no] if no else [yes])
            evaluated = [assign(yes, node.test, node.lineno)]
            if no:
                evaluated.append(assign(no, ast.UnaryOp(ast.Not(), name(yes)), node.lineno))
            self.region(evaluated, scope, guards)
            self.lower(node.body, scope, [*guards, yes])
            if no:
                self.lower(node.orelse, scope, [*guards, no])

    def _masked(self, masks: list[str]) -> None:
        for mask in masks:
            self.unit.neutral[mask] = "False"
            self.crossing.add(mask)

    def _branch(self, condition: str, node: ast.If, scope: int, guards: list) -> None:
        with self.indented(f"if {condition}:"):
            self.lower(node.body, scope, guards)
        if node.orelse:
            with self.indented("else:"):
                self.lower(node.orelse, scope, guards)

    def _agreed(self, test: ast.expr, scope: int, guards: list, node: ast.stmt) -> str:
        """Evaluate a condition in every thread, let them agree, and give the text of the outcome."""
        if scope != BLOCK:
            self.refuse(node, "a condition around grid.sync() that is not the same for the whole grid")
        said, agreed = self.fresh("condition"), self.fresh("agreed")
        self._masked([said])
        self.region([assign(said, ast.UnaryOp(ast.Not(), ast.UnaryOp(ast.Not(), test)), node.lineno)], scope, guards)
        if not self.kinds:
            self.line(f"{agreed} = 1 if {said} else 0")
        else:
            exited = "exited_of" if self.exits else "None"
            self.line(f"{agreed} = agree({said}_of, {exited}, 0, threads)")
            with self.indented(f"if {agreed} < 0:"):
                self.line(f"return {node.lineno}")
        return f"{agreed} == 1"

    def _while(self, node: ast.While, scope: int, guards: list) -> None:
        if self._exits_agree(node) and self.facts.is_uniform(node.test):
            self.loops.append(("plain",))
            with self.indented(f"while {self.value(node.test)}:"):
                self.lower(node.body, scope, guards)
            self.loops.pop()
        elif node.level >= BLOCK:
            self.loops.append(("plain",))
            with self.indented("while True:"):
                condition = self._agreed(node.test, scope, guards, node)
                with self.indented(f"if not {condition}:"):
                    self.line("break")
                self.lower(node.body, scope, guards)
            self.loops.pop()
        else:
            self._masked_loop([], node.test, [], node.body, scope, guards, node)

    def _exits_agree(self, node: ast.stmt) -> bool:
        """Whether no thread leaves the loop by a break or continue of its own."""
        if node.level >= BLOCK:
            return True  # all must agree, which is checked where the branch stands
        return not any(
            isinstance(s, ast.If) and not self.facts.is_uniform(s.test) and any(loop_exits([s]))
            for s in statements(node.body)
        )

    def _masked_loop(self, before, test, step, body, scope, guards, node) -> None:
        """A loop that every thread leaves when it wants: it goes on while any is left."""
        live = self.fresh("live")
        going = self.fresh("going") if any(loop_exits(body, (ast.Continue,))) else ""
        self._masked([live, going] if going else [live])
        line = node.lineno
        self.region([*before, assign(live, ast.Constant(True), line)], scope, guards)
        self.loops.append(("masked", live, going))
        with self.indented("while True:"):
            head = [*step, assign(live, ast.UnaryOp(ast.Not(), ast.UnaryOp(ast.Not(), test)), line)]
            head += [assign(going, ast.Constant(True), line)] if going else []
            self._region_keeping(head, scope, [*guards, live], {live})
            if self.kinds:
                with self.indented(f"if not any_of({live}_of, {RANGE[scope]}):"):
                    self.line("break")
            else:
                with self.indented(f"if not {live}:"):
                    self.line("break")
            self.lower(body, scope, [*guards, live, *([going] if going else [])])
        self.loops.pop()

    def _region_keeping(self, block: list[ast.stmt], scope: int, guards: list, kept: set[str]) -> None:
        """A region that changes its own guards: they are not set to neutral before it."""
        neutral = {v: self.unit.neutral.pop(v) for v in kept}
        self.region(block, scope, guards)
        self.unit.neutral.update(neutral)

    def _for(self, node: ast.For, scope: int, guards: list) -> None:
        if node.level == SPLIT and loop_form(node, self.facts) == "strided":
            self._strided(node, scope, guards)
        elif self.facts.is_uniform(node.iter) and self._exits_agree(node):
            self._plain_for(node, scope, guards)
        else:
            self._counted(node, scope, guards)

    def _plain_for(self, node: ast.For, scope: int, guards: list) -> None:
        target, body = text(node.target), node.body
        if set(target_names(node)) & self.facts.varying:  # it differs outside of the loop, or from warp to warp
            target = self.fresh("each")
            self.synthetic.discard(target)
            self.facts.natural |= {target} if node.target.id in self.facts.natural else set()
            body = [assign(node.target.id, name(target), node.lineno), *body]
        self.loops.append(("plain",))
        with self.indented(f"for {target} in {self.value(node.iter)}:"):
            self.lower(body, scope, guards)
        self.loops.pop()

    def _strided(self, node: ast.For, scope: int, guards: list) -> None:
        """`for i in range(start + x, stop, step)`: a uniform loop over the i of thread 0, and a mask."""
        start, stop, step = node.iter.args
        start = self.facts.expanded(start)
        across = "lane" if "lane" in set(reads(start)) else "threadIdx_x"
        start = Replace({"lane": ast.Constant(0), "threadIdx_x": ast.Constant(0)}).visit(copy.deepcopy(start))
        base = self.fresh("base")
        self.synthetic.discard(base)
        if is_natural(start, self.facts.natural):
            self.facts.natural.add(base)
        within = Clip([], [(across, ast.BinOp(stop, ast.Sub(), name(base)))])
        mine = assign(node.target.id, ast.BinOp(name(base), ast.Add(), name(across)), node.lineno)
        self.loops.append(("plain",))
        with self.indented(f"for {base} in range({self.value(start)}, {self.value(stop)}, {self.value(step)}):"):
            if self._can_clip(within, scope):
                self.lower([mine, *node.body], scope, [*guards, within])
            else:
                mask = self.fresh("mask")
                self._masked([mask])
                inside = ast.Compare(name(node.target.id), [ast.Lt()], [stop])
                self.region([mine, assign(mask, inside, node.lineno)], scope, guards)
                self.lower(node.body, scope, [*guards, mask])
        self.loops.pop()

    def _can_clip(self, clip: Clip | None, scope: int) -> bool:
        """Whether loops over threads can end where the condition does."""
        if clip is None or (scope == WARP and self.rank == 3):
            return False
        return scope == WARP or all(across == "threadIdx_x" for across, _ in clip.limits)

    def _counted(self, node: ast.For, scope: int, guards: list) -> None:
        """A `for` over a range that differs between threads, as a `while` with a counter in every thread."""
        if not (isinstance(node.iter, ast.Call) and text(node.iter.func) == "range"):
            self.refuse(node, "a loop around a barrier over anything but a range")
        args = node.iter.args
        start, stop = (ast.Constant(0), args[0]) if len(args) == 1 else args[:2]
        step = args[2] if len(args) > 2 else ast.Constant(1)
        counter, end, stride = self.fresh("counter"), self.fresh("end"), self.fresh("stride")
        line = node.lineno
        before = [
            assign(stride, step, line),
            assign(counter, ast.BinOp(start, ast.Sub(), name(stride)), line),
            assign(end, stop, line),
        ]
        test = expression(f"{counter} < {end} if {stride} > 0 else {counter} > {end}")
        advance = [
            assign(counter, expression(f"{counter} + {stride}"), line),
            assign(node.target.id, name(counter), line),
        ]
        if node.level >= BLOCK:
            self.region(before, scope, guards)
            self.loops.append(("plain",))
            with self.indented("while True:"):
                self.region(advance, scope, guards)
                condition = self._agreed(test, scope, guards, node)
                with self.indented(f"if not {condition}:"):
                    self.line("break")
                self.lower(node.body, scope, guards)
            self.loops.pop()
        else:
            self._masked_loop(before, test, advance, node.body, scope, guards, node)

    def _leave(self, node: ast.stmt, scope: int, guards: list) -> None:
        kind = self.loops[-1]
        if kind[0] == "plain":
            self.line("break" if isinstance(node, ast.Break) else "continue")
            return
        mask = kind[1] if isinstance(node, ast.Break) else kind[2]
        self._region_keeping([assign(mask, ast.Constant(False), node.lineno)], scope, guards, {mask})

    def refuse(self, node: ast.stmt, what: str) -> None:
        """Raise UnsupportedKernelError naming construct and line."""
        raise UnsupportedKernelError(f"{self.unit.filename}:{node.lineno}: {self.unit.name}: {what} is not supported")


class Returns(ast.NodeTransformer):
    """Turns `return` in a region into the end of this thread's turn."""

    def __init__(self, writer: Writer, left: str):
        self.writer, self.left = writer, left

    def block(self, block: list[ast.stmt], depth: int) -> list[ast.stmt]:
        """The statements, `depth` loops inside the region."""
        result = []
        for statement in block:
            if isinstance(statement, ast.Return):
                return [*result, *self._leave(depth)]
            holds = any(isinstance(s, ast.Return) for s in statements([statement]))
            if holds:
                loop = isinstance(statement, ast.For | ast.While)
                statement.body = self.block(statement.body, depth + loop)
                statement.orelse = self.block(statement.orelse, depth)
            result.append(statement)
            if holds and isinstance(statement, ast.For | ast.While):
                result.append(ast.If(name(self.left), [ast.Break() if depth else ast.Continue()], []))
        return result

    def _leave(self, depth: int) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        if self.writer.exits:
            cell = "exited_of[unsigned(thread)]" if self.writer.kinds else "exited"
            result.append(ast.parse(f"{cell} = True").body[0])
        if depth:
            result.append(ast.parse(f"{self.left} = True").body[0])
        return [*result, ast.Break() if depth else ast.Continue()]


class Rewriter(ast.NodeTransformer):
    """Translates lane reads, matches, atomics on a block's own memory, and indices that are never negative."""

    def __init__(self, writer: Writer):
        self.writer = writer
        self.natural = set(writer.facts.natural)

    def visit_If(self, node: ast.If) -> ast.If:
        node.test = self.visit(node.test)
        before = self.natural
        assigned = {n for s in statements(node.body) for n in target_names(s)}
        self.natural = before | {v for v in known_natural(node.test) if v not in assigned}
        node.body = [self.visit(s) for s in node.body]
        self.natural = before
        node.orelse = [self.visit(s) for s in node.orelse]
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        function = node.func.id if isinstance(node.func, ast.Name) else ""
        final = self.writer.kinds is not None
        if function == LANE_READ:
            variable = node.args[0].id
            self.writer.crossing.add(variable)
            return expression(f"{variable}_of[{text(node.args[1])}]") if final else node.args[0]
        if function in ("match_any", "match_all"):
            for argument in node.args[:2]:
                self.writer.crossing.add(argument.id)
            if not final:
                return expression("np.int32(0)" if function == "match_any" else "(np.int32(0), True)")
            value, here = (a.id for a in node.args[:2])
            return expression(f"{function}({value}_of, {here}_of, thread, warp_first, warp_end)")
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if is_metadata(node) or self.writer.kinds is None:
            return self.generic_visit(node)
        base = node.value.id if isinstance(node.value, ast.Name) else ""
        natural = self.natural
        self.generic_visit(node)
        if not isinstance(self.writer.kinds.get(base), types.Array):
            return node
        if isinstance(node.slice, ast.Tuple):
            node.slice.elts = [self._index(i, natural) for i in node.slice.elts]
        else:
            node.slice = self._index(node.slice, natural)
        return node

    def _index(self, node: ast.expr, natural: set[str]) -> ast.expr:
        if isinstance(node, ast.Constant | ast.Slice | ast.Tuple) or not is_natural(node, natural):
            return node
        return ast.Call(name("unsigned"), [node], [])


def known_natural(test: ast.expr) -> set[str]:
    """The variables that cannot be negative where a condition holds."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return set().union(*map(known_natural, test.values))
    if not isinstance(test, ast.Compare):
        return set()
    found = set()
    sides = [test.left, *test.comparators]
    for left, op, right in zip(sides, test.ops, sides[1:], strict=False):
        if isinstance(op, ast.Gt | ast.GtE):
            left, right = right, left
        elif not isinstance(op, ast.Lt | ast.LtE):
            continue
        if isinstance(right, ast.Name) and isinstance(left, ast.Constant) and left.value in (0, -1):
            if left.value == 0 or isinstance(op, ast.Lt | ast.Gt):
                found.add(right.id)
    return found


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


__all__ = ["Writer", "dtype_text", "bodies", "Renamer"]
