"""The intermediate representation of a kernel: Python's syntax tree, and three markers of our own.

Sync            a statement: a barrier of a warp, a block or the grid
lane_read(v, l) a call: the value that variable v has in thread l, right after a barrier of the warp
@name(...)      a call of a device function with barriers inside; `inline` expands it
"""

from __future__ import annotations

import ast
import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, NoReturn

import numpy as np

from miniflow.hostcuda.errors import UnsupportedKernelError

THREAD, WARP, BLOCK, GRID = range(4)
"""Groups of threads: those that wait for each other at a barrier, or that have the same value of a variable."""

AXES = ("x", "y", "z")
THREAD_NAMES = ("threadIdx_x", "threadIdx_y", "threadIdx_z", "lane", "warp")
BLOCK_NAMES = ("blockIdx_x", "blockIdx_y", "blockIdx_z")
LAUNCH_NAMES = tuple(f"{what}_{axis}" for what in ("blockDim", "gridDim") for axis in AXES)
COORDINATES = THREAD_NAMES + BLOCK_NAMES + LAUNCH_NAMES
LANE_READ = "lane_read"
MARK = "@"
JUMPS = (ast.Return, ast.Break, ast.Continue)


class Sync(ast.stmt):
    """A barrier, or a vote: a barrier that combines a value of every thread.

    Attributes:
        level: WARP, BLOCK or GRID.
        intrinsic: its name in `cuda`, for comments.
        collective: (function of runtime, variable that it reads of every thread, variable for its result) or None.
    """

    _fields = ("level", "intrinsic", "collective")
    _attributes = ("lineno",)


@dataclass
class Allocation:
    """An array that a kernel allocates: "shared", "dynamic" (shared), "local" or "const"."""

    kind: str
    shape: tuple[int, ...]
    dtype: str  # as an expression of the generated module
    line: int
    source_name: str  # what the kernel's author called it
    itemsize: int = 0  # bytes; 0 for the dtype of an argument until that is known

    @property
    def nbytes(self) -> int:
        """The bytes of the whole array."""
        return math.prod(self.shape) * self.itemsize


