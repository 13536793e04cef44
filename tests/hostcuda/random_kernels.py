"""Kernels drawn at random, with arguments: `draw(seed)`. `python random_kernels.py SEED` prints one.

What they are made of stands in `random_statements` and `random_blocks`; here are their heads, their arguments and
their device functions.
"""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from random_blocks import Statements
from random_expressions import COLUMNS, ROWS, SIZE, VARIABLE

HEAD = """import numpy as np
from numba import complex64, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64

from miniflow.hostcuda import cuda

"""
RECORD = np.dtype([("n", np.int32), ("small", np.int16), ("v", np.float32)], align=True)
ONE_DIM = [(1, 32), (2, 32), (3, 40), (2, 64), (2, 33), (1, 96), (3, 7), (2, 50), (4, 24)]
TWO_DIMS = [((1, 1), (8, 5)), ((2, 1), (16, 4)), ((2, 2), (5, 7)), ((1, 2), (32, 2)), ((3, 1), (4, 9))]
QUEUED = 5


@dataclass
class RandomKernel:
    """One drawn kernel and its launch.

    Attributes:
        text: the module in which it stands.
        function: the kernel, not jitted.
        arguments: fresh ones are copies of these.
    """

    seed: int
    text: str
    function: Any
    grid: Any
    block: Any
    shared_bytes: int
    arguments: list[Any]

    def copies(self) -> list[Any]:
        return [a.copy() if isinstance(a, np.ndarray) else a for a in self.arguments]


def draw(seed: int, length: int = 7) -> RandomKernel:
    """The kernel of a seed; `length` is the number of its statements, besides those that they hold."""
    author = Author(seed, length)
    text = author.module()
    return RandomKernel(
        seed,
        text,
        function_of(text, f"<random kernel {seed}>"),
        author.grid,
        author.block_dim,
        author.shared_bytes,
        author.arguments(),
    )


def function_of(text: str, filename: str) -> Any:
    """The function `kernel` of a module that stands in no file."""
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    names: dict[str, Any] = {"__name__": "random_kernel"}
    exec(compile(text, filename, "exec"), names)
    return names["kernel"]


class DeviceFunction(Statements):
    """A function of two integers, which threads call one by one."""

    def __init__(self, seed: int):
        super().__init__(seed, 32)
        self.integers = ["a", "b", "a0"]
        self.result = "value"
        self.fuel = 5

    def leaf(self, uniform: bool) -> tuple[str, int]:
        names = [(name, VARIABLE) for name in self.integers + self.counters]
        return self.pick((str(self.number(-9, 40)), 40), *names, *names)

    def guarded(self) -> str:
        return f"{self.pick(*self.integers)} % 2 == 0"

    def emit(self, depth: int) -> None:
        self.assign(depth)

    def reuse(self, depth: int) -> None:
        self.assign(depth)

    def count_loop(self, depth: int, loops: int) -> None:
        name = self.fresh("j")
        self.line(depth, f"{name} = -1")
        self.line(depth, f"for {name} in range({self.pick('abs(a) % 4', '3', 'b % 5 - 1')}):")
        self.inside(depth + 1, name, loops + 1)
        self.after_loop(depth, name)

    def while_loop(self, depth: int, loops: int) -> None:
        self.count_loop(depth, loops)

    def function(self, name: str) -> str:
        self.line(1, f"a0 = a {self.pick('+', '-')} b")
        self.private_statements(1, 4)
        self.line(1, f"return {self.returned()}")
        return "\n".join(["@cuda.jit(device=True)", f"def {name}(a, b):", *self.lines, "", "", ""])


