"""Conditions that cut off the ends of a row of threads, as `if i < n` does: loops over threads start and end there.

if 0 < i < n - 1: ...   ->   for threadIdx_x in range(max(0, 1 - first), min(blockDim_x, n - 1 - first)): ...
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from miniflow.hostcuda.affine import Affine, growth, is_integer, names_of
from miniflow.hostcuda.syntax import Replace, literal, name

OPPOSITE = {ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.NotEq: ast.Eq, ast.Eq: ast.NotEq}
ENDS = {  # comparison of a loop's variable with a bound -> the ends that it sets, and whether behind the bound
    ast.Lt: [("upper", False)],
    ast.LtE: [("upper", True)],
    ast.Gt: [("lower", True)],
    ast.GtE: [("lower", False)],
    ast.Eq: [("lower", False), ("upper", True)],
}
MIRRORED = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE, ast.Eq: ast.Eq}
Fact = tuple[str, type, ast.expr]
"""A comparison of a variable that holds, as ("i", ast.Lt, n)."""


@dataclass
class Limits:
    """The ends of loops over threads that follow from conditions, and the conditions that remain.

    Attributes:
        lower, upper: loop variable -> integer expressions, the same for all threads: its first value, and one behind
            the last.
        rest: conditions that every thread must check.
    """

    lower: dict[str, list[ast.expr]] = field(default_factory=dict)
    upper: dict[str, list[ast.expr]] = field(default_factory=dict)
    rest: list[ast.expr] = field(default_factory=list)


def limits(tests: list[ast.expr], axes: Iterable[str], affine: Affine, uniform: set[str]) -> Limits:
    """Take conditions apart.

    Args:
        tests: all of which must hold; variables were replaced by what they stand for as far as possible.
        axes: the variables of the region's loops: `threadIdx_x`, or `lane`.
        uniform: the variables that are kept once for the block.
    """
    result = Limits()
    for test in tests:
        for part in conjuncts(test):
            if not any(_limit(part, axis, affine, uniform, result) for axis in axes):
                result.rest.append(part)
    return result


def conjuncts(test: ast.expr, negated: bool = False) -> Iterator[ast.expr]:
    """The conditions that must all hold for `test` to hold (or not to hold)."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from conjuncts(test.operand, not negated)
    elif isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "bool":
        yield from conjuncts(test.args[0], negated)
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or if negated else ast.And):
        for value in test.values:
            yield from conjuncts(value, negated)
    elif isinstance(test, ast.Compare) and len(test.ops) > 1 and not negated:
        sides = [test.left, *test.comparators]
        for left, op, right in zip(sides, test.ops, sides[1:], strict=False):
            yield ast.Compare(left, [op], [right])
    else:
        yield ast.UnaryOp(ast.Not(), test) if negated else test


def comparison(part: ast.expr) -> tuple[ast.expr, type, ast.expr] | None:
    """A condition as (left, ast.Lt, right), with <, <=, >, >= or ==; None if it is something else."""
    negated = isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not)
    compare = part.operand if negated else part
    if not isinstance(compare, ast.Compare) or len(compare.ops) != 1:
        return None
    operator = type(compare.ops[0])
    operator = OPPOSITE.get(operator) if negated else operator
    return (compare.left, operator, compare.comparators[0]) if operator in MIRRORED else None


def facts(test: ast.expr) -> Iterator[Fact]:
    """The comparisons of variables that hold where a condition holds."""
    for left, operator, right in filter(None, map(comparison, conjuncts(test))):
        if isinstance(left, ast.Name):
            yield left.id, operator, right
        if isinstance(right, ast.Name):
            yield right.id, MIRRORED[operator], left


def _limit(part: ast.expr, thread: str, affine: Affine, uniform: set[str], result: Limits) -> bool:
    """Note the bounds of a loop's variable that follow from a comparison of a multiple of it with a constant.

    Returns whether the bounds imply the condition; not if the multiple is only known at run time, and may be of 0.
    """
    compared = comparison(part)
    if not compared:
        return False
    for side in compared[::2]:  # a difference of unsigned integers wraps around where it is computed, and only there
        integers = affine.integers if isinstance(side, ast.Name) else affine.signed
        if not is_integer(side, integers, affine.tuples):
            return False
    left, operator, right = compared
    if thread in names_of(right):  # bound < value
        left, right, operator = right, left, MIRRORED[operator]
    step = growth(left, lambda node: own_growth(node, thread))
    by_one = affine.stride(left, "x" if thread == "lane" else thread[-1]) == 1 or (step and literal(step)) == 1
    step = ast.Constant(1) if by_one else step
    in_left, in_right = names_of(left) & THREAD_VARIABLES, names_of(right) & THREAD_VARIABLES
    if in_right or in_left != {thread} or step is None or literal(step) in (0, -1):
        return False
    if (names_of(left) | names_of(right)) & affine.values.keys() - uniform or (operator is ast.Eq and not by_one):
        return False
    first = Replace({thread: ast.Constant(0)}).visit(copy.deepcopy(left))
    for end, behind in ENDS[operator]:
        bound = ast.BinOp(right, ast.Sub(), first)
        if behind:
            bound = ast.BinOp(bound, ast.Add(), ast.Constant(1))
        if not by_one:
            share = ast.UnaryOp(ast.USub(), ast.BinOp(ast.UnaryOp(ast.USub(), bound), ast.FloorDiv(), step))  # up
            grows = ast.Compare(step, [ast.Gt()], [ast.Constant(0)])
            most = ast.Constant(32) if thread == "lane" else name(thread.replace("threadIdx", "blockDim"))
            bound = ast.IfExp(grows, share, most if end == "upper" else ast.Constant(0))
        getattr(result, end).setdefault(thread, []).append(copy.deepcopy(bound))
    return by_one


def own_growth(node: ast.expr, variable: str) -> ast.expr | None:
    """By how much a part of an expression grows with a variable: 1 if it is this variable; None if it has it inside."""
    if isinstance(node, ast.Name) or variable not in names_of(node):
        return ast.Constant(int(isinstance(node, ast.Name) and node.id == variable))
    return None


THREAD_VARIABLES = {"threadIdx_x", "threadIdx_y", "threadIdx_z", "lane", "warp", "thread"}
