"""Tells variables apart that only share a name: `k` in one loop and `k` in the next become `k` and `k1`.

Definitions that reach a common use belong together (a live range, or web: Muchnick, "Advanced Compiler Design and
Implementation", section 16.3); every live range gets a name of its own. After this step more can be said about each
variable: its type, how it grows from thread to thread, whether it is assigned once.
"""

from __future__ import annotations

import ast

from miniflow.hostcuda.syntax import Sync, Unit, expressions, statements

State = dict[str, frozenset[int]]  # variable -> the definitions that may have set it
LEAVES = (ast.Return, ast.Break, ast.Continue)


class LiveRanges:
    """Walks a function as it may run, and joins definitions at uses."""

    def __init__(self):
        self.parent: list[int] = []
        self.definition: dict[int, int] = {}  # id of the node that sets a variable -> number of the definition
        self.variable: list[str] = []
        self.uses: list[tuple[ast.Name, int]] = []
        self.sets: list[tuple[ast.Name, int]] = []
        self.loops: list[tuple[list[State], list[State]]] = []

    def find(self, number: int) -> int:
        """The representative of a definition's live range."""
        while self.parent[number] != number:
            number = self.parent[number]
        return number

    def _join(self, numbers: frozenset[int]) -> int | None:
        roots = [self.find(n) for n in numbers]
        for root in roots[1:]:
            self.parent[self.find(root)] = self.find(roots[0])
        return roots[0] if roots else None

    def _define(self, node: ast.Name, state: State, joined: int | None = None) -> None:
        number = self.definition.get(id(node))
        if number is None:
            number = self.definition[id(node)] = len(self.parent)
            self.parent.append(number)
            self.variable.append(node.id)
            self.sets.append((node, number))
        if joined is not None:
            self._join(frozenset({number, joined}))
        state[node.id] = frozenset({number})

    def _read(self, node: ast.AST, state: State) -> None:
        for n in ast.walk(node):
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in state:
                root = self._join(state[n.id])
                if root is not None:
                    self.uses.append((n, root))

    def block(self, block: list[ast.stmt], state: State | None) -> State | None:
        """The state behind a statement list; None if its end is not reached."""
        for statement in block:
            if state is None:
                return None
            state = self._statement(statement, dict(state))
        return state

    def _statement(self, statement: ast.stmt, state: State) -> State | None:
        if isinstance(statement, ast.If):
            self._read(statement.test, state)
            return merged(self.block(statement.body, state), self.block(statement.orelse, state))
        if isinstance(statement, ast.For | ast.While):
            return self._loop(statement, state)
        if isinstance(statement, LEAVES):
            if isinstance(statement, ast.Return):
                for node in expressions(statement):
                    self._read(node, state)
            else:
                self.loops[-1][isinstance(statement, ast.Continue)].append(state)
            return None
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            self._read(statement.value, state)
            self._define(statement.target, state, self._join(state.get(statement.target.id, frozenset())))
            return state
        for node in expressions(statement):
            self._read(node, state)
        for node in expressions(statement):
            self._targets(node, state)
        return state

    def _targets(self, node: ast.AST, state: State) -> None:
        for n in ast.walk(node):
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
                self._define(n, state)

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
                self._targets(loop.target, inside)
            else:
                self._read(loop.test, inside)
            end = self.block(loop.body, inside)
            self.loops.pop()
            for other in [end, *continues]:
                head = merged(head, other)
        if isinstance(loop, ast.While):
            self._read(loop.test, head)
        for other in breaks:
            head = merged(head, other)
        return head


def merged(a: State | None, b: State | None) -> State | None:
    """What may have set the variables where two ways meet."""
    if a is None or b is None:
        return a if b is None else b
    return {v: a.get(v, frozenset()) | b.get(v, frozenset()) for v in a.keys() | b.keys()}


def separate(tree: ast.FunctionDef, unit: Unit) -> None:
    """Rename the variables of a function in place."""
    exchanged = {v for s in statements(tree.body) if isinstance(s, Sync) and s.collective for v in s.collective}
    ranges = LiveRanges()
    ranges.block(tree.body, {})
    names: dict[int, str] = {}
    taken: set[str] = set()
    for node, number in [*ranges.sets, *ranges.uses]:
        root, variable = ranges.find(number), ranges.variable[number]
        if variable in exchanged:
            continue
        if root not in names:
            names[root] = unit.fresh(f"{variable}_") if variable in taken else variable
            taken.add(variable)
            unit.original[names[root]] = variable
        node.id = names[root]
