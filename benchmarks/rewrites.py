"""What each rewrite of the host compiler buys: a kernel with it and without it, on the workload that gains most by it.

Both programs are in one process and take turns, so that what else the machine does meets both; times are the least of
all turns. Their results are compared. A rewrite is left out by replacing the function that looks for it.
"""

from __future__ import annotations

import ast
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.course_kernels import LAUNCHES as OF_COURSES
from benchmarks.course_kernels import TILE, fast_matmul
from benchmarks.harness import BenchmarkError, in_process, table
from benchmarks.hostcuda import TOLERANCE
from benchmarks.launches import Launch, made, nans, numbers, title
from miniflow.hostcuda import cuda, devices, guards, storage, syntax

TURNS, WINDOW = 15, 0.02  # windows of so many CPU seconds
THREADS = 256
Patch = tuple[str, Any]  # a name in miniflow.hostcuda, and what stands there instead
Case = tuple[Any, ...]


@cuda.jit
def block_sums(x, y):
    """A sum by a tree for each 256 elements: blocks that go on to others, with barriers in the loop."""
    tile = cuda.shared.array(THREADS, np.float32)
    t = cuda.threadIdx.x
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        tile[t] = x[i]
        cuda.syncthreads()
        half = THREADS // 2
        while half > 0:
            if t < half:
                tile[t] += tile[t + half]
            cuda.syncthreads()
            half //= 2
        if t == 0:
            y[i // THREADS] = tile[0]
        cuda.syncthreads()


@cuda.jit
def double(x, y):
    """Twice the elements, in a while loop."""
    i = cuda.grid(1)
    while i < x.size:
        y[i] = 2 * x[i]
        i += cuda.gridsize(1)


@cuda.jit
def warp_sums(x, y):
    """Sums up to each element, within 32."""
    lane, i = cuda.threadIdx.x % 32, cuda.grid(1)
    total, step = x[i], 1
    while step < 32:
        other = cuda.shfl_up_sync(0xFFFFFFFF, total, step)
        if lane >= step:
            total += other
        step *= 2
    y[i] = total


@cuda.jit(device=True)
def within(i, length):
    """The nearest index of a row."""
    return min(max(i, 0), length - 1)


@cuda.jit(device=True)
def offset(row, column, width):
    """Where an element lies."""
    return row * width + column


@cuda.jit
def mean_of_nine(x, y, height, width):
    """Means of 3x3 elements of a flat image."""
    column, row = cuda.grid(2)
    if row < height and column < width:
        total = np.float32(0)
        for i in range(-1, 2):
            for j in range(-1, 2):
                total += x[offset(within(row + i, height), within(column + j, width), width)]
        y[offset(row, column, width)] = total / np.float32(9)


LAUNCHES: dict[str, Callable[[int], Launch]] = {
    "sums in a loop over blocks": lambda n: Launch(block_sums, 64, THREADS, [numbers(n), nans(n // THREADS)]),
    "double, in a while loop": lambda n: Launch(double, 64, THREADS, [numbers(n), nans(n)]),
    "3x3 mean by device functions": lambda n: Launch(
        mean_of_nine, (n // 32, n // 8), (32, 8), [numbers(n * n), nans(n * n), n, n]
    ),
    "fast_matmul with edges": lambda n: Launch(
        fast_matmul, (-(-n // TILE),) * 2, (TILE, TILE), [numbers(n, n), numbers(n, n, seed=1), nans(n, n)]
    ),
    "sums within warps": lambda n: Launch(warp_sums, n // THREADS, THREADS, [numbers(n), nans(n)]),
}


def never(*given: Any) -> bool:
    """In place of what looks whether a rewrite applies."""
    return False


def nothing(*given: Any) -> None:
    """In place of what carries one out."""


LOOPS, INTERCHANGE = "thread_loops.ThreadLoops.", "interchange.Interchange."
MATMUL = ("fast_matmul of numba's documentation", 256)
BY_ROWS = ("naive matmul, x the row", 256)
BY_SHUFFLES = ("sums by shuffles", 1 << 18)
IN_A_LOOP = ("sums in a loop over blocks", 1 << 18)
IN_WARPS = ("sums within warps", 1 << 18)
SUMS = ("sums of blocks", 64, 1 << 14)
BLELLOCH = ("scan, Blelloch", 1 << 18)
WELFORD = ("LayerNorm, Welford in warps", 1024, 256)
BLUR = ("3x3 mean by device functions", 512)
ROWS: list[tuple[str, Case, Sequence[Patch]]] = [  # what is left out
    ("programs for one block size", MATMUL, [("kernel.BLOCK_SIZES", 0)]),
    ("arrays on the stack", MATMUL, [("emit.STACK", 0)]),
    ("bounds of whole regions", MATMUL, [("thread_loops.Intervals", nothing)]),
    ("bounds from conditions", ("fast_matmul with edges", 250), [("accesses.facts", lambda test: ())]),
    ("rematerialisation", ("sums by trees", 1 << 18), [("storage.Rematerialiser._is_rematerialisable", never)]),
    ("masks computed where they are read", BY_ROWS, [("storage.Rematerialiser._is_guard", never)]),
    ("a mask that all threads meet", IN_A_LOOP, [("emit.Emitter._note_if_all_active", nothing)]),
    ("a branch that ends loops over threads", BLELLOCH, [(LOOPS + "_without_guard", lambda self, *parts: parts)]),
    ("ends of loops over threads", BY_ROWS, [("thread_loops.limits", lambda tests, *_: every_one(tests))]),
    ("ends by multiples of a thread's number", BLELLOCH, [("guards.growth", nothing)]),
    ("unswitching", BY_SHUFFLES, [(LOOPS + "_unswitch_conditions", lambda *_: {})]),
    ("loop invariants", ("3x3 convolution, depthwise", 4, 32, 112), [(LOOPS + "_loop_invariants", lambda *_: [])]),
    ("threads along y", BY_ROWS, [(LOOPS + "_runs_down_columns", never)]),
    ("interchange", BY_ROWS, [(INTERCHANGE + "run", nothing)]),
    ("interchange of sums of a thread's own", ("N-body", 1024), [(INTERCHANGE + "_is_private", never)]),
    ("short loops stay inside", ("5x5 convolution, tiled", 512), [("interchange.SHORT", 0)]),
    ("strips of an interchanged loop", BY_ROWS, [(INTERCHANGE + "_is_short", never)]),
    ("interchange of a strided loop", SUMS, [(INTERCHANGE + "_start_of_thread_0", nothing)]),
    ("a branch for one thread by itself", ("stencil, tiled", 2048), [(INTERCHANGE + "_is_for_one", never)]),
    ("while to for", ("double, in a while loop", 1 << 18), [("compile.count_with_range", nothing)]),
    ("names of lanes and warps", BY_SHUFFLES, [("canonicalise.WarpNames.visit_BinOp", lambda self, node: node)]),
    ("rows of whole warps", IN_WARPS, [("kernel.rank_of", lambda block: part_of_a_warp(block))]),
    ("arrays of one warp", WELFORD, [
        ("storage.keep_masks_and_arrays", lambda *given: keep_for_the_block(*given)),
        ("thread_loops.SourceLane.visit_Call", lambda self, node: thread_in_block(self, node)),
    ]),
    ("their local arrays by lanes", WELFORD, [("storage.count_uses", lambda *given: uses_of_regions(*given))]),
    ("shuffles by parts of a warp", BY_SHUFFLES, [(LOOPS + "_region", lambda self, *parts: self._loops(*parts))]),
    ("copies where indices are checked", BY_SHUFFLES, [(LOOPS + "_use_copies", nothing)]),
    ("indices that are not negative", SUMS, [("accesses.Access._is_nonnegative", never)]),
    ("formulas in the place of calls", BLUR, [("names.Normaliser._substituted", lambda self, *given: called(*given))]),
    ("exp, log, erf and tanh of vectors", ("gelu", 1 << 18), [("references.OURS", ())]),
    ("atomics of one block", ("histogram", 1 << 18), [("accesses.UNLOCKED", {})]),
]  # fmt: skip
KEEP_MASKS_AND_ARRAYS, COUNT_USES = storage.keep_masks_and_arrays, storage.count_uses


def keep_for_the_block(kept: storage.Storage, *given: Any) -> None:
    """Arrays with an element for each thread of the block also where one warp would do."""
    KEEP_MASKS_AND_ARRAYS(kept, *given)
    kept.in_warp = set()


def thread_in_block(senders: Any, node: ast.Call) -> ast.expr:
    """The thread of the block that a shuffle reads, in the place of the lane."""
    senders.generic_visit(node)
    down = syntax.text(node.func) == "lane_down"
    if not down and syntax.text(node.func) != "lane_up":
        return node
    sender = syntax.text(ast.BinOp(syntax.name("thread"), ast.Add() if down else ast.Sub(), node.args[1]))
    return syntax.expression(f"{sender} if {sender} {'< warp_end' if down else '>= warp_first'} else thread")


def every_one(tests: list) -> guards.Limits:
    """No end of a loop: each thread asks for all conditions."""
    return guards.Limits(rest=[part for test in tests for part in guards.conjuncts(test)])


def called(device: Any, passed: list, node: Any) -> Any:
    """The call of a device function."""
    return syntax.call(device.name, *passed, *map(syntax.name, device.coordinates))


def uses_of_regions(nodes: list, arrays: set, kinds: Any, level: int | None = None) -> dict:
    """How many regions use arrays, but not how many loops over warps."""
    return COUNT_USES(nodes, arrays, kinds) if level is None else {}


def part_of_a_warp(block: tuple[int, int, int]) -> devices.Rank:
    """The rank of a block whose rows may end within a warp."""
    return devices.rank_of(block)._replace(whole_warps=False)


def launch_of(case: Case) -> Launch:
    """The launch of a case, of this file or of those that `hostcuda` measures."""
    own = {**OF_COURSES, **LAUNCHES}.get(case[0])
    return own(*case[1:]) if own else made(case)


def program(case: Case, patches: Sequence[Patch]) -> tuple[str, Callable[[], None], list[Any]]:
    """The generated text of a case without some rewrites, a launch of it, and the device arrays that it leaves."""
    launch = launch_of(case)
    kernel = cuda.jit(**launch.kernel.options)(launch.kernel.py_func)
    placed = [cuda.to_device(a) if isinstance(a, np.ndarray) else a for a in launch.arguments]
    configured = kernel[launch.grid, launch.block, 0, launch.shared]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as replaced:
        replaced.enter_context(patch.dict(os.environ, MINIFLOW_CACHE_DIR=folder))
        for name, other in patches:
            replaced.enter_context(patch(f"miniflow.hostcuda.{name}", other))
        configured(*placed)
    (compiled,) = kernel.compiled.values()
    arrays = [place for place, a in zip(placed, launch.arguments, strict=True) if isinstance(a, np.ndarray)]
    return compiled.text, lambda: configured(*placed), arrays


def measure(framework: str, threads: int, row: int) -> dict:
    """Microseconds of a row's workload, with its rewrite and without.

    Raises:
        BenchmarkError: if the program is the same without it, or computes something else.
    """
    name, case, patches = ROWS[row]
    (text, *_), (other, *_) = programs = [program(case, left_out) for left_out in ((), patches)]
    if text == other:
        raise BenchmarkError(f"{name}: {title(case)} is the same program without it")
    for ours, theirs in zip(*(arrays for *_, arrays in programs), strict=True):
        a, b = ours.copy_to_host().astype(float), theirs.copy_to_host()
        if not np.allclose(a, b, rtol=0, atol=TOLERANCE * max(1.0, float(np.max(np.abs(b), initial=0)))):
            raise BenchmarkError(f"{name}: {title(case)} computes something else without it")
    best, repeats = [float("inf")] * 2, [1, 1]
    for _ in range(TURNS):
        for i, (_, call, _) in enumerate(programs):
            start = time.process_time()
            for _ in range(repeats[i]):
                call()
            best[i] = min(best[i], (time.process_time() - start) / repeats[i])
            repeats[i] = max(1, round(WINDOW / max(best[i], 1e-6)))
    return {"us": [1e6 * seconds for seconds in best]}


def report() -> str:
    """The table: one thread, CPU time."""
    rows = []
    for row, (name, case, _) in enumerate(ROWS):
        with_it, without = in_process("rewrites.measure", "miniflow", 1, row=row)["us"]
        rows.append([name, title(case), f"{with_it:.0f}", f"{without:.0f}", f"{without / with_it:.2f}"])
    header = ["rewrite", "workload", "us", "us without", "ratio"]
    return table("What rewrites of the host compiler buy; one thread, CPU time", header, rows)
