"""What is known of integers: which grow by a constant from thread to thread, which are never negative.

stride(e, "x") is by how much e grows from a thread to its neighbour in x: an access a[i, j] is contiguous along x, and
can be vectorized over these threads, if j grows by 1 and i not at all. (Karrenberg and Hack, 2012, call such values
consecutive; LLVM's scalar evolution finds the same for loops.)
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection

from miniflow.hostcuda.aliases import values_of
from miniflow.hostcuda.purity import is_pure
from miniflow.hostcuda.signs import CASTS, dotted, is_metadata, is_natural
from miniflow.hostcuda.syntax import COORDINATES, fold_operation, integer_literal, literal, statements, target_names

DEPTH = 20
LINEAR = ast.Add | ast.Sub | ast.Mult


class Affine:
    """The facts about one kernel.

    Args:
        tree: after all that introduces variables.
        integers: its parameters that are integers.
        naturals: those of them that are never negative.
        tuples: its parameters that are tuples.
        unsigned: its parameters that are unsigned integers.
    """

    def __init__(
        self, tree: ast.FunctionDef, integers: set[str], naturals: set[str], tuples: set[str],
        unsigned: Collection[str] = (),
    ):  # fmt: skip
        self.tuples = tuples
        self.values = values_of(tree)
        self.loops: dict[str, list[ast.For]] = {}
        for statement in statements(tree.body):
            if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                old = ast.Name(statement.target.id, ast.Load())
                self.values[statement.target.id].remove(None)
                self.values[statement.target.id].append(ast.BinOp(old, statement.op, statement.value))
            elif isinstance(statement, ast.For):
                for variable in target_names(statement):
                    self.loops.setdefault(variable, []).append(statement)
        self.integers, self.signed = (
            {"warp_first", "warp_x"} | self._greatest_fixed_point(some, lambda e, known: is_integer(e, known, tuples))
            for some in (integers, integers.difference(unsigned))
        )
        self.natural = self._greatest_fixed_point(naturals, is_natural, ignore_stop=True)

    # by how much a value grows

    def stride(self, node: ast.expr, axis: str, depth: int = 0) -> int | None:
        """The growth from thread to thread along an axis; None if that is not known to be a constant."""
        if depth > DEPTH:
            return None
        if isinstance(node, ast.Name):
            return self._of_name(node.id, axis, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, LINEAR):
            coefficient = growth(node, lambda part: number(self.stride(part, axis, depth + 1)))
            return coefficient and literal(coefficient)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.stride(node.operand, axis, depth + 1)
            return None if inner is None else -inner
        if isinstance(node, ast.Call) and dotted(node.func) in CASTS and len(node.args) == 1:
            return self.stride(node.args[0], axis, depth + 1)
        return 0 if self.is_constant(node, axis, depth) else None

    def moves(self, node: ast.Subscript, axis: str) -> bool | None:
        """Whether an access moves by one element along an axis; None if it moves otherwise."""
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        strides = [self.stride(i, axis) for i in index]
        if strides == [0] * len(index):
            return False
        return True if strides == [0] * (len(index) - 1) + [1] else None

    def is_constant(self, node: ast.AST, axis: str, depth: int = 0) -> bool:
        """Whether an expression has one value for all threads along an axis."""
        if not is_pure(node, self.tuples):
            return False
        names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
        return all(self.stride(n, axis, depth + 1) == 0 for n in names)

    def _of_name(self, variable: str, axis: str, depth: int) -> int | None:
        if variable.startswith("threadIdx_"):
            return int(variable.endswith(axis))
        if variable in ("lane", "warp"):  # neighbours are in one warp, but for those at its border
            return int(variable == "lane") if axis == "x" else None
        if variable not in self.values:
            return 0
        values = self.values[variable]
        if len(values) != 1:
            return None
        if values[0] is not None:
            return self.stride(values[0], axis, depth + 1)
        (loop,) = self.loops.get(variable, [None])
        if loop is None or not is_range(loop.iter):
            return None
        strides = [self.stride(a, axis, depth + 1) for a in loop.iter.args]
        if len(strides) == 1:
            return 0 if strides == [0] else None
        return strides[0] if strides[1:] == [0] * (len(strides) - 1) else None

    # properties of all values of a variable

    def _greatest_fixed_point(self, assumed: set[str], holds: Callable, ignore_stop: bool = False) -> set[str]:
        """The greatest set of variables of which a property holds: of all their values, if it holds of the set."""
        known = set(self.values) | assumed
        while failing := {v for v in known - assumed if not self._holds_of_all(v, known, holds, ignore_stop)}:
            known -= failing
        return known

    def _holds_of_all(self, variable: str, known: set[str], holds: Callable, ignore_stop: bool) -> bool:
        """Whether a property holds of all values of a variable; of the ranges of loops, the stop may be left out."""
        values, loops = self.values[variable], self.loops.get(variable, [])
        if len(loops) != values.count(None) or not all(is_range(loop.iter) for loop in loops):
            return False
        for loop in loops:
            args = loop.iter.args
            values = [*values, *((args[: len(args) > 1] + args[2:]) if ignore_stop else args)]
        return all(v is None or holds(v, known) for v in values)


def number(value: int | None) -> ast.expr | None:
    """An integer as an expression; None for None."""
    return None if value is None else integer_literal(value)


def growth(node: ast.expr, of_part: Callable[[ast.expr], ast.expr | None]) -> ast.expr | None:
    """By how much an expression grows, if that is known of the parts of which it is a sum, difference or multiple."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, LINEAR):
        return of_part(node)
    left, right = growth(node.left, of_part), growth(node.right, of_part)
    if left is None or right is None:
        return None
    if not isinstance(node.op, ast.Mult):
        return fold_operation(ast.BinOp(left, node.op, right))
    if literal(left) == 0:
        return right if literal(right) == 0 else fold_operation(ast.BinOp(node.left, node.op, right))
    return fold_operation(ast.BinOp(left, node.op, node.right)) if literal(right) == 0 else None


def is_range(node: ast.expr) -> bool:
    """Whether an expression is range(...)."""
    return isinstance(node, ast.Call) and dotted(node.func) == "range"


def names_of(node: ast.AST) -> set[str]:
    """The names in an expression."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def is_integer(node: ast.expr, integers: set[str], tuples: set[str]) -> bool:
    """Whether an expression is known to be a signed integer of 64 bits or less, or a smaller unsigned one."""
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.Name):
        return node.id in COORDINATES or node.id in integers
    if isinstance(node, ast.BinOp):
        operators = ast.Add | ast.Sub | ast.Mult | ast.FloorDiv | ast.Mod
        return isinstance(node.op, operators) and all(is_integer(e, integers, tuples) for e in (node.left, node.right))
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and is_integer(node.operand, integers, tuples)
    if isinstance(node, ast.IfExp):
        return is_integer(node.body, integers, tuples) and is_integer(node.orelse, integers, tuples)
    if isinstance(node, ast.Call):
        function = dotted(node.func)
        if function in ("min", "max"):
            return all(is_integer(a, integers, tuples) for a in node.args)
        return function == "len"
    return is_metadata(node)
