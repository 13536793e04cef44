"""The checks of lesson 8: NumPy's products, the checked executor, and the reads that the profiler counts."""

import numpy as np
import pytest

from miniflow.hostcuda import check
from miniflow.kernels.ladders.matmul import rungs
from tutorials import at_most, drawn, same
from tutorials.launches import launch

SIZES = [(15, 17, 16), (17, 33, 31), (16, 15, 33), (1, 32, 1), (33, 1, 17), (31, 16, 48)]  # M, N, K
SIDE = 32  # of a block of outputs in task 8.4


def blocks(size, side):
    """How many blocks of a side cover a size."""
    return -(-size // side)


def shapes(sizes):
    m, n, k = sizes
    return f"a of shape {(m, k)} and b of shape {(k, n)}"


def launched(kernel, rng, sizes, grid, block, hint):
    """Launch a kernel with all checks on random matrices, compare c with NumPy, and return the counts."""
    m, n, k = sizes
    a, b, c = drawn(rng, m, k), drawn(rng, k, n), np.full((m, n), np.nan, np.float32)
    given = a.copy(), b.copy()
    what = f"{kernel.__name__} with {shapes(sizes)}, grid {grid}, blocks of {block}"
    counts = launch(kernel, [a, b, c], grid, block, what, hint).total
    wanted = given[0].astype(np.float64) @ given[1].astype(np.float64)
    same(c, wanted.astype(np.float32), f"{what}: c, which was NaN", hint, rtol=1e-4, atol=1e-4)
    for name, now, before in zip("ab", (a, b), given):
        same(now, before, f"{what}: {name} after the launch", "only c is written")
    same(counts.global_stores, m * n, f"{what}: writes to global memory", "one for each output")
    return counts


def reads_of(sizes, rows, columns):
    """What blocks of so many rows and columns read: each its rows of a and its columns of b, once."""
    m, n, k = sizes
    tops, lefts = range(0, m, rows), range(0, n, columns)
    return sum(k * (min(rows, m - top) + min(columns, n - left)) for top in tops for left in lefts)


@pytest.mark.task("8.1")
@pytest.mark.parametrize("sizes", [*SIZES, (9, 5, 7)])
def test_naive(impl, rng, sizes):
    m, n, _ = sizes
    grid = blocks(m, 8) + 1, blocks(n, 8)
    hint = "thread (i, j) = cuda.grid(2) owns c[i, j]; add up in a variable, and write it once"
    counts = launched(impl.naive, rng, sizes, grid, (8, 8), hint)
    at_most(counts.global_loads, reads_of(sizes, 1, 1), f"reads of naive with {shapes(sizes)}", "2 K for an output")


@pytest.mark.task("8.2")
def test_neighbours(impl, rng):
    for sizes in [(32, 32, 24), (33, 33, 17)]:  # square: right with both orders of threads
        m, n, k = sizes
        grid, block = (blocks(n, 32), blocks(m, 4)), (32, 4)
        hint = "cuda.grid(2) gives x first; neighbouring threads differ in x, and x is the column"
        counts = launched(impl.coalesced, rng, sizes, grid, block, hint)
        rung = rungs(drawn(rng, m, k), drawn(rng, k, n))["naive"]
        least = check.launch(rung.kernel, rung.arguments, grid, block, profile=True).total.sectors
        most = int(1.1 * least)  # an array may begin in the middle of a sector
        at_most(counts.sectors, most, f"sectors that coalesced moves with {shapes(sizes)}", hint)


@pytest.mark.task("8.2")
@pytest.mark.parametrize("sizes", SIZES)
def test_coalesced(impl, rng, sizes):
    m, n, _ = sizes
    grid = blocks(n, 32), blocks(m, 4) + 1
    counts = launched(impl.coalesced, rng, sizes, grid, (32, 4), "thread (x, y) of the grid owns c[y, x]")
    at_most(counts.global_loads, reads_of(sizes, 1, 1), f"reads of coalesced with {shapes(sizes)}", "2 K for an output")


@pytest.mark.task("8.3")
@pytest.mark.parametrize("sizes", SIZES)
def test_tiled(impl, rng, sizes):
    m, n, _ = sizes
    tile = impl.TILE
    hint = "beyond the edges the tiles hold zeros, which threads without an output copy too; is every tile of K used?"
    counts = launched(impl.tiled, rng, sizes, (blocks(n, tile), blocks(m, tile)), (tile, tile), hint)
    hint = "each thread copies one element of each tile, and multiplies what is in the tiles"
    most = reads_of(sizes, tile, tile)
    at_most(counts.global_loads, most, f"reads of global memory of tiled with {shapes(sizes)}", hint)


@pytest.mark.task("8.4")
@pytest.mark.parametrize("sizes", [*SIZES, (64, 33, 18), (47, 65, 16)])
def test_blocked(impl, rng, sizes):
    m, n, k = sizes
    tile, side = impl.TILE, impl.SIDE
    hint = "a thread owns rows y, y + TILE, ... and columns x, x + TILE, ... of its block; are the totals 0 at first?"
    counts = launched(impl.blocked, rng, sizes, (blocks(n, side), blocks(m, side)), (tile, tile), hint)
    hint = f"a block reads {SIDE} rows of a and {SIDE} columns of b, each element once"
    what = f"of blocked with {shapes(sizes)}"
    at_most(counts.global_loads, reads_of(sizes, SIDE, SIDE), f"reads of global memory {what}", hint)
    products = blocks(m, side) * blocks(n, side) * blocks(k, tile) * side * side * tile
    hint = f"for one k a thread reads {impl.EACH} + {impl.EACH} numbers from the tiles, and makes all products of them"
    at_most(counts.shared_loads, 2 * products // impl.EACH, f"reads of shared memory {what}", hint)


@pytest.mark.task("8.5")
def test_reads(impl, rng):
    for sizes in [*SIZES, (100, 7, 3), tuple(int(n) for n in rng.integers(1, 90, 3))]:
        for rows, columns in [(1, 1), (16, 16), (8, 32), (32, 8), (64, 16)]:
            what = f"reads({', '.join(map(str, sizes))}, {rows}, {columns})"
            hint = "how many blocks need an element of a? A block at the edge counts as one"
            same(impl.reads(*sizes, rows, columns), reads_of(sizes, rows, columns), what, hint)


@pytest.mark.task("8.5")
@pytest.mark.parametrize("name, side", [("naive", 1), ("tiled", 16)])
def test_reads_are_those_of_the_profiler(impl, rng, name, side):
    m, n, k = (int(size) for size in rng.integers(30, 67, 3))
    rung = rungs(drawn(rng, m, k), drawn(rng, k, n))[name]
    counts = check.launch(rung.kernel, rung.arguments, rung.grid, rung.block, profile=True).total
    what = f"reads({m}, {n}, {k}, {side}, {side}), which the profiler counted for a kernel of the library"
    same(impl.reads(m, n, k, side, side), counts.global_loads, what)


@pytest.mark.task("8.5")
def test_intensity(impl, rng):
    for m, n, k in [(64, 64, 64), (17, 33, 5), tuple(int(n) for n in rng.integers(1, 90, 3))]:
        for rows, columns in [(1, 1), (16, 16), (64, 32)]:
            moved = 4 * (reads_of((m, n, k), rows, columns) + m * n)
            what = f"intensity({m}, {n}, {k}, {rows}, {columns})"
            hint = f"{m * n * k} products, and as many sums; {moved} bytes"
            same(impl.intensity(m, n, k, rows, columns), 2 * m * n * k / moved, what, hint)
