"""A region of a kernel, which has no barriers inside, as loops over threads.

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
import textwrap
from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from numba.core import types

from miniflow.hostcuda.accesses import Access, CheckedAccess
from miniflow.hostcuda.affine import Affine, names_of
from miniflow.hostcuda.bounds import Intervals, greatest
from miniflow.hostcuda.devices import Rank
from miniflow.hostcuda.divergence import names_in
from miniflow.hostcuda.guards import THREAD_VARIABLES, Limits, conjuncts, limits
from miniflow.hostcuda.intrinsic import VECTORS
from miniflow.hostcuda.liveness import Flow
from miniflow.hostcuda.purity import is_pure
from miniflow.hostcuda.region_tree import Barrier, ForEachGroup, Threads, walk
from miniflow.hostcuda.signs import dotted, is_metadata
from miniflow.hostcuda.storage import Storage
from miniflow.hostcuda.syntax import (
    BLOCK,
    LANE_READ,
    WARP,
    Compilation,
    Renamer,
    Replace,
    assigned_in,
    call,
    expression,
    fold_constants,
    name,
    reads,
    sets_names,
    target_names,
    text,
)

INDENT = "    "


@dataclass
class Loops:
    """Loops over threads: variable -> first and end, what they begin with, and coordinates in terms of others."""

    bounds: dict[str, tuple[str, str]]
    inside: list[str]
    coordinates: dict[str, ast.expr] = field(default_factory=dict)


class ThreadLoops:
    """Writes regions for blocks of one rank."""

    def __init__(
        self,
        tree: ast.FunctionDef,
        compilation: Compilation,
        storage: Storage,
        affine: Affine,
        arrays: set[str],
        rank: Rank,
    ):
        self.tree, self.compilation, self.storage, self.affine, self.rank = tree, compilation, storage, affine, rank
        self.tuples, self.arrays = affine.tuples, arrays
        self._assigned = set(affine.values)
        self.neutral = {**compilation.neutral, **dict.fromkeys(storage.conditions, "False")}
        barriers = [node for node, _ in walk(storage.nodes) if isinstance(node, Barrier)]
        self.masked = {node.level for node in barriers if node.mask and node.level >= BLOCK}
        self.thread_index = "entry" if self._runs_down_columns() else "thread"  # of the entries of private arrays
        self.lanes = "32" if rank.whole_warps else "lanes"
        self.interleaved = {v: len(compilation.arrays[v].shape) for v in storage.kept_arrays & storage.in_warp}
        self.masks_of_all: set[str] = set()
        self.lines: list[str] = []
        self.depth = 1
        self.stacked = 0  # bytes of arrays on the stack
        self.of_block: list[str] = []  # names for the memory of a block, in a grid that synchronises

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
        if not self.compilation.checked:
            statements = [SourceLane(self.lanes).visit(copy.deepcopy(s)) for s in statements]
        if not statements:
            return
        self._fill_inactive(node, Flow(statements))
        masks, kept = self._guards(node.mask)
        statements, tests = self._without_guard(statements, masks)
        lines = sorted({s.lineno for s in statements if getattr(s, "lineno", 0)})
        if lines:
            self.line(f"# line {lines[0]}" if lines[0] == lines[-1] else f"# lines {lines[0]} to {lines[-1]}")
        loops, rest = self._thread_loops(node, statements, tests)
        of_mask = {text(part) for test in masks for part in conjuncts(test)}
        conditions_if_all = [text(t) for t in rest if text(t) not in of_mask]
        conditions = [*([self._entry(kept)] if kept else []), *map(text, rest)]
        whole = node.mask in self.masks_of_all and node.level == BLOCK and len(conditions_if_all) < len(conditions)
        if_all_active, all_active = (conditions_if_all, f"whole_{node.mask}") if whole else (conditions, "")
        self._versions(node, statements, loops, conditions, if_all_active, all_active)

    def _versions(
        self,
        node: Threads,
        statements: list[ast.stmt],
        loops: Loops,
        conditions: list[str],
        if_all_active: list[str],
        all_active: str,
    ) -> None:
        """A region, and before it a faster one for when its indices are inside and conditions hold for all threads.

        Args:
            conditions: of its threads.
            if_all_active: what is left of the conditions if all threads of the block are in the branch around.
            all_active: the variable that is true if they are; "" if there is none.
        """
        access, intervals = Access(self.compilation, self.affine, self.arrays), None
        bounds = list(loops.bounds.values())
        if self.compilation.boundscheck:
            loops, intervals = self._intervals(node, statements, loops)
            access = CheckedAccess(self.compilation, self.affine, self.arrays, None)
        unswitched = self._unswitch_conditions(statements, loops)
        start = len(self.lines)
        inside = CheckedAccess(self.compilation, self.affine, self.arrays, intervals) if intervals else access
        with self.deeper():
            self._region(
                [AssumeConditions(unswitched).visit(copy.deepcopy(s)) for s in statements], loops, if_all_active, inside
            )
        written, self.lines[start:] = self.lines[start:], []
        known = list(dict.fromkeys([all_active, *unswitched.values(), *getattr(inside, "proven", [])]))
        if known := [k for k in known if k]:
            self.line(f"if {' and '.join(known)}:")
            self.lines += [*written, f"{INDENT * self.depth}else:"]
        with self.deeper() if known else nullcontext():
            start = len(self.lines)
            self._region(statements, loops, conditions, access)
            if known and intervals and bounds == [("0", "32")]:
                self._use_copies(start, bool(conditions))

    def _use_copies(self, start: int, masked: bool) -> None:
        """Let a region with checks work on copies of the variables of a warp.

        Its loops are not unrolled, and LLVM keeps those arrays in registers alone whose indices are all constants.
        """
        region = ast.parse(textwrap.dedent("\n".join(self.lines[start:])))
        nodes = [n for n in ast.walk(region) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)]
        stores, names = Counter(dotted(n.value) for n in nodes), Counter(names_in(region.body))
        variables = self.storage.in_warp & self.storage.private.keys()
        kept = sorted(c for v in variables for c, *_ in private_arrays(v, self.storage.private[v]))
        Renamer({array: f"{array}_copy" for array in kept}).visit(region)
        move = "for lane in range(32):\n    {}[unsigned(lane)] = {}[unsigned(lane)]"
        copies = [move.format(f"{a}_copy", a) for a in kept if names[a] > (0 if masked else stores[a])]
        copies_back = [move.format(a, f"{a}_copy") for a in kept if stores[a]]
        written = "\n".join([*copies, text(region), *copies_back])
        self.lines[start:] = textwrap.indent(written, INDENT * self.depth).split("\n")

    def _intervals(self, node: Threads, statements: list[ast.stmt], loops: Loops) -> tuple[Loops, Intervals]:
        """Names for the ends of loops, and the intervals of integers that follow from them."""
        named = {}
        for variable, (begin, end) in loops.bounds.items():
            axis = variable.removeprefix("threadIdx_")
            named[variable] = f"begin_{axis}", f"end_{axis}"
            self.line(f"begin_{axis}, end_{axis} = {begin}, {end}")
        known = assigned_in(statements) | self.storage.rematerialised.keys()
        uniform = set(self.storage.once)
        if self.rank.axes < 3:
            uniform.add("threadIdx_z")
        if self.rank.axes == 1 or node.level == WARP and self.rank.whole_warps:
            uniform |= {"threadIdx_y", "threadIdx_z"}
        if node.level == WARP:
            uniform |= {"warp", "warp_first", "warp_x"}
        intervals = Intervals(self.affine, uniform, known - self.storage.once.keys(), named, loops.coordinates)
        return Loops(named, loops.inside, loops.coordinates), intervals

    def _unswitch_conditions(self, statements: list[ast.stmt], loops: Loops) -> dict[str, str]:
        """Loop unswitching (Muchnick, "Advanced Compiler Design and Implementation", 14.3): for the conditions in
        `x[i] if i < x.size else 0`, what holds if and only if they do so for all threads of the innermost loop."""
        variable, (begin, end) = list(loops.bounds.items())[-1]
        parameters = {a.arg for a in self.tree.args.args}
        values, unswitched = dict(loops.coordinates), {}
        for statement in statements:
            for node in [n for n in ast.walk(statement) if isinstance(n, ast.IfExp)]:
                test = node.test
                expanded = self._expanded(Replace(values).visit(copy.deepcopy(test)))
                ends = limits([expanded], [variable], self.affine, set(self.storage.once))
                lower, upper = ends.lower.get(variable, []), ends.upper.get(variable, [])
                if not ends.rest and len(lower) + len(upper) == 1 and names_of(expanded) & parameters:
                    border = text(fold_constants([*lower, *upper][0]))
                    unswitched[text(test)] = f"{end} <= {border}" if upper else f"{border} <= {begin}"
                elif hasattr(node, "strip"):
                    unswitched[text(test)] = text(expanded)
            for target in target_names(statement) if isinstance(statement, ast.Assign) else []:
                if len(self.affine.values.get(target, [])) == 1 and is_pure(statement.value, self.tuples):
                    values[target] = Replace(values).visit(copy.deepcopy(statement.value))
        return unswitched

    def _region(self, statements: list[ast.stmt], loops: Loops, conditions: list[str], access: Access) -> None:
        """Loops over the threads of a group around statements without barriers."""
        senders = [
            n.args[1]
            for s in statements
            for n in ast.walk(s)
            if isinstance(n, ast.Call) and dotted(n.func) == LANE_READ and isinstance(n.args[1], ast.IfExp)
        ]
        step = senders and senders[0].body.right
        if len(set(map(text, senders))) != 1 or names_of(step) & (self._assigned - self.storage.once.keys()):
            return self._loops(statements, loops, conditions, access)
        begin, end = loops.bounds["lane"]  # a shuffle up or down: lanes that have a sender, and those that have none
        down = isinstance(senders[0].body.op, ast.Add)
        border = f"min(max({f'{self.lanes} - ' if down else ''}{text(step)}, {begin}), {end})"
        for first, ends in ((True, (begin, border)), (False, (border, end))):
            known = AssumeConditions({text(senders[0].test): first == down})
            part = [known.visit(copy.deepcopy(s)) for s in statements]
            self._loops(part, Loops({"lane": ends}, loops.inside), conditions, access)
        return None

    def _loops(self, statements: list[ast.stmt], loops: Loops, conditions: list[str], access: Access) -> None:
        depth, start = self.depth, len(self.lines)
        uniform = self._loop_invariants(statements)
        for statement in uniform:
            self._statement(statement, access)
        statements = [s for s in statements if all(s is not u for u in uniform)]
        if not statements:
            return
        flow = Flow(statements)
        for variable, (begin, end) in loops.bounds.items():
            self.line(f"for {variable} in range({end if begin == '0' else f'{begin}, {end}'}):")
            self.depth += 1
        for content in [*loops.inside, *map(self._array_of_thread, sorted(self.storage.kept_arrays))]:
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

    def _loop_invariants(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """The assignments of a region that give all threads the same: they move before its loops, as invariants.

        LLVM does not move divisions, since it cannot tell that they are ever executed.
        """
        varying = {*THREAD_VARIABLES, *self.compilation.arrays, *self._assigned, *assigned_in(statements)}
        varying = varying.union(self.storage.conditions) - self.storage.once.keys()
        kept, invariants = self.storage.private.keys() | self.storage.once.keys(), []
        for statement in statements:
            targets = set(target_names(statement))
            single = sets_names(statement) and all(len(self.affine.values.get(v, ())) == 1 for v in targets)
            if single and not targets & kept and not varying.intersection(reads(statement)):
                if is_pure(statement.value, self.tuples):
                    invariants.append(statement)
                    varying -= targets
        return invariants

    def _is_dropped(self, statement: ast.stmt, region: list[ast.stmt]) -> bool:
        targets = target_names(statement)
        if targets and targets[0] in self.storage.conditions:
            return targets[0] not in self.storage.private
        return self._is_recomputed(statement, region)

    def _guards(self, mask: str) -> tuple[list[ast.expr], str]:
        """The mask of a region: conditions that it evaluates itself, and the variable that holds the rest."""
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
            if not sets_names(statement):
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
        """Loops over the threads of a group, and the conditions that these must still check."""
        if node.level == WARP:
            return self._lanes(tests)
        order = {1: "x", 2: "yx", 3: "zyx"}[self.rank.axes]
        if self.thread_index == "entry":
            order = order.replace("yx", "xy")
        sizes = {f"threadIdx_{axis}": f"blockDim_{axis}" for axis in order}
        ends = limits(tests, sizes, self.affine, set(self.storage.once))
        bounds = {variable: self._bounds(variable, ends, size) for variable, size in sizes.items()}
        flat = self.rank.axes == 2
        row = "threadIdx_y * blockDim_x + " if flat else "(threadIdx_z * blockDim_y + threadIdx_y) * blockDim_x + "
        thread = f"thread = {row if self.rank.axes > 1 else ''}threadIdx_x"
        column = "threadIdx_x" if flat else "(threadIdx_z * blockDim_x + threadIdx_x)"
        entry = f"entry = {column} * blockDim_y + threadIdx_y"
        return Loops(bounds, [entry, thread, "lane = thread % 32", "warp = thread // 32"]), ends.rest

    def _lanes(self, tests: list[ast.expr]) -> tuple[Loops, list[ast.expr]]:
        """A loop over the threads of a warp."""
        if self.rank.axes > 1 and not self.rank.whole_warps:
            inside = [
                "thread = warp_first + lane",
                "threadIdx_x = thread % blockDim_x",
                "threadIdx_y = thread // blockDim_x % blockDim_y",
                "threadIdx_z = thread // (blockDim_x * blockDim_y)",
            ]
            return Loops({"lane": ("0", self.lanes)}, inside), tests
        x = f"{'warp_first' if self.rank.axes == 1 else 'warp_x'} + lane"
        tests = [Replace({"threadIdx_x": expression(x)}).visit(copy.deepcopy(t)) for t in tests]
        ends = limits(tests, ["lane"], self.affine, set(self.storage.once))
        inside = ["thread = warp_first + lane", f"threadIdx_x = {x}"]
        bounds = {"lane": self._bounds("lane", ends, self.lanes)}
        return Loops(bounds, inside, {"threadIdx_x": expression(x)}), ends.rest

    def _bounds(self, variable: str, ends: Limits, size: str) -> tuple[str, str]:
        lower = [ast.Constant(0), *map(fold_constants, ends.lower.get(variable, []))]
        upper = [expression(size), *map(fold_constants, ends.upper.get(variable, []))]
        return text(greatest("max", lower)), text(greatest("min", upper))

    def _entry(self, variable: str) -> str:
        """A thread's entry in the array of a private variable."""
        return f"{variable}_of[unsigned({self._index(variable)})]"

    def _index(self, variable: str) -> str:
        return "lane" if variable in self.storage.in_warp else self.thread_index

    def _array_of_thread(self, variable: str) -> str:
        """A thread's part of the memory of a local array: in a warp, the lanes' elements lie side by side."""
        in_warp = variable in self.storage.in_warp
        part = "[..., unsigned(lane)]" if in_warp else f"[unsigned({self.thread_index})]"
        if not self.compilation.arrays[variable].shape:  # numba would take out a number
            cell = "lane" if in_warp else self.thread_index
            part = f"[{cell} : {cell} + 1].reshape(())"
        return f"{variable} = {variable}_of{part}"

    def _runs_down_columns(self) -> bool:
        """Whether threads had better follow one another along y: more accesses are contiguous then than along x.

        Where threads look at each other's variables these lie in the order of the threads, along x.
        """
        nodes = [node for node, _ in walk(self.storage.nodes)]
        if self.rank.axes == 1 or any(isinstance(n, Barrier) and n.statements[0].collective for n in nodes):
            return False
        if any(isinstance(n, ForEachGroup) and n.level == BLOCK for n in nodes):
            return False
        scores = dict.fromkeys("xy", 0)
        for node in (n for t in nodes if isinstance(t, Threads) for s in t.statements for n in ast.walk(s)):
            if isinstance(node, ast.Subscript) and not is_metadata(node):
                for axis in scores:
                    scores[axis] += self.affine.moves(node, axis) is True
        return scores["y"] > scores["x"]

    def _is_recomputed(self, statement: ast.stmt, region: list[ast.stmt]) -> bool:
        """Whether a statement sets rematerialised variables, which every region computes at its beginning."""
        others = [s for s in region if s is not statement and not self._sets_rematerialised(s)]
        return self._sets_rematerialised(statement) and not set(reads(statement)) & assigned_in(others)

    def _sets_rematerialised(self, statement: ast.stmt) -> bool:
        return bool(target_names(statement)) and set(target_names(statement)) <= self.storage.rematerialised.keys()

    def _fill_inactive(self, node: Threads, flow: Flow) -> None:
        """Give votes and conditions of threads that do not run the region their neutral element."""
        for variable in sorted(flow.assigned & self.neutral.keys() & self.storage.private.keys()):
            if node.mask and variable != node.mask:
                part = "[warp_first:warp_end]" if node.level == WARP and variable not in self.storage.in_warp else "[:]"
                self.line(f"{variable}_of{part} = {self.neutral[variable]}")

    def _load(self, flow: Flow, access: Access) -> None:
        """At the beginning of a region: private variables, and what is computed again."""
        needed = set(flow.exposed)
        again = self.storage.rematerialised
        for variable in reversed(again):
            if variable in needed:
                needed |= set(reads(again[variable]))
        for variable in sorted((needed | (flow.assigned - flow.certain)) & self.storage.private.keys()):
            kind, index = self.storage.private[variable], self._index(variable)
            self.line(f"{variable} = {private_value(f'{variable}_of', kind, index)}")
        for variable, statement in again.items():
            if variable in needed:
                self._statement(statement, access)

    def _store(self, flow: Flow) -> None:
        for variable in sorted(flow.assigned & self.storage.private.keys()):
            for array, _, member in private_arrays(variable, self.storage.private[variable]):
                self.line(f"{array}[unsigned({self._index(variable)})] = {member}")

    def _statement(self, statement: ast.stmt, access: Access) -> None:
        written = Interleaved(self.interleaved).visit(access.visit(copy.deepcopy(statement)))
        for content in text(written).split("\n"):
            self.line(content)

    def _expression(self, node: ast.expr) -> str:
        """The text of an expression that is evaluated once for a group."""
        return text(self._expanded(node))

    def _expanded(self, node: ast.AST) -> ast.AST:
        """A tree with rematerialised variables replaced by their values."""
        known = {v: self._expanded(s.value) for v, s in self.storage.rematerialised.items() if v in set(reads(node))}
        return Replace(known).visit(copy.deepcopy(node))