@dataclass
class Compilation:
    """What the compiler knows of the kernel that it compiles.

    Attributes:
        arrays: the arrays it allocates, by name.
        captured_arrays: constant arrays from outside the kernel, passed as further arguments.
        functions: kernel object of a device function -> what the compiler made of it.
        devices: these and its nested functions, in order of definition.
        injected: name in the generated module -> an object that has no literal.
        neutral: voting variable -> the neutral element of the vote, for threads that do not take part.
        cooperative: whether the whole grid synchronises.
        original: renamed variable -> the name that its author gave it.
        dtypes: array of a device function -> its dtype, as `x.dtype`, at each call.
        choices: variable -> its points-to set, where that has several arrays.
        boundscheck: whether indices are checked.
        checked: whether the code is for the checked executor, to which threads report barriers and returns.
        tuples: parameters that are tuples.
        sites: (line, text) of the accesses whose bounds are checked.
    """

    name: str
    filename: str
    arrays: dict[str, Allocation] = field(default_factory=dict)
    captured_arrays: dict[str, np.ndarray] = field(default_factory=dict)
    functions: dict[Any, Any] = field(default_factory=dict)
    devices: list[Any] = field(default_factory=list)
    injected: dict[str, Any] = field(default_factory=dict)
    neutral: dict[str, str] = field(default_factory=dict)
    fingerprint: list[str] = field(default_factory=list)
    cooperative: bool = False
    debug: bool = False
    boundscheck: bool = False
    checked: bool = False
    tuples: set[str] = field(default_factory=set)
    sites: list[tuple[int, str]] = field(default_factory=list)
    dtypes: dict[str, set[str]] = field(default_factory=dict)
    original: dict[str, str] = field(default_factory=dict)
    choices: dict[str, list[str]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def refuse(self, node: ast.AST, construct: str, remedy: str) -> NoReturn:
        """Raise UnsupportedKernelError naming construct and line."""
        refuse(self.filename, self.name, getattr(node, "lineno", 0), construct, remedy)

    def location(self, line: int) -> str:
        """`kernels.py:12: scale`, the beginning of messages about a line of the kernel."""
        return f"{self.filename}:{line}: {self.name}"

    def site_number(self, access: ast.Subscript) -> int:
        """The number of an access in the source."""
        site = (getattr(access, "lineno", 0), text(access))
        if site not in self.sites:
            self.sites.append(site)
        return self.sites.index(site)

    def nbytes(self, kind: str) -> int:
        """The bytes of all arrays of a kind: for a block ("shared"), or for a thread ("local")."""
        return sum(a.nbytes for a in self.arrays.values() if a.kind == kind)

    def fresh(self, stem: str) -> str:
        """A name that no other variable has."""
        unused = next(n for n in chain([stem], (f"{stem}{i}" for i in count(1))) if n not in self.taken)
        self.taken.add(unused)
        return unused


def refuse(filename: str, function: str, line: int, construct: str, remedy: str = "") -> NoReturn:
    """Raise UnsupportedKernelError naming construct and line."""
    hint = f": {remedy}" if remedy else ""
    raise UnsupportedKernelError(f"{filename}:{line}: {function}: {construct} is not supported in a kernel{hint}")


def name(identifier: str) -> ast.Name:
    """A read of a variable."""
    return ast.Name(identifier, ast.Load())


def assign(identifier: str, value: ast.expr, line: int) -> ast.Assign:
    """`identifier = value`."""
    node = ast.Assign([ast.Name(identifier, ast.Store())], value)
    return ast.fix_missing_locations(ast.copy_location(node, _at(line)))


def call(function: str, *args: ast.expr) -> ast.Call:
    """`function(*args)`."""
    callee = expression(function) if function.startswith(("np.", "math.", "types.")) else name(function)
    return ast.Call(callee, list(args), [])


def expression(text: str) -> ast.expr:
    """The tree of an expression."""
    return ast.parse(text, mode="eval").body


def _at(line: int) -> ast.AST:
    return ast.Pass(lineno=line, col_offset=0, end_lineno=line, end_col_offset=0)


def text(node: ast.AST) -> str:
    """Source text of an expression or simple statement."""
    return ast.unparse(ast.fix_missing_locations(node))


def literal(node: ast.expr) -> int | None:
    """The value of an integer literal, which may have a sign."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = literal(node.operand)
        return None if value is None else -value
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def fold_operation(node: ast.BinOp) -> ast.expr:
    """Constant folding of one sum, difference or product, whose operands are folded already."""
    left, operator, right = node.left, node.op, node.right
    a, b = literal(left), literal(right)
    if a is not None and b is not None and type(operator) in ARITHMETIC:
        return integer_literal(ARITHMETIC[type(operator)](a, b))
    if isinstance(operator, ast.Mult) and 1 in (a, b):
        return right if a == 1 else left
    if isinstance(operator, ast.Add) and a == 0:
        return right
    if b is None or not isinstance(operator, ast.Add | ast.Sub):
        return node
    if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add | ast.Sub) and literal(left.right) is not None:
        inner = literal(left.right) * (1 if isinstance(left.op, ast.Add) else -1)
        left, b = left.left, inner + (b if isinstance(operator, ast.Add) else -b)
        operator = ast.Add() if b > 0 else ast.Sub()
        return ast.BinOp(left, operator, ast.Constant(abs(b))) if b else left
    return node if b else left


ARITHMETIC = {ast.Add: int.__add__, ast.Sub: int.__sub__, ast.Mult: int.__mul__}


def integer_literal(value: int) -> ast.expr:
    """An integer literal."""
    return ast.Constant(value) if value >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-value))


def fold_constants(node: ast.expr) -> ast.expr:
    """Constant folding of integers in an expression."""
    for key, inner in ast.iter_fields(node):
        if isinstance(inner, ast.expr):
            setattr(node, key, fold_constants(inner))
        elif isinstance(inner, list):
            setattr(node, key, [fold_constants(i) if isinstance(i, ast.expr) else i for i in inner])
    return fold_operation(node) if isinstance(node, ast.BinOp) else node


def bodies(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The statement lists inside a statement."""
    return [getattr(statement, key) for key in ("body", "orelse") if isinstance(getattr(statement, key, None), list)]


def statements(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements of a list, outer ones first."""
    for statement in block:
        yield statement
        for inner in bodies(statement):
            yield from statements(inner)


def expressions(statement: ast.stmt) -> list[ast.expr]:
    """The expressions that stand in the statement itself, not in the statements inside it."""
    return [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.expr)]


def sets_names(statement: ast.stmt) -> bool:
    """Whether a statement assigns a value to variables, and to nothing else."""
    return isinstance(statement, ast.Assign) and all(isinstance(t, ast.Name) for t in statement.targets)


def target_names(statement: ast.stmt) -> list[str]:
    """The variables that a statement itself assigns, a vote's outcome among them."""
    if isinstance(statement, Sync) and statement.collective:
        return [statement.collective[2]]
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AugAssign | ast.For):
        targets = [statement.target]
    else:
        return []
    return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def assigned_in(block: list[ast.stmt]) -> set[str]:
    """The variables that the statements of a list, and those inside them, assign."""
    return {v for s in statements(block) for v in target_names(s)}


def fill_empty(tree: ast.FunctionDef) -> ast.FunctionDef:
    """Put `pass` where the body of a statement has become empty."""
    for node in ast.walk(tree):
        if getattr(node, "body", None) == []:
            node.body = [ast.Pass()]
    return ast.fix_missing_locations(tree)


def local_names(tree: ast.FunctionDef) -> set[str]:
    """All names that a function assigns, its parameters and nested functions' variables among them."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.FunctionDef) and node is not tree:
            names.add(node.name)
    return names


def reads(node: ast.AST) -> Iterator[str]:
    """The names that are read in a statement or expression, in no order."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load):
            yield node.id
    elif isinstance(node, Sync):
        yield from node.collective[1:2] if node.collective else ()
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == LANE_READ:
        yield from reads(node.args[1])  # the variable is read from other threads' entries
    else:
        for child in ast.iter_child_nodes(node):
            yield from reads(child)


def loop_exits(block: list[ast.stmt], kinds: tuple = (ast.Break, ast.Continue)) -> Iterator[ast.stmt]:
    """The breaks and continues in the body of a loop that belong to that loop."""
    for statement in block:
        if isinstance(statement, kinds):
            yield statement
        elif isinstance(statement, ast.If):
            yield from loop_exits(statement.body, kinds)
            yield from loop_exits(statement.orelse, kinds)


def has_sync(statement: ast.stmt) -> bool:
    """Whether a statement has a barrier inside."""
    return any(isinstance(s, Sync) for s in statements([statement]))


def level_of(statement: ast.stmt) -> int:
    """The widest group of threads with a barrier in a statement, or with a loop that they run together."""
    levels = [s.level for s in statements([statement]) if isinstance(s, Sync)]
    levels += [s.interchanged for s in statements([statement]) if hasattr(s, "interchanged")]
    return max(levels, default=THREAD)


class Replace(ast.NodeTransformer):
    """Replaces reads of variables by expressions."""

    def __init__(self, values: dict[str, ast.expr]):
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.values and isinstance(node.ctx, ast.Load):
            return copy.deepcopy(self.values[node.id])
        return node


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
