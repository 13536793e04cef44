"""Tells variables apart that only share a name: `k` in one loop and `k` in the next become `k` and `k1`.

Definitions that reach a common use belong together (a live range, or web: Muchnick, "Advanced Compiler Design and
Implementation", section 16.3); every live range gets a name of its own. After this step more can be said about each
variable: its type, how it grows from thread to thread, whether it is assigned once.
"""

from __future__ import annotations

import ast
from functools import reduce

from miniflow.hostcuda.syntax import JUMPS, Compilation, Sync, expressions, statements

State = dict[str, frozenset[ast.Name]]  # variable -> the definitions that may have set it


class LiveRanges:
    """Walks a function as it may run, and joins definitions with their uses.

    Attributes:
        parent: a definition or use -> another one of its live range, nearer to the one that represents it.
    """

    def __init__(self):
        self.parent: dict[ast.Name, ast.Name] = {}
        self.loops: list[tuple[list[State], list[State]]] = []

    def find(self, node: ast.Name) -> ast.Name:
        """The representative of the live range of a definition or use."""
        while self.parent[node] is not node:
            node = self.parent[node]
        return node

    def _join(self, node: ast.Name, definitions: frozenset[ast.Name]) -> None:
        for other in definitions:
            self.parent[self.find(node)] = self.find(other)

    def _read(self, node: ast.AST, state: State) -> None:
        for n in ast.walk(node):
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in state:
                self.parent.setdefault(n, n)
                self._join(n, state[n.id])

    def _define(self, node: ast.AST, state: State) -> None:
        for n in ast.walk(node):
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
                self.parent.setdefault(n, n)
                state[n.id] = frozenset({n})

    def block(self, block: list[ast.stmt], state: State | None) -> State | None:
        """The state behind a statement list; None if its end is not reached."""
        for statement in block:
            if state is None:
                return None
            state = self._statement(statement, dict(state))
        return state

    def _statement(self, statement: ast.stmt, state: State) -> State | None:
        if isinstance(statement, ast.For | ast.While):
            return self._loop(statement, state)
        for node in expressions(statement):
            self._read(node, state)
        if isinstance(statement, ast.If):
            return merged(self.block(statement.body, state), self.block(statement.orelse, state))
        if isinstance(statement, ast.Break | ast.Continue):
            self.loops[-1][isinstance(statement, ast.Continue)].append(state)
        if isinstance(statement, JUMPS):
            return None
        before = dict(state)
        for node in expressions(statement):
            self._define(node, state)
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            self._join(statement.target, before.get(statement.target.id, frozenset()))
        return state

    def _loop(self, loop: ast.For | ast.While, state: State) -> State | None:
        if isinstance(loop, ast.For):
            self._read(loop.iter, state)
        head: State | None = state
        breaks: list[State] = []
        for _ in range(2):  # what the first round defines reaches the uses of the second
            continues: list[State] = []
            self.loops.append((breaks, continues))
            inside = dict(head)
            if isinstance(loop, ast.For):
                self._define(loop.target, inside)
            else:
                self._read(loop.test, inside)
            end = self.block(loop.body, inside)
            self.loops.pop()
            head = reduce(merged, [end, *continues], head)
        if isinstance(loop, ast.While):
            self._read(loop.test, head)
        return reduce(merged, breaks, head)


def merged(a: State | None, b: State | None) -> State | None:
    """The definitions that may reach a point where two paths join."""
    if a is None or b is None:
        return a if b is None else b
    return {v: a.get(v, frozenset()) | b.get(v, frozenset()) for v in a.keys() | b.keys()}


def split_live_ranges(tree: ast.FunctionDef, compilation: Compilation) -> None:
    """Rename the variables of a function in place."""
    exchanged = {v for s in statements(tree.body) if isinstance(s, Sync) and s.collective for v in s.collective}
    ranges = LiveRanges()
    ranges.block(tree.body, {})
    names: dict[ast.Name, str] = {}
    for node in ranges.parent:
        root, variable = ranges.find(node), node.id
        if variable in exchanged:
            continue
        if root not in names:
            names[root] = compilation.fresh(f"{variable}_") if variable in compilation.original.values() else variable
            compilation.original[names[root]] = variable
        node.id = names[root]
