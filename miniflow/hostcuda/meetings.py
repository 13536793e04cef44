"""Second step of the compiler: every place where threads meet becomes a statement of its own.

y = x + cuda.shfl_down_sync(mask, v, 4)         shuffled = v
                                         ->     Sync(WARP)
                                                y = x + lane_read(shuffled, lane_down(thread, 4, ...))

total = block_sum(x)                     ->     the body of block_sum, its variables renamed, `return` made an
                                                assignment
"""

from __future__ import annotations

import ast
import copy
from typing import NoReturn

from miniflow.hostcuda.errors import UnsupportedKernelError
from miniflow.hostcuda.normalise import GRID_SYNC, DeviceFunction, local_names
from miniflow.hostcuda.syntax import (
    BLOCK,
    GRID,
    LANE_READ,
    MARK,
    WARP,
    Renamer,
    Sync,
    Unit,
    assign,
    call,
    expression,
    name,
    statements,
)

LANES = {"shfl_sync": "lane_at", "shfl_up_sync": "lane_up", "shfl_down_sync": "lane_down", "shfl_xor_sync": "lane_xor"}
VOTES = {  # intrinsic -> (level, function of runtime, what a thread that is not here counts as)
    "syncthreads_count": (BLOCK, "count", "False"),
    "syncthreads_and": (BLOCK, "all_of", "True"),
    "syncthreads_or": (BLOCK, "any_of", "False"),
    "all_sync": (WARP, "all_of", "True"),
    "any_sync": (WARP, "any_of", "False"),
    "ballot_sync": (WARP, "ballot", "False"),
    "activemask": (WARP, "ballot", "False"),
    "eq_sync": (WARP, "same", "2"),
}
MATCHES = {"match_any_sync": "match_any", "match_all_sync": "match_all"}


def has_meeting(node: ast.AST) -> bool:
    """Whether a marked call stands in this tree."""
    return any(isinstance(n, ast.Name) and n.id.startswith(MARK) for n in ast.walk(node))


