"""What the compiler knows about a kernel's variables, found by looking at all their assignments at once.

uniform       the same for all threads of a block: kept once, and free to steer loops around barriers
coefficient   by how much an integer grows from one thread to the next: an access a[i, j] is coalesced, and can be
              vectorized over threads, if j grows by 1 and i not at all
natural       never negative: such an index needs no wrap-around test (see `signs`)
recomputable  cheap and the same whenever computed: needs no memory across a barrier
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

from miniflow.hostcuda.signs import CASTS, dotted, is_metadata, is_natural
from miniflow.hostcuda.splits import choose_splits
from miniflow.hostcuda.syntax import (
    BLOCK,
    COORDINATES,
    LANE_READ,
    SPLIT,
    THREAD,
    THREAD_NAMES,
    WARP,
    Sync,
    Unit,
    bodies,
    loop_exits,
    reads,
    statements,
    target_names,
)

PURE = {
    "min", "max", "abs", "int", "float", "bool", "complex", "len", "range", "round", "pow", "popc", "clz", "ffs",
    "brev", "fma", "cbrt", "selp", "rsqrt", "fmod", "modf", "remainder",
}  # fmt: skip


def is_pure_call(node: ast.Call) -> bool:
    """Whether a call has no effect, and its result depends on its arguments alone."""
    function = dotted(node.func)
    return function in PURE or function.startswith(("math.", "np.", "types."))


def outside_loops(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements that are in no loop."""
    for statement in block:
        yield statement
        if isinstance(statement, ast.If):
            yield from outside_loops(statement.body)
            yield from outside_loops(statement.orelse)


def exchanged(tree: ast.FunctionDef) -> set[str]:
    """The variables of shuffles, matches and votes."""
    found = {s.collective[1] for s in statements(tree.body) if isinstance(s, Sync) and s.collective}
    for n in ast.walk(tree):
        if isinstance(n, ast.Call) and dotted(n.func) in (LANE_READ, "match_any", "match_all"):
            found |= {a.id for a in n.args[: 1 if dotted(n.func) == LANE_READ else 2]}
    return found


def occurrences(tree: ast.AST, variable: str) -> int:
    """How often a variable is named."""
    return sum(isinstance(n, ast.Name) and n.id == variable for n in ast.walk(tree))


class Replace(ast.NodeTransformer):
    """Replaces reads of variables by expressions."""

    def __init__(self, values: dict[str, ast.expr]):
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.values[node.id]) if node.id in self.values else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add):
            for zero, other in ((node.left, node.right), (node.right, node.left)):
                if isinstance(zero, ast.Constant) and type(zero.value) is int and zero.value == 0:
                    return other
        return node


