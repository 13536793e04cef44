"""Tells variables apart that only share a name, by static single assignment: a version for every assignment.

    v = x[i]                    v = x[i]                float32
    if v > 0.5:                 if v > 0.5:
        v = v / 3         ->        v1 = v / 3          float64
    y[i] = v                    else:
                                    v1 = v              a copy where two paths join
                                y[i] = v1

Versions that copies join are one live range, or web (Muchnick, "Advanced Compiler Design and Implementation", section
16.3), and get one name: `k` in one loop and `k` in the next become `k` and `k1`, without copies. Only where numba gives
the versions of a live range several types, as above, does every type get a name of its own, so that each of them can
be kept across a barrier. Copies instead of phi functions: Briggs et al., 1998.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from numba.core import types

from miniflow.hostcuda.inference import unified
from miniflow.hostcuda.syntax import JUMPS, Compilation, Sync, assign, assigned_in, expressions, name, statements

State = dict[str, int]  # variable -> its version


@dataclass
class Path:
    """A way to a join: it ends before the statement `end` of `block`, or, if that is None, at the end of it."""

    block: list[ast.stmt]
    end: ast.stmt | None
    state: State


@dataclass
class Copy:
    """`target = source`, two versions of a variable, at the end of a path."""

    target: int
    source: int
    path: Path


class Versions:
    """Walks a function as it may run, and numbers the versions of its variables.

    Attributes:
        variable: of each version.
        definitions, uses: a name in the tree -> its version; for `v += 1` a use is the statement itself.
        copies: at joins, those whose target is used.
    """

    def __init__(self, tree: ast.FunctionDef, tracked: set[str]):
        self.tracked = tracked
        self.variable: list[str] = []
        self.definitions: dict[ast.Name, int] = {}
        self.uses: dict[ast.Name | ast.AugAssign, int] = {}
        self.copies: list[Copy] = []
        self.loops: list[tuple[list[Path], list[Path]]] = []  # breaks and continues of each
        self._block(tree.body, {})
        alive = set(self.uses.values())
        before = -1
        while before != len(alive):
            before = len(alive)
            alive |= {copy.source for copy in self.copies if copy.target in alive}
        self.copies = [copy for copy in self.copies if copy.target in alive]

    def _new(self, variable: str) -> int:
        self.variable.append(variable)
        return len(self.variable) - 1

    def _read(self, node: ast.AST, state: State) -> None:
        for n in ast.walk(node):
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in state:
                self.uses[n] = state[n.id]

    def _define(self, node: ast.AST, state: State) -> None:
        for n in ast.walk(node):
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id in self.tracked:
                self.definitions[n] = state[n.id] = self._new(n.id)

    def _copy(self, paths: list[Path], variable: str, target: int) -> None:
        for path in paths:
            if path.state.get(variable, target) != target:
                self.copies.append(Copy(target, path.state[variable], path))

    def _joined(self, paths: list[Path]) -> State | None:
        """The versions where paths join: a new one if they differ."""
        state: State = {}
        for variable in dict.fromkeys(v for path in paths for v in path.state):
            versions = {path.state[variable] for path in paths if variable in path.state}
            state[variable] = versions.pop() if len(versions) == 1 else self._new(variable)
            self._copy(paths, variable, state[variable])
        return state if paths else None

    def _block(self, block: list[ast.stmt], state: State | None) -> State | None:
        """The versions behind a statement list; None if its end is not reached."""
        for statement in block:
            if state is None:
                return None
            state = self._statement(statement, block, dict(state))
        return state

    def _statement(self, statement: ast.stmt, block: list[ast.stmt], state: State) -> State | None:
        if isinstance(statement, ast.For | ast.While):
            return self._loop(statement, block, state)
        for node in expressions(statement):
            self._read(node, state)
        if isinstance(statement, ast.If):
            ends = [(arm, self._block(arm, state)) for arm in (statement.body, statement.orelse)]
            return self._joined([Path(arm, None, end) for arm, end in ends if end is not None])
        if isinstance(statement, ast.Break | ast.Continue):
            self.loops[-1][isinstance(statement, ast.Continue)].append(Path(block, statement, state))
        if isinstance(statement, JUMPS):
            return None
        if isinstance(statement, ast.AugAssign) and getattr(statement.target, "id", "") in state:
            self.uses[statement] = state[statement.target.id]
        for node in expressions(statement):
            self._define(node, state)
        return state

    def _loop(self, loop: ast.For | ast.While, block: list[ast.stmt], state: State) -> State | None:
        """A loop begins with a join, of the way to it and those back; and it ends with one if there are breaks."""
        if isinstance(loop, ast.For):
            self._read(loop.iter, state)
        before = Path(block, loop, state)
        heads = {v: self._new(v) for v in sorted(assigned_in([loop]) & self.tracked)}
        head = {**state, **heads}
        if isinstance(loop, ast.While):
            self._read(loop.test, head)
        inside = dict(head)
        if isinstance(loop, ast.For):
            self._define(loop.target, inside)
        breaks, continues = [], []
        self.loops.append((breaks, continues))
        end = self._block(loop.body, inside)
        self.loops.pop()
        back = [before, *continues, *([] if end is None else [Path(loop.body, None, end)])]
        for variable, version in heads.items():
            self._copy(back, variable, version)
        if isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant) and loop.test.value:
            return self._joined(breaks)
        for variable, version in heads.items():  # what holds behind the loop is copied wherever the head's version is
            if {path.state.get(variable, version) for path in breaks} - {version}:
                head[variable] = self._new(variable)
                self._copy([*back, *breaks], variable, head[variable])
        return head


def split_live_ranges(tree: ast.FunctionDef, compilation: Compilation) -> None:
    """Rename the variables of a function in place: a name for each live range."""
    versions = Versions(tree, assigned_in(tree.body) - exchanged(tree))
    parent = list(range(len(versions.variable)))

    def find(version: int) -> int:
        while parent[version] != version:
            version = parent[version]
        return version

    joined = [(copy.target, copy.source) for copy in versions.copies]
    joined += [(versions.definitions[s.target], v) for s, v in versions.uses.items() if isinstance(s, ast.AugAssign)]
    for target, source in joined:
        parent[find(source)] = find(target)
    names: dict[int, str] = {}
    for node, version in (versions.definitions | versions.uses).items():
        if isinstance(node, ast.Name):
            root = find(version)
            if root not in names:
                names[root] = new_name(node.id, compilation)
            node.id = names[root]


def split_types(
    tree: ast.FunctionDef, compilation: Compilation, infer: Callable[[], dict[str, list[types.Type]]]
) -> dict[str, list[types.Type]]:
    """Rename variables that have several types in place: a name for each type.

    Args:
        infer: the types of every variable, one for each of numba's versions.

    Returns:
        The types of the variables afterwards.
    """
    kinds = infer()
    mixed = {v for v in assigned_in(tree.body) - exchanged(tree) if len(set(kinds.get(v, ()))) > 1}
    if not mixed:
        return kinds
    versions = Versions(tree, mixed)
    name_of = [compilation.fresh(f"{variable}_version") for variable in versions.variable]
    copies: list[tuple[list[ast.stmt], ast.Assign]] = []
    for copy in versions.copies:
        block, end = copy.path.block, copy.path.end
        position = len(block) if end is None else next(p for p, s in enumerate(block) if s is end)
        line = (end or (block[-1] if block else tree)).lineno
        statement = assign(name_of[copy.target], name(name_of[copy.source]), line)
        versions.definitions[statement.targets[0]], versions.uses[statement.value] = copy.target, copy.source
        copies.append((block, statement))
        block.insert(position, statement)
    expand_augmented(tree.body, versions)
    nodes = versions.definitions | versions.uses
    for node, version in nodes.items():
        node.id = name_of[version]
    kinds = infer()
    names: dict[tuple[str, types.Type | None], str] = {}
    for node, version in nodes.items():
        variable, kind = versions.variable[version], unified(kinds.get(name_of[version], []))
        if (variable, kind) not in names:
            first = all(v != variable for v, _ in names)
            names[variable, kind] = variable if first else new_name(variable, compilation)
            kinds[names[variable, kind]] = [kind]
        node.id = names[variable, kind]
    for block, statement in copies:
        if statement.targets[0].id == statement.value.id:
            block[:] = [s for s in block if s is not statement]
    return kinds


def expand_augmented(block: list[ast.stmt], versions: Versions) -> None:
    """`v2 = v1 + 1` for `v += 1`, whose versions may get two names."""
    for inner in [block, *(b for s in statements(block) for b in (getattr(s, "body", []), getattr(s, "orelse", [])))]:
        for position, statement in enumerate(inner):
            if statement in versions.uses:
                operand = ast.copy_location(name(statement.target.id), statement)
                versions.uses[operand] = versions.uses.pop(statement)
                value = ast.copy_location(ast.BinOp(operand, statement.op, statement.value), statement)
                inner[position] = ast.copy_location(ast.Assign([statement.target], value), statement)


def exchanged(tree: ast.FunctionDef) -> set[str]:
    """The variables of votes, which the compiler has made: they have one version."""
    return {v for s in statements(tree.body) if isinstance(s, Sync) and s.collective for v in s.collective}


def new_name(variable: str, compilation: Compilation) -> str:
    """A name for another live range of a variable."""
    renamed = compilation.fresh(f"{variable}_") if variable in compilation.original else variable
    compilation.original[renamed] = compilation.original.get(variable, variable)
    return renamed
