"""How an access of memory is written: indices that cannot be negative, atomics, other threads' variables, bounds."""

from __future__ import annotations

import ast
import copy
from typing import Any

from miniflow.hostcuda.affine import Affine
from miniflow.hostcuda.bounds import Intervals, bounds_conditions
from miniflow.hostcuda.guards import Fact, facts
from miniflow.hostcuda.runtime import UNLOCKED
from miniflow.hostcuda.signs import is_metadata, is_natural
from miniflow.hostcuda.syntax import LANE_READ, Compilation, assigned_in, call, literal, name


class Access(ast.NodeTransformer):
    """Reads of other threads' variables, atomics on a block's own memory, and indices that are never negative."""

    def __init__(self, compilation: Compilation, affine: Affine | None, arrays: set[str]):
        self.compilation, self.arrays, self.natural = compilation, arrays, set(affine.natural) if affine else set()
        self.facts: list[Fact] = []  # that hold where the visited statement stands

    def visit_If(self, node: ast.If | ast.IfExp) -> ast.If | ast.IfExp:
        outer, new = self.facts, list(facts(copy.deepcopy(node.test)))
        node.test = self.visit(node.test)
        assigned = assigned_in(node.body) if isinstance(node, ast.If) else set()
        self.facts = outer + [fact for fact in new if fact[0] not in assigned]
        node.body = self._arm(node.body)
        self.facts = outer
        node.orelse = self._arm(node.orelse)
        return node

    visit_IfExp = visit_If

    def _arm(self, arm: Any) -> Any:
        return [self.visit(s) for s in arm] if isinstance(arm, list) else self.visit(arm)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        function = node.func.id if isinstance(node.func, ast.Name) else ""
        if function == LANE_READ:
            return ast.Subscript(name(f"{node.args[0].id}_of"), call("unsigned", node.args[1]), ast.Load())
        if function in ("match_any", "match_all"):
            lane = ["thread", "warp_first", "warp_end"] if self.compilation.checked else ["lane", "0", "lanes"]
            return call(function, *map(name, [*(f"{a.id}_of" for a in node.args[:2]), *lane]))
        if function in UNLOCKED and isinstance(node.args[0], ast.Name) and node.args[0].id in self.compilation.arrays:
            node.func = name(UNLOCKED[function])  # nobody but this worker has the array
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if is_metadata(node) or not (isinstance(node.value, ast.Name) and node.value.id in self.arrays):
            return node
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        natural = self.natural | {variable for variable, kind, bound in self.facts if is_from_zero(kind, bound)}
        checks_not_needed = [self._is_nonnegative(index, natural) for index in indices]
        if all(k or isinstance(index, ast.Constant) for k, index in zip(checks_not_needed, indices, strict=True)):
            node.slice = unsigned(node.slice)
        elif any(checks_not_needed):
            node.slice.elts = [unsigned(i) if k else i for k, i in zip(checks_not_needed, indices, strict=True)]
        return node

    def _is_nonnegative(self, index: ast.expr, natural: set[str]) -> bool:
        return not isinstance(index, ast.Constant | ast.Slice | ast.Tuple) and is_natural(index, natural)


def is_from_zero(operator: type, bound: ast.expr) -> bool:
    """Whether a comparison, such as `>= 0`, implies that a variable is not negative."""
    return literal(bound) == 0 and operator in (ast.Gt, ast.GtE) or literal(bound) == -1 and operator is ast.Gt


class CheckedAccess(Access):
    """Checks bounds: of a whole region where that can be, of every access elsewhere.

    Attributes:
        proven: conditions on a region under which accesses written without a check are inside.
    """

    def __init__(self, compilation: Compilation, affine: Affine | None, arrays: set[str], intervals: Intervals | None):
        super().__init__(compilation, affine, arrays)
        self.intervals = intervals
        self.proven: list[str] = []

    def visit_Call(self, node: ast.Call) -> ast.expr:
        function = node.func.id if isinstance(node.func, ast.Name) else ""
        indexed = function.startswith("atomic_") and function != "atomic_compare_and_swap"
        if indexed and isinstance(node.args[0], ast.Name):
            element = ast.copy_location(ast.Subscript(node.args[0], node.args[1], ast.Load()), node)
            checked = self.visit_Subscript(element)
            node.args = [node.args[0], checked.slice, *map(self.visit, node.args[2:])]
            if function in UNLOCKED and node.args[0].id in self.compilation.arrays:
                node.func = name(UNLOCKED[function])
            return node
        return super().visit_Call(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if is_metadata(node) or (isinstance(node.value, ast.Name) and node.value.id in self.compilation.tuples):
            return ast.NodeTransformer.generic_visit(self, node)
        is_array = isinstance(node.value, ast.Name) and node.value.id in self.arrays
        allocation = self.compilation.arrays.get(node.value.id) if is_array else None
        shape = allocation.shape if allocation is not None and allocation.kind != "dynamic" else None
        conditions = bounds_conditions(node, self.intervals, shape, self.facts) if is_array and self.intervals else None
        original = copy.deepcopy(node)
        ast.NodeTransformer.generic_visit(self, node)
        if conditions is not None:
            self.proven += conditions
            node.slice = unsigned(node.slice)
        elif is_array or not isinstance(node.slice, ast.Constant | ast.Slice):
            node.slice = self._checked(node, original)
        return node

    def _checked(self, node: ast.Subscript, original: ast.Subscript) -> ast.expr:
        site = ast.Constant(self.compilation.site_number(original))
        location = [site, name("block"), name("thread"), name("error")]
        if isinstance(node.slice, ast.Slice):
            return node.slice
        index = Slices().visit(node.slice) if isinstance(node.slice, ast.Tuple) else node.slice
        return call("inside", node.value, index, *location)


class Slices(ast.NodeTransformer):
    """Slices as they are written outside of brackets."""

    def visit_Slice(self, node: ast.Slice) -> ast.expr:
        return call("slice", *(part or ast.Constant(None) for part in (node.lower, node.upper, node.step)))


def unsigned(index: ast.expr) -> ast.expr:
    """An index that is known not to be negative."""
    if isinstance(index, ast.Tuple):
        return ast.Tuple([unsigned(i) for i in index.elts], ast.Load())
    return index if isinstance(index, ast.Constant) else call("unsigned", index)
