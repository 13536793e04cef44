"""Rewrites that give the analysis less to guess.

if i >= n: return       ->   if not i >= n:             where no barrier of the block follows
...                              ...
threadIdx.x % 32        ->   lane                       in blocks that extend along x only
threadIdx.x // 32       ->   warp
a, b = x, y             ->   a = x; b = y               where y does not read a
"""

from __future__ import annotations

import ast

from miniflow.hostcuda.syntax import BLOCK, Sync, assign, name, reads, statements, target_names

LANES, WARPS = {(ast.Mod, 32), (ast.BitAnd, 31)}, {(ast.FloorDiv, 32), (ast.RShift, 5)}


def nest_returns(block: list[ast.stmt]) -> list[ast.stmt]:
    """A kernel's body with early returns as branches around what follows."""
    for position, statement in enumerate(block):
        rest = block[position + 1 :]
        if not (isinstance(statement, ast.If) and not statement.orelse and len(statement.body) == 1 and rest):
            continue
        if not isinstance(statement.body[0], ast.Return):
            continue
        if any(isinstance(s, Sync) and s.level >= BLOCK for s in statements(rest)):
            return block
        branch = ast.If(ast.UnaryOp(ast.Not(), statement.test), nest_returns(rest), [])
        return [*block[:position], ast.fix_missing_locations(ast.copy_location(branch, statement))]
    return block


class WarpNames(ast.NodeTransformer):
    """Recognises lane and warp numbers of a block that extends along x only."""

    def __init__(self, tree: ast.FunctionDef):
        self.x = {"threadIdx_x"}
        counts: dict[str, int] = {}
        for statement in statements(tree.body):
            for variable in target_names(statement):
                counts[variable] = counts.get(variable, 0) + 1
        for statement in statements(tree.body):
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name):
                for variable in target_names(statement):
                    if counts[variable] == 1 and statement.value.id in self.x:
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


def split_tuples(block: list[ast.stmt]) -> list[ast.stmt]:
    """The statements with assignments of tuples to tuples taken apart."""
    result = []
    for statement in block:
        for key in ("body", "orelse"):
            if isinstance(getattr(statement, key, None), list) and not isinstance(statement, ast.FunctionDef):
                setattr(statement, key, split_tuples(getattr(statement, key)))
        result += _parts(statement) or [statement]
    return result


def _parts(statement: ast.stmt) -> list[ast.stmt]:
    if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
        return []
    target, value = statement.targets[0], statement.value
    if not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts)):
        return []
    if not all(isinstance(t, ast.Name) for t in target.elts):
        return []
    if set(target_names(statement)) & set(reads(value)):
        return []
    return [assign(t.id, v, statement.lineno) for t, v in zip(target.elts, value.elts, strict=True)]