class SourceLane(ast.NodeTransformer):
    """Shuffles read the element of their source lane in the array of a warp."""

    def __init__(self, lanes: str):
        self.lanes = expression(lanes)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        function = node.func.id if isinstance(node.func, ast.Name) else ""
        if function in ("lane_down", "lane_up"):
            down = function == "lane_down"
            sender = ast.BinOp(name("lane"), ast.Add() if down else ast.Sub(), node.args[1])
            end = ([ast.Lt()], [self.lanes]) if down else ([ast.GtE()], [ast.Constant(0)])
            return ast.IfExp(ast.Compare(sender, *end), sender, name("lane"))
        if function in ("lane_at", "lane_xor"):
            return call(function, name("lane"), node.args[1], ast.Constant(0), self.lanes)
        return node


class AssumeConditions(ast.NodeTransformer):
    """Conditional expressions become the branch that is taken, where their condition is known."""

    def __init__(self, known: dict[str, Any]):
        self.known = known

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        holds = self.known.get(text(node.test))
        if holds is None:
            return self.generic_visit(node)
        return self.visit(node.body if holds else node.orelse)


class Interleaved(ast.NodeTransformer):
    """Elements of local arrays whose lanes have theirs side by side, as on a GPU: variable -> dimensions."""

    def __init__(self, arrays: dict[str, int]):
        self.arrays = arrays

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        variable = node.value.id if isinstance(node.value, ast.Name) else ""
        if self.arrays.get(variable) != len(index):
            return node
        index_and_lane = ast.Tuple([*index, call("unsigned", name("lane"))], ast.Load())
        return ast.Subscript(name(f"{variable}_of"), index_and_lane, node.ctx)


def private_arrays(variable: str, kind: types.Type, path: tuple[int, ...] = ()) -> list[tuple[str, str, str]]:
    """The arrays that hold a private variable: (name, dtype, the part of the variable), one for each member of a tuple.

    >>> private_arrays("p", types.Tuple([types.int64, types.float32]))
    [('p_of_0', 'np.int64', 'p[0]'), ('p_of_1', 'np.float32', 'p[1]')]
    """
    if isinstance(kind, types.BaseTuple):
        return [array for i, k in enumerate(kind.types) for array in private_arrays(variable, k, (*path, i))]
    array = "_".join([f"{variable}_of", *map(str, path)])
    return [(array, dtype_text(kind), variable + "".join(f"[{i}]" for i in path))]


def private_value(array: str, kind: types.Type, index: str) -> str:
    """A thread's entry in the array of a private variable, or the tuple of its entries in several."""
    if isinstance(kind, types.BaseTuple):
        called = kind.instance_class.__name__ if hasattr(kind, "instance_class") else ""
        members = "".join(private_value(f"{array}_{i}", k, index) + ", " for i, k in enumerate(kind.types))
        return f"{called if called in VECTORS else ''}({members})"
    return f"{array}[unsigned({index})]"


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
