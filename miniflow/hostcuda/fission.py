"""Third step of the compiler: the code of one thread becomes the code of a block.

Between two places where threads meet, every thread of the block runs the same stretch of code, a *region*: a loop over
threads, x innermost, so that LLVM vectorizes it. A loop or branch around a meeting becomes a loop or branch around
regions. This is the barrier fission of MCUDA (Stratton, Stone and Hwu, LCPC 2008) and pocl (Jaaskelainen et al., 2015).

    variables   of one region stay scalars; those that are read in a later one get an array with an entry a thread,
                except what is uniform (kept once) or recomputable (computed again)
    conditions  around a barrier are evaluated once if they are uniform, else by all threads, who must agree
    divergence  around meetings of a warp, and around loops that are split for speed, is a mask with an entry a thread

The text is written twice: first with scalars everywhere, only for numba to infer the types of variables, then for good.
"""

from __future__ import annotations

import ast
import copy

from miniflow.hostcuda.analysis import Replace
from miniflow.hostcuda.clips import Clip, clip_of
from miniflow.hostcuda.errors import UnsupportedKernelError
from miniflow.hostcuda.liveness import Flow
from miniflow.hostcuda.regions import RegionWriter
from miniflow.hostcuda.signs import is_natural
from miniflow.hostcuda.splits import loop_form
from miniflow.hostcuda.syntax import (
    BLOCK,
    GRID,
    SPLIT,
    THREAD,
    WARP,
    Sync,
    assign,
    expression,
    loop_exits,
    name,
    reads,
    statements,
    target_names,
    text,
)

RANGE = {BLOCK: "0, threads", WARP: "warp_first, warp_end"}
OUTCOME = {"count": "np.int32(0)", "ballot": "np.uint32(0)", "all_of": "True", "any_of": "True", "same": "True"}


