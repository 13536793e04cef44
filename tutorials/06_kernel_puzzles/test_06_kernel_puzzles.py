"""The checks of lesson 6: launches with checks for races and bounds, and counted accesses. NumPy is the oracle."""

import os

import numpy as np
import pytest

from tutorials import at_most, drawn, same

os.environ["MINIFLOW_CUDA"] = "host"  # only the host executor can check and count, even where there is a GPU

from tutorials.launches import launch  # noqa: E402

BLOCK, TILE, TAPS, STEPS = 32, 8, 4, 5
SIZES = [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK - 5]
SMALL = [(1, 1), (TILE, TILE), (3, TILE), (TILE - 1, 2)]
LARGE = [(TILE + 1, TILE - 1), (3, 2 * TILE + 1), (2 * TILE, TILE + 3), (1, 1)]


def blocks(*sizes):
    """How many blocks of `BLOCK`, or of `TILE` along x and y, have enough threads for a shape."""
    return tuple(-(-n // (BLOCK if len(sizes) == 1 else TILE)) for n in reversed(sizes))


def judged(kernel, grid, block, inputs, wanted, hint, reads):
    """Launch a kernel, compare what it wrote, and count; returns the call as text, and the profile."""
    what = f"{kernel.py_func.__name__}, grid {grid}, block {block}, inputs of shape "
    what += " and ".join(str(x.shape) for x in inputs)
    given, out = [x.copy() for x in inputs], np.full(wanted.shape, np.nan, np.float32)
    profile = launch(kernel, [*given, out], grid, block, what, hint)
    same(out, wanted.astype(np.float32), what, hint, rtol=1e-4, atol=1e-4)
    for before, after in zip(inputs, given):
        same(after, before, f"an input after {what}", "a kernel writes only to out")
    at_most(profile.total.global_loads, reads, f"{what}: reads of global memory", "what is read twice can be shared")
    at_most(profile.total.global_stores, out.size, f"{what}: writes to global memory", "write each result once")
    return what, profile


def own_elements(what, profile, name="out", verb="written"):
    """Fails unless each element is accessed by the thread whose number it has."""
    touches = profile.touches[name]
    dims = range(len(touches.shape))
    for index, (block, thread) in (touches.writers if verb == "written" else touches.readers).items():
        block, thread = (np.unravel_index(n, of, "F") for n, of in ((block, profile.grid), (thread, profile.block)))
        found = tuple(int(block[d] * profile.block[d] + thread[d]) for d in dims)[::-1]
        hint = "x counts columns, y counts rows" if len(dims) > 1 else "block number times block size, plus the thread"
        if found != index:
            raise AssertionError(
                f"{what}: expected {name}{list(index)} to be {verb} by the thread with this number, but it was thread "
                f"{found[::-1]}, x first. Hint: {hint}"
            )


def shared_depth(what, profile, limit, hint):
    """Fails if a block, which is one warp, asks shared memory more often than that."""
    at_most(profile.total.shared_requests / np.prod(profile.grid), limit, f"{what}: turns at shared memory", hint)


@pytest.mark.task("6.1")
@pytest.mark.parametrize("n", [1, 7, BLOCK])
def test_map(impl, rng, n):
    x = drawn(rng, n)
    own_elements(*judged(impl.add_ten, 1, n, [x], x + 10, "the thread's number is cuda.threadIdx.x", n))


@pytest.mark.task("6.2")
@pytest.mark.parametrize("n", [1, 7, BLOCK])
def test_zip(impl, rng, n):
    a, b = drawn(rng, n), drawn(rng, n)
    own_elements(*judged(impl.add_pairs, 1, n, [a, b], a + b, "the same index in all three arrays", 2 * n))


@pytest.mark.task("6.3")
@pytest.mark.parametrize("n", [1, 7, BLOCK - 1, BLOCK])
def test_guard(impl, rng, n):
    x = drawn(rng, n)
    own_elements(*judged(impl.guarded, 1, BLOCK, [x], x + 10, "every element has a thread", n))


@pytest.mark.task("6.4")
@pytest.mark.parametrize("shape", SMALL)
def test_map_in_two_dims(impl, rng, shape):
    x = drawn(rng, *shape)
    own_elements(*judged(impl.double, 1, (TILE, TILE), [x], 2 * x, "guard both dims", x.size))


@pytest.mark.task("6.5")
@pytest.mark.parametrize("m, n", SMALL)
def test_broadcast(impl, rng, m, n):
    column, row = drawn(rng, m, 1), drawn(rng, 1, n)
    hint = "an axis of size 1 has only index 0"
    own_elements(*judged(impl.broadcast, 1, (TILE, TILE), [column, row], column + row, hint, 2 * m * n))


@pytest.mark.task("6.6")
@pytest.mark.parametrize("n", SIZES)
def test_blocks(impl, rng, n):
    x = drawn(rng, n)
    hint = "the blocks before have blockIdx.x * blockDim.x threads"
    own_elements(*judged(impl.square, blocks(n), BLOCK, [x], x * x, hint, 2 * n))


@pytest.mark.task("6.7")
@pytest.mark.parametrize("shape", LARGE)
def test_blocks_in_two_dims(impl, rng, shape):
    x, bias = drawn(rng, *shape), drawn(rng, shape[1])
    hint = "one bias for each column"
    own_elements(*judged(impl.add_bias, blocks(*shape), (TILE, TILE), [x, bias], x + bias, hint, 2 * x.size))


@pytest.mark.task("6.8")
@pytest.mark.parametrize("count", [1, 2, 5])
def test_reverse(impl, rng, count):
    x = drawn(rng, count * BLOCK)
    wanted = x.reshape(count, BLOCK)[:, ::-1].ravel()
    what, profile = judged(impl.reverse, count, BLOCK, [x], wanted, "thread 0 needs what the last thread read", x.size)
    own_elements(what, profile, "x", "read")
    own_elements(what, profile)


@pytest.mark.task("6.9")
@pytest.mark.parametrize("n", [1, 2, 3, 17, BLOCK])
def test_pool(impl, rng, n):
    x = drawn(rng, n)
    wanted = np.convolve(x, np.ones(3))[:n]
    own_elements(*judged(impl.pool, 1, BLOCK, [x], wanted, "the window ends at i, and begins at 0 or later", n))


@pytest.mark.task("6.10")
@pytest.mark.parametrize("n", [1, 2, 13, BLOCK])
def test_dot(impl, rng, n):
    a, b = drawn(rng, n), drawn(rng, n)
    wanted = np.asarray([a.astype(np.float64) @ b])
    own_elements(*judged(impl.dot, 1, BLOCK, [a, b], wanted, "thread 0 adds up the products of all threads", 2 * n))


@pytest.mark.task("6.11")
@pytest.mark.parametrize("n", [*SIZES, BLOCK + TAPS])
def test_convolve(impl, rng, n):
    x, weight = drawn(rng, n), drawn(rng, TAPS)
    wanted = np.correlate(np.pad(x, (0, TAPS - 1)), weight, "valid")
    (count,) = blocks(n)
    reads = n + (TAPS - 1) * (count - 1) + TAPS * count
    hint = "the last threads of a block need elements of the next block"
    own_elements(*judged(impl.convolve, count, BLOCK, [x, weight], wanted, hint, reads))


@pytest.mark.task("6.12")
@pytest.mark.parametrize("n", SIZES)
def test_prefix_sum(impl, rng, n):
    x = drawn(rng, n)
    wanted = np.concatenate([np.cumsum(x[i : i + BLOCK], dtype=np.float64) for i in range(0, n, BLOCK)])
    what, profile = judged(impl.prefix_sum, blocks(n), BLOCK, [x], wanted, "step k adds what stood 2**k before", n)
    own_elements(what, profile)
    shared_depth(what, profile, 9 * STEPS, "all threads add at the same time, in STEPS steps")


@pytest.mark.task("6.13")
@pytest.mark.parametrize("shape", [(1, 1), (5, BLOCK), (3, 17), (2, BLOCK - 1)])
def test_axis_sum(impl, rng, shape):
    x = drawn(rng, *shape)
    hint = "cells without an element count as 0; each step halves the number of sums"
    what, profile = judged(impl.axis_sum, shape[0], BLOCK, [x], x.sum(1, dtype=np.float64), hint, x.size)
    shared_depth(what, profile, 5 * STEPS, "add pairs in STEPS steps, not one element after the other")
    for (row,), writer in profile.touches["out"].writers.items():
        same(writer, (row, 0), f"{what}: the (block, thread) that writes out[{row}]", "the sum is in the first cell")


@pytest.mark.task("6.14")
@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (TILE, TILE, TILE), (9, 19, 7), (17, 8, 10), (5, 7, 18)])
def test_matmul(impl, rng, m, k, n):
    a, b = drawn(rng, m, k), drawn(rng, k, n)
    columns, rows = blocks(m, n)
    hint = "add up over all tiles of the inner dim, whose last tile may be narrow"
    own_elements(*judged(impl.matmul, (columns, rows), (TILE, TILE), [a, b], a @ b, hint, k * (m * columns + n * rows)))
