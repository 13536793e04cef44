"""Bounds of indices over a whole region, so that most accesses need no check of their own.

The ends of a region's loops bound its indices: with i = 32 * block + threadIdx.x, x[i] touches
x[32 * block + begin_x] to x[32 * block + end_x - 1]. If both ends lie in the array, so does everything between: one
comparison for a region takes the place of one for each access. (Range check elimination: Gupta, "Optimizing array bound
checks using flow analysis", 1993; with intervals as in Moore's arithmetic.)
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence

from miniflow.hostcuda.affine import Affine, is_integer, is_range
from miniflow.hostcuda.guards import Fact
from miniflow.hostcuda.signs import dotted, is_metadata
from miniflow.hostcuda.syntax import (
    BLOCK_NAMES,
    COORDINATES,
    LAUNCH_NAMES,
    THREAD_NAMES,
    call,
    expression,
    fold_operation,
    literal,
    name,
    text,
)

Interval = tuple[ast.expr, ast.expr]
WIDENING_CASTS = ("int", "np.int64", "np.intp", "types.int64", "types.intp")
DEPTH = 12


class Intervals:
    """Between what values the integers of one region lie.

    Args:
        affine: what is known of the kernel's variables.
        uniform: variables that are the same for all threads of the region.
        local: variables whose one assignment may be looked into.
        axes: variable of a loop over threads -> the names of its first value and one behind the last.
        coordinates: what other coordinates are in terms of these.
    """

    def __init__(
        self,
        affine: Affine,
        uniform: set[str],
        local: set[str],
        axes: dict[str, tuple[str, str]],
        coordinates: dict[str, ast.expr],
    ):
        self.affine, self.uniform, self.local, self.axes = affine, uniform, local, axes
        self.coordinates = coordinates
        self.facts: Sequence[Fact] = ()

    def interval_of(self, node: ast.expr, depth: int = 0) -> Interval | None:
        """The least and the greatest value, as expressions of the group; None if that is not known."""
        if depth > DEPTH:
            return None
        if isinstance(node, ast.Constant):
            return (node, node) if type(node.value) is int else None
        if isinstance(node, ast.Name):
            return self._of_name(node.id, depth)
        if isinstance(node, ast.BinOp):
            return self._of_operation(node, depth)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.interval_of(node.operand, depth + 1)
            return inner and (minus(ast.Constant(0), inner[1]), minus(ast.Constant(0), inner[0]))
        if isinstance(node, ast.Call) and not node.keywords:
            return self._of_call(node, depth)
        if isinstance(node, ast.IfExp):
            arms = [self.interval_of(arm, depth + 1) for arm in (node.body, node.orelse)]
            return None if None in arms else (call("min", *(a[0] for a in arms)), call("max", *(a[1] for a in arms)))
        known = is_metadata(node) and (not isinstance(node, ast.Subscript) or literal(node.slice) is not None)
        return (node, node) if known else None

    def _of_name(self, variable: str, depth: int) -> Interval | None:
        """The interval of a variable's value, narrowed by the facts that hold here."""
        interval, all_facts = self._of_value(variable, depth), self.facts
        facts = [fact[1:] for fact in all_facts if fact[0] == variable]
        if not facts or variable not in self.local.union(THREAD_NAMES) - self.uniform:
            return interval
        low, high = ([interval[0]], [interval[1]]) if interval else ([], [])
        self.facts = ()  # what bounds it is not bounded in turn
        for operator, value in facts if is_integer(name(variable), self.affine.integers, set()) else ():
            end = self.interval_of(value, depth + 1)
            if end is not None and operator not in (ast.Gt, ast.GtE):
                high.append(minus(end[1], ast.Constant(int(operator is ast.Lt))))
            if end is not None and operator not in (ast.Lt, ast.LtE):
                low.append(plus(end[0], ast.Constant(int(operator is ast.Gt))))
        self.facts = all_facts
        return (greatest("max", low), greatest("min", high)) if low and high else None

    def _of_value(self, variable: str, depth: int) -> Interval | None:
        if variable in self.axes:
            first, end = self.axes[variable]
            return name(first), minus(name(end), ast.Constant(1))
        if variable in self.coordinates:
            return self.interval_of(self.coordinates[variable], depth + 1)
        if variable == "lane":
            return ast.Constant(0), ast.Constant(31)
        if variable in COORDINATES:
            known = variable in {*self.uniform, *BLOCK_NAMES, *LAUNCH_NAMES}
            return (name(variable), name(variable)) if known else None
        values = self.affine.values.get(variable)
        if variable in self.uniform or values is None:
            return (name(variable), name(variable)) if self._is_integer(variable) else None
        if variable not in self.local or len(values) != 1:
            return None
        if values[0] is not None:
            return self.interval_of(values[0], depth + 1)
        (loop,) = self.affine.loops.get(variable, [None])
        return loop and self._of_range(loop.iter, depth)

    def _is_integer(self, variable: str) -> bool:
        return variable in self.affine.integers or variable.endswith("_base")

    def _of_range(self, node: ast.expr, depth: int) -> Interval | None:
        if not is_range(node) or (len(node.args) == 3 and not (literal(node.args[2]) or 0) > 0):
            return None
        start = self.interval_of(node.args[0], depth + 1) if len(node.args) > 1 else (ast.Constant(0), ast.Constant(0))
        stop = self.interval_of(node.args[len(node.args) > 1], depth + 1)
        return (start[0], minus(stop[1], ast.Constant(1))) if start and stop else None

    def _of_operation(self, node: ast.BinOp, depth: int) -> Interval | None:
        left, right = self.interval_of(node.left, depth + 1), self.interval_of(node.right, depth + 1)
        divisor = literal(node.right)
        if isinstance(node.op, ast.Mod) and divisor and divisor > 0:
            return ast.Constant(0), ast.Constant(divisor - 1)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.Add):
            return plus(left[0], right[0]), plus(left[1], right[1])
        if isinstance(node.op, ast.Sub):
            return minus(left[0], right[1]), minus(left[1], right[0])
        if isinstance(node.op, ast.FloorDiv) and divisor and divisor > 0:
            return tuple(ast.BinOp(end, ast.FloorDiv(), node.right) for end in left)
        if isinstance(node.op, ast.Mult):
            ends = [ast.BinOp(a, ast.Mult(), b) for a in distinct(left) for b in distinct(right)]
            if len(ends) == 1:
                return ends[0], ends[0]
            return call("min", *ends), call("max", *copy.deepcopy(ends))
        return None

    def _of_call(self, node: ast.Call, depth: int) -> Interval | None:
        function = dotted(node.func)
        if function in WIDENING_CASTS and len(node.args) == 1:
            return self.interval_of(node.args[0], depth + 1)
        if function in ("min", "max") and len(node.args) > 1:
            ends = [self.interval_of(a, depth + 1) for a in node.args]
            if None not in ends:
                return call(function, *(e[0] for e in ends)), call(function, *(e[1] for e in ends))
        return None


