"""Which variables have one value for a whole warp, block or grid, and which differ from thread to thread.

A variable is as uniform as the values assigned to it, and as the conditions under which that happens: after
`if threadIdx.x == 0: k = 1` threads disagree about k. Around a barrier inside a branch or loop, all threads in it run
it together; what they set and use there is as uniform as the barrier is wide. (Divergence analysis: Karrenberg and
Hack, "Improving performance of OpenCL on CPUs", 2012; Coutinho et al., "Divergence analysis and optimizations", 2011.)
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from miniflow.hostcuda.purity import is_pure_node
from miniflow.hostcuda.syntax import (
    BLOCK,
    BLOCK_NAMES,
    GRID,
    THREAD,
    THREAD_NAMES,
    WARP,
    Compilation,
    Sync,
    bodies,
    level_of,
    loop_exits,
    statements,
    target_names,
)

SCOPE_OF_COORDINATES = {**dict.fromkeys(THREAD_NAMES, THREAD), "warp": WARP, **dict.fromkeys(BLOCK_NAMES, BLOCK)}


class Divergence:
    """The result for one kernel.

    Attributes:
        scope: variable -> THREAD, WARP, BLOCK or GRID: the widest group of threads that agree about its value.
        definitions: variable -> how many statements assign it.
    """

    def __init__(self, tree: ast.FunctionDef, compilation: Compilation, tuples: set[str]):
        self.tree, self.compilation, self.tuples = tree, compilation, tuples
        self.lowered: dict[str, int] = {}
        self.update()

    def update(self) -> None:
        """Analyse the tree again, after it has changed; variables that were lowered stay so."""
        tree = self.tree
        self.parameters = {a.arg for a in tree.args.args}
        self.definitions = Counter(v for s in statements(tree.body) for v in set(target_names(s)))
        self.scope = {v: self.lowered.get(v, GRID) for v in self.definitions}
        self.occurrences = Counter(names_in(tree.body))
        self.propagate()

    def lower(self, variable: str, scope: int) -> None:
        """Treat a variable as no more uniform than `scope`; what depends on it follows."""
        if scope < self.scope[variable]:
            self.scope[variable] = self.lowered[variable] = scope
            self.propagate()

    def propagate(self) -> None:
        """Lower scopes until nothing changes: a greatest fixed point."""
        before, self._inside = None, {}
        while before != self.scope:
            before = dict(self.scope)
            self._block(self.tree.body, [])

    def _block(self, block: list[ast.stmt], control: list[tuple[int, int, ast.stmt]]) -> None:
        for statement in block:
            if isinstance(statement, Sync):
                self._assign(target_names(statement), statement.level, control)
            elif isinstance(statement, ast.If | ast.While | ast.For):
                self._compound(statement, control)
            elif isinstance(statement, ast.Assign):
                self._assign(target_names(statement), self.scope_of(statement.value), control)
            elif isinstance(statement, ast.AugAssign):
                scope = min([self.scope_of(statement.value), *(self.scope[v] for v in target_names(statement))])
                self._assign(target_names(statement), scope, control)

    def _compound(self, statement: ast.stmt, control: list) -> None:
        head = statement.iter if isinstance(statement, ast.For) else statement.test
        scope = self.scope_of(head)
        if not isinstance(statement, ast.If):
            scope = min(scope, self._scope_of_exits(statement.body, GRID))
        control = [*control, (scope, level_of(statement), statement)]
        if isinstance(statement, ast.For):
            self._assign(target_names(statement), scope, control)
        for inner in bodies(statement):
            self._block(inner, control)

    def _scope_of_exits(self, body: list[ast.stmt], scope: int) -> int:
        """The scope of the conditions under which a loop is left early."""
        widest = GRID
        for statement in body:
            if isinstance(statement, ast.Break | ast.Continue):
                widest = min(widest, scope)
            elif isinstance(statement, ast.If) and any(loop_exits([statement])):
                inner = min(scope, self.scope_of(statement.test))
                widest = min([widest, *(self._scope_of_exits(b, inner) for b in bodies(statement))])
        return widest

    def _assign(self, variables: list[str], scope: int, control: list) -> None:
        for variable in variables:
            bound = min([scope, *(self._bound(variable, *c) for c in control)])
            self.scope[variable] = min(self.scope[variable], bound)

    def _bound(self, variable: str, condition: int, level: int, statement: ast.stmt) -> int:
        """The widest scope of a variable that is assigned in a branch or loop."""
        if level > condition and not self._escapes(variable, statement):
            return level
        return condition

    def _escapes(self, variable: str, statement: ast.stmt) -> bool:
        """Whether a variable is also used outside the arm (or the loop) that assigns it."""
        if id(statement) not in self._inside:
            arms = bodies(statement) if isinstance(statement, ast.If) else [[statement]]
            self._inside[id(statement)] = [Counter(names_in(arm)) for arm in arms]
        return all(inside[variable] != self.occurrences[variable] for inside in self._inside[id(statement)])

    # expressions

    def scope_of(self, node: ast.AST) -> int:
        """The widest group of threads for which an expression has one value."""
        if isinstance(node, ast.Name):
            return self._of_name(node.id)
        if not is_pure_node(node, self.tuples):
            return THREAD
        return min([GRID, *(self.scope_of(child) for child in ast.iter_child_nodes(node))])

    def _of_name(self, variable: str) -> int:
        if variable in self.scope:
            return self.scope[variable]
        array = self.compilation.arrays.get(variable)
        if array is not None:
            return THREAD if array.kind == "local" else BLOCK
        return SCOPE_OF_COORDINATES.get(variable, GRID)


def names_in(block: list[ast.stmt]) -> Iterator[str]:
    """Every occurrence of a name, those in votes among them."""
    for statement in block:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                yield node.id
            elif isinstance(node, Sync) and node.collective:
                yield from node.collective[1:]
