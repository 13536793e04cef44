"""Loops that are better turned inside out: the loop outside, the threads inside, so that the threads become vectors.

for every thread:                                    for k in range(n):
    for k in range(n):                         ->        for every thread:
        total += a[row, k] * b[k, col]                       total_of[thread] += a[row, k] * b[k, col]

That pays where neighbouring threads touch neighbouring elements (or the same one). Threads between two barriers may run
in any order, so it is always allowed. (Loop interchange: Allen and Kennedy, "Optimizing compilers for modern
architectures", section 5.2.) If the body is short, each thread runs a strip of a few rounds at once, so that `total_of`
is read and written once for all of these (strip mining; chapter 8 of the same).
"""

from __future__ import annotations

import ast
import copy
from collections import Counter

from miniflow.hostcuda.affine import Affine, is_integer, is_range, names_of
from miniflow.hostcuda.divergence import Divergence, names_in
from miniflow.hostcuda.guards import comparison, conjuncts
from miniflow.hostcuda.purity import is_pure
from miniflow.hostcuda.signs import is_metadata, is_natural
from miniflow.hostcuda.syntax import (
    BLOCK,
    THREAD,
    WARP,
    Compilation,
    Replace,
    assign,
    assigned_in,
    call,
    expression,
    has_sync,
    level_of,
    literal,
    name,
    statements,
)

SHORT = 32
"""Loops of at most so many rounds, known when compiling, stay inside: LLVM unrolls them and keeps sums in registers."""
STRIP, SHORT_BODY = 4, 4  # rounds, statements
PLAIN = ast.Assign | ast.AugAssign | ast.Expr | ast.If | ast.For | ast.Pass


def interchange(
    tree: ast.FunctionDef, compilation: Compilation, divergence: Divergence, affine: Affine, axes: str
) -> None:
    """Mark loops to turn inside out, and the branches around them: `.interchanged` is the level of their threads."""
    Interchange(compilation, divergence, affine, axes).run(tree)


