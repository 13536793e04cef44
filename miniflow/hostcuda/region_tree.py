"""Barrier fission: the kernel as a tree of regions without barriers, loops over warps and blocks, and barriers.

    ForEachGroup                 for every block:
        Threads                  |   for every thread: statements up to a barrier
        Barrier                  |
        Loop                     |   a loop around a barrier, run by all threads together
            ForEachGroup         |   |   for every warp:
                Threads          |   |   |   for every lane of it
                Barrier          |   |   |   a vote
            Barrier              |   |

Each region becomes a loop over threads, and control flow around barriers stays structured: loop fission as in MCUDA
(Stratton et al., 2008), with masks for the threads that are not in a branch or loop around a barrier. A warp inside a
block, and a block inside a grid that synchronises, are such loops one level deeper: hierarchical collapsing, COX (Han
et al., 2022).
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from miniflow.hostcuda.divergence import Divergence
from miniflow.hostcuda.exits import as_while_loop
from miniflow.hostcuda.purity import is_pure
from miniflow.hostcuda.syntax import (
    BLOCK,
    GRID,
    THREAD,
    WARP,
    Compilation,
    Sync,
    assign,
    assigned_in,
    bodies,
    call,
    has_sync,
    level_of,
    name,
    statements,
    target_names,
)


@dataclass
class Node:
    """A part of the tree, made of these statements, at the level of a warp, a block or the grid."""

    level: int
    statements: list[ast.stmt]
    mask: str = ""  # the variable that is true for the threads that run the node; "" for all


@dataclass
class Threads(Node):
    """Every thread of the group runs the statements, which have no barrier inside."""


@dataclass
class Once(Node):
    """Assignments of uniform variables, run once for the group."""


@dataclass
class ForEachGroup(Node):
    """For every warp of the block, or every block of the grid: the nodes."""

    nodes: list[Node] = field(default_factory=list)


@dataclass
class Barrier(Node):
    """A barrier; a vote if the Sync in `statements` has a collective."""


@dataclass
class Branch(Node):
    """An `if` around a barrier.

    Attributes:
        test: a condition that is uniform over the group; or, if divergent, the name of the variable that holds it.
        divergent: whether it is the latter.
    """

    test: ast.expr = None
    divergent: bool = False
    body: list[Node] = field(default_factory=list)
    orelse: list[Node] = field(default_factory=list)


@dataclass
class Loop(Branch):
    """A loop around a barrier; `statements` holds the For or While."""


@dataclass
class Condition:
    """A condition that differs between threads.

    Attributes:
        test: the expression; for an else, `not` of it.
        statement: the branch or loop.
        outer: the condition around it.
        changes: whether it is computed again, in a loop.
        negates: the condition of the if, for that of an else.
    """

    test: ast.expr
    statement: ast.stmt
    outer: str
    changes: bool
    negates: str = ""


def lower_divergent_ranges(block: list[ast.stmt], divergence: Divergence, compilation: Compilation) -> bool:
    """Turn a loop around a barrier whose range differs between threads into a while loop; whether there was one."""
    for position, statement in enumerate(block):
        if isinstance(statement, ast.For) and divergence.scope_of(statement.iter) < level_of(statement):
            if has_sync(statement):
                block[position : position + 1] = list(as_while_loop(statement, compilation))
            else:
                del statement.interchanged
            return True
        inner = bodies(statement) if level_of(statement) else []
        if any(lower_divergent_ranges(block, divergence, compilation) for block in inner):
            return True
    return False


class Builder:
    """Builds the tree.

    Attributes:
        once: variable -> the level at which it is kept once for the group.
        copied: variables of uniform loops that every thread keeps for itself all the same.
        conditions: the variables made for conditions that differ between threads.
    """

    def __init__(self, compilation: Compilation, divergence: Divergence, once: dict[str, int], copied: set[str]):
        self.compilation, self.divergence, self.once, self.copied = compilation, divergence, once, copied
        self.conditions: dict[str, Condition] = {}
        self.placed: Counter[str] = Counter()  # variable of `once` -> how many of its definitions are in Once nodes

    def kernel(self, body: list[ast.stmt]) -> list[Node]:
        """The tree of a kernel."""
        level = GRID if self.compilation.cooperative else BLOCK
        nodes = self.build(body, level, "")
        return nodes if level == GRID else [ForEachGroup(GRID, body, "", nodes)]

    def build(self, block: list[ast.stmt], level: int, mask: str) -> list[Node]:
        """The nodes of a statement list, run by the threads of which `mask` is true."""
        nodes: list[Node] = []
        run: list[ast.stmt] = []
        for statement in block:
            if isinstance(statement, Sync) and statement.level >= level:
                self._flush(run, nodes, level, mask)
                nodes.append(Barrier(level, [statement], mask))
                self.placed.update(target_names(statement))
            elif level_of(statement) >= level:
                self._collective(statement, run, nodes, level, mask)
            elif self._is_once(statement, level):
                self._flush(run, nodes, level, mask)
                nodes.append(Once(level, [statement], mask))
                for s in statements([statement]):
                    self.placed.update(target_names(s))
            elif not isinstance(statement, ast.Pass):
                run.append(statement)
        self._flush(run, nodes, level, mask)
        return nodes

    def _flush(self, run: list[ast.stmt], nodes: list[Node], level: int, mask: str) -> None:
        if not run:
            return
        region, run[:] = list(run), []
        inner = max(map(level_of, region))
        if level == GRID:
            nodes.append(ForEachGroup(level, region, mask, self.build(region, BLOCK, mask)))
        elif level == BLOCK and inner == WARP:
            nodes.append(ForEachGroup(level, region, mask, self.build(region, WARP, mask)))
        else:
            nodes.append(Threads(level, region, mask))

    def _collective(self, statement: ast.stmt, run: list, nodes: list, level: int, mask: str) -> None:
        loop = isinstance(statement, ast.For | ast.While)
        head = statement.iter if isinstance(statement, ast.For) else statement.test
        if self.divergence.scope_of(head) >= level:
            self._flush(run, nodes, level, mask)
            node_class = Loop if loop else Branch
            body, orelse = self.build(self._body(statement), level, mask), self.build(statement.orelse, level, mask)
            nodes.append(node_class(level, [statement], mask, head, False, body, orelse))
            return
        condition = Condition(head, statement, mask, loop)
        taken = self._condition("taken", call("bool", copy.deepcopy(head)), condition, run)
        if loop:
            self._flush(run, nodes, level, mask)
            again = assign(taken, call("bool", copy.deepcopy(head)), statement.lineno)
            body = self.build([*statement.body, again], level, taken)
            nodes.append(Loop(level, [statement], mask, name(taken), True, body))
            return
        skipped = ""
        if statement.orelse:
            opposite = Condition(ast.UnaryOp(ast.Not(), head), statement, mask, False, taken)
            skipped = self._condition("skipped", ast.UnaryOp(ast.Not(), name(taken)), opposite, run)
        self._flush(run, nodes, level, mask)
        nodes.append(Branch(level, [statement], mask, name(taken), True, self.build(statement.body, level, taken)))
        if skipped:
            body = self.build(statement.orelse, level, skipped)
            nodes.append(Branch(level, [statement], mask, name(skipped), True, body))

    def _body(self, statement: ast.stmt) -> list[ast.stmt]:
        """The body of a uniform branch or loop; a loop's variable is uniform too, or copied by every thread."""
        targets = target_names(statement)
        self.placed.update(targets)
        return [assign(v, name(f"{v}_now"), statement.lineno) for v in targets if v in self.copied] + statement.body

    def _condition(self, stem: str, value: ast.expr, condition: Condition, run: list[ast.stmt]) -> str:
        line = condition.statement.lineno
        variable = f"{stem}_{line}"
        while variable in self.conditions or variable in self.divergence.definitions:
            variable += "_"
        self.conditions[variable] = condition
        run.append(assign(variable, value, line))
        return variable

    def _is_once(self, statement: ast.stmt, level: int) -> bool:
        """Whether a statement does nothing but set uniform variables, one of which is kept once at this level."""
        kept = any(self.once.get(v) == level for v in assigned_in([statement]))
        return kept and self.is_uniform(statement, level)

    def is_uniform(self, statement: ast.stmt, level: int) -> bool:
        """Whether a statement does nothing but set variables that are uniform over the group."""
        divergence = self.divergence
        if isinstance(statement, ast.Pass | ast.Break | ast.Continue):
            return True
        if isinstance(statement, ast.Assign | ast.AugAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if not all(isinstance(t, ast.Name | ast.Tuple) for t in targets):
                return False
            head = statement.value
        elif isinstance(statement, ast.If | ast.While | ast.For) and level_of(statement) == THREAD:
            head = statement.iter if isinstance(statement, ast.For) else statement.test
            if not all(self.is_uniform(s, level) for inner in bodies(statement) for s in inner):
                return False
        else:
            return False
        if any(divergence.scope[v] < level or self.once.get(v, level) != level for v in target_names(statement)):
            return False
        return divergence.scope_of(head) >= level and is_pure(head, divergence.tuples)


def walk(nodes: list[Node], loops: int = 0) -> Iterator[tuple[Node, int]]:
    """All nodes, and how many loops around barriers each is in."""
    for node in nodes:
        yield node, loops
        if isinstance(node, ForEachGroup):
            yield from walk(node.nodes, loops)
        elif isinstance(node, Branch):
            inner = loops + isinstance(node, Loop)
            yield from walk(node.body, inner)
            yield from walk(node.orelse, inner)
