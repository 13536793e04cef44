"""A region of a kernel, in which nobody waits for others, as loops over threads.

for threadIdx_x in range(min(blockDim_x, n - first)):    # the ends that `guards` finds
    thread = threadIdx_x
    total = total_of[thread]                             # private variables are loaded
    total += x[first + threadIdx_x]
    total_of[thread] = total                             # and stored
"""

from __future__ import annotations

import ast
import copy
import re
from contextlib import contextmanager
from dataclasses import dataclass

from numba.core import types

from miniflow.hostcuda.accesses import Access, CheckedAccess
from miniflow.hostcuda.affine import Affine
from miniflow.hostcuda.bounds import Intervals
from miniflow.hostcuda.devices import Rank
from miniflow.hostcuda.divergence import is_pure
from miniflow.hostcuda.guards import Limits, conjuncts, limits
from miniflow.hostcuda.intrinsic import VECTORS
from miniflow.hostcuda.liveness import Flow
from miniflow.hostcuda.region_tree import Barrier, Threads, Units, walk
from miniflow.hostcuda.signs import is_metadata
from miniflow.hostcuda.storage import Storage
from miniflow.hostcuda.syntax import (
    BLOCK,
    WARP,
    Replace,
    Unit,
    expression,
    reads,
    simplified,
    target_names,
    text,
)

INDENT = "    "


@dataclass
class Loops:
    """Loops over threads: lines before them, axis -> first and end, and what they begin with."""

    before: list[str]
    bounds: dict[str, tuple[str, str]]
    inside: list[str]