class Interchange:
    """Looks for such loops; see the module."""

    def __init__(self, compilation: Compilation, divergence: Divergence, affine: Affine, axes: str):
        self.compilation, self.divergence, self.affine, self.axes = compilation, divergence, affine, axes
        arrays = {n for n in divergence.parameters | set(compilation.captured_arrays) if n not in divergence.tuples}
        self.arrays = arrays | {n for n, a in compilation.arrays.items() if a.kind != "local"}

    def run(self, tree: ast.FunctionDef) -> None:
        """Mark the loops of a kernel."""
        tree.body = self._block(tree.body, BLOCK)

    def _block(self, block: list[ast.stmt], level: int) -> list[ast.stmt]:
        """Statements that a whole group runs together."""
        result = []
        for statement in block:
            if has_sync(statement):
                inner = WARP if level_of(statement) == WARP else level
                for key in ("body", "orelse"):
                    if isinstance(getattr(statement, key, None), list):
                        setattr(statement, key, self._block(getattr(statement, key), inner))
            elif isinstance(statement, ast.For):
                statement = self._loop(statement, level)
            elif isinstance(statement, ast.If) and not statement.orelse and self._is_guard(statement.test):
                body = self._block(statement.body, level)
                alone = len(block) > 1 and not self.compilation.checked and self._is_for_one(statement)
                if alone or any(hasattr(s, "interchanged") for s in body):
                    statement.body, statement.interchanged = body, level
            result.append(statement)
        return result

    def _is_guard(self, test: ast.expr) -> bool:
        """Whether every region may check a condition for itself."""
        return is_pure(test, self.divergence.tuples) and all(self._is_fixed(v, 0) for v in names_of(test))

    def _is_for_one(self, branch: ast.If) -> bool:
        """Whether one thread of each row or column takes a branch, and sets nothing that others see but elements.

        As a loop over these threads it keeps out of the way of the vectors.
        """
        inside = assigned_in(branch.body)
        if any(not isinstance(s, PLAIN) or hasattr(s, "interchanged") for s in statements(branch.body)):
            return False
        used = Counter(names_in([branch]))
        if any(used[v] != self.divergence.occurrences[v] for v in inside):
            return False
        if not all(self._is_fixed(v, 0) for v in used.keys() - inside - self.arrays):
            return False
        for compared in filter(None, map(comparison, conjuncts(branch.test))):
            if compared[1] is ast.Eq:
                for axis in self.axes:
                    if sorted(abs(self.affine.stride(e, axis) or 0) for e in compared[::2]) == [0, 1]:
                        return True
        return False

    def _is_fixed(self, variable: str, depth: int) -> bool:
        values = self.affine.values.get(variable)
        if values is None:
            return True
        if len(values) != 1 or depth > 5:
            return False
        if values[0] is None:
            return self.divergence.scope[variable] >= BLOCK
        if not is_pure(values[0], self.divergence.tuples):
            return False
        return all(self._is_fixed(v, depth + 1) for v in names_of(values[0]))

    def _loop(self, loop: ast.For, level: int) -> ast.For:
        if not is_range(loop.iter) or loop.orelse or not isinstance(loop.target, ast.Name):
            return loop
        if any(not isinstance(s, PLAIN) for s in statements(loop.body)) or not self._is_contiguous(loop):
            return loop
        if self.divergence.scope_of(loop.iter) >= level:
            count = literal(loop.iter.args[-1]) if len(loop.iter.args) == 1 else None
            if count is not None and count <= SHORT:
                return loop
        elif level == BLOCK and (first := self._start_of_thread_0(loop)):
            loop = self._from_base(loop, first)
        else:
            return loop
        loop.body = self._block(loop.body, level)
        loop = self._strip_mined(loop) if self._is_short(loop) else loop
        loop.interchanged = level
        return loop

    def _is_short(self, loop: ast.For) -> bool:
        """Whether a loop has few statements without branches, steps of one, and an end known before it.

        The ends are signed: what numba makes of `range` for unsigned ones counts in uint64, which strips do not.
        """
        variable, inside, args = loop.target.id, assigned_in(loop.body), loop.iter.args
        if self.compilation.checked or len(args) > 2 or len(loop.body) > SHORT_BODY:
            return False
        if not all(isinstance(s, ast.Assign | ast.AugAssign) for s in loop.body):
            return False
        if not all(is_integer(a, self.affine.signed, self.divergence.tuples) for a in args):
            return False
        if inside & {variable, *names_of(loop.iter)}:
            return False
        return Counter(names_in([loop]))[variable] == self.divergence.occurrences[variable]

    def _strip_mined(self, loop: ast.For) -> ast.For:
        """The loop with one over strips outside, and the iterations of a strip inside of the threads."""
        base = self.compilation.fresh(f"{loop.target.id}_base")
        start, stop = [ast.Constant(0), *loop.iter.args][-2:]
        whole = expression(f"{base} + {STRIP}")
        end = ast.IfExp(ast.Compare(whole, [ast.LtE()], [stop]), whole, stop)
        end.strip = True  # a condition that is looked at once for all threads, see `thread_loops`
        rounds = ast.For(loop.target, call("range", name(base), end), loop.body, [])
        self.divergence.scope[base] = BLOCK
        over_strips = ast.For(
            ast.Name(base, ast.Store()), call("range", start, stop, ast.Constant(STRIP)),
            [ast.copy_location(rounds, loop)], [],
        )  # fmt: skip
        return ast.fix_missing_locations(ast.copy_location(over_strips, loop))

    def _is_contiguous(self, loop: ast.For) -> bool:
        """Whether all accesses move by one element along one axis of the block, or not at all."""
        accesses = []
        for node in ast.walk(loop):
            if isinstance(node, ast.Subscript) and not is_metadata(node):
                if isinstance(node.value, ast.Name) and node.value.id in self.divergence.tuples:
                    continue
                if not (isinstance(node.value, ast.Name) and node.value.id in self.arrays):
                    return False
                accesses.append(node)
        for axis in self.axes:
            moves = [self.affine.moves(node, axis) for node in accesses]
            if None not in moves and (any(moves) or self._is_private(loop)):
                return True
        return False

    def _is_private(self, loop: ast.For) -> bool:
        """Whether every thread adds up values of its own, though all read the same elements."""
        stores = [n for n in ast.walk(loop) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)]
        return not stores and any(self.divergence.scope[v] == THREAD for v in assigned_in(loop.body))

    def _start_of_thread_0(self, loop: ast.For) -> ast.expr | None:
        """The value of start for thread 0 in `range(start, stop, step)`, if threads start one behind another.

        All threads must have the same stop and step; None for another loop.
        """
        args = loop.iter.args
        if len(args) != 3 or any(self.divergence.scope_of(a) < BLOCK for a in args[1:]):
            return None
        if not is_natural(args[2], self.affine.natural) or self.affine.stride(args[0], "x") != 1:
            return None
        if self.divergence.definitions[loop.target.id] != 1 or assigned_in(loop.body) & names_of(loop.iter):
            return None
        if Counter(names_in([loop]))[loop.target.id] != self.divergence.occurrences[loop.target.id]:
            return None
        first = self._for_thread_0(args[0])
        return first if self.divergence.scope_of(first) >= BLOCK else None

    def _for_thread_0(self, node: ast.expr, depth: int = 0) -> ast.expr:
        """An expression for thread 0; variables that differ in the block are replaced by what they stand for."""
        values = {"threadIdx_x": ast.Constant(0)}
        for variable in names_of(node):
            value, *others = self.affine.values.get(variable, [None])
            if value is not None and not others and self.divergence.scope[variable] < BLOCK and depth <= 5:
                if is_pure(value, self.divergence.tuples) and all(self._is_set_once(v) for v in names_of(value)):
                    values[variable] = self._for_thread_0(value, depth + 1)
        return Replace(values).visit(copy.deepcopy(node))

    def _is_set_once(self, variable: str) -> bool:
        """Whether a variable is set once in the kernel, from what is."""
        values = self.affine.values.get(variable, [])
        if len(values) > 1 or None in values:
            return False
        return all(is_pure(v, self.divergence.tuples) and all(map(self._is_set_once, names_of(v))) for v in values)

    def _from_base(self, loop: ast.For, first: ast.expr) -> ast.For:
        """A uniform loop over the first index of each iteration: `i = base + threadIdx.x; if i < stop: ...`."""
        _, stop, step = loop.iter.args
        base = self.compilation.fresh(f"{loop.target.id}_base")
        inside = ast.If(ast.Compare(name(loop.target.id), [ast.Lt()], [copy.deepcopy(stop)]), loop.body, [])
        element = ast.BinOp(name(base), ast.Add(), name("threadIdx_x"))
        body = [assign(loop.target.id, element, loop.lineno), ast.copy_location(inside, loop)]
        over_bases = ast.For(ast.Name(base, ast.Store()), call("range", first, stop, step), body, [])
        self.divergence.scope[base] = BLOCK
        self.affine.values[loop.target.id], self.affine.loops[loop.target.id] = [element], []
        return ast.fix_missing_locations(ast.copy_location(over_bases, loop))
