"""Third step of the compiler: no `return`, `break` or `continue` jumps over a barrier.

A thread that leaves early takes no part in what follows. Said with branches and flags alone, that needs no jump:

    if i >= n: return            if i >= n: pass
    ...                    ->    else: ...

    while True:                  stop = False
        ...                      while not stop:
        if found: break    ->        ...
        syncthreads()                if found: stop = True
                                     else: syncthreads()

Loops without barriers inside keep their own `break` and `continue`. (Structured control flow as in Erosa and Hendren,
"Taming control flow", 1994.)
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

from miniflow.hostcuda.syntax import (
    JUMPS,
    Compilation,
    assign,
    call,
    has_sync,
    literal,
    loop_exits,
    name,
    statements,
    target_names,
)


class Loop:
    """A loop around a barrier: the flags that its jumps set, once they are needed."""

    def __init__(self, compilation: Compilation):
        self.compilation, self.stop, self.skip = compilation, "", ""

    def flag(self, jump: ast.stmt) -> str:
        """The flag of `break` or `continue`."""
        if isinstance(jump, ast.Break):
            self.stop = self.stop or self.compilation.fresh("stop")
            return self.stop
        self.skip = self.skip or self.compilation.fresh("skip")
        return self.skip


class Exits:
    """Rewrites one function; `result` is the variable that a returned value goes to."""

    def __init__(self, compilation: Compilation, result: str = ""):
        self.compilation, self.result, self.left, self.announced = compilation, result, "", False

    def function(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The body of a function without returns, and without jumps out of loops around barriers."""
        self.announced = self.compilation.checked and not self.result and any(map(has_sync, body))
        body = self._block(body, None, True)
        return [assign(self.left, ast.Constant(False), 0), *body] if self.left else body

    def _block(self, block: list[ast.stmt], loop: Loop | None, tail: bool) -> list[ast.stmt]:
        """Rewrite statements; `tail`: nothing of the function (or of the loop's body) follows them."""
        result: list[ast.stmt] = []
        for position, statement in enumerate(block):
            following = block[position + 1 :]
            if isinstance(statement, JUMPS):
                return [*result, *self._jump(statement, loop, tail)]
            jumps = jumps_out(statement)
            if isinstance(statement, ast.If) and jumps:
                return [*result, *self._branch(statement, following, loop, tail)]
            if isinstance(statement, ast.If):
                statement.body = self._block(statement.body, loop, False)
                statement.orelse = self._block(statement.orelse, loop, False)
                result.append(statement)
                continue
            if not isinstance(statement, ast.For | ast.While):
                result.append(statement)
                continue
            result += self._loop(statement, Loop(self.compilation))
            if jumps and following:  # threads that returned inside the loop do not reach what follows it
                return [*result, unless([self.left], self._block(following, loop, tail), statement)]
        return result

    def _jump(self, jump: ast.stmt, loop: Loop | None, tail: bool) -> list[ast.stmt]:
        if isinstance(jump, ast.Return):
            value = [assign(self.result, jump.value, jump.lineno)] if self.result and jump.value else []
            value = [call_statement(call("leave"), jump)] if self.announced else value
            return value if tail and loop is None else [*value, assign(self._left(), ast.Constant(True), jump.lineno)]
        if isinstance(jump, ast.Continue) and tail:
            return []
        return [assign(loop.flag(jump), ast.Constant(True), jump.lineno)]

    def _left(self) -> str:
        self.left = self.left or self.compilation.fresh("left")
        return self.left

    def _branch(self, node: ast.If, following: list[ast.stmt], loop: Loop | None, tail: bool) -> list[ast.stmt]:
        """A branch with jumps: what follows moves into the arm that does not jump, or is guarded by flags."""
        if always_jumps(node.body) and not any(map(jumps_out, node.orelse)):
            node.orelse, following = node.orelse + following, []
        elif always_jumps(node.orelse) and not any(map(jumps_out, node.body)):
            node.body, following = node.body + following, []
        elif always_jumps(node.body) and always_jumps(node.orelse):
            following = []
        if self.announced and always_jumps(node.orelse) and any(map(has_sync, node.body)):
            # threads that leave do so before others come to a barrier
            node.test, node.body, node.orelse = negated(node.test), node.orelse, node.body
        jumps = jumps_out(node)
        last = tail and not following
        node.body, node.orelse = self._block(node.body, loop, last), self._block(node.orelse, loop, last)
        if not node.body:
            node.test, node.body, node.orelse = negated(node.test), node.orelse or [ast.Pass()], []
        if not following:
            return [ast.fix_missing_locations(node)]
        flags = {self._left() if isinstance(j, ast.Return) else loop.flag(j) for j in jumps}
        return [ast.fix_missing_locations(node), unless(sorted(flags), self._block(following, loop, tail), node)]

    def _loop(self, node: ast.For | ast.While, loop: Loop) -> list[ast.stmt]:
        if not has_sync(node):
            node.body = self._loop_without_barriers(node.body)
            return [node]
        returns = bool(jumps_out(node))
        node.body = self._block(node.body, loop, True) or [ast.Pass()]
        if loop.skip:
            node.body = [assign(loop.skip, ast.Constant(False), node.lineno), *node.body]
        flags = [f for f in (loop.stop, self._left() if returns else "") if f]
        before = [assign(loop.stop, ast.Constant(False), node.lineno)] if loop.stop else []
        if flags and isinstance(node, ast.For):
            *start, node = as_while_loop(node, self.compilation)
            before += start
        if flags:
            node.test = ast.BoolOp(ast.And(), [*(ast.UnaryOp(ast.Not(), name(f)) for f in flags), node.test])
        return [*before, ast.fix_missing_locations(node)]

    def _loop_without_barriers(self, block: list[ast.stmt]) -> list[ast.stmt]:
        """In a loop without barriers, a return sets the flag and breaks."""
        result: list[ast.stmt] = []
        for statement in block:
            if isinstance(statement, ast.Return):
                return [*result, *self._jump(statement, None, False), ast.copy_location(ast.Break(), statement)]
            returns = any(isinstance(s, ast.Return) for s in statements([statement]))
            if returns:
                statement.body, statement.orelse = map(self._loop_without_barriers, (statement.body, statement.orelse))
            result.append(statement)
            if returns and isinstance(statement, ast.For | ast.While):
                leave = ast.If(name(self._left()), [ast.Break()], [])
                result.append(ast.fix_missing_locations(ast.copy_location(leave, statement)))
        return result


