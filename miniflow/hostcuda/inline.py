"""Second step of the compiler: every barrier becomes a statement of its own.

y = x + cuda.shfl_down_sync(mask, v, 4)         shuffled = v
                                         ->     Sync(WARP)
                                                y = x + lane_read(shuffled, lane_down(thread, 4, ...))

p and cuda.any_sync(mask, q)             ->     kept = p
                                                if kept: ..., and kept = the outcome of the vote

total = block_sum(x)                     ->     the body of block_sum, its variables renamed, `return` made an
                                                assignment
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable

from miniflow.hostcuda.exits import Exits, call_statement
from miniflow.hostcuda.names import GRID_SYNC
from miniflow.hostcuda.syntax import (
    BLOCK,
    GRID,
    LANE_READ,
    MARK,
    WARP,
    Compilation,
    Renamer,
    Sync,
    assign,
    call,
    expression,
    local_names,
    name,
    statements,
)

LANES = {"shfl_sync": "lane_at", "shfl_up_sync": "lane_up", "shfl_down_sync": "lane_down", "shfl_xor_sync": "lane_xor"}
VOTES = {  # intrinsic -> (level, function of runtime, its neutral element, for threads that do not take part)
    "syncthreads_count": (BLOCK, "count", "False"),
    "syncthreads_and": (BLOCK, "all_of", "True"),
    "syncthreads_or": (BLOCK, "any_of", "False"),
    "all_sync": (WARP, "all_of", "True"),
    "any_sync": (WARP, "any_of", "False"),
    "ballot_sync": (WARP, "ballot", "False"),
    "activemask": (WARP, "ballot", "False"),
    "eq_sync": (WARP, "same", "2"),
}
BARRIERS = {"syncthreads": BLOCK, "syncwarp": WARP, GRID_SYNC: GRID}
MATCHES = {"match_any_sync": "match_any", "match_all_sync": "match_all"}


def has_barrier(node: ast.AST) -> bool:
    """Whether a marked call stands in this tree."""
    return any(isinstance(n, ast.Name) and n.id.startswith(MARK) for n in ast.walk(node))


class Expander:
    """Rewrites statement lists; see the module."""

    def __init__(self, compilation: Compilation):
        self.compilation = compilation
        self.before: list[ast.stmt] = []  # statements to insert before the present one
        self.arguments: dict[str, str] = {}  # parameter of an expanded function -> the variable that it stands for

    def block(self, block: list[ast.stmt]) -> list[ast.stmt]:
        """Statements with every barrier as a statement of its own."""
        result: list[ast.stmt] = []
        for statement in block:
            result += self.statement(statement)
        return result

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        """The statements that replace one."""
        if not has_barrier(node):
            return [node]
        outer, self.before = self.before, []
        if isinstance(node, ast.While):
            new = self._while(node)
        elif isinstance(node, ast.If | ast.For):
            head = "test" if isinstance(node, ast.If) else "iter"
            setattr(node, head, self.hoist(getattr(node, head)))
            before, self.before = self.before, []
            node.body, node.orelse = self.block(node.body), self.block(node.orelse)
            self.before = before
            new = [node]
        else:
            new = self._simple(node)
        new, self.before = self.before + new, outer
        return new

    def _while(self, node: ast.While) -> list[ast.stmt]:
        if has_barrier(node.test):
            test = self.hoist(node.test)
            leave = ast.If(ast.UnaryOp(ast.Not(), test), [ast.Break()], [])
            head = [*self.before, ast.copy_location(leave, node)]
            self.before = []
            node.test, node.body = ast.Constant(True), head + self.block(node.body)
        else:
            node.body = self.block(node.body)
        return [ast.fix_missing_locations(node)]

    def _simple(self, node: ast.stmt) -> list[ast.stmt]:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if hasattr(node, "target") else []
        for target in targets:
            if has_barrier(target):
                self._target(node, target)
        for key, value in ast.iter_fields(node):
            if isinstance(value, ast.expr) and not isinstance(getattr(value, "ctx", None), ast.Store):
                setattr(node, key, self.hoist(value))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Name | ast.Constant):
            return []
        return [node]

    def _target(self, node: ast.Assign | ast.AugAssign, target: ast.expr) -> None:
        """A barrier in the index of what is assigned: Python computes the value first, but for `+=`."""
        if not isinstance(target, ast.Subscript):
            self.compilation.refuse(target, "a barrier in such a target of an assignment", "use a variable")
        if isinstance(node, ast.Assign):
            node.value = self._keep("kept", self.hoist(node.value), node.lineno)
        target.slice = self._keep("index", self.hoist(target.slice), node.lineno)

    def _keep(self, stem: str, value: ast.expr, line: int) -> ast.Name:
        """Compute a value before the present statement, and keep it in a new variable."""
        variable = self.compilation.fresh(stem)
        self.before.append(assign(variable, value, line))
        return name(variable)

    # expressions

    def hoist(self, node: ast.expr) -> ast.expr:
        """The expression without barriers; they, and what is evaluated before them, go to `self.before`."""
        if not has_barrier(node):
            return node
        if isinstance(node, ast.BoolOp) and any(map(has_barrier, node.values[1:])):
            return self._chain(node.values, isinstance(node.op, ast.Or), node.lineno)
        if isinstance(node, ast.IfExp) and (has_barrier(node.body) or has_barrier(node.orelse)):
            return self._choice(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.startswith(MARK):
            node.args = self._operands(node.args)
            return self._barrier(node)
        fields = [(key, value) for key, value in ast.iter_fields(node) if isinstance(value, ast.expr | list)]
        operands = [v for _, value in fields for v in (value if isinstance(value, list) else [value])]
        operands = iter(self._operands([o for o in operands if isinstance(o, ast.expr)]))
        for key, value in fields:
            if isinstance(value, list):
                setattr(node, key, [next(operands) if isinstance(v, ast.expr) else v for v in value])
            else:
                setattr(node, key, next(operands))
        return node

    def _chain(self, values: list[ast.expr], until: bool, line: int) -> ast.expr:
        """`a and b` as `kept = a; if kept: kept = b`; with `or`, values are computed until one is true."""
        first, *others = values
        if not others:
            return self.hoist(first)
        kept = self._keep("kept", self.hoist(first), line)
        test = ast.UnaryOp(ast.Not(), name(kept.id)) if until else name(kept.id)
        self._branch(kept.id, test, (lambda: self._chain(others, until, line), None), line)
        return kept

    def _choice(self, node: ast.IfExp) -> ast.Name:
        """`a if c else b` as a branch."""
        test, kept = self.hoist(node.test), self.compilation.fresh("kept")
        self._branch(kept, test, (lambda: self.hoist(node.body), lambda: self.hoist(node.orelse)), node.lineno)
        return name(kept)

    def _branch(self, kept: str, test: ast.expr, arms: tuple[Callable | None, ...], line: int) -> None:
        """An if statement, in whose arms a variable is assigned what `arms` hoist."""
        before, blocks = self.before, []
        for arm in arms:
            self.before = []
            if arm is not None:
                value = arm()
                self.before.append(assign(kept, value, line))
            blocks.append(self.before)
        self.before = [*before, ast.fix_missing_locations(ast.If(test, *blocks, lineno=line, col_offset=0))]

    def _operands(self, operands: list[ast.expr]) -> list[ast.expr]:
        """Operands in their order of evaluation: those before the last barrier are kept in variables."""
        last = max((i for i, o in enumerate(operands) if has_barrier(o)), default=-1)
        result = []
        for i, operand in enumerate(operands):
            operand = self.hoist(operand)
            if i < last and any(isinstance(n, ast.Call | ast.Subscript) for n in ast.walk(operand)):
                operand = self._keep("kept", operand, getattr(operand, "lineno", 0))
            result.append(operand)
        return result

    def _barrier(self, node: ast.Call) -> ast.expr:
        intrinsic = node.func.id.removeprefix(MARK)
        if hasattr(node, "device"):
            return self._inline(node, node.lineno)
        if intrinsic in BARRIERS:
            self._synchronise(node, BARRIERS[intrinsic], intrinsic, node.args[0] if node.args else None)
            return ast.Constant(None)
        if intrinsic in LANES:
            return self._shuffle(intrinsic, node, *node.args)
        if intrinsic in MATCHES:
            return self._match(intrinsic, node, *node.args)
        level, function, neutral = VOTES[intrinsic]
        mask, vote = expression("1 << lane"), ast.Constant(True)
        if intrinsic != "activemask":
            mask, vote = node.args[0], ast.Compare(node.args[-1], [ast.NotEq()], [ast.Constant(0)])
        vote = call("np.int8", vote) if intrinsic == "eq_sync" else vote
        voted, result = self._keep("voted", vote, node.lineno).id, self.compilation.fresh("outcome")
        self.compilation.neutral[voted] = neutral
        self._synchronise(node, level, intrinsic, mask if level == WARP else None, (function, voted, result))
        outcome = name(result)
        if intrinsic in ("ballot_sync", "syncthreads_and", "syncthreads_or"):
            outcome = call("np.int32", outcome)
        return self._keep("received", outcome, node.lineno)

    def _synchronise(
        self, node: ast.Call, level: int, intrinsic: str, mask: ast.expr | None, vote: tuple | None = None
    ) -> None:
        """Insert a barrier of a group; of a warp, for the lanes that a mask names."""
        if self.compilation.checked:
            named = mask or ast.Constant(0xFFFFFFFF)
            self.before.append(call_statement(call("reach_barrier", ast.Constant(level), named), node))
        self.before.append(Sync(level, intrinsic, vote, lineno=node.lineno))
        if hasattr(node, "filename"):
            self.before[-1].filename = node.filename

    def _shuffle(self, intrinsic: str, node: ast.Call, mask: ast.expr, value: ast.expr, step: ast.expr) -> ast.expr:
        shuffled = self._keep("shuffled", value, node.lineno)
        if not isinstance(step, ast.Constant):
            step = self._keep("step", step, node.lineno)
        self._synchronise(node, WARP, intrinsic, mask)
        lane = call(LANES[intrinsic], name("thread"), step, name("warp_first"), name("warp_end"))
        vars(lane).update(vars(node), func=lane.func, args=lane.args)
        return self._keep("received", call(LANE_READ, shuffled, lane), node.lineno)

    def _match(self, intrinsic: str, node: ast.Call, mask: ast.expr, value: ast.expr) -> ast.expr:
        offered = self._keep("offered", value, node.lineno)
        present = self._keep("here", ast.Constant(True), node.lineno)
        self.compilation.neutral[present.id] = "False"
        self._synchronise(node, WARP, intrinsic, mask)
        return self._keep("matched", call(MATCHES[intrinsic], offered, present, name("thread")), node.lineno)

    # device functions with barriers inside

    def _inline(self, node: ast.Call, line: int) -> ast.expr:
        device, args = node.device, node.args
        tree = copy.deepcopy(device.tree)
        fresh = {
            v: self.compilation.fresh(f"{device.name}_{v}")
            for v in sorted(local_names(tree))
            if v not in self.compilation.arrays
        }
        for parameter, value in zip(tree.args.args, args, strict=True):
            while isinstance(value, ast.Subscript):  # a part of an array has its dtype
                value = value.value
            if isinstance(value, ast.Name):
                self.arguments[fresh[parameter.arg]] = self.arguments.get(value.id, value.id)
        for array in self.compilation.arrays.keys() & {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}:
            owner = fresh.get(self.compilation.arrays[array].dtype.removesuffix(".dtype"))
            if owner in self.arguments:
                self.compilation.dtypes.setdefault(array, set()).add(f"{self.arguments[owner]}.dtype")
        tree = Renamer(fresh).visit(tree)
        result = self.compilation.fresh(f"{device.name}_result")
        parameters = [assign(parameter.arg, value, line) for parameter, value in zip(tree.args.args, args, strict=True)]
        returns_value = any(isinstance(s, ast.Return) and s.value is not None for s in statements(device.tree.body))
        outer, self.before = self.before, []
        body = Exits(self.compilation, result).function(self.block(tree.body))
        for inner in (n for s in body for n in ast.walk(s)):
            inner.called_at = getattr(node, "filename", self.compilation.filename), line
        self.before = outer + parameters + body
        return name(result) if returns_value else ast.Constant(None)
