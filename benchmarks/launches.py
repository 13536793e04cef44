"""The launches of kernels that `hostcuda` measures: each function makes fresh arguments for given sizes.

Kernels of the library serve where they are the algorithm in question; the rest stand here. In numba's simulator, which
knows no shuffles, the same source runs unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from miniflow.backends.body import Body, Step
from miniflow.backends.cuda.pointwise import launcher_of
from miniflow.hostcuda import cuda
from miniflow.kernels import conv_depthwise, layer_norm, reduce, softmax
from miniflow.kernels.ladders import blocks, matmul
from miniflow.kernels.ladders.layer_norm import tree_rows

THREADS = 256  # a power of two
BINS = 256
EPS = 1e-5


class Launch(NamedTuple):
    """A kernel, its configuration and its arguments: NumPy arrays, numbers and tuples."""

    kernel: Any
    grid: Any
    block: Any
    arguments: list
    shared: int = 0


def loop(name: str, arrays: int) -> Any:
    """The flat kernel of a pointwise operator on float32."""
    operands = tuple(f"x{i}" for i in range(arrays))
    body = Body(["float32"] * arrays, [], [Step(name, operands, "float32")], ["v0"])
    return launcher_of(body, "v" * arrays, "flat")


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Normally distributed float32."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def nans(*shape: int, kind: Any = np.float32) -> np.ndarray:
    """Room for results, in which a forgotten cell is seen."""
    return np.full(shape, np.nan, kind)


# kernels


@cuda.jit
def count_values(values, counts):
    """A histogram: each block counts in shared memory, by atomics, and adds its counts to those of the others."""
    own = cuda.shared.array(BINS, np.int32)
    thread = cuda.threadIdx.x
    own[thread] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        cuda.atomic.add(own, values[i], 1)
    cuda.syncthreads()
    cuda.atomic.add(counts, thread, own[thread])


@cuda.jit
def empty():
    """Does nothing."""


@cuda.jit
def empty_of_four(x, y, out, number):
    """Does nothing with its arguments."""


# launches


def naive_matmul(n: int) -> Launch:
    """A product of square matrices, one thread an output."""
    grid = (blocks(n, matmul.TILE),) * 2
    return Launch(matmul.naive, grid, (matmul.TILE,) * 2, [numbers(n, n), numbers(n, n, seed=1), nans(n, n)])


def tiled_matmul(n: int) -> Launch:
    """The same with tiles of 16 x 16 in shared memory."""
    return naive_matmul(n)._replace(kernel=matmul.tiled)


def layer_norm_in_trees(rows: int, width: int) -> Launch:
    """LayerNorm of rows, a block a row."""
    arguments = [numbers(rows, width), numbers(width, seed=1), numbers(width, seed=2), np.float32(EPS)]
    return Launch(tree_rows, rows, THREADS, [*arguments, nans(rows, width)])


def layer_norm_in_warps(rows: int, width: int) -> Launch:
    """LayerNorm of rows, a warp a row, by Welford's formula."""
    given = [numbers(rows, width), numbers(width, seed=1), numbers(width, seed=2), EPS]
    made = [nans(rows, width), *(nans(rows, kind=np.float64) for _ in range(2))]
    return Launch(layer_norm.warp_rows(blocks(width, reduce.WARP)), blocks(rows, 8), THREADS, given + made)


def softmax_of_rows(rows: int, width: int) -> Launch:
    """Softmax, a warp a row."""
    return Launch(softmax.cached_softmax_rows, rows, reduce.WARP, [numbers(rows, width), nans(rows, width)], 4 * width)


def addition(n: int) -> Launch:
    """x + y of n elements."""
    kernel = loop("add", 2)
    return Launch(kernel, blocks(n, THREADS), THREADS, [nans(n), numbers(n), numbers(n, seed=1)])


def gelu(n: int) -> Launch:
    """A chain of elementwise operations."""
    return Launch(loop("gelu:approximate=none", 1), blocks(n, THREADS), THREADS, [nans(n), numbers(n)])


def block_sums(parts: int, chunk: int) -> Launch:
    """The sums of parts of a long row, a block each."""
    x = numbers(1, parts * chunk)
    return Launch(reduce.SUM.block_rows, parts, THREADS, [x, x, np.float32(0), chunk, nans(1, parts)])


def convolution(images: int, channels: int, side: int) -> Launch:
    """A depthwise 3x3 convolution with padding 1, one thread an output, straight from the formula."""
    x = numbers(images, channels, 1, side, side)
    weight, bias = numbers(channels, 1, 1, 3, 3, seed=1), numbers(channels, seed=2)
    grid = (blocks(side * side, conv_depthwise.THREADS), channels, images)
    geometry = (1, 1), (-1, -1), (1, 1)
    arguments = [x, weight, bias, nans(*x.shape), *geometry]
    return Launch(conv_depthwise.direct, grid, conv_depthwise.THREADS, arguments)


def histogram(n: int) -> Launch:
    """How often each of 256 values occurs."""
    values = np.random.default_rng(0).integers(0, BINS, n)
    return Launch(count_values, min(64, blocks(n, BINS)), BINS, [values, np.zeros(BINS, np.int32)])


LAUNCHES: dict[str, Callable[..., Launch]] = {
    "naive matmul": naive_matmul,
    "tiled matmul": tiled_matmul,
    "LayerNorm, Welford in warps": layer_norm_in_warps,
    "LayerNorm, trees in blocks": layer_norm_in_trees,
    "softmax of rows": softmax_of_rows,
    "add": addition,
    "gelu": gelu,
    "sums of blocks": block_sums,
    "3x3 convolution, depthwise": convolution,
    "histogram": histogram,
}


def made(case: tuple | list) -> Launch:
    """The launch of a case (name, *sizes)."""
    return LAUNCHES[case[0]](*case[1:])


def title(case: tuple | list) -> str:
    """What a table calls a case."""
    return f"{case[0]} {' x '.join(map(str, case[1:]))}"
