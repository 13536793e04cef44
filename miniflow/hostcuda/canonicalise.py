"""Canonical forms: `while` loops that count become `for` loops, and parts of a thread's number the names of a warp.

threadIdx.x % 32        ->   lane                       in blocks that extend along x only
threadIdx.x // 32       ->   warp
while i < n:            ->   for k in range(i, n, step):
    ...
    i += step
"""

from __future__ import annotations

import ast
from collections import Counter

from miniflow.hostcuda.affine import Affine, is_integer, names_of
from miniflow.hostcuda.aliases import values_of
from miniflow.hostcuda.divergence import names_in
from miniflow.hostcuda.purity import is_pure
from miniflow.hostcuda.signs import is_natural
from miniflow.hostcuda.syntax import (
    Compilation,
    Renamer,
    bodies,
    call,
    has_sync,
    loop_exits,
    name,
    statements,
    target_names,
)

LANES, WARPS = {(ast.Mod, 32), (ast.BitAnd, 31)}, {(ast.FloorDiv, 32), (ast.RShift, 5)}


class WarpNames(ast.NodeTransformer):
    """Recognises lane and warp numbers of a block that extends along x only."""

    def __init__(self, tree: ast.FunctionDef):
        self.x = {"threadIdx_x"}
        for variable, (value, *others) in values_of(tree).items():
            if not others and isinstance(value, ast.Name) and value.id in self.x:
                self.x.add(variable)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.left, ast.Name) and node.left.id in self.x and isinstance(node.right, ast.Constant):
            operation = (type(node.op), node.right.value)
            if operation in LANES:
                return ast.copy_location(name("lane"), node)
            if operation in WARPS:
                return ast.copy_location(name("warp"), node)
        return node


def count_with_range(tree: ast.FunctionDef, compilation: Compilation, affine: Affine) -> None:
    """Turn while loops that count up into for loops, in place, where nobody asks for the counter afterwards."""
    occurrences = Counter(names_in(tree.body))
    for block in reversed([tree.body, *(inner for s in statements(tree.body) for inner in bodies(s))]):  # inner first
        started = {v for s in block for v in target_names(s)}
        block[:] = [_as_range_loop(s, occurrences, compilation, affine, started) for s in block]


def _as_range_loop(
    loop: ast.stmt, occurrences: Counter, compilation: Compilation, affine: Affine, started: set[str]
) -> ast.stmt:
    if not isinstance(loop, ast.While) or loop.orelse or has_sync(loop):
        return loop
    test, last = loop.test, loop.body[-1]
    if not (isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and isinstance(test.ops[0], ast.Lt)):
        return loop
    if not (isinstance(last, ast.AugAssign) and isinstance(last.op, ast.Add) and len(test.ops) == 1):
        return loop
    counter, (stop,), step = test.left.id, test.comparators, last.value
    assigned = Counter(v for s in statements(loop.body) for v in target_names(s))
    if target_names(last) != [counter] or assigned[counter] != 1 or any(loop_exits(loop.body, (ast.Continue,))):
        return loop
    if occurrences[counter] != 1 + Counter(names_in([loop]))[counter] or len(affine.values[counter]) != 2:
        return loop
    if counter not in started:  # in an outer loop it goes on from where it was
        return loop
    if counter not in affine.integers or not is_natural(step, affine.natural):
        return loop
    if (names_of(stop) | names_of(step)) & assigned.keys():
        return loop
    if not all(is_integer(e, affine.integers, affine.tuples) and is_pure(e, affine.tuples) for e in (stop, step)):
        return loop
    number = compilation.fresh(counter)
    compilation.original[number] = compilation.original.get(counter, counter)
    iteration = call("range", name(counter), stop, step)
    for_loop = ast.For(ast.Name(number, ast.Store()), iteration, loop.body[:-1] or [ast.Pass()], [])
    for statement in for_loop.body:
        Renamer({counter: number}).visit(statement)
    return ast.fix_missing_locations(ast.copy_location(for_loop, loop))