def greatest(function: str, values: list[ast.expr]) -> ast.expr:
    """The greatest or least of some values: `function` is max or min."""
    different = {text(v): v for v in values}
    literals = [v for v in different.values() if literal(v) is not None]
    ends = [v for v in different.values() if literal(v) is None]
    if literals:
        ends.append({"max": max, "min": min}[function](literals, key=literal))
    return copy.deepcopy(ends[0]) if len(ends) == 1 else call(function, *copy.deepcopy(ends))


def distinct(interval: Interval) -> list[ast.expr]:
    """The ends of an interval, one if they are the same."""
    return [interval[0]] if text(interval[0]) == text(interval[1]) else list(interval)


def plus(left: ast.expr, right: ast.expr) -> ast.expr:
    """left + right."""
    return fold_operation(ast.BinOp(left, ast.Add(), right))


def minus(left: ast.expr, right: ast.expr) -> ast.expr:
    """left - right."""
    return fold_operation(ast.BinOp(left, ast.Sub(), right))


def bounds_conditions(
    access: ast.Subscript, intervals: Intervals, shape: tuple[int, ...] | None, facts: Sequence[Fact] = ()
) -> list[str] | None:
    """Conditions under which an access of an array needs no check; None if none are found.

    Args:
        access: of an array with a name.
        intervals: of the region.
        shape: the array's, if it is known when compiling.
        facts: that hold where it stands.
    """
    intervals.facts = facts
    index = access.slice.elts if isinstance(access.slice, ast.Tuple) else [access.slice]
    conditions = []
    for dim, value in enumerate(index):
        interval = intervals.interval_of(value)
        if interval is None:
            return None
        size = ast.Constant(shape[dim]) if shape and dim < len(shape) else expression(f"{access.value.id}.shape[{dim}]")
        low, high = literal(interval[0]), interval[1]
        if low is None:
            conditions.append(f"0 <= {text(interval[0])}")
        elif low < 0:
            return None
        conditions.append(text(ast.Compare(high, [ast.Lt()], [size])))
    return conditions