class Author(Statements):
    """Writes a whole kernel: which features it has is drawn first."""

    def __init__(self, seed: int, length: int):
        super().__init__(seed, 0)
        self.seed = seed
        self.length = length
        two = self.chance(0.3)
        self.grid, self.block_dim = self.pick(*(TWO_DIMS if two else ONE_DIM))
        self.threads = int(np.prod(self.block_dim))
        self.live = 32 if self.threads % 32 == 0 else 0
        self.total = self.threads * int(np.prod(self.grid))
        self.linear = "cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x" if two else "cuda.threadIdx.x"
        self.two = two
        self.shared_bytes = 0
        self.barriers, self.warps, self.exits = self.chance(0.85), self.chance(0.6), self.chance(0.7)
        self.integers, self.uniform = ["a", "b", "c"], ["v0", "v1"]
        self.floats = ["p", "q"] if self.chance(0.4) else []
        self.changing = ["d", "d1"] if self.chance(0.5) else []
        self.locals = ["la", "lb"] if self.chance(0.35) else []
        self.records = self.chance(0.25)
        self.arrays += [name for name in ("b8", "u") if self.chance(0.4)]
        self.extras = {
            "assign_float": bool(self.floats),
            "store_local": bool(self.locals),
            "store_record": self.records,
            "store_half": self.chance(0.07),
            "store_complex": self.chance(0.12),
            "atomic": self.chance(0.4),
        }

    def module(self) -> str:
        """Head, device functions and kernel."""
        self.preamble()
        if self.barriers and self.chance(0.12):
            self.queue(last=False)
        if self.barriers and self.chance(0.06):
            self.over_the_grid()
        self.block_statements(1, self.length)
        self.ending()
        if self.barriers and not self.exited and self.chance(0.15):
            self.queue(last=True)
        parameters = ", ".join(self.parameters())
        return HEAD + self.definitions + "\n".join(["@cuda.jit", f"def kernel({parameters}):", *self.lines, ""])

    def preamble(self) -> None:
        self.line(1, f"t = {self.linear}")
        self.line(1, "lane = t % 32")
        if self.two:
            self.line(1, f"i = (cuda.blockIdx.y * cuda.gridDim.x + cuda.blockIdx.x) * {self.threads} + t")
        else:
            self.line(1, self.pick("i = cuda.grid(1)", "i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x"))
        for name in self.integers:
            self.line(1, f"{name} = {self.pick('x[i]', 't', 'i * 2 - 7', '-t', '0')}")
        self.line(1, "v0 = n * 3")
        self.line(1, f"v1 = {self.pick('k', 'cuda.blockIdx.x', '0')}")
        if self.floats:
            self.use("f")
            self.line(1, "p = f[i]")
            self.line(1, "q = 0.5")
        for name in self.changing:
            self.line(1, f"{name} = {self.pick('x[i]', 't > 5', '0.25', 'i')}")
        for name in self.locals:
            self.line(1, f"{name} = cuda.local.array(4, int64)")
            self.line(1, "for e in range(4):")
            self.line(2, f"{name}[e] = e * {self.pick('t', '3', 'n')}")
        if not self.two and self.chance(0.3):
            self.line(1, f"for e in range(i, {SIZE}, cuda.gridsize(1)):")
            self.line(2, "a += x[e] % 50")
        self.definitions = self.device_functions()
        if self.barriers:
            self.shared_memory()

    def device_functions(self) -> str:
        text = ""
        for name in ("helper", "other"):
            if self.chance(0.3):
                text += DeviceFunction(self.number(0, 10**6)).function(name)
                self.functions.append(name)
        if self.barriers and self.chance(0.35):
            self.device_block = True
            text += self.exchanging_function()
        return text

    def exchanging_function(self) -> str:
        """A device function with barriers; its parameter may be named like the kernel's array."""
        s, v, n = self.pick("s", "s0", "room"), self.pick("v", "a", "t0"), self.threads
        early = f"    if first % {self.number(2, 4)} == 0:\n        return r - 1\n" if self.chance(0.6) else ""
        late = f"    if r % {self.number(2, 4)} == 0:\n        return np.int64(r // 2)\n" if self.chance(0.5) else ""
        body = f"""    t = {self.linear}
    r = np.int64(0)
    first = np.int64(1)
    for e in range({self.number(1, 2)}):
        {s}[t] = {v} + e
        cuda.syncthreads()
        r += {s}[(t + {self.number(0, 9)}) % {n}]
        first = {s}[{self.number(0, n - 1)}]
        cuda.syncthreads()
{early}    {s}[t] = r % 1009 + cuda.syncthreads_count(np.int32({v} > 0))
    cuda.syncthreads()
    r = np.int64({s}[{n - 1} - t])
    cuda.syncthreads()
{late}    return np.int64(r % 10007)
"""
        return f"@cuda.jit(device=True)\ndef exchanged({s}, {v}):\n{body}\n\n"

    def shared_memory(self) -> None:
        """Every cell holds something before the first barrier."""
        n = self.threads
        self.swappable = ["s0", "s1"]
        dynamic = self.pick("s0", "s1", "", "")
        self.shared_bytes = 8 * n if dynamic else 0
        for name in self.swappable:
            self.line(1, f"{name} = cuda.shared.array({0 if name == dynamic else n}, int64)")
        kinds = [("sbyte", self.pick("int8", "uint8", "int16"), n), ("sfloat", "float32", n), ("s2d", "int32", (2, n))]
        for name, dtype, shape in kinds:
            if self.chance(0.35):
                self.line(1, f"{name} = cuda.shared.array({shape}, {self.pick('', 'np.')}{dtype})")
                self.shared.append(name)
        self.shared_counters = self.chance(0.4)
        if self.shared_counters:
            self.line(1, "counters = cuda.shared.array((4, 4), int32)")
            self.line(1, f"for e in range(t, 16, {n}):")
            self.line(2, "counters[e // 4, e % 4] = 0")
        for name in self.swappable + self.shared:
            for cell in ("0, t", "1, t") if name == "s2d" else ("t",):
                self.line(1, f"{name}[{cell}] = t * {self.number(1, 5)}")
        self.shared += self.swappable * 2
        self.barrier(1)

    def queue(self, last: bool) -> None:
        """Blocks take work until none is left; `last` says that the kernel may end there."""
        self.use("queue")
        self.use("qout")
        place = int(last)
        self.line(1, f"taken{place} = cuda.shared.array(1, int32)")
        self.line(1, "while True:")
        self.line(2, "if t == 0:")
        self.line(3, f"taken{place}[0] = cuda.atomic.add(queue, {place}, 1)")
        self.line(2, "cuda.syncthreads()")
        self.line(2, f"w = taken{place}[0]")
        self.line(2, "cuda.syncthreads()")
        self.line(2, f"if w >= {QUEUED}:")
        self.line(3, "return" if last and self.chance(0.5) else "break")
        self.line(2, f"e = x[(w * {self.number(3, 9)} + t) % {SIZE}]")
        self.line(2, f"votes = cuda.syncthreads_count(np.int32(e > {self.number(-50, 50)}))")
        if self.chance(0.5):
            self.line(2, f"if e % {self.number(2, 4)} == 0:")
            self.line(3, "continue")
        self.line(2, f"qout[{place}, w, t] = votes * 1000 + e")
        if not last:
            self.line(1, "a += min(w, 3)")
            self.line(1, "cuda.syncthreads()")

    def over_the_grid(self) -> None:
        """Values go from block to block."""
        self.use("gbuf")
        self.line(1, "whole = cuda.cg.this_grid()")
        self.line(1, "e = -1")
        self.line(1, f"for e in range({self.pick('2', 'n % 3')}):")
        self.line(2, f"gbuf[i] = {self.value()}")
        self.line(2, "whole.sync()")
        self.line(2, f"b += gbuf[(i + {self.number(1, 40)}) % {self.total}] % 1009")
        self.line(2, "whole.sync()")
        self.line(1, "c += e")

    def ending(self) -> None:
        """All variables are written."""
        for name in [*self.integers, *self.uniform, *(f"{a}[{e}]" for a in self.locals for e in (0, 3))]:
            row, self.rows = self.rows, self.rows + 1
            self.line(1, f"out[{row}, i] = {name}")
        for name in self.counters + self.uniform_counters:
            row, self.rows = self.rows, self.rows + 1
            self.line(1, f"out[{row}, i] = {name} + 100")
        for number, name in enumerate(self.floats):
            self.use("fout")
            self.line(1, f"fout[{number}, i] = {name}")
        for name in self.changing:
            self.emit_float(1, f"np.float64({name})")

    # Arguments

    def parameters(self) -> list[str]:
        return ["x", "n", "k", "out"] + sorted(self.used - {"x", "n", "k"})

    def arguments(self) -> list[Any]:
        random = np.random.default_rng([self.seed, 1])
        return [self.argument(name, random) for name in self.parameters()]

    def argument(self, name: str, random: np.random.Generator) -> Any:
        integers = {
            "x": (SIZE, np.int32),
            "m": ((ROWS, COLUMNS), np.int32),
            "out": ((self.rows, self.total), np.int64),
            "gbuf": (self.total, np.int64),
            "acc": ((7, 4), np.int64),
        }
        if name in integers:
            shape, dtype = integers[name]
            return random.integers(-100, 101, shape).astype(dtype)
        if name in ("r", "rec"):
            records = np.zeros(SIZE, RECORD)
            for field in RECORD.names:
                records[field] = random.integers(-100, 101, SIZE)
            return records
        if name in ("z", "zout"):
            return (random.integers(-8, 9, SIZE) / 2 + 1j * random.integers(-8, 9, SIZE) / 2).astype(np.complex64)
        others = {
            "n": lambda: int(random.integers(0, 50)),
            "k": lambda: int(random.integers(0, 8)),
            "b8": lambda: random.integers(-128, 128, SIZE).astype(np.int8),
            "u": lambda: random.integers(0, 2**15, SIZE).astype(np.uint32),
            "f": lambda: (random.integers(-32, 33, SIZE) / 4).astype(np.float32),
            "fout": lambda: np.full((2, self.total), np.nan),
            "dout": lambda: np.full((self.float_rows, self.total), np.nan),
            "h": lambda: (random.integers(-32, 33, SIZE) / 4).astype(np.float16),
            "hout": lambda: np.full(SIZE, np.nan, np.float16),
            "queue": lambda: np.zeros(2, np.int32),
            "qout": lambda: np.full((2, QUEUED, self.threads), -1, np.int64),
        }
        return others[name]()


if __name__ == "__main__":
    print(draw(int(sys.argv[1])).text)