class Expander:
    """Rewrites statement lists; see the module."""

    def __init__(self, unit: Unit):
        self.unit = unit
        self.before: list[ast.stmt] = []  # what must run before the statement at hand

    def refuse(self, node: ast.AST, what: str, remedy: str) -> NoReturn:
        """Raise UnsupportedKernelError naming construct and line."""
        place = f"{self.unit.filename}:{getattr(node, 'lineno', '?')}"
        raise UnsupportedKernelError(f"{place}: {self.unit.name}: {what} is not supported in a kernel: {remedy}")

    def block(self, block: list[ast.stmt]) -> list[ast.stmt]:
        """The same statements with every meeting a statement of its own."""
        result: list[ast.stmt] = []
        for statement in block:
            result += self.statement(statement)
        return result

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        """What takes the place of one statement."""
        if not has_meeting(node):
            return [node]
        outer, self.before = self.before, []
        if isinstance(node, ast.While):
            new = self._while(node)
        elif isinstance(node, ast.If):
            node.test = self.hoist(node.test)
            before, self.before = self.before, []
            node.body, node.orelse = self.block(node.body), self.block(node.orelse)
            self.before = before
            new = [node]
        elif isinstance(node, ast.For):
            node.iter = self.hoist(node.iter)
            before, self.before = self.before, []
            if node.orelse:
                self.refuse(node, "a for loop with else around a barrier", "write the else part after the loop")
            node.body = self.block(node.body)
            self.before = before
            new = [node]
        elif isinstance(node, ast.FunctionDef):
            self.refuse(node, "a barrier in a nested function", "make it a device function: @cuda.jit(device=True)")
        else:
            new = self._simple(node)
        new, self.before = self.before + new, outer
        return new

    def _while(self, node: ast.While) -> list[ast.stmt]:
        if node.orelse:
            self.refuse(node, "a while loop with else around a barrier", "write the else part after the loop")
        if has_meeting(node.test):
            test = self.hoist(node.test)
            leave = ast.If(ast.UnaryOp(ast.Not(), test), [ast.Break()], [])
            head = [*self.before, ast.copy_location(leave, node)]
            self.before = []
            node.test, node.body = ast.Constant(True), head + self.block(node.body)
        else:
            node.body = self.block(node.body)
        return [ast.fix_missing_locations(node)]

    def _simple(self, node: ast.stmt) -> list[ast.stmt]:
        for key, value in ast.iter_fields(node):
            if isinstance(value, ast.expr) and not isinstance(getattr(value, "ctx", None), ast.Store):
                setattr(node, key, self.hoist(value))
            elif isinstance(value, list):
                for target in value:
                    if has_meeting(target):
                        self.refuse(target, "a barrier in the target of an assignment", "use a variable")
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Name | ast.Constant):
            return []
        return [node]

    # expressions

    def hoist(self, node: ast.expr) -> ast.expr:
        """The expression without meetings; they, and what is evaluated before them, go to `self.before`."""
        if not has_meeting(node):
            return node
        if isinstance(node, ast.BoolOp | ast.IfExp):
            first = node.values[0] if isinstance(node, ast.BoolOp) else node.test
            others = node.values[1:] if isinstance(node, ast.BoolOp) else [node.body, node.orelse]
            if any(has_meeting(o) for o in others):
                self.refuse(
                    node, "a barrier that is reached only sometimes within an expression", "use an if statement"
                )
            first = self.hoist(first)
            if isinstance(node, ast.BoolOp):
                node.values[0] = first
            else:
                node.test = first
            return node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.startswith(MARK):
            node.args = self._operands(node.args)
            return self._meet(node)
        fields = [(key, value) for key, value in ast.iter_fields(node) if isinstance(value, ast.expr | list)]
        operands = [v for _, value in fields for v in (value if isinstance(value, list) else [value])]
        operands = iter(self._operands([o for o in operands if isinstance(o, ast.expr)]))
        for key, value in fields:
            if isinstance(value, list):
                setattr(node, key, [next(operands) if isinstance(v, ast.expr) else v for v in value])
            else:
                setattr(node, key, next(operands))
        return node

    def _operands(self, operands: list[ast.expr]) -> list[ast.expr]:
        """Operands in their order of evaluation: those before the last meeting are kept in variables."""
        last = max((i for i, o in enumerate(operands) if has_meeting(o)), default=-1)
        result = []
        for i, operand in enumerate(operands):
            operand = self.hoist(operand)
            if i < last and any(isinstance(n, ast.Call | ast.Subscript) for n in ast.walk(operand)):
                kept = self.unit.fresh("kept")
                self.before.append(assign(kept, operand, getattr(operand, "lineno", 0)))
                operand = name(kept)
            result.append(operand)
        return result

    def _meet(self, node: ast.Call) -> ast.expr:
        what, line = node.func.id.removeprefix(MARK), node.lineno
        if hasattr(node, "device"):
            return self._inline(node.device, node.args, line)
        if what in ("syncthreads", "syncwarp", GRID_SYNC):
            level = {"syncthreads": BLOCK, "syncwarp": WARP, GRID_SYNC: GRID}[what]
            self.before.append(Sync(level, what, line))
            return ast.Constant(None)
        if what in LANES:
            return self._shuffle(what, node.args, line)
        if what in MATCHES:
            return self._match(what, node.args, line)
        level, function, neutral = VOTES[what]
        vote = ast.Constant(True) if what == "activemask" else node.args[-1]
        vote = ast.Compare(vote, [ast.NotEq()], [ast.Constant(0)]) if what != "activemask" else vote
        if neutral == "2":
            vote = call("np.int8", vote)
        voted, result = self.unit.fresh("voted"), self.unit.fresh("outcome")
        self.unit.neutral[voted] = neutral
        self.before += [assign(voted, vote, line), Sync(level, what, line, (function, voted, result))]
        found = name(result)
        if function == "ballot" and what == "ballot_sync":
            found = call("np.int32", found)
        return found if what not in ("syncthreads_and", "syncthreads_or") else call("np.int32", found)

    def _shuffle(self, what: str, args: list[ast.expr], line: int) -> ast.expr:
        value, step = self.unit.fresh("shuffled"), args[2]
        self.before.append(assign(value, args[1], line))
        if not isinstance(step, ast.Constant):
            kept = self.unit.fresh("step")
            self.before.append(assign(kept, step, line))
            step = name(kept)
        self.before.append(Sync(WARP, what, line))
        lane = call(LANES[what], name("thread"), step, name("warp_first"), name("warp_end"))
        received = self.unit.fresh("received")
        self.before.append(assign(received, call(LANE_READ, name(value), lane), line))
        return name(received)

    def _match(self, what: str, args: list[ast.expr], line: int) -> ast.expr:
        value, here, matched = (self.unit.fresh(stem) for stem in ("offered", "here", "matched"))
        self.unit.neutral[here] = "False"
        found = call(f"{MATCHES[what]}", name(value), name(here), expression("thread"))
        self.before += [
            assign(value, args[1], line),
            assign(here, ast.Constant(True), line),
            Sync(WARP, what, line),
            assign(matched, found, line),
        ]
        return name(matched)

    # device functions in which threads meet

    def _inline(self, device: DeviceFunction, args: list[ast.expr], line: int) -> ast.expr:
        tree = copy.deepcopy(device.tree)
        fresh = {
            v: self.unit.fresh(f"{device.name}_{v}") for v in sorted(local_names(tree)) if v not in self.unit.arrays
        }
        tree = Renamer(fresh).visit(tree)
        result, returned = self.unit.fresh(f"{device.name}_result"), self.unit.fresh(f"{device.name}_returned")
        parameters = [assign(parameter.arg, value, line) for parameter, value in zip(tree.args.args, args, strict=True)]
        body, early = without_returns(tree.body, result, returned)
        if early:
            body = [assign(returned, ast.Constant(False), line), *body]
        gives = any(isinstance(s, ast.Return) and s.value is not None for s in statements(device.tree.body))
        outer, self.before = self.before, []
        body = self.block(body)
        self.before = outer + parameters + body
        return name(result) if gives else ast.Constant(None)