class ThreadLoops:
    """Writes regions for blocks of one rank."""

    def __init__(
        self, tree: ast.FunctionDef, unit: Unit, storage: Storage, affine: Affine, arrays: set[str], rank: Rank
    ):
        self.tree, self.unit, self.storage, self.affine, self.rank = tree, unit, storage, affine, rank
        self.tuples, self.arrays = affine.tuples, arrays
        self._assigned = set(affine.values)
        self.neutral = {**unit.neutral, **dict.fromkeys(storage.conditions, "False")}
        barriers = [node for node, _ in walk(storage.nodes) if isinstance(node, Barrier)]
        self.masked = {node.level for node in barriers if node.mask and node.level >= BLOCK}
        self.cell = "entry" if self._runs_down_columns() else "thread"  # what numbers the entries of private arrays
        self.wholes: set[str] = set()
        self.lines: list[str] = []
        self.depth = 1
        self.stacked = 0

    def line(self, content: str) -> None:
        """One line at the present depth."""
        self.lines.append(f"{INDENT * self.depth}{content}")

    @contextmanager
    def indented(self, head: str):
        """A compound statement; nothing if nothing is written inside."""
        start = len(self.lines)
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1
        if all(line.strip().startswith("#") for line in self.lines[start + 1 :]):
            del self.lines[start:]

    @contextmanager
    def deeper(self):
        """Lines that stand in the compound statement just begun."""
        self.depth += 1
        yield
        self.depth -= 1

    def _drop_unused(self, start: int, body: int) -> None:
        """Remove assignments of names that what follows does not mention."""
        written = "\n".join(self.lines[body:])
        for position in reversed(range(start, body)):
            variable = self.lines[position].strip().partition(" = ")[0]
            if " = " in self.lines[position] and not re.search(rf"\b{variable}\b", written):
                del self.lines[position]
            else:
                written = self.lines[position] + "\n" + written

    def _threads(self, node: Threads) -> None:
        statements = [s for s in node.statements if not self._is_dropped(s, node.statements)]
        if not statements:
            return
        self._fill(node, Flow(statements))
        masks, kept = self._guards(node.mask)
        statements, tests = self._without_guard(statements, masks)
        lines = sorted({s.lineno for s in statements if getattr(s, "lineno", 0)})
        if lines:
            self.line(f"# line {lines[0]}" if lines[0] == lines[-1] else f"# lines {lines[0]} to {lines[-1]}")
        start = len(self.lines)
        loops, rest = self._thread_loops(node, statements, tests)
        of_mask = {text(part) for test in masks for part in conjuncts(test)}
        own = [text(t) for t in rest if text(t) not in of_mask]
        conditions = [*([f"{kept}_of[unsigned({self.cell})]"] if kept else []), *map(text, rest)]
        body = len(self.lines)
        whole = f"whole_{node.mask}" if node.mask in self.wholes and node.level == BLOCK else ""
        if len(own) == len(conditions):
            whole = ""
        if self.unit.boundscheck:
            self._checked_region(node, statements, loops, (own, conditions), whole)
        elif whole:
            access = Access(self.unit, self.affine, self.arrays)
            self.line(f"if {whole}:")
            with self.deeper():
                self._region(statements, loops, own, access)
            self.line("else:")
            with self.deeper():
                self._region(statements, loops, conditions, access)
        else:
            self._region(statements, loops, conditions, Access(self.unit, self.affine, self.arrays))
        self._drop_unused(start, body)

    def _checked_region(
        self,
        node: Threads,
        statements: list[ast.stmt],
        loops: Loops,
        conditions: tuple[list[str], list[str]],
        whole: str,
    ) -> None:
        """A region twice: if its indices are known to be inside, without checks; else with one for each access.

        Args:
            conditions: of the region itself, and with those that say which threads are here.
            whole: the variable that says that all threads are here; "" if there is none.
        """
        for axis, (begin, end) in loops.bounds.items():
            self.line(f"begin_{axis}, end_{axis} = {begin}, {end}")
        named = {axis: (f"begin_{axis}", f"end_{axis}") for axis in loops.bounds}
        loops = Loops(loops.before, named, loops.inside)
        local = {v for s in ast.walk(ast.Module(statements, [])) if isinstance(s, ast.stmt) for v in target_names(s)}
        known = local | self.storage.rematerialised.keys()
        uniform = set(self.storage.once)
        if self.rank.axes < 3:
            uniform.add("threadIdx_z")
        if self.rank.axes == 1 or node.level == WARP and self.rank.whole_warps:
            uniform |= {"threadIdx_y", "threadIdx_z"}
        if node.level == WARP:
            uniform.add("warp")
        intervals = Intervals(self.affine, uniform, known - self.storage.once.keys(), named)
        every = CheckedAccess(self.unit, self.affine, self.arrays, None)
        start = len(self.lines)
        access = CheckedAccess(self.unit, self.affine, self.arrays, intervals)
        with self.deeper():
            self._region(statements, loops, conditions[not whole], access)
        unchecked = self.lines[start:]
        del self.lines[start:]
        proven = dict.fromkeys([*([whole] if whole else []), *access.proven])
        if not proven:
            return self._region(statements, loops, conditions[1], every)
        self.line(f"if {' and '.join(proven)}:")
        self.lines += unchecked
        self.line("else:")
        with self.deeper():
            self._region(statements, loops, conditions[1], every)
        return None

    def _region(self, statements: list[ast.stmt], loops: Loops, conditions: list[str], access: Access) -> None:
        """A loop over the threads of a unit around statements in which nobody meets."""
        depth, start = self.depth, len(self.lines)
        flow = Flow(statements)
        for content in loops.before:
            self.line(content)
        for axis, (begin, end) in loops.bounds.items():
            ends = end if begin == "0" else f"{begin}, {end}"
            self.line(f"for {'thread' if axis == 'thread' else f'threadIdx_{axis}'} in range({ends}):")
            self.depth += 1
        for content in loops.inside:
            self.line(content)
        body = len(self.lines)
        if conditions:
            self.line(f"if {' and '.join(conditions)}:")
            self.depth += 1
        self._load(flow, access)
        for statement in statements:
            self._statement(statement, access)
        self._store(flow)
        self.depth = depth
        self._drop_unused(start, body)

    def _is_dropped(self, statement: ast.stmt, region: list[ast.stmt]) -> bool:
        targets = target_names(statement)
        if targets and targets[0] in self.storage.conditions:
            return targets[0] not in self.storage.private
        return self._is_made_again(statement, region)

    def _guards(self, mask: str) -> tuple[list[ast.expr], str]:
        """The conditions that say who is here, and the variable that says the rest of it."""
        tests = []
        while mask in self.storage.guards:
            tests.append(self.storage.guards[mask])
            mask = self.storage.conditions[mask].outer
        return tests[::-1], mask

    def _without_guard(self, statements: list[ast.stmt], tests: list[ast.expr]) -> tuple[list[ast.stmt], list]:
        """If all that a region does stands under one condition, that is one more guard."""
        last = statements[-1]
        if not isinstance(last, ast.If) or last.orelse or not is_pure(last.test, self.tuples):
            return statements, tests
        values: dict[str, ast.expr] = {}
        for statement in statements[:-1]:
            if not isinstance(statement, ast.Assign) or not all(isinstance(t, ast.Name) for t in statement.targets):
                return statements, tests
            for variable in target_names(statement):
                if variable in self.storage.private or variable in values or not is_pure(statement.value, self.tuples):
                    return statements, tests
                values[variable] = Replace(values).visit(copy.deepcopy(statement.value))
        test = self._expanded(Replace(values).visit(copy.deepcopy(last.test)))
        if set(reads(test)) & (self.storage.private.keys() | self._assigned - self.storage.once.keys()):
            return statements, tests
        return statements[:-1] + last.body, [*tests, test]

    def _thread_loops(
        self, node: Threads, statements: list[ast.stmt], tests: list[ast.expr]
    ) -> tuple[Loops, list[ast.expr]]:
        """Loops over the threads of a unit, and the conditions that these must still check."""
        if node.level == WARP:
            return self._lanes(tests)
        order = {1: "x", 2: "yx", 3: "zyx"}[self.rank.axes]
        if self.cell == "entry":
            order = order.replace("yx", "xy")
        found = limits(tests, order, self.affine, set(self.storage.once))
        bounds = {axis: self._bounds(axis, found, "0", f"blockDim_{axis}") for axis in order}
        flat = self.rank.axes == 2
        row = "threadIdx_y * blockDim_x + " if flat else "(threadIdx_z * blockDim_y + threadIdx_y) * blockDim_x + "
        thread = f"thread = {row if self.rank.axes > 1 else ''}threadIdx_x"
        column = "threadIdx_x" if flat else "(threadIdx_z * blockDim_x + threadIdx_x)"
        entry = f"entry = {column} * blockDim_y + threadIdx_y"
        return Loops([], bounds, [entry, thread, "lane = thread % 32", "warp = thread // 32"]), found.rest

    def _lanes(self, tests: list[ast.expr]) -> tuple[Loops, list[ast.expr]]:
        """A loop over the threads of a warp."""
        if not self.rank.whole_warps:
            inside = [
                "lane = thread - warp_first",
                "threadIdx_x = thread % blockDim_x",
                "threadIdx_y = thread // blockDim_x % blockDim_y",
                "threadIdx_z = thread // (blockDim_x * blockDim_y)",
            ]
            return Loops([], {"thread": ("warp_first", "warp_end")}, inside), tests
        before, begin, end, row = [], "warp_first", "warp_end", ""
        if self.rank.axes > 1:  # rows of threads are whole warps
            before = [
                "row_of_threads = warp_first // blockDim_x * blockDim_x",
                "threadIdx_y = warp_first // blockDim_x % blockDim_y",
                "threadIdx_z = warp_first // (blockDim_x * blockDim_y)",
            ]
            begin, end, row = "warp_first - row_of_threads", "warp_end - row_of_threads", "row_of_threads + "
            for content in before:
                self.line(content)
        lane = expression(f"{row}threadIdx_x - warp_first")
        tests = [Replace({"lane": lane}).visit(copy.deepcopy(t)) for t in tests]
        found = limits(tests, "x", self.affine, set(self.storage.once))
        inside = [f"thread = {row}threadIdx_x", "lane = thread - warp_first"]
        return Loops([], {"x": self._bounds("x", found, begin, end)}, inside), found.rest

    def _bounds(self, axis: str, found: Limits, begin: str, end: str) -> tuple[str, str]:
        lower = [begin, *(text(simplified(e)) for e in found.lower.get(axis, []))]
        upper = [end, *(text(simplified(e)) for e in found.upper.get(axis, []))]
        first = f"max({', '.join(lower)})" if len(lower) > 1 else begin
        last = f"min({', '.join(upper)})" if len(upper) > 1 else end
        return first, last

    def _runs_down_columns(self) -> bool:
        """Whether threads had better follow one another along y: more accesses are contiguous then than along x.

        Where threads look at each other's variables these lie in the order of the threads, along x.
        """
        nodes = [node for node, _ in walk(self.storage.nodes)]
        if self.rank.axes == 1 or any(isinstance(n, Barrier) and n.statements[0].collective for n in nodes):
            return False
        if any(isinstance(n, Units) and n.level == BLOCK for n in nodes):
            return False
        scores = dict.fromkeys("xy", 0)
        for node in (n for t in nodes if isinstance(t, Threads) for s in t.statements for n in ast.walk(s)):
            if isinstance(node, ast.Subscript) and not is_metadata(node):
                index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                for axis in scores:
                    strides = [self.affine.stride(i, axis) for i in index]
                    scores[axis] += strides == [0] * (len(index) - 1) + [1]
        return scores["y"] > scores["x"]

    def _is_made_again(self, statement: ast.stmt, region: list[ast.stmt]) -> bool:
        """Whether a statement sets rematerialised variables, which every region computes at its beginning."""
        targets = set(target_names(statement))
        if not targets or not targets <= self.storage.rematerialised.keys():
            return False
        operands = set(reads(statement))
        return not any(operands & Flow([s]).assigned for s in region if s is not statement and not self._made(s))

    def _made(self, statement: ast.stmt) -> bool:
        return bool(target_names(statement)) and set(target_names(statement)) <= self.storage.rematerialised.keys()

    def _fill(self, node: Threads, flow: Flow) -> None:
        """What threads that are not here say in votes and conditions."""
        for variable in sorted(flow.assigned & self.neutral.keys() & self.storage.private.keys()):
            if node.mask and variable != node.mask:
                part = "[warp_first:warp_end]" if node.level == WARP else "[:]"
                self.line(f"{variable}_of{part} = {self.neutral[variable]}")

    def _load(self, flow: Flow, access: Access) -> None:
        """At the beginning of a region: private variables, and what is computed again."""
        needed = set(flow.exposed)
        again = self.storage.rematerialised
        for variable in reversed(again):
            if variable in needed:
                needed |= set(reads(again[variable]))
        arrays = [v for v in sorted(self.storage.kept_arrays) if v in needed]
        for variable in arrays:
            self.line(f"{variable} = {variable}_of[unsigned({self.cell})]")
        for variable in sorted((needed | (flow.assigned - flow.certain)) & self.storage.private.keys()):
            self.line(f"{variable} = {value(variable, self.storage.private[variable], self.cell)}")
        for variable, statement in again.items():
            if variable in needed:
                self._statement(statement, access)

    def _store(self, flow: Flow) -> None:
        for variable in sorted(flow.assigned & self.storage.private.keys()):
            self._store_value(variable, variable, self.storage.private[variable])

    def _store_value(self, cell: str, variable: str, kind: types.Type) -> None:
        if isinstance(kind, types.BaseTuple):
            for i, k in enumerate(kind.types):
                self._store_value(f"{cell}_{i}", f"{variable}[{i}]", k)
        else:
            self.line(f"{cell}_of[unsigned({self.cell})] = {variable}")

    def _statement(self, statement: ast.stmt, access: Access) -> None:
        for content in text(access.visit(copy.deepcopy(statement))).split("\n"):
            self.line(content)

    def _expression(self, node: ast.expr) -> str:
        """The text of an expression that is evaluated once for a unit."""
        return text(self._expanded(node))

    def _expanded(self, node: ast.AST) -> ast.AST:
        """With what rematerialised variables stand for."""
        known = {v: self._expanded(s.value) for v, s in self.storage.rematerialised.items() if v in set(reads(node))}
        return Replace(known).visit(copy.deepcopy(node))


def cells(variable: str, kind: types.Type) -> list[tuple[str, str]]:
    """The arrays that hold a private variable: one, or one for each member of a tuple."""
    if isinstance(kind, types.BaseTuple):
        return [cell for i, k in enumerate(kind.types) for cell in cells(f"{variable}_{i}", k)]
    return [(f"{variable}_of", dtype_text(kind))]


def value(variable: str, kind: types.Type, cell: str) -> str:
    """What a thread has of a private variable."""
    if isinstance(kind, types.BaseTuple):
        called = kind.instance_class.__name__ if hasattr(kind, "instance_class") else ""
        members = "".join(value(f"{variable}_{i}", k, cell) + ", " for i, k in enumerate(kind.types))
        return f"{called if called in VECTORS else ''}({members})"
    return f"{variable}_of[unsigned({cell})]"


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