class Facts:
    """All facts about one kernel; `tree` is its definition after `meetings`.

    Attributes:
        definitions: the right-hand sides assigned to every variable; None where there is none (`for`, unpacking).
        varying: the variables that differ between threads of a block.
        straight: the assignments that stand in no loop, in order.
        single: variables with one assignment, which is one of these.
        exchanged: variables whose values other threads read, in votes and shuffles.
    """

    def __init__(self, tree: ast.FunctionDef, unit: Unit, tuples: set[str], naturals: set[str], rank: int):
        self.tree, self.unit, self.rank = tree, unit, rank
        self.tuples = tuples  # parameters that are tuples: indexing them is not a memory access
        self.parameters = {a.arg for a in tree.args.args}
        self.given_naturals = naturals
        self.definitions: dict[str, list[ast.expr | None]] = {}
        self.loops: dict[str, list[ast.For]] = {}
        self.outcomes = {s.collective[2] for s in statements(tree.body) if isinstance(s, Sync) and s.collective}
        self.exchanged = exchanged(tree)
        for statement in statements(tree.body):
            self._define(statement)
        self.straight = [s for s in outside_loops(tree.body) if isinstance(s, ast.Assign)]
        self.single = {
            n
            for s in self.straight
            for n in target_names(s)
            if len(self.definitions[n]) == 1 and n not in self.outcomes and self.definitions[n] != [None]
        }
        set_levels(tree.body)
        self.varying: set[str] = set()
        self._find_varying(set())
        choose_splits(tree.body, self)
        set_levels(tree.body)
        self._demote()
        self.natural = self._find_natural()

    def _define(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Assign) and all(isinstance(t, ast.Name) for t in statement.targets):
            for target in statement.targets:
                self.definitions.setdefault(target.id, []).append(statement.value)
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            old = ast.Name(statement.target.id, ast.Load())
            combined = ast.BinOp(old, statement.op, statement.value)
            self.definitions.setdefault(statement.target.id, []).append(combined)
        else:
            for variable in target_names(statement):
                self.definitions.setdefault(variable, []).append(None)
                if isinstance(statement, ast.For):
                    self.loops.setdefault(variable, []).append(statement)

    # uniform or varying

    def is_uniform(self, node: ast.AST) -> bool:
        """Whether an expression has one value for all threads of a block."""
        for n in ast.walk(node):
            if isinstance(n, ast.Name):
                if n.id in THREAD_NAMES or n.id in self.varying:
                    return False
                if self.unit.cooperative and n.id.startswith("blockIdx"):
                    return False
            elif isinstance(n, ast.Call):
                if dotted(n.func) == LANE_READ or not is_pure_call(n):
                    return False
            elif isinstance(n, ast.Subscript) and not is_metadata(n):
                if not (isinstance(n.value, ast.Name) and n.value.id in self.tuples):
                    return False
        return True

    def is_warp_uniform(self, node: ast.AST) -> bool:
        """Whether an expression, after `expanded`, has one value for all threads of a warp (blocks along x only)."""
        if any(r in THREAD_NAMES and r != "warp" or r in self.varying for r in reads(node)):
            return False
        return self.is_uniform(Replace({"warp": ast.Constant(0)}).visit(copy.deepcopy(node)))

    def expanded(self, node: ast.expr) -> ast.expr:
        """An expression with recomputable variables replaced by what they stand for."""
        known = {
            r: self.expanded(self.definitions[r][0])
            for r in set(reads(node))
            if r in self.varying and self.is_recomputable(r)
        }
        return Replace(known).visit(copy.deepcopy(node))

    def is_steady(self, node: ast.AST) -> bool:
        """Whether an expression is uniform but for the variables of loops that all threads at hand run alike."""
        fixed = {
            r: ast.Constant(0)
            for r in set(reads(node))
            if self.definitions.get(r) == [None] and r in self.loops and self.is_steady(self.loops[r][0].iter)
        }
        return self.is_uniform(Replace(fixed).visit(copy.deepcopy(node)))

    def _find_varying(self, forced: set[str]) -> None:
        warp_outcomes = {
            s.collective[2]
            for s in statements(self.tree.body)
            if isinstance(s, Sync) and s.collective and s.level == WARP
        }
        self.varying = set(forced) | warp_outcomes | self.exchanged
        self.varying |= {n for n, a in self.unit.arrays.items() if a.kind == "local"}
        before = -1
        while before != len(self.varying):
            before = len(self.varying)
            self._spread(self.tree.body, False)

    def _spread(self, block: list[ast.stmt], divergent: bool) -> None:
        for statement in block:
            control = divergent
            if isinstance(statement, ast.If | ast.While | ast.For):
                head = statement.iter if isinstance(statement, ast.For) else statement.test
                steered = not self.is_uniform(head)
                if isinstance(statement, ast.For | ast.While) and any(
                    isinstance(s, ast.If) and not self.is_uniform(s.test) and any(loop_exits([s]))
                    for s in statement.body
                ):
                    steered = True
                if steered and statement.level < BLOCK:  # around a barrier, threads must agree: that is checked
                    control = divergent or not self._steers_warps(statement)
                if isinstance(statement, ast.For) and (steered or control):
                    self.varying.update(target_names(statement))
                for inner in bodies(statement):
                    self._spread(inner, control)
            elif isinstance(statement, ast.FunctionDef):
                self.varying.add(statement.name)
            else:
                value = getattr(statement, "value", None)
                if control or not (value is None or self.is_uniform(value)):
                    self.varying.update(target_names(statement))

    def _steers_warps(self, statement: ast.stmt) -> bool:
        """Whether a branch is taken by whole warps. What it sets may then be kept once, as long as a warp is at it."""
        if not isinstance(statement, ast.If) or statement.level != WARP or self.rank == 3:
            return False
        if not self.is_warp_uniform(self.expanded(statement.test)):
            return False
        inside = [n for s in statements([statement]) for n in target_names(s)]
        for variable in set(inside):
            if occurrences(self.tree, variable) != occurrences(statement, variable):
                self.varying.add(variable)
        return True

    def _demote(self) -> None:
        """A variable is kept once a block only if it is assigned where the whole block is steered at once."""
        forced: set[str] = set()
        while True:
            self._find_varying(forced)
            more = {n for n in self._mixed(self.tree.body) if n not in self.varying}
            if not more:
                return
            forced |= more

    def _mixed(self, block: list[ast.stmt]) -> Iterator[str]:
        for statement in block:
            if statement.level > THREAD:
                for inner in bodies(statement):
                    yield from self._mixed(inner)
            elif not self.is_uniform_statement(statement):
                for s in statements([statement]):
                    yield from target_names(s)

    def is_uniform_statement(self, statement: ast.stmt) -> bool:
        """Whether a statement does nothing but set uniform variables: it then runs once a block."""
        if statement.level > THREAD:
            return False
        if isinstance(statement, ast.Assign | ast.AugAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if any(isinstance(n, ast.Subscript | ast.Attribute) for t in targets for n in ast.walk(t)):
                return False
            return self.is_uniform(statement.value) and not self.varying & set(target_names(statement))
        if isinstance(statement, ast.If | ast.While | ast.For):
            head = statement.iter if isinstance(statement, ast.For) else statement.test
            inner = [s for b in bodies(statement) for s in b]
            own = set(target_names(statement))
            return self.is_uniform(head) and not self.varying & own and all(map(self.is_uniform_statement, inner))
        return isinstance(statement, ast.Pass | ast.Break | ast.Continue)

    # growth from thread to thread

    def coefficient(self, node: ast.expr, depth: int = 0) -> int | None:
        """By how much an integer grows from one thread (or lane) to the next in x; None if that is not constant."""
        if depth > 20:
            return None
        if isinstance(node, ast.Name):
            if node.id in ("threadIdx_x", "lane"):
                return 1
            if node.id in ("threadIdx_y", "threadIdx_z"):
                return 0
            if node.id == "warp":  # the same for neighbours, but for those at the border of two warps
                return 0
            if node.id in COORDINATES or node.id in self.parameters:
                return 0
            return self._coefficient_of(node.id, depth)
        if isinstance(node, ast.BinOp):
            left, right = self.coefficient(node.left, depth + 1), self.coefficient(node.right, depth + 1)
            if left is None or right is None:
                return None
            if isinstance(node.op, ast.Add):
                return left + right
            if isinstance(node.op, ast.Sub):
                return left - right
            if left == right == 0:
                return 0
            if isinstance(node.op, ast.Mult):
                for constant, other in ((node.left, right), (node.right, left)):
                    if isinstance(constant, ast.Constant) and type(constant.value) is int:
                        return constant.value * other
            return None
        if isinstance(node, ast.Call) and dotted(node.func) in CASTS and len(node.args) == 1:
            return self.coefficient(node.args[0], depth + 1)
        return 0 if self.is_row_uniform(node) else None

    def is_row_uniform(self, node: ast.AST) -> bool:
        """Whether an expression has one value for all threads with the same y and z."""
        if any(isinstance(n, ast.Call) and not is_pure_call(n) for n in ast.walk(node)):
            return False
        if any(isinstance(n, ast.Subscript) and not is_metadata(n) for n in ast.walk(node)):
            return self.is_uniform(node)
        return all(self.coefficient(ast.Name(r, ast.Load()), 5) == 0 or not self._is_variable(r) for r in reads(node))

    def _is_variable(self, identifier: str) -> bool:
        return identifier in self.definitions or identifier in THREAD_NAMES

    def _coefficient_of(self, variable: str, depth: int) -> int | None:
        if variable not in self.varying:
            return 0
        known = self.definitions.get(variable, [])
        if len(known) != 1:
            return None
        if known[0] is not None:
            return self.coefficient(known[0], depth + 1)
        (loop,) = self.loops.get(variable, [None])
        if loop is None or not isinstance(loop.iter, ast.Call) or dotted(loop.iter.func) != "range":
            return None
        args = [self.coefficient(a, depth + 1) for a in loop.iter.args]
        if len(args) == 1:
            return 0 if args == [0] else None
        if args[1:] == [0] * (len(args) - 1):
            return args[0]
        return None

    # signs

    def _find_natural(self) -> set[str]:
        natural = {n for n, d in self.definitions.items()} - self.parameters
        natural |= self.given_naturals
        while True:
            wrong = {n for n in natural - self.given_naturals if not self._stays_natural(n, natural)}
            if not wrong:
                return natural
            natural -= wrong

    def _stays_natural(self, variable: str, natural: set[str]) -> bool:
        for value in self.definitions[variable]:
            if value is not None and not is_natural(value, natural):
                return False
        loops = self.loops.get(variable, [])
        if len(loops) != self.definitions[variable].count(None):
            return False
        for loop in loops:
            if not (isinstance(loop.iter, ast.Call) and dotted(loop.iter.func) == "range"):
                return False
            args = loop.iter.args
            if len(args) > 1 and not is_natural(args[0], natural):
                return False
            if len(args) > 2 and not is_natural(args[2], natural):
                return False
        return True

    # memory across barriers

    def is_recomputable(self, variable: str, may_index: bool = False) -> bool:
        """Whether the variable's one assignment can be repeated wherever it is read.

        Args:
            may_index: it is known to be a view of an array: indexing then reads no element.
        """
        if variable not in self.single or variable in self.exchanged:
            return False
        (value,) = self.definitions[variable]
        if value is None:
            return False
        for n in ast.walk(value):
            if isinstance(n, ast.Call) and not is_pure_call(n):
                if not (
                    may_index and isinstance(n.func, ast.Attribute) and n.func.attr in ("view", "reshape", "ravel")
                ):
                    return False
            if isinstance(n, ast.Subscript) and not is_metadata(n) and not may_index:
                if not (isinstance(n.value, ast.Name) and n.value.id in self.tuples):
                    return False
            if (
                isinstance(n, ast.Name)
                and n.id in self.definitions
                and not (n.id not in self.varying and n.id in self.single or self.is_recomputable(n.id, may_index))
            ):
                return False
        return True


def set_levels(block: list[ast.stmt]) -> int:
    """Note for every statement who meets in it (`.level`), and return the highest."""
    highest = THREAD
    for statement in block:
        if isinstance(statement, Sync):
            level = statement.level
        else:
            level = max([set_levels(b) for b in bodies(statement)], default=THREAD)
            if getattr(statement, "split", False):
                level = max(level, SPLIT)
            if level > THREAD and isinstance(statement, ast.For | ast.While):
                _raise_exits(statement.body, level)
        statement.level = level
        highest = max(highest, level)
    return highest


def _raise_exits(block: list[ast.stmt], level: int) -> None:
    """A branch that leaves a loop in which threads meet belongs to the steering of that loop."""
    for statement in block:
        if isinstance(statement, ast.If) and any(loop_exits([statement])):
            statement.level = max(statement.level, level)
            _raise_exits(statement.body, level)
            _raise_exits(statement.orelse, level)
        elif isinstance(statement, ast.Break | ast.Continue):
            statement.level = level