def without_returns(block: list[ast.stmt], result: str, returned: str) -> tuple[list[ast.stmt], bool]:
    """The body of a function whose returns assign to `result` instead, and whether a flag `returned` is used.

    A return at the end needs nothing else. After any other, the flag is set and what follows is skipped.
    """
    final = [s for s in statements(block) if isinstance(s, ast.Return)]
    if all(_is_last(block, r) for r in final):
        return _replace(block, result, None), False
    return _replace(block, result, returned), True


def _is_last(block: list[ast.stmt], statement: ast.stmt) -> bool:
    end = block[-1]
    if end is statement:
        return True
    return isinstance(end, ast.If) and any(b and _is_last(b, statement) for b in (end.body, end.orelse))


def _replace(block: list[ast.stmt], result: str, flag: str | None, in_loop: bool = False) -> list[ast.stmt]:
    new: list[ast.stmt] = []
    for position, statement in enumerate(block):
        if isinstance(statement, ast.Return):
            if statement.value is not None:
                new.append(assign(result, statement.value, statement.lineno))
            if flag:
                new.append(assign(flag, ast.Constant(True), statement.lineno))
                new += [ast.Break()] if in_loop else []
            return new or [ast.Pass()]
        may_return = any(isinstance(s, ast.Return) for s in statements([statement]))
        if may_return:
            inner = in_loop or isinstance(statement, ast.For | ast.While)
            statement.body = _replace(statement.body, result, flag, inner)
            statement.orelse = _replace(statement.orelse, result, flag, in_loop) if statement.orelse else []
        new.append(statement)
        if may_return and flag:
            if in_loop:
                new.append(_located(ast.If(name(flag), [ast.Break()], []), statement))
            elif position + 1 < len(block):
                rest = _replace(block[position + 1 :], result, flag, in_loop)
                new.append(_located(ast.If(ast.UnaryOp(ast.Not(), name(flag)), rest, []), statement))
                return new
    return new


def _located(node: ast.stmt, like: ast.stmt) -> ast.stmt:
    return ast.fix_missing_locations(ast.copy_location(node, like))
