"""Conditions that cut off the ends of a row of threads, as `if i < n` does: loops over threads start and end there.

if 0 < i < n - 1: ...   ->   for threadIdx_x in range(max(0, 1 - first), min(blockDim_x, n - 1 - first)): ...
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field

from miniflow.hostcuda.affine import Affine, is_integer, names_of
from miniflow.hostcuda.syntax import Replace, folded, literal, name

OPPOSITE = {ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt}
MIRRORED = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}


@dataclass
class Limits:
    """What is left of conditions on threads.

    Attributes:
        lower, upper: axis -> integer expressions, the same for all threads: the first thread, and one behind the last.
        rest: conditions that every thread must check.
    """

    lower: dict[str, list[ast.expr]] = field(default_factory=dict)
    upper: dict[str, list[ast.expr]] = field(default_factory=dict)
    rest: list[ast.expr] = field(default_factory=list)


def limits(tests: list[ast.expr], axes: str, affine: Affine, uniform: set[str]) -> Limits:
    """Take conditions apart.

    Args:
        tests: all of which must hold; variables were replaced by what they stand for as far as possible.
        axes: those that the region's loops run along.
        uniform: the variables that are kept once for the block.
    """
    found = Limits()
    for test in tests:
        for part in conjuncts(test):
            if not any(_limit(part, axis, affine, uniform, found) for axis in axes):
                found.rest.append(part)
    return found


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


def _limit(part: ast.expr, axis: str, affine: Affine, uniform: set[str], found: Limits) -> bool:
    """Note a comparison of what grows along an axis, and along no other, with what is the same everywhere.

    Returns whether it says nothing more: what grows by a number that is only known at run time may not grow at all.
    """
    negated = isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not)
    comparison = part.operand if negated else part
    if not isinstance(comparison, ast.Compare) or len(comparison.ops) != 1 or type(comparison.ops[0]) not in OPPOSITE:
        return False
    left, kind, right = comparison.left, type(comparison.ops[0]), comparison.comparators[0]
    if not all(is_integer(e, affine.integers, affine.tuples) for e in (left, right)):
        return False
    kind = OPPOSITE[kind] if negated else kind
    thread = f"threadIdx_{axis}"
    if thread in names_of(right):  # bound < value
        left, right, kind = right, left, MIRRORED[kind]
    by_one = affine.stride(left, axis) == 1
    step = ast.Constant(1) if by_one else growth(left, thread)
    if names_of(right) & THREADS or names_of(left) & THREADS != {thread} or step is None or literal(step) in (0, -1):
        return False
    if (names_of(left) | names_of(right)) & affine.values.keys() - uniform:
        return False
    first = Replace({thread: ast.Constant(0)}).visit(copy.deepcopy(left))
    bound = ast.BinOp(right, ast.Sub(), first)
    if kind in (ast.LtE, ast.Gt):
        bound = ast.BinOp(bound, ast.Add(), ast.Constant(1))
    upper = kind in (ast.Lt, ast.LtE)
    if not by_one:
        share = ast.UnaryOp(ast.USub(), ast.BinOp(ast.UnaryOp(ast.USub(), bound), ast.FloorDiv(), step))  # rounded up
        grows = ast.Compare(step, [ast.Gt()], [ast.Constant(0)])
        bound = ast.IfExp(grows, share, name(f"blockDim_{axis}") if upper else ast.Constant(0))
    (found.upper if upper else found.lower).setdefault(axis, []).append(copy.deepcopy(bound))
    return by_one


def growth(node: ast.expr, variable: str) -> ast.expr | None:
    """By how much an expression grows with a variable; None if it is not a multiple of it plus something."""
    if variable not in names_of(node) or isinstance(node, ast.Name):
        return ast.Constant(int(isinstance(node, ast.Name) and node.id == variable))
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
        return None
    left, right = growth(node.left, variable), growth(node.right, variable)
    if left is None or right is None:
        return None
    if not isinstance(node.op, ast.Mult):
        return folded(ast.BinOp(left, node.op, right))
    if literal(left) == 0:
        return folded(ast.BinOp(node.left, node.op, right))
    return folded(ast.BinOp(left, node.op, node.right)) if literal(right) == 0 else None


THREADS = {"threadIdx_x", "threadIdx_y", "threadIdx_z", "lane", "warp", "thread"}
