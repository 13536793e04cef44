"""Expressions of random kernels: integers with a bound on their size, conditions, and floats without rounding.

An integer expression comes with a bound, so that no signed arithmetic overflows (which CUDA leaves undefined); unsigned
arithmetic wraps on purpose. Floats are small multiples of powers of two, so that a fused multiply-add changes nothing.
A uniform expression has one value in all threads of a block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

VARIABLE = 2**20  # no variable is assigned more
NESTED = 20  # so many indices and arguments within each other, at most
SIZE = 300  # of the one-dimensional arguments; more than any launch has threads
ROWS, COLUMNS = 7, 11
CASTS = {"int8": 2**7, "uint8": 2**8, "int16": 2**15, "uint16": 2**16, "int32": 2**31, "uint32": 2**32}


class Expressions:
    """Draws expressions over the names that are defined.

    Attributes:
        integers: names of private int64 variables; `uniform` of those that are the same in all threads of the block.
        counters: names of loop variables, which are read only; `uniform_counters` likewise.
        floats: names of float32 and float64 variables.
        changing: names of variables that change their type, and so are read as float64 where paths have joined.
        arrays: integer arguments of SIZE elements.
        functions: device functions of two integers that return an integer.
        used: arguments that the kernel needs.
        nested: how many indices and arguments are around the expression that is drawn.
    """

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.integers: list[str] = []
        self.uniform: list[str] = []
        self.counters: list[str] = []
        self.uniform_counters: list[str] = []
        self.floats: list[str] = []
        self.changing: list[str] = []
        self.functions: list[str] = []
        self.arrays: list[str] = ["x"]
        self.locals: list[str] = []
        self.records = False
        self.used: set[str] = set()
        self.nested = 0

    def pick(self, *choices: Any) -> Any:
        return choices[self.random.integers(len(choices))]

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def number(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return int(self.random.integers(low, high + 1))

    def use(self, name: str) -> str:
        self.used.add(name)
        return name

    # Integers: (text, bound)

    def integer(self, depth: int = 2, uniform: bool = False) -> tuple[str, int]:
        if depth == 0 or self.chance(0.2):
            return self.leaf(uniform)
        kinds = [self.sum, self.product, self.quotient, self.bitwise, self.choice, self.cast, self.unary, self.extreme]
        return self.pick(*kinds)(depth - 1, uniform)

    def leaf(self, uniform: bool) -> tuple[str, int]:
        plain = [(str(self.number(-9, 40)), 40), (self.use("n"), 64), (self.use("k"), 8)]
        plain += [("cuda.blockIdx.x", 4), ("cuda.gridDim.x", 4), ("cuda.blockDim.x", 128)]
        plain += [(name, VARIABLE) for name in self.uniform + self.uniform_counters * 2]
        if uniform:
            return self.pick(*plain)
        own = [("t", 128), ("i", SIZE), ("cuda.threadIdx.x", 128)] + [
            (name, VARIABLE) for name in self.integers * 2 + self.counters * 3
        ]
        kind = self.number(0, 9 if self.nested < NESTED else 5)
        if kind <= 1:
            return self.pick(*plain)
        if kind <= 5:
            return self.pick(*own)
        self.nested += 1
        drawn = self.looked_up(kind)
        self.nested -= 1
        return drawn

    def looked_up(self, kind: int) -> tuple[str, int]:
        """What stands at an index, or what a function returns; either may nest others."""
        if kind == 6 and self.locals:
            return f"{self.pick(*self.locals)}[{self.index(4)}]", VARIABLE
        if kind == 7 and self.records:
            self.use("r")
            return f"r[{self.index(SIZE)}].{self.pick('n', 'small')}", 2**15
        if kind == 8 and self.functions:
            return f"{self.pick(*self.functions)}({self.small(1)}, {self.small(1)})", VARIABLE
        return self.element(), 2**15

    def element(self) -> str:
        if self.chance(0.2):
            self.use("m")
            return f"m[{self.index(ROWS)}, {self.index(COLUMNS)}]"
        name = self.use(self.pick(*self.arrays))
        return f"np.int64(u[{self.index(SIZE)}])" if name == "u" else f"{name}[{self.index(SIZE)}]"

    def index(self, size: int) -> str:
        """An index inside an array of that size."""
        if size == SIZE and self.chance(0.5):
            return self.pick("i", "i", "t", "SIZE - 1 - i".replace("SIZE", str(SIZE)), f"np.uint8({self.small(1)})")
        if self.chance(0.15):
            return f"np.int64(np.uint16({self.small(1)})) % {size}"
        return f"({self.small(1)}) % {size}"

    def small(self, depth: int = 1, uniform: bool = False) -> str:
        """An integer that products may be made of."""
        return self.bounded(self.integer(depth, uniform), VARIABLE)

    def bounded(self, expression: tuple[str, int], limit: int) -> str:
        text, bound = expression
        modulus = min(self.pick(101, 1009, 10007), limit)
        return text if bound <= limit else f"({text}) % {modulus}"

    def sum(self, depth: int, uniform: bool) -> tuple[str, int]:
        (a, m), (b, n) = self.integer(depth, uniform), self.integer(depth, uniform)
        return f"({a} {self.pick('+', '-')} {b})", m + n

    def product(self, depth: int, uniform: bool) -> tuple[str, int]:
        a, b = self.integer(depth, uniform), self.integer(depth, uniform)
        limit = 2**25
        return f"({self.bounded(a, limit)}) * ({self.bounded(b, limit)})", min(a[1], limit) * min(b[1], limit)

    def quotient(self, depth: int, uniform: bool) -> tuple[str, int]:
        a, m = self.integer(depth, uniform)
        divisor = self.number(2, 9) * self.pick(1, 1, -1)
        if self.chance(0.25):
            other = f"(({self.small(depth, uniform)}) % {abs(divisor)} + 1)"
            return self.pick((f"(({a}) // {other})", m), (f"(({a}) % {other})", 9))
        return self.pick((f"(({a}) // {divisor})", m + 1), (f"(({a}) % {divisor})", 9))

    def bitwise(self, depth: int, uniform: bool) -> tuple[str, int]:
        a, m = self.integer(depth, uniform)
        kind = self.number(0, 3)
        if kind == 0:
            return f"(({a}) & {self.pick(7, 15, 31, 64)})", 64
        if kind == 1:
            return f"(({a}) >> {self.number(1, 4)})", m
        if kind == 2 and m < 2**40:
            return f"(({a}) << {self.number(1, 3)})", 8 * m
        b, n = self.integer(depth, uniform)
        return f"(({a}) {self.pick('|', '^')} ({b}))", 4 * max(m, n)

    def choice(self, depth: int, uniform: bool) -> tuple[str, int]:
        (a, m), (b, n) = self.integer(depth, uniform), self.integer(depth, uniform)
        return f"({a} if {self.condition(depth, uniform)} else {b})", max(m, n)

    def cast(self, depth: int, uniform: bool) -> tuple[str, int]:
        a, m = self.integer(depth, uniform)
        name = self.pick(*CASTS)
        spelled = self.pick("np.", "") + name
        kind = self.number(0, 4)
        if kind == 0:  # wraps below zero, in 64 bits, and back
            b, _ = self.integer(depth, uniform)
            return f"np.int64(np.uint32({a}) - np.uint32({b}))", 2**33
        if kind == 1:
            b, _ = self.integer(depth, uniform)
            return f"np.int64((np.uint64({a}) {self.pick('+', '-', '*')} np.uint64({b})) % np.uint64(97))", 97
        return self.pick(f"np.int64({spelled}({a}))", f"({spelled}({a}) + {self.number(0, 3)})"), CASTS[name] + 3

    def unary(self, depth: int, uniform: bool) -> tuple[str, int]:
        a, m = self.integer(depth, uniform)
        kind = self.number(0, 3)
        if kind == 0:
            return f"abs(np.int64({a}))", m
        if kind == 1:
            return f"np.int64(cuda.popc(np.int64({a})))", 64
        if kind == 2:
            return f"int({self.condition(depth, uniform)})", 1
        return f"({self.pick('-', '~')}np.int64({a}))", m + 1

    def extreme(self, depth: int, uniform: bool) -> tuple[str, int]:
        (a, m), (b, n) = self.integer(depth, uniform), self.integer(depth, uniform)
        return f"{self.pick('min', 'max')}(np.int64({a}), np.int64({b}))", max(m, n)

    # Conditions

    def condition(self, depth: int = 1, uniform: bool = False) -> str:
        kind = self.number(0, 9)
        if depth > 0 and kind < 2:
            joined = (
                f"{self.condition(depth - 1, uniform)} {self.pick('and', 'or')} {self.condition(depth - 1, uniform)}"
            )
            return f"({joined})"
        if depth > 0 and kind == 2:
            return f"(not {self.condition(depth - 1, uniform)})"
        if kind == 3 and not uniform:
            return self.guarded()
        if kind == 4 and not uniform and self.floats:
            return f"{self.pick(*self.floats)} {self.pick('<', '>=', '!=')} {self.number(-8, 30) / 2}"
        if kind == 9 and not uniform and self.changing:
            return f"np.float64({self.pick(*self.changing)}) {self.pick('<', '>=', '!=')} {self.number(-8, 30) / 2}"
        a, b = self.small(depth, uniform), self.small(depth, uniform)
        if kind == 5:
            return f"{self.number(-5, 3)} {self.pick('<', '<=')} {a} {self.pick('<', '<=')} {b}"
        if kind == 6:
            return f"({a}) % {self.number(2, 5)} == {self.number(0, 2)}"
        if kind == 7:
            return f"{a} {self.pick('<', '>', '<=')} {b} / {self.number(2, 4)}"
        if kind == 8:
            return f"np.{self.pick('uint8', 'int8', 'uint16')}({a}) {self.pick('<', '>=')} {self.number(0, 100)}"
        return f"{a} {self.pick('<', '<=', '>', '>=', '==', '!=')} {b}"

    def guarded(self) -> str:
        """A subscript that is only evaluated where it is inside."""
        name = self.pick("t", "i", *self.integers)
        array = self.use(self.pick(*self.arrays))
        if self.chance(0.5):
            return f"(0 <= {name} < {array}.size and {array}[{name}] {self.pick('<', '>')} {self.number(-30, 30)})"
        return f"({name} < 0 or {name} >= {array}.size or {array}[{name}] % 2 == 0)"

    # Values of several types

    def typed(self) -> str:
        """A value for a variable that changes its type; products of the float32 numbers are rounded."""
        kind = self.number(0, 5)
        if kind == 0:
            return self.condition(1)
        if kind == 1:
            return f"2**60 + 1 + {self.small(1)}"
        if kind == 2:
            return f"({self.small(1)}) / {self.pick(2, 4)}"
        if kind == 3:
            return f"np.int32(({self.small(1)}) % 101)"
        return f"f[{self.index(SIZE)}] * np.float32({self.pick(0.3, 0.7)})" if self.use("f") else ""

    # Floats

    def real(self, depth: int = 1) -> str:
        """A float that is exact in float64, and in float32 after `% 64`."""
        self.use("f")
        kind = self.number(0, 5 if depth else 2)
        if kind == 0 or not self.floats:
            return f"f[{self.index(SIZE)}]"
        if kind == 1:
            return self.pick(*self.floats)
        if kind == 2:
            return f"np.float32(({self.small(1)}) % 32)"
        if kind == 3:
            return f"{self.real(depth - 1)} * {self.pick('0.5', '2', 'np.float32(0.25)', '-1.0')}"
        if kind == 4:
            return f"({self.real(depth - 1)} if {self.condition(1)} else {self.pick(*self.floats)} * 1.0)"
        return f"({self.real(depth - 1)} {self.pick('+', '-')} {self.real(depth - 1)})"
