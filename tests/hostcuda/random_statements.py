"""Statements of random kernels. They are free of races, and what they leave is the same whichever thread runs first.

Control flow comes in three levels: `thread` (divergent: no barrier, no warp function), `warp` (the same for all lanes
of a warp) and `block` (the same for all threads of a block). Between two barriers a thread writes its own cell of a
shared array, or adds atomically to cells that nobody reads; an output belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from random_expressions import VARIABLE, Expressions


class ThreadStatements(Expressions):
    """Writes the body of a function.

    Attributes:
        lines: of the body so far.
        threads: of a block.
        rows: of the output, each written by one statement; `float_rows` of another one, of floats.
        shared: names of shared arrays of one cell per thread: `swappable` of int64, and others.
        exited: whether a thread may have returned by now.
        live: in each warp the lanes below `live` are there and the others are not; 0 if that is not known.
        in_loop: whether a uniform loop is around, so that an exit below may come before what stands here.
        fuel: how many statements may still be drawn.
    """

    def __init__(self, seed: int, threads: int):
        super().__init__(seed)
        self.lines: list[str] = []
        self.threads = threads
        self.rows = self.float_rows = 0
        self.names = 0
        self.swappable: list[str] = []
        self.shared: list[str] = []
        self.shared_counters = self.device_block = False
        self.warps = self.barriers = self.exits = True
        self.exited = self.in_loop = False
        self.live = 32 if threads % 32 == 0 else 0
        self.fuel = 24
        self.result = "return"

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def fresh(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def value(self, uniform: bool = False) -> str:
        """An integer that a variable may hold."""
        return self.bounded(self.integer(2, uniform), VARIABLE)

    @contextmanager
    def scope(self, loop: bool = False) -> Iterator[None]:
        """Loop variables of a branch are not read after it."""
        held = list(self.counters), list(self.uniform_counters), self.in_loop
        self.in_loop = self.in_loop or loop
        yield
        self.counters, self.uniform_counters, self.in_loop = held

    # Statements of a thread

    def private(self, depth: int, size: int, loops: int = 0) -> None:
        """Some statements of one thread alone; `loops` divergent loops are around them."""
        with self.scope():
            self.private_statements(depth, size, loops)

    def private_statements(self, depth: int, size: int, loops: int = 0) -> None:
        for _ in range(self.number(1, size)):
            self.fuel -= 1
            kinds = [self.assign, self.assign, self.augment, self.emit, self.unpack, self.reuse]
            kinds += [self.number_or_local] * 2 + [self.change_type] * bool(self.changing)
            if self.fuel > 0 and depth < 5:
                kinds += [self.branch, self.branch, self.count_loop, self.while_loop]
            statement = self.pick(*kinds)
            if statement in (self.branch, self.count_loop, self.while_loop):
                statement(depth, loops)
            else:
                statement(depth)

    def assign(self, depth: int) -> None:
        self.line(depth, f"{self.pick(*self.integers)} = {self.value()}")

    def augment(self, depth: int) -> None:
        name, operator = self.pick(*self.integers), self.pick("+=", "-=", "*=", "//=", "%=", "^=", ">>=", "&=")
        operand = {"*=": self.number(-3, 3), "//=": self.pick(3, -4, 7), ">>=": self.number(1, 3)}.get(operator)
        if operator == "%=":
            operand = self.pick(97, -11, 1009)
        if operand is None:
            operand = f"({self.small(1)}) % 101"
        self.line(depth, f"{name} {operator} {operand}")
        if operator == "*=":
            self.line(depth, f"{name} %= 10007")

    def emit(self, depth: int) -> None:
        """Write an output that nobody else writes."""
        row, self.rows = self.rows, self.rows + 1
        self.line(depth, f"out[{row}, i] {self.pick('=', '=', '+=')} {self.value()}")

    def unpack(self, depth: int) -> None:
        a, b = self.pick(*self.integers), self.pick(*self.integers)
        if a == b:
            self.line(depth, f"{a} += 1")
        elif self.chance(0.5):
            self.line(depth, f"{a}, {b} = {b}, {self.value()}")
        else:
            pair = self.fresh("pair")
            self.line(depth, f"{pair} = ({self.value()}, {a}, 3)")
            self.line(depth, f"{b} = {pair}[0] - {pair}[1] % 5")

    def reuse(self, depth: int) -> None:
        """One name stands for a number, then for a float, then for a condition."""
        name = self.pick(*self.integers)
        self.line(depth, f"tmp = {self.value()}")
        self.line(depth, f"{name} = tmp // 2 + {self.number(0, 5)}")
        if self.chance(0.6):
            self.line(depth, f"tmp = {self.real()}")
            self.line(depth, f"{name} += int(tmp * 4) % 11")
        if self.chance(0.4):
            self.line(depth, f"tmp = {self.condition()}")
            self.line(depth, f"{name} = {name} + 1 if tmp else {name} - 1")

    def emit_float(self, depth: int, value: str) -> None:
        self.use("dout")
        row, self.float_rows = self.float_rows, self.float_rows + 1
        self.line(depth, f"dout[{row}, i] = {value}")

    def change_type(self, depth: int) -> None:
        """A variable gets a value of another type; most often under the condition of a branch around this."""
        name = self.pick(*self.changing)
        kind = self.number(0, 3)
        if kind == 0:
            self.line(depth, f"{name} {self.pick('+=', '*=')} {self.pick('0', '1', '1.0', 'np.float32(1)')}")
        elif kind == 1:
            self.emit_float(depth, f"np.float64({name})")
        else:
            self.line(depth, f"{name} = {self.typed()}")

    def number_or_local(self, depth: int) -> None:
        """A float, a local array, a record, a half, a complex number or an atomic: what the kernel has."""
        kinds = [kind for kind, has in self.extras.items() if has]
        getattr(self, self.pick(*kinds))(depth) if kinds else self.assign(depth)

    extras: dict[str, bool] = {}

    def assign_float(self, depth: int) -> None:
        name = self.pick(*self.floats)
        kind = "float32" if name.startswith("p") else "float64"
        self.line(depth, f"{name} = np.{kind}(int(({self.real(2)}) * 16) % 1024) / np.{kind}(16)")

    def store_local(self, depth: int) -> None:
        name = self.pick(*self.locals)
        if self.chance(0.3) and len(self.locals) > 1:
            a, b = self.locals[:2]
            self.line(depth, f"{a}, {b} = {b}, {a}")
        self.line(depth, f"{name}[{self.index(4)}] = {self.value()}")

    def store_record(self, depth: int) -> None:
        self.use("rec")
        kind = self.number(0, 2)
        if kind == 0:
            self.line(depth, f"rec[i].n = ({self.value()}) % 30000")
            self.line(depth, f"{self.pick(*self.integers)} = rec[i].n + rec[i]['small']")
        elif kind == 1:
            one = self.fresh("one")
            self.line(depth, f"{one} = rec[i]")
            self.line(depth, f"{one}.small = ({self.value()}) % 100")
            self.line(depth, f"{self.pick(*self.integers)} = {one}.small * 3 + {one}.n")
        else:
            self.line(depth, f"rec[i]['v'] = ({self.real()}) * 0.5")
            self.line(depth, f"rec[i].n += {self.number(1, 9)}")

    def store_half(self, depth: int) -> None:
        self.use("h")
        self.use("hout")
        self.line(depth, f"hout[i] = np.float32(h[{self.index(300)}]) {self.pick('+ ', '* ')}np.float32(2)")

    def store_complex(self, depth: int) -> None:
        self.use("z")
        self.use("zout")
        self.line(depth, f"zout[i] = z[{self.index(300)}] * z[{self.index(300)}] + z[i]")
        self.line(depth, f"{self.pick(*self.integers)} += int(zout[i].real) - int(zout[i].imag)")

    def atomic(self, depth: int) -> None:
        self.use("acc")
        row, operation = self.pick((0, "add"), (1, "max"), (2, "min"), (3, "and_"), (4, "or_"), (5, "xor"), (6, "sub"))
        self.line(depth, f"cuda.atomic.{operation}(acc, ({row}, {self.index(4)}), {self.value()})")

    def branch(self, depth: int, loops: int) -> None:
        self.line(depth, f"if {self.condition()}:")
        self.private(depth + 1, 2, loops)
        self.leave(depth + 1, loops)
        if self.chance(0.25):
            self.line(depth, f"elif {self.condition()}:")
            self.private(depth + 1, 2, loops)
        if self.chance(0.4):
            self.line(depth, "else:")
            self.private(depth + 1, 2, loops)
            self.leave(depth + 1, loops)

    def leave(self, depth: int, loops: int) -> None:
        """Perhaps a return, break or continue at the end of a branch."""
        kind = self.number(0, 9)
        if kind < 4 and loops:
            self.line(depth, self.pick("break", "continue"))
        elif kind == 4 and self.exits and self.result == "return":
            self.exit(depth)
        elif kind in (4, 5) and self.result != "return" and self.exits:
            self.line(depth, f"return {self.returned()}")

    def returned(self) -> str:
        return f"np.int64({self.value()})"

    def exit(self, depth: int, live: int = 0) -> None:
        """The thread returns; what it knows is written first."""
        self.emit(depth)
        self.line(depth, "return")
        self.exited, self.live = True, live

    def count_loop(self, depth: int, loops: int) -> None:
        name = self.fresh("j")
        a, b = f"({self.small(1)}) % {self.number(2, 6)}", f"({self.small(1)}) % 5 - 1"
        bounds = self.pick(a, b, f"{b}, {a}", f"{a}, {b}, -1", f"{b}, {a}, 2", "t % 4", "3", "n % 4, -2, -3")
        if bounds != "3":
            self.line(depth, f"{name} = {self.number(-9, 9)}")
        self.line(depth, f"for {name} in range({bounds}):")
        self.inside(depth + 1, name, loops + 1)
        if self.chance(0.12):
            self.line(depth, "else:")
            self.private(depth + 1, 1, loops)
        self.after_loop(depth, name)

    def inside(self, depth: int, name: str, loops: int) -> None:
        """The body of a divergent loop, which may read its variable."""
        with self.scope():
            self.counters.append(name)
            self.line(depth, f"{self.pick(*self.integers)} += {name} * {self.number(1, 5)}")
            self.private(depth, 2, loops)

    def after_loop(self, depth: int, name: str) -> None:
        """The loop variable lives on."""
        self.counters.append(name)
        if self.chance(0.6):
            target, operator = self.pick(*self.integers), self.pick("=", "+=")
            self.line(depth, f"{target} {operator} {name} * {self.number(1, 9)}")

    def while_loop(self, depth: int, loops: int) -> None:
        name = self.fresh("w")
        self.line(depth, f"{name} = {self.pick('0', '-1', '(' + self.small(1) + ') % 4')}")
        if self.chance(0.5):
            self.line(depth, f"while {name} < {self.pick('4', 'k', '(' + self.small(1) + ') % 5')}:")
            self.line(depth + 1, f"{name} += {self.number(1, 2)}")
        else:
            self.line(depth, "while True:")
            self.line(depth + 1, f"{name} += 1")
            self.line(depth + 1, f"if {name} >= 4 or {self.condition()}:")
            self.line(depth + 2, "break")
        self.inside(depth + 1, name, loops + 1)
        self.after_loop(depth, name)
