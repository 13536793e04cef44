"""Conditions that cut off the end of each row of threads, as `if i < n` does: loops over threads then end earlier."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

from miniflow.hostcuda.analysis import Facts, Replace
from miniflow.hostcuda.syntax import THREAD_NAMES, reads


class Clip:
    """A condition that holds for a first part of each row of threads.

    Attributes:
        row: conditions that do not depend on threadIdx.x.
        limits: (across, count): the threads whose `across` (threadIdx_x or lane) is below `count`.
    """

    def __init__(self, row: list[ast.expr], limits: list[tuple[str, ast.expr]]):
        self.row, self.limits = row, limits


def clip_of(test: ast.expr, facts: Facts) -> Clip | None:
    """The condition as a Clip, if it has that form."""
    clip = Clip([], [])
    for part in conjuncts(test):
        part = facts.expanded(part)
        if any(r in facts.varying for r in reads(part)):
            return None
        across = {"threadIdx_x", "lane", "warp"} & set(reads(part))
        if not across:
            if not facts.is_uniform(Replace({n: ast.Constant(0) for n in THREAD_NAMES}).visit(copy.deepcopy(part))):
                return None
            clip.row.append(part)
            continue
        limit = _limit(part, facts)
        if limit is None or len(across) > 1 or across == {"warp"}:
            return None
        clip.limits.append((*across, limit))
    return clip


def conjuncts(test: ast.expr, negated: bool = False) -> Iterator[ast.expr]:
    """The conditions that must all hold for `test` to hold (or not to hold)."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from conjuncts(test.operand, not negated)
    elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or if negated else ast.And):
        for value in test.values:
            yield from conjuncts(value, negated)
    elif isinstance(test, ast.Compare) and len(test.ops) > 1 and not negated:
        sides = [test.left, *test.comparators]
        for left, op, right in zip(sides, test.ops, sides[1:], strict=False):
            yield ast.Compare(left, [op], [right])
    else:
        yield ast.UnaryOp(ast.Not(), test) if negated else test


OPPOSITE = {ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt}


def _limit(part: ast.expr, facts: Facts) -> ast.expr | None:
    """For `v < bound`, in whatever spelling, where v grows by one from thread to thread: bound - (v of thread 0)."""
    negated = isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not)
    part = part.operand if negated else part
    if not isinstance(part, ast.Compare) or len(part.ops) != 1 or type(part.ops[0]) not in OPPOSITE:
        return None
    left, kind, right = part.left, type(part.ops[0]), part.comparators[0]
    kind = OPPOSITE[kind] if negated else kind
    if kind in (ast.Gt, ast.GtE):
        left, right, kind = right, left, ast.Lt if kind is ast.Gt else ast.LtE
    if facts.coefficient(left) != 1 or facts.coefficient(right) != 0 or "threadIdx_x" in set(reads(right)):
        return None
    first = Replace({"threadIdx_x": ast.Constant(0), "lane": ast.Constant(0)}).visit(copy.deepcopy(left))
    limit = ast.BinOp(right, ast.Sub(), first)
    return ast.BinOp(limit, ast.Add(), ast.Constant(1)) if kind is ast.LtE else limit
