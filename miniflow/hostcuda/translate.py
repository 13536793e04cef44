"""Small translations inside regions: returns, indices, lane reads, atomics on a block's own memory."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from numba.core import types

from miniflow.hostcuda.runtime import OWN
from miniflow.hostcuda.signs import is_metadata, is_natural
from miniflow.hostcuda.syntax import LANE_READ, expression, name, statements, target_names, text

if TYPE_CHECKING:
    from miniflow.hostcuda.regions import RegionWriter


class Returns(ast.NodeTransformer):
    """Turns `return` in a region into the end of this thread's turn."""

    def __init__(self, writer: RegionWriter, left: str):
        self.writer, self.left = writer, left

    def block(self, block: list[ast.stmt], depth: int) -> list[ast.stmt]:
        """The statements, `depth` loops inside the region."""
        result = []
        for statement in block:
            if isinstance(statement, ast.Return):
                return [*result, *self._leave(depth)]
            holds = any(isinstance(s, ast.Return) for s in statements([statement]))
            if holds:
                loop = isinstance(statement, ast.For | ast.While)
                statement.body = self.block(statement.body, depth + loop)
                statement.orelse = self.block(statement.orelse, depth)
            result.append(statement)
            if holds and isinstance(statement, ast.For | ast.While):
                result.append(ast.If(name(self.left), [ast.Break() if depth else ast.Continue()], []))
        return result

    def _leave(self, depth: int) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        if self.writer.exits:
            cell = "exited_of[unsigned(thread)]" if self.writer.kinds else "exited"
            result.append(ast.parse(f"{cell} = True").body[0])
        if depth:
            result.append(ast.parse(f"{self.left} = True").body[0])
        return [*result, ast.Break() if depth else ast.Continue()]


class Rewriter(ast.NodeTransformer):
    """Translates lane reads, matches, atomics on a block's own memory, and indices that are never negative."""

    def __init__(self, writer: RegionWriter):
        self.writer = writer
        self.natural = set(writer.facts.natural)

    def visit_If(self, node: ast.If) -> ast.If:
        node.test = self.visit(node.test)
        before = self.natural
        assigned = {n for s in statements(node.body) for n in target_names(s)}
        self.natural = before | {v for v in known_natural(node.test) if v not in assigned}
        node.body = [self.visit(s) for s in node.body]
        self.natural = before
        node.orelse = [self.visit(s) for s in node.orelse]
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        function = node.func.id if isinstance(node.func, ast.Name) else ""
        final = self.writer.kinds is not None
        if function == LANE_READ:
            variable = node.args[0].id
            self.writer.crossing.add(variable)
            return expression(f"{variable}_of[unsigned({text(node.args[1])})]") if final else node.args[0]
        if function in OWN and isinstance(node.args[0], ast.Name) and node.args[0].id in self.writer.unit.arrays:
            node.func = name(OWN[function])  # nobody but this worker has the array
            return node
        if function in ("match_any", "match_all"):
            for argument in node.args[:2]:
                self.writer.crossing.add(argument.id)
            if not final:
                return expression("np.int32(0)" if function == "match_any" else "(np.int32(0), True)")
            value, here = (a.id for a in node.args[:2])
            return expression(f"{function}({value}_of, {here}_of, thread, warp_first, warp_end)")
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if is_metadata(node) or self.writer.kinds is None:
            return self.generic_visit(node)
        base = node.value.id if isinstance(node.value, ast.Name) else ""
        natural = self.natural
        self.generic_visit(node)
        if not isinstance(self.writer.kinds.get(base), types.Array):
            return node
        if isinstance(node.slice, ast.Tuple):
            node.slice.elts = [self._index(i, natural) for i in node.slice.elts]
        else:
            node.slice = self._index(node.slice, natural)
        return node

    def _index(self, node: ast.expr, natural: set[str]) -> ast.expr:
        if isinstance(node, ast.Constant | ast.Slice | ast.Tuple) or not is_natural(node, natural):
            return node
        return ast.Call(name("unsigned"), [node], [])


def known_natural(test: ast.expr) -> set[str]:
    """The variables that cannot be negative where a condition holds."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return set().union(*map(known_natural, test.values))
    if not isinstance(test, ast.Compare):
        return set()
    found = set()
    sides = [test.left, *test.comparators]
    for left, op, right in zip(sides, test.ops, sides[1:], strict=False):
        if isinstance(op, ast.Gt | ast.GtE):
            left, right = right, left
        elif not isinstance(op, ast.Lt | ast.LtE):
            continue
        if isinstance(right, ast.Name) and isinstance(left, ast.Constant) and left.value in (0, -1):
            if left.value == 0 or isinstance(op, ast.Lt | ast.Gt):
                found.add(right.id)
    return found
