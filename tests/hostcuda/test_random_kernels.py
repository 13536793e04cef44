"""Kernels drawn at random: the compiled and the checked executor agree, to the last bit.

A drawn kernel computes in integers, so that no rounding hides a difference. It is free of races: between two barriers
a thread writes only its own cell of the shared array, and reads only what was written before the last barrier.
"""

import linecache

import numpy as np
import pytest

from miniflow.hostcuda import cuda

THREADS, BLOCKS = 48, 2
HEAD = """
@cuda.jit
def kernel(x, n, y):
    room = cuda.shared.array(({rooms}, 64), int64)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    a = x[i]
    b = t * 3 - 20
    c = n
    for k in range({rooms}):
        room[k, t] = a + k
    cuda.syncthreads()
"""
TAIL = """
    y[i] = a + 1000 * b + 1000000 * c
"""


class Author:
    """Writes the body of a kernel."""

    def __init__(self, seed: int):
        self.draw = np.random.default_rng(seed)
        self.lines: list[str] = []
        self.rooms = 1  # a fresh row of shared memory for every exchange: it is never written twice
        self.names = 0

    def pick(self, *choices):
        return choices[self.draw.integers(len(choices))]

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def fresh(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def expression(self, uniform: bool = False) -> str:
        operands = ["n", "2", "7", "cuda.blockIdx.x"] + ([] if uniform else ["a", "b", "c", "t", "i", "x[i]"])
        left, right = self.pick(*operands), self.pick(*operands)
        return self.pick(f"{left} + {right}", f"{left} - {right}", f"({left} * {right}) % 101", f"{left} // 3", left)

    def condition(self, uniform: bool = False) -> str:
        a, b = self.expression(uniform), self.expression(uniform)
        return self.pick(f"{a} < {b}", f"{a} % 3 == 1", f"{a} != {b}", f"not {a} > {b}", f"0 <= {a} < 9")

    def private(self, depth: int, size: int) -> None:
        """Statements of one thread alone."""
        for _ in range(self.draw.integers(1, size + 1)):
            kind = self.draw.integers(7)
            if kind < 3:
                self.line(depth, f"{self.pick('a', 'b', 'c')} = {self.expression()}")
            elif kind == 3:
                self.line(depth, f"{self.pick('a', 'b', 'c')} {self.pick('+', '-')}= {self.expression()}")
            elif kind == 4 and depth < 4:
                self.line(depth, f"if {self.condition()}:")
                self.private(depth + 1, 2)
                if self.pick(True, False):
                    self.line(depth, "else:")
                    self.private(depth + 1, 2)
            elif kind == 5 and depth < 4:
                name = self.fresh()
                self.line(depth, f"for {name} in range({self.pick('n % 4', 't % 3', 'n % 5, 6', 't, 40, 16')}):")
                self.line(depth + 1, f"a += x[{name} % x.size] + {name}")
                self.private(depth + 1, 2)
                if self.pick(True, False):
                    self.line(depth + 1, f"if {self.condition()}:")
                    self.line(depth + 2, self.pick("break", "continue"))
            else:
                name = self.fresh()
                self.line(depth, f"{name} = {self.expression()}")
                self.line(depth, f"b = {name} % 50")

    def exchange(self, depth: int) -> None:
        """Values go from thread to thread through shared memory."""
        row, self.rooms = self.rooms, self.rooms + 1
        self.line(depth, f"room[{row}, t] = {self.expression()}")
        self.line(depth, "cuda.syncthreads()")
        self.line(depth, f"{self.pick('a', 'b')} += room[{row}, ({THREADS} - 1 - t)] % 97")
        self.line(depth, "cuda.syncthreads()")

    def vote(self, depth: int) -> None:
        what = self.pick("count", "and", "or")
        self.line(depth, f"c += cuda.syncthreads_{what}(1 if {self.condition()} else 0)")

    def shuffle(self, depth: int) -> None:
        self.line(
            depth,
            "a = (a + "
            + self.pick(
                "cuda.shfl_xor_sync(0xFFFFFFFF, b, 5)",
                "cuda.shfl_sync(0xFFFFFFFF, a, t % 7)",
                "cuda.shfl_up_sync(0xFFFFFFFF, c, 2)",
                "cuda.popc(cuda.ballot_sync(0xFFFFFFFF, a % 2))",
            )
            + ") % 1009",
        )

    def block(self, depth: int, size: int) -> None:
        """Statements around barriers."""
        for _ in range(self.draw.integers(1, size + 1)):
            kind = self.draw.integers(8)
            if kind < 2:
                self.private(depth, 3)
            elif kind == 2:
                self.exchange(depth)
            elif kind == 3:
                self.vote(depth)
            elif kind == 4:
                self.shuffle(depth)
            elif depth < 4:
                name = self.fresh()
                if kind == 5:
                    self.line(depth, f"for {name} in range({self.pick('n % 3', '2', 'cuda.blockIdx.x, 3')}):")
                    self.line(depth + 1, f"b += {name}")
                    self.block(depth + 1, 2)
                    if self.pick(True, False):
                        self.line(depth + 1, f"if {self.condition(uniform=True)}:")
                        self.line(depth + 2, self.pick("break", "continue"))
                    self.private(depth + 1, 2)
                elif kind == 6:
                    self.line(depth, f"if {self.condition(uniform=True)}:")
                    self.line(depth + 1, "c -= 1")
                    self.block(depth + 1, 3)
                    if self.pick(True, False):
                        self.line(depth, "else:")
                        self.line(depth + 1, "b += 1")
                        self.block(depth + 1, 2)
                else:
                    self.line(depth, f"{name} = {self.expression(uniform=True)} % 4")
                    self.line(depth, f"while {name} > 0:")
                    self.block(depth + 1, 2)
                    self.line(depth + 1, f"{name} -= 1")

    def text(self) -> str:
        self.block(1, 5)
        return HEAD.format(rooms=self.rooms) + "\n".join(self.lines) + TAIL


def both_executors(text: str, name: str, x: np.ndarray, n: int) -> list[np.ndarray]:
    """What the compiled and the checked executor make of a kernel."""
    from numba import int64

    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space = {"cuda": cuda, "int64": int64}
    exec(compile(text, name, "exec"), space)
    results = []
    for check in (False, True):
        kernel = cuda.jit(check=check)(space["kernel"].py_func)
        y = cuda.to_device(np.full(x.size, -1))
        kernel[BLOCKS, THREADS](cuda.to_device(x), n, y)
        results.append(y.copy_to_host())
    return results


@pytest.mark.few(2)
@pytest.mark.parametrize("number", [4, 0, 1, 2, 3, 5, *range(6, 12)])  # by default 4 and 6: short, of many constructs
def test_executors_agree(seed, number):
    number += 1000 * seed
    text = Author(number).text()
    x = np.random.default_rng(number).integers(-30, 30, BLOCKS * THREADS)
    for n in (5, 2):
        compiled, checked = both_executors(text, f"<random kernel {number}>", x, n)
        np.testing.assert_array_equal(compiled, checked, err_msg=f"Author({number}) with n = {n}:\n{text}")
