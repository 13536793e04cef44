"""Statements of random kernels around barriers and warp functions: they pass values from thread to thread."""

from __future__ import annotations

from random_statements import ThreadStatements

ALL = "0xFFFFFFFF"


class Statements(ThreadStatements):
    """Adds what the threads of a warp or of a block do together."""

    def block(self, depth: int, size: int, loops: int = 0) -> None:
        """Statements around barriers; `loops` uniform loops are around them."""
        with self.scope():
            self.block_statements(depth, size, loops)

    def block_statements(self, depth: int, size: int, loops: int = 0) -> None:
        for _ in range(self.number(1, size)):
            self.fuel -= 1
            kinds = [self.private_some, self.private_some, self.maybe_exit]
            if self.barriers:
                kinds += [self.exchange, self.exchange, self.vote, self.settle, self.use_counters]
                kinds += [self.swap_shared, self.call_with_barrier]
            if self.warps:
                kinds += [self.warp_vote, self.warp_vote, self.shuffle, self.shuffle, self.warp_branch]
            kinds += [self.types_across] * 3 * bool(self.changing)
            if self.fuel > 0 and depth < 4:
                kinds += [self.uniform_loop, self.uniform_branch, self.uniform_while, self.uniform_loop]
            statement = self.pick(*kinds)
            if statement in (self.uniform_loop, self.uniform_branch, self.uniform_while):
                statement(depth, loops)
            else:
                statement(depth)

    def private_some(self, depth: int) -> None:
        self.private_statements(depth, 2)

    def maybe_exit(self, depth: int) -> None:
        if not self.exits or self.result != "return" or self.chance(0.5):
            self.private(depth, 1)
            return
        lanes = self.pick(8, 16)
        condition, live = self.pick(
            (self.condition(), 0),
            (self.pick("i >= n + 20", f"t >= {self.number(5, self.threads)}"), 0),
            (self.pick("t // 32 == k % 3", "t >= 32", "i < 32"), self.live),
            (f"lane >= {lanes}", min(lanes, self.live)),
        )
        self.line(depth, f"if {condition}:")
        self.exit(depth + 1, live)

    def barrier(self, depth: int) -> None:
        self.line(depth, "cuda.syncthreads()")

    def types_across(self, depth: int) -> None:
        """A variable lives across a barrier with one type, and across the next perhaps with another."""
        name, value = self.pick(*self.changing), self.pick("f[i] * np.float32(0.3)", "2**60 + 1 + t", "t % 7 > 2")
        self.use("f")
        self.line(depth, f"{name} = {value}")
        self.meet(depth)
        if value.startswith("f"):
            self.emit_float(depth, f"{name} * {name}")
        else:
            row, self.rows = self.rows, self.rows + 1
            self.line(depth, f"out[{row}, i] = {name}")
        self.line(depth, f"if {self.condition()}:")
        self.line(depth + 1, f"{name} = {self.typed()}")
        self.meet(depth)
        self.emit_float(depth, f"np.float64({name})")

    def meet(self, depth: int) -> None:
        """Something for which the threads of a block or a warp wait for each other."""
        kinds = [self.barrier, self.barrier, self.exchange, self.vote] if self.barriers else []
        kinds += [self.warp_vote, self.shuffle] if self.warps else []
        self.pick(*(kinds or [self.private_some]))(depth)

    def partner(self) -> str:
        """The thread whose cell is read."""
        n = self.threads
        return self.pick(f"{n - 1} - t", f"(t + {self.number(1, 9)}) % {n}", f"(t * 3 + 1) % {n}", self.index(n), "t")

    def exchange(self, depth: int) -> None:
        """Values go from thread to thread through shared memory."""
        name = self.pick(*self.shared)
        self.line(depth, f"{name}[{self.cell(name, 't')}] = {self.shared_value(name)}")
        self.barrier(depth)
        target, source = self.pick(*self.integers), f"int({name}[{self.cell(name, self.partner())}])"
        self.line(depth, f"{target} = {self.pick('', target + ' % 1009 + ')}{source}")
        if self.chance(0.3):
            self.line(depth, f"{target} -= int({name}[{self.cell(name, self.partner())}]) % 7")
        self.barrier(depth)

    def cell(self, name: str, thread: str) -> str:
        return f"{self.number(0, 1) if thread != 't' else 1}, {thread}" if name == "s2d" else thread

    def shared_value(self, name: str) -> str:
        return f"({self.small(1)}) % 64 * 0.5" if name == "sfloat" else self.value()

    def settle(self, depth: int) -> None:
        """A uniform variable is read from shared memory."""
        if not self.uniform:
            return
        self.exchange(depth)
        name = self.pick(*self.shared)
        constant = str(self.number(0, self.threads - 1))
        self.line(depth, f"{self.pick(*self.uniform)} = int({name}[{self.cell(name, constant)}]) % 1009")
        self.barrier(depth)

    def vote(self, depth: int) -> None:
        kind = self.pick("count", "count", "and", "or")
        target = self.pick(*self.uniform, *self.integers)
        predicate = self.pick(
            f"1 if {self.condition()} else 0", f"np.int32({self.condition()})", f"({self.small(1)}) % 3"
        )
        vote = f"cuda.syncthreads_{kind}({predicate})"
        operator = self.pick("=", "=", "+=", f"= {target} % 1009 +", f"= {self.number(1, 9)} *")
        self.line(depth, f"{target} {operator} {vote}")

    def use_counters(self, depth: int) -> None:
        """Shared counters: all threads change them, then all read them."""
        if not self.shared_counters:
            self.vote(depth)
            return
        row, operation = self.pick((0, "add"), (1, "max"), (2, "min"), (3, "xor"))
        self.line(depth, f"cuda.atomic.{operation}(counters, ({row}, {self.index(4)}), ({self.value()}) % 5000)")
        self.barrier(depth)
        self.line(depth, f"{self.pick(*self.integers)} = counters[{row}, {self.index(4)}] % 100003")
        self.barrier(depth)

    def swap_shared(self, depth: int) -> None:
        if len(self.swappable) < 2:
            self.exchange(depth)
            return
        a, b = self.swappable[:2]
        self.line(depth, f"{a}, {b} = {b}, {a}")

    def call_with_barrier(self, depth: int) -> None:
        """A device function in which the threads of the block meet, perhaps twice in one expression."""
        if not self.device_block:
            self.exchange(depth)
            return
        target, s = self.pick(*self.integers), self.pick(*self.swappable)
        second = f" - exchanged({s}, {self.value()}) % 5" if self.chance(0.3) else ""
        self.line(depth, f"{target} = exchanged({s}, {self.value()}){second}")

    def warp_vote(self, depth: int) -> None:
        name = self.pick(*self.integers)
        vote = self.pick(
            f"int(cuda.any_sync({ALL}, {self.condition()}))",
            f"int(cuda.all_sync({ALL}, {self.condition()}))",
            f"int(cuda.eq_sync({ALL}, {self.condition()}))",
            f"cuda.popc(cuda.ballot_sync({ALL}, {self.condition()}))",
            f"cuda.ballot_sync({ALL}, {self.condition()}) % 1009",
            f"cuda.popc(cuda.match_any_sync({ALL}, np.int32({self.small(1)}) % 3))",
        )
        if self.barriers and self.chance(0.15) and depth == 1:
            vote += f" + cuda.syncthreads_count(np.int32({self.condition()}))"
        self.line(depth, f"{name} = {self.pick('', f'{name} % 101 + ', '3 * ')}{vote}")

    def shuffle(self, depth: int) -> None:
        """A lane reads another one that is there: known now, or by a ballot."""
        name = self.pick(*self.integers)
        value = self.pick(f"np.int64({self.value()})", f"np.int32({self.value()})", *self.floats[:1])
        certain = not (self.in_loop and self.exits)
        d = self.number(1, 15)
        calls = []
        if certain and (self.live or not self.exited):
            calls += [f"shfl_up_sync({ALL}, {value}, {d})"]
        if certain and self.live:
            d %= self.live
            calls += [
                f"shfl_xor_sync({ALL}, {value}, {d})",
                f"shfl_sync({ALL}, {value}, (lane * 5 + {d}) % {self.live})",
            ]
        if certain and self.live == 32:
            calls += [f"shfl_down_sync({ALL}, {value}, {d})"] * 2
        if not calls:
            mask, source = self.fresh("mask"), self.fresh("lane")
            self.line(depth, f"{mask} = cuda.ballot_sync({ALL}, True)")
            self.line(depth, f"{source} = {self.pick(f'lane ^ {d}', f'(lane * 3 + {d}) % 32', f'{d} + k')}")
            self.line(depth, f"{source} = {source} if ({mask} >> {source}) & 1 else lane")
            calls = [f"shfl_sync({ALL}, {value}, {source})"]
        self.line(depth, f"{name} = int(cuda.{self.pick(*calls)}) % 10007")

    def warp_branch(self, depth: int) -> None:
        """Whole warps take a branch, in which they vote."""
        self.line(depth, f"if t // 32 {self.pick('== 0', '!= 1', '== (n + k) % 2', '< k % 3')}:")
        self.private(depth + 1, 1)
        self.warp_vote(depth + 1)
        if self.chance(0.5):
            self.shuffle(depth + 1)

    def uniform_branch(self, depth: int, loops: int) -> None:
        self.line(depth, f"if {self.condition(1, uniform=True)}:")
        self.block(depth + 1, 3, loops)
        self.leave_uniformly(depth + 1, loops)
        if self.chance(0.4):
            self.line(depth, "else:")
            self.block(depth + 1, 2, loops)

    def leave_uniformly(self, depth: int, loops: int) -> None:
        if loops and self.chance(0.4):
            self.line(depth, self.pick("break", "continue"))
        elif self.exits and self.result == "return" and self.chance(0.08):
            self.exit(depth, self.live)

    def uniform_loop(self, depth: int, loops: int) -> None:
        name = self.fresh("g")
        e = f"({self.small(1, uniform=True)}) % 4"
        bounds = self.pick(e, "3", "n % 3", f"k % 4, {self.number(-1, 1)}, -1", "cuda.blockIdx.x, 3", f"{e}, 4, 2")
        if bounds != "3":
            self.line(depth, f"{name} = {self.number(-5, 5)}")
        self.line(depth, f"for {name} in range({bounds}):")
        self.line(depth + 1, f"{self.pick(*self.integers)} += {name} * t")
        with self.scope(loop=True):
            self.uniform_counters.append(name)
            self.block(depth + 1, 3, loops + 1)
            if self.chance(0.3):
                self.line(depth + 1, f"if {self.condition(1, uniform=True)}:")
                self.line(depth + 2, self.pick("break", "continue"))
                self.private(depth + 1, 1)
        self.uniform_counters.append(name)
        self.after_loop(depth, name)

    def uniform_while(self, depth: int, loops: int) -> None:
        """`while True` with exits in the middle, or a condition."""
        name = self.fresh("u")
        self.line(depth, f"{name} = {self.number(-1, 1)}")
        if self.chance(0.6):
            self.line(depth, "while True:")
            self.line(depth + 1, f"{name} += 1")
            with self.scope(loop=True):
                self.block(depth + 1, 2, 0)
            self.line(
                depth + 1, f"if {name} > {self.pick('k % 3', '2', 'n % 4')} or {self.condition(1, uniform=True)}:"
            )
            self.line(depth + 2, "break")
        else:
            self.line(depth, f"while {name} < {self.pick('3', 'k % 4', 'n % 3 + cuda.blockIdx.x')}:")
            self.line(depth + 1, f"{name} += 1")
        with self.scope(loop=True):
            self.block(depth + 1, 2, loops + 1)
        self.after_loop(depth, name)