def call_statement(call: ast.expr, node: ast.AST) -> ast.stmt:
    """A call as a statement, on the line of `node`."""
    return ast.fix_missing_locations(ast.copy_location(ast.Expr(call), node))


def jumps_out(statement: ast.stmt) -> list[ast.stmt]:
    """The returns in a statement, and the breaks and continues that belong to a loop around it."""
    returns = [s for s in statements([statement]) if isinstance(s, ast.Return)]
    return returns + list(loop_exits([statement]))


def always_jumps(block: list[ast.stmt]) -> bool:
    """Whether the end of a statement list is never reached."""
    if not block:
        return False
    end = block[-1]
    return isinstance(end, JUMPS) or (isinstance(end, ast.If) and always_jumps(end.body) and always_jumps(end.orelse))


def unless(flags: list[str], body: list[ast.stmt], node: ast.stmt) -> ast.stmt:
    """`if not flag: body`."""
    test = name(flags[0]) if len(flags) == 1 else ast.BoolOp(ast.Or(), [name(f) for f in flags])
    return ast.fix_missing_locations(
        ast.copy_location(ast.If(ast.UnaryOp(ast.Not(), test), body or [ast.Pass()], []), node)
    )


def negated(test: ast.expr) -> ast.expr:
    """`not test`, without a double negation. (`not a < b` is not `a >= b` where one is NaN.)"""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    return ast.UnaryOp(ast.Not(), test)


def as_while_loop(loop: ast.For, compilation: Compilation) -> Iterator[ast.stmt]:
    """`for i in range(start, stop, step)` as a while loop, for loops whose threads make different numbers of rounds.

    Raises:
        UnsupportedKernelError: for anything but a range.
    """
    if not (isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Name) and loop.iter.func.id == "range"):
        compilation.refuse(loop, "a loop over anything but range(...) around a barrier", "write a range")
    args = list(loop.iter.args)
    start = args[0] if len(args) > 1 else ast.Constant(0)
    stop, step = args[len(args) > 1], args[2] if len(args) == 3 else ast.Constant(1)
    variable = target_names(loop)[0]
    upcoming, end = compilation.fresh(f"{variable}_next"), compilation.fresh(f"{variable}_end")
    yield assign(upcoming, call("np.int64", start), loop.lineno)
    yield assign(end, stop, loop.lineno)
    if not literal(step):
        kept = compilation.fresh(f"{variable}_step")
        yield assign(kept, step, loop.lineno)
        step = name(kept)
    up, down = (ast.Compare(name(upcoming), [op], [name(end)]) for op in (ast.Lt(), ast.Gt()))
    if literal(step) is None:
        test: ast.expr = ast.IfExp(ast.Compare(step, [ast.Gt()], [ast.Constant(0)]), up, down)
    else:
        test = up if literal(step) > 0 else down
    body = [
        assign(variable, name(upcoming), loop.lineno),
        assign(upcoming, ast.BinOp(name(upcoming), ast.Add(), copy.deepcopy(step)), loop.lineno),
    ]
    yield ast.fix_missing_locations(ast.copy_location(ast.While(test, body + loop.body, []), loop))