class Writer(RegionWriter):
    """Writes the function `blocks(first, last, ...)` that runs some blocks of a launch.

    Args:
        rank: 1 if blocks extend along x only, else 3.
        kinds: numba's type of every variable; None writes the text for type inference.
        crossing: variables that are read in another region than the one that assigned them (an outcome of the first
            writing).
    """

    def write(self) -> str:
        """The text of the function."""
        body = self.facts.tree.body
        self.depth = 2
        if self.unit.cooperative:
            self.depth = 1
            self.lower(body, GRID, [])
        else:
            self.lower(body, BLOCK, [])
        lines, self.lines = self.lines, []
        self.depth = 1
        self._head()
        if not self.unit.cooperative:
            self.line("for block in range(first, last):")
            self.depth = 2
            self._block_coordinates(lines)
            if self.exits:
                self.line("exited_of[:] = False" if self.kinds else "exited = False")
            self.depth = 1
        self.lines += lines
        self.line("return 0")
        return "\n".join(self.lines) + "\n"

    def lower(self, block: list[ast.stmt], scope: int, guards: list) -> None:
        """Write a statement list for all units of `scope` at once: the grid's blocks, a block's threads, a warp's."""
        inner = scope - 1
        if scope == WARP or (scope == BLOCK and all(s.level not in (WARP,) for s in block)):
            self._units(block, scope, guards)
            return
        run: list[ast.stmt] = []
        for statement in [*block, None]:
            if statement is not None and statement.level <= inner:
                run.append(statement)
                continue
            if run:
                self._run(run, scope, guards)
                run = []
            if statement is not None:
                self._units([statement], scope, guards)

    def _run(self, run: list[ast.stmt], scope: int, guards: list) -> None:
        """Statements in which only units of the next lower scope meet: each of these does them all in turn."""
        if scope == BLOCK and all(s.level < WARP for s in run):
            self._units(run, scope, guards)
            return
        flow = Flow(run)
        steered = sorted(v for v in flow.exposed & flow.assigned if v not in self.facts.varying)
        for variable in steered:
            self.line(f"{variable}_before = {variable}")
        if scope == GRID:
            start = len(self.lines)
            self.line("for block in range(first, last):")
            self.depth += 1
            self._restore(steered)
            self._bind_block()
            inside = len(self.lines)
            self.lower(run, BLOCK, guards)
            written = self.lines[inside:]
            self.lines = self.lines[:inside]
            self._block_coordinates(written)
            self.lines += written
            self.depth -= 1
            del start
        else:
            with self.indented("for warp_first in range(0, threads, 32):"):
                self.line("warp_end = min(warp_first + 32, threads)")
                if self.rank == 1:
                    self.line("warp = warp_first // 32")
                self._restore(steered)
                self.lower(run, WARP, guards)

    def _restore(self, steered: list[str]) -> None:
        for variable in steered:
            self.line(f"{variable} = {variable}_before")

    def _bind_block(self) -> None:
        """In a kernel whose grid meets, every block has its own memory all the time."""
        for variable, array in self.unit.arrays.items():
            if array.kind == "shared":
                self.line(f"{variable} = {variable}_all[block]")
            elif array.kind == "dynamic":
                self.line("dynamic = dynamic_all[block]")
                self._view_dynamic(variable, array)
            elif array.kind == "local" and self._is_kept(variable):
                self.line(f"{variable}_of = {variable}_of_all[block]")
        names = [c for v, k in sorted((self.private if self.kinds else {}).items()) for c, _ in self._cells(v, k)]
        names += ["exited_of"] if self.exits and self.kinds else []
        for cell in names:
            self.line(f"{cell} = {cell}_all[block]")

    def _units(self, block: list[ast.stmt], scope: int, guards: list) -> None:
        pending: list[ast.stmt] = []
        for statement in block:
            if statement.level > THREAD:
                self._flush(pending, scope, guards)
                self._meeting(statement, scope, guards)
            elif self.facts.is_uniform_statement(statement) and not isinstance(statement, ast.Break | ast.Continue):
                targets = {n for s in statements([statement]) for n in target_names(s)}
                if any(targets & Flow([p]).exposed for p in pending):
                    self._flush(pending, scope, guards)
                self.source(statement, guards)
            elif self._leaves_block(statement, scope, guards):
                self._flush(pending, scope, guards)
                with self.indented(f"if {text(statement.test)}:"):
                    self.line("continue")
            else:
                pending.append(statement)
        self._flush(pending, scope, guards)

    def _leaves_block(self, statement: ast.stmt, scope: int, guards: list) -> bool:
        """Whether a statement is `if uniform: return`, where that ends the block."""
        return (
            scope == BLOCK
            and not self.loops
            and not guards
            and not self.unit.cooperative
            and isinstance(statement, ast.If)
            and not statement.orelse
            and len(statement.body) == 1
            and isinstance(statement.body[0], ast.Return)
            and self.facts.is_uniform(statement.test)
        )

    def _flush(self, pending: list[ast.stmt], scope: int, guards: list) -> None:
        if pending:
            self.region(list(pending), scope, guards)
            pending.clear()

    # where threads meet

    def region(self, block: list[ast.stmt], scope: int, guards: list) -> None:
        """A region in every block, if the whole grid is at it, else in the block or warp at hand."""
        if scope == GRID:
            self._run(block, scope, guards)
        else:
            super().region(block, scope, guards)

    def _meeting(self, node: ast.stmt, scope: int, guards: list) -> None:
        if isinstance(node, Sync):
            self._sync(node, scope)
        elif isinstance(node, ast.If):
            self._if(node, scope, guards)
        elif isinstance(node, ast.While):
            self._while(node, scope, guards)
        elif isinstance(node, ast.For):
            self._for(node, scope, guards)
        elif isinstance(node, ast.Break | ast.Continue):
            self._leave(node, scope, guards)
        else:
            raise AssertionError(f"a {type(node).__name__} in which threads meet")

    def _sync(self, node: Sync, scope: int) -> None:
        self.line(f"# cuda.{node.what} of line {node.lineno}")
        if node.collective:
            function, voted, outcome = node.collective
            self.crossing.add(voted)
            if self.kinds:
                self.line(f"{outcome} = {function}({voted}_of, {RANGE[scope]})")
            else:
                self.line(f"{outcome} = {OUTCOME[function]}")

    def _if(self, node: ast.If, scope: int, guards: list) -> None:
        if self.facts.is_uniform(node.test):
            self._branch(self.value(node.test), node, scope, guards)
        elif node.level >= BLOCK:
            self._branch(self._agreed(node.test, scope, guards, node), node, scope, guards)
        elif scope == WARP and self.rank == 1 and self.facts.is_warp_uniform(self.facts.expanded(node.test)):
            self._branch(self.value(self.facts.expanded(node.test)), node, scope, guards)
        elif not node.orelse and self._can_clip(clip := clip_of(node.test, self.facts), scope):
            self.lower(node.body, scope, [*guards, clip])
        else:
            yes, no = self.fresh("mask"), self.fresh("mask") if node.orelse else ""
            self._masked([yes, no] if no else [yes])
            evaluated = [assign(yes, node.test, node.lineno)]
            if no:
                evaluated.append(assign(no, ast.UnaryOp(ast.Not(), name(yes)), node.lineno))
            self.region(evaluated, scope, guards)
            self.lower(node.body, scope, [*guards, yes])
            if no:
                self.lower(node.orelse, scope, [*guards, no])

    def _masked(self, masks: list[str]) -> None:
        for mask in masks:
            self.unit.neutral[mask] = "False"
            self.crossing.add(mask)

    def _branch(self, condition: str, node: ast.If, scope: int, guards: list) -> None:
        with self.indented(f"if {condition}:"):
            self.lower(node.body, scope, guards)
        if node.orelse:
            with self.indented("else:"):
                self.lower(node.orelse, scope, guards)

    def _agreed(self, test: ast.expr, scope: int, guards: list, node: ast.stmt) -> str:
        """Evaluate a condition in every thread, let them agree, and give the text of the outcome."""
        if scope != BLOCK:
            self.refuse(node, "a condition around grid.sync() that is not the same for the whole grid")
        said, agreed = self.fresh("condition"), self.fresh("agreed")
        self._masked([said])
        self.region([assign(said, ast.UnaryOp(ast.Not(), ast.UnaryOp(ast.Not(), test)), node.lineno)], scope, guards)
        if not self.kinds:
            self.line(f"{agreed} = 1 if {said} else 0")
        else:
            exited = "exited_of" if self.exits else "None"
            self.line(f"{agreed} = agree({said}_of, {exited}, 0, threads)")
            with self.indented(f"if {agreed} < 0:"):
                self.line(f"return {node.lineno}")
        return f"{agreed} == 1"

    def _while(self, node: ast.While, scope: int, guards: list) -> None:
        if self._exits_agree(node) and self.facts.is_uniform(node.test):
            self.loops.append(("plain",))
            with self.indented(f"while {self.value(node.test)}:"):
                self.lower(node.body, scope, guards)
            self.loops.pop()
        elif node.level >= BLOCK:
            self.loops.append(("plain",))
            with self.indented("while True:"):
                condition = self._agreed(node.test, scope, guards, node)
                with self.indented(f"if not {condition}:"):
                    self.line("break")
                self.lower(node.body, scope, guards)
            self.loops.pop()
        else:
            self._masked_loop([], node.test, [], node.body, scope, guards, node)

    def _exits_agree(self, node: ast.stmt) -> bool:
        """Whether no thread leaves the loop by a break or continue of its own."""
        if node.level >= BLOCK:
            return True  # all must agree, which is checked where the branch stands
        return not any(
            isinstance(s, ast.If) and not self.facts.is_uniform(s.test) and any(loop_exits([s]))
            for s in statements(node.body)
        )

    def _masked_loop(self, before, test, step, body, scope, guards, node) -> None:
        """A loop that every thread leaves when it wants: it goes on while any is left."""
        live = self.fresh("live")
        going = self.fresh("going") if any(loop_exits(body, (ast.Continue,))) else ""
        self._masked([live, going] if going else [live])
        line = node.lineno
        self.region([*before, assign(live, ast.Constant(True), line)], scope, guards)
        self.loops.append(("masked", live, going))
        with self.indented("while True:"):
            head = [*step, assign(live, ast.UnaryOp(ast.Not(), ast.UnaryOp(ast.Not(), test)), line)]
            head += [assign(going, ast.Constant(True), line)] if going else []
            self._region_keeping(head, scope, [*guards, live], {live})
            if self.kinds:
                with self.indented(f"if not any_of({live}_of, {RANGE[scope]}):"):
                    self.line("break")
            else:
                with self.indented(f"if not {live}:"):
                    self.line("break")
            self.lower(body, scope, [*guards, live, *([going] if going else [])])
        self.loops.pop()

    def _region_keeping(self, block: list[ast.stmt], scope: int, guards: list, kept: set[str]) -> None:
        """A region that changes its own guards: they are not set to neutral before it."""
        neutral = {v: self.unit.neutral.pop(v) for v in kept}
        self.region(block, scope, guards)
        self.unit.neutral.update(neutral)

    def _for(self, node: ast.For, scope: int, guards: list) -> None:
        node = copy.copy(node)
        node.iter = Replace(self.each).visit(copy.deepcopy(node.iter))
        if node.level == SPLIT and loop_form(node, self.facts) == "strided":
            self._strided(node, scope, guards)
        elif self.facts.is_uniform(node.iter) and self._exits_agree(node):
            self._plain_for(node, scope, guards)
        else:
            self._counted(node, scope, guards)

    def _plain_for(self, node: ast.For, scope: int, guards: list) -> None:
        target, body = text(node.target), node.body
        if set(target_names(node)) & self.facts.varying:  # it differs outside of the loop, or from warp to warp
            target = self.fresh("each")
            self.synthetic.discard(target)
            self.facts.natural |= {target} if node.target.id in self.facts.natural else set()
            body = [assign(node.target.id, name(target), node.lineno), *body]
            self.each[node.target.id] = name(target)
        self.loops.append(("plain",))
        with self.indented(f"for {target} in {self.value(node.iter)}:"):
            self.lower(body, scope, guards)
        self.loops.pop()

    def _strided(self, node: ast.For, scope: int, guards: list) -> None:
        """`for i in range(start + x, stop, step)`: a uniform loop over the i of thread 0, and a mask."""
        start, stop, step = node.iter.args
        start = self.facts.expanded(start)
        across = "lane" if "lane" in set(reads(start)) else "threadIdx_x"
        start = Replace({"lane": ast.Constant(0), "threadIdx_x": ast.Constant(0)}).visit(copy.deepcopy(start))
        base = self.fresh("base")
        self.synthetic.discard(base)
        if is_natural(start, self.facts.natural):
            self.facts.natural.add(base)
        within = Clip([], [(across, ast.BinOp(stop, ast.Sub(), name(base)))])
        mine = assign(node.target.id, ast.BinOp(name(base), ast.Add(), name(across)), node.lineno)
        self.loops.append(("plain",))
        with self.indented(f"for {base} in range({self.value(start)}, {self.value(stop)}, {self.value(step)}):"):
            if self._can_clip(within, scope):
                self.lower([mine, *node.body], scope, [*guards, within])
            else:
                mask = self.fresh("mask")
                self._masked([mask])
                inside = ast.Compare(name(node.target.id), [ast.Lt()], [stop])
                self.region([mine, assign(mask, inside, node.lineno)], scope, guards)
                self.lower(node.body, scope, [*guards, mask])
        self.loops.pop()

    def _can_clip(self, clip: Clip | None, scope: int) -> bool:
        """Whether loops over threads can end where the condition does."""
        if clip is None or (scope == WARP and self.rank == 3):
            return False
        return scope == WARP or all(across == "threadIdx_x" for across, _ in clip.limits)

    def _counted(self, node: ast.For, scope: int, guards: list) -> None:
        """A `for` over a range that differs between threads, as a `while` with a counter in every thread."""
        if not (isinstance(node.iter, ast.Call) and text(node.iter.func) == "range"):
            self.refuse(node, "a loop around a barrier over anything but a range")
        args = node.iter.args
        start, stop = (ast.Constant(0), args[0]) if len(args) == 1 else args[:2]
        step = args[2] if len(args) > 2 else ast.Constant(1)
        counter, end, stride = self.fresh("counter"), self.fresh("end"), self.fresh("stride")
        line = node.lineno
        before = [
            assign(stride, step, line),
            assign(counter, ast.BinOp(start, ast.Sub(), name(stride)), line),
            assign(end, stop, line),
        ]
        test = expression(f"{counter} < {end} if {stride} > 0 else {counter} > {end}")
        advance = [
            assign(counter, expression(f"{counter} + {stride}"), line),
            assign(node.target.id, name(counter), line),
        ]
        if node.level >= BLOCK:
            self.region(before, scope, guards)
            self.loops.append(("plain",))
            with self.indented("while True:"):
                self.region(advance, scope, guards)
                condition = self._agreed(test, scope, guards, node)
                with self.indented(f"if not {condition}:"):
                    self.line("break")
                self.lower(node.body, scope, guards)
            self.loops.pop()
        else:
            self._masked_loop(before, test, advance, node.body, scope, guards, node)

    def _leave(self, node: ast.stmt, scope: int, guards: list) -> None:
        kind = self.loops[-1]
        if kind[0] == "plain":
            self.line("break" if isinstance(node, ast.Break) else "continue")
            return
        mask = kind[1] if isinstance(node, ast.Break) else kind[2]
        self._region_keeping([assign(mask, ast.Constant(False), node.lineno)], scope, guards, {mask})

    def refuse(self, node: ast.stmt, what: str) -> None:
        """Raise UnsupportedKernelError naming construct and line."""
        raise UnsupportedKernelError(f"{self.unit.filename}:{node.lineno}: {self.unit.name}: {what} is not supported")
