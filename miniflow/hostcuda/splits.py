"""Loops that are better split: the loop outside, the threads inside, so that the threads become vectors."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from miniflow.hostcuda.signs import dotted, is_metadata, is_natural
from miniflow.hostcuda.syntax import THREAD, THREAD_NAMES, WARP, reads, statements

if TYPE_CHECKING:
    from miniflow.hostcuda.analysis import Facts


def choose_splits(block: list[ast.stmt], facts: Facts) -> None:
    """Mark (`.split`) loops that vectorize over threads when each iteration is done by all threads before the next."""
    for statement in block:
        if isinstance(statement, ast.If):
            choose_splits(statement.body, facts)
            choose_splits(statement.orelse, facts)
        elif isinstance(statement, ast.For | ast.While) and statement.level >= WARP:
            choose_splits(statement.body, facts)
        elif isinstance(statement, ast.For) and statement.level == THREAD:
            if loop_form(statement, facts) and _is_plain(statement, facts) and _is_coalesced(statement, facts):
                for s in statements([statement]):
                    if isinstance(s, ast.For):
                        s.split = True


def loop_form(loop: ast.For, facts: Facts) -> str:
    """ "uniform" if all threads make the same iterations, "strided" for `range(start + x, stop, step)`, else ""."""
    if not (isinstance(loop.iter, ast.Call) and dotted(loop.iter.func) == "range") or loop.orelse:
        return ""
    if not isinstance(loop.target, ast.Name):
        return ""
    args = loop.iter.args
    if all(facts.is_steady(a) for a in args):
        return "uniform"
    if len(args) == 3 and all(facts.is_uniform(a) for a in args[1:]) and facts.coefficient(args[0]) == 1:
        positive = is_natural(args[2], facts.given_naturals | {n for n in facts.single if _is_size(n, facts)})
        uniform_rest = all(r in ("threadIdx_x", "lane") or _x_only(r, facts) for r in reads(args[0]))
        return "strided" if positive and uniform_rest else ""
    return ""


def _is_size(variable: str, facts: Facts) -> bool:
    (value,) = facts.definitions[variable]
    return value is not None and is_natural(value, facts.given_naturals)


def _x_only(variable: str, facts: Facts) -> bool:
    """Whether a variable is uniform, or a recomputable one built of threadIdx.x and uniform values."""
    if variable in facts.parameters or variable not in facts.varying:
        return variable not in THREAD_NAMES
    if not facts.is_recomputable(variable):
        return False
    (value,) = facts.definitions[variable]
    return all(r in ("threadIdx_x", "lane") or _x_only(r, facts) for r in reads(value))


def _is_plain(loop: ast.For, facts: Facts) -> bool:
    """Whether the loop holds nothing but assignments, calls, branches and loops of a known form."""
    for statement in statements(loop.body):
        if isinstance(statement, ast.For):
            if not loop_form(statement, facts):
                return False
        elif not isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr | ast.If | ast.Pass):
            return False
    return True


def _is_coalesced(loop: ast.For, facts: Facts) -> bool:
    """Whether array accesses in the loop move with threadIdx.x by one element, or not at all, and some do move."""
    moving = 0
    for node in ast.walk(loop):
        if not isinstance(node, ast.Subscript) or is_metadata(node):
            continue
        base = node.value
        if not isinstance(base, ast.Name) or base.id in facts.tuples:
            if isinstance(base, ast.Name):
                continue
            return False
        array = facts.unit.arrays.get(base.id)
        if array is not None and array.kind == "local":
            return False
        if base.id in facts.varying:
            return False
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        growth = [facts.coefficient(i) for i in index]
        if growth == [0] * len(index):
            continue
        if growth != [0] * (len(index) - 1) + [1]:
            return False
        moving += 1
    return moving > 0
