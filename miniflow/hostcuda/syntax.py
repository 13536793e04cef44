"""The form of a kernel between reading it and splitting it: Python's syntax tree, and three markers of our own.

Sync            a statement: all threads of a warp, a block or the grid meet here
lane_read(v, l) a call: the value that variable v has in thread l, where the threads have just met
@name(...)      a call of a device function that meets others inside; `inline` expands it
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

THREAD, SPLIT, WARP, BLOCK, GRID = range(5)
"""Who meets in a statement: nobody; nobody, but its loop is split all the same; a warp, a block, the whole grid."""

AXES = ("x", "y", "z")
THREAD_NAMES = ("threadIdx_x", "threadIdx_y", "threadIdx_z", "lane", "warp")
BLOCK_NAMES = ("blockIdx_x", "blockIdx_y", "blockIdx_z")
LAUNCH_NAMES = tuple(f"{what}_{axis}" for what in ("blockDim", "gridDim") for axis in AXES)
COORDINATES = THREAD_NAMES + BLOCK_NAMES + LAUNCH_NAMES
LANE_READ = "lane_read"
MARK = "@"


class Sync(ast.stmt):
    """Threads meet.

    Attributes:
        level: WARP, BLOCK or GRID.
        what: the name of the intrinsic, for comments.
        collective: (function of runtime, variable that it reads of every thread, variable for its result) or None.
    """

    _fields = ()
    _attributes = ("lineno",)

    def __init__(self, level: int, what: str, line: int, collective: tuple[str, str, str] | None = None):
        super().__init__()
        self.level, self.what, self.lineno, self.collective = level, what, line, collective


@dataclass
class Allocation:
    """An array that a kernel makes: "shared", "dynamic" (shared), "local" or "const"."""

    kind: str
    shape: tuple[int, ...]
    dtype: str  # as an expression of the generated module
    line: int
    values: np.ndarray | None = None


@dataclass
class Unit:
    """All that belongs to one kernel being compiled.

    Attributes:
        arrays: the arrays it allocates, by name.
        hidden: constant arrays of its surroundings, handed over as further arguments.
        functions: texts of the device functions it calls, in order of definition.
        injected: objects that the generated module gets by name, since they cannot be spelled.
        neutral: what a vote counts for threads that do not take part, by the voting variable.
        cooperative: whether the whole grid meets.
        original: what the author called a variable that was renamed.
    """

    name: str
    filename: str
    arrays: dict[str, Allocation] = field(default_factory=dict)
    hidden: dict[str, np.ndarray] = field(default_factory=dict)
    functions: dict[Any, Any] = field(default_factory=dict)
    injected: dict[str, Any] = field(default_factory=dict)
    neutral: dict[str, str] = field(default_factory=dict)
    fingerprint: list[str] = field(default_factory=list)
    cooperative: bool = False
    original: dict[str, str] = field(default_factory=dict)
    counter: int = 0
    taken: set[str] = field(default_factory=set)

    def fresh(self, stem: str) -> str:
        """A name that nothing else has."""
        name, number = stem, 0
        while name in self.taken:
            number += 1
            name = f"{stem}{number}"
        self.taken.add(name)
        return name


def name(identifier: str) -> ast.Name:
    """A read of a variable."""
    return ast.Name(identifier, ast.Load())


def assign(identifier: str, value: ast.expr, line: int) -> ast.Assign:
    """`identifier = value`."""
    node = ast.Assign([ast.Name(identifier, ast.Store())], value)
    node.level = THREAD
    return ast.fix_missing_locations(ast.copy_location(node, _at(line)))


def call(function: str, *args: ast.expr) -> ast.Call:
    """`function(*args)`."""
    return ast.Call(name(function), list(args), [])


def expression(text: str) -> ast.expr:
    """The tree of an expression."""
    return ast.parse(text, mode="eval").body


def _at(line: int) -> ast.AST:
    return ast.Pass(lineno=line, col_offset=0, end_lineno=line, end_col_offset=0)


def text(node: ast.AST) -> str:
    """Source text of an expression or simple statement."""
    return ast.unparse(ast.fix_missing_locations(node))


def bodies(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The statement lists inside a statement."""
    return [getattr(statement, key) for key in ("body", "orelse") if isinstance(getattr(statement, key, None), list)]


def statements(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements of a list, outer ones first; the bodies of nested functions are not entered."""
    for statement in block:
        yield statement
        if not isinstance(statement, ast.FunctionDef):
            for inner in bodies(statement):
                yield from statements(inner)


def expressions(statement: ast.stmt) -> list[ast.expr]:
    """The expressions that stand in the statement itself, not in the statements inside it."""
    return [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.expr)]


def target_names(statement: ast.stmt) -> list[str]:
    """The variables that a statement itself assigns."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AugAssign | ast.For):
        targets = [statement.target]
    elif isinstance(statement, ast.FunctionDef):
        return [statement.name]
    else:
        return []
    return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def reads(node: ast.AST) -> Iterator[str]:
    """The names that are read in an expression, in no order; a nested function's own variables are not counted."""
    if isinstance(node, ast.FunctionDef):
        own = {a.arg for a in node.args.args} | {n for s in statements(node.body) for n in target_names(s)}
        for inner in node.body:
            yield from (r for r in _walk_reads(inner) if r not in own)
    else:
        yield from _walk_reads(node)


def _walk_reads(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load):
            yield node.id
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == LANE_READ:
        yield from _walk_reads(node.args[1])  # the variable is read from other threads' entries
    else:
        for child in ast.iter_child_nodes(node):
            yield from _walk_reads(child)


def loop_exits(block: list[ast.stmt], kinds: tuple = (ast.Break, ast.Continue)) -> Iterator[ast.stmt]:
    """The breaks and continues in the body of a loop that belong to that loop."""
    for statement in block:
        if isinstance(statement, kinds):
            yield statement
        elif isinstance(statement, ast.If):
            yield from loop_exits(statement.body, kinds)
            yield from loop_exits(statement.orelse, kinds)
        elif isinstance(statement, ast.For | ast.While):
            yield from loop_exits(statement.orelse, kinds)


class Renamer(ast.NodeTransformer):
    """Renames variables."""

    def __init__(self, names: dict[str, str]):
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id in self.names:
            return ast.copy_location(ast.Name(self.names[node.id], node.ctx), node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.name = self.names.get(node.name, node.name)
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self.names.get(node.arg, node.arg)
        return node
