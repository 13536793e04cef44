"""The sum of the numbers in x (n,), a ladder of seven: total[0] = x[0] + x[1] + ..., zero before.

                    reads of a number     atomics of a number     what is slow
    atomic_sum      1                     1                       all threads wait for each other at one address
    divergent_sum   1                     1 / 256                 divergence: all warps work for ever fewer threads
    strided_sum     1                     1 / 256                 bank conflicts: 2-way, 4-way, 8-way
    tree_sum        1                     1 / 256                 a barrier a step; half of the threads idle, then 3/4
    first_add_sum   1                     1 / 512                 as before, but no thread only reads: half the blocks
    shuffle_sum     1                     1 / (32 T)              nothing but the reads, if a thread adds T numbers
    grid_sum        1 + 1 / (256 T)       0                       a barrier of the grid: all blocks must run at once

Divergence shows in the requests that warps make of shared memory, conflicts in the passes that it needs for them. A
thread of any rung needs few registers and a block 2 KB at most, so that occupancy is full; `shuffle_sum` and `grid_sum`
then want as many blocks as fit, not more.

Harris 2007, "Optimizing parallel reduction in CUDA", climbs from the second rung to the fifth; "Faster reductions on
Kepler" (Luitjens 2014) has the shuffles. Atomics add in any order, so that the last bits of the sum differ from run to
run. `grid_sum` adds in the same order every time, and so do the kernels of the library, kernels/reduce.py: trees and
shuffles there, and a second launch instead of a barrier for the grid, which limits how many blocks there may be.
"""

import numpy as np

from miniflow.hostcuda import cuda
from miniflow.kernels.ladders import Rung, blocks
from miniflow.kernels.reduce import SUM, THREADS, WARP, warp_sum

GRID = 16  # blocks of `shuffle_sum` and `grid_sum`: a number that a GPU holds all at once
add_up = SUM.tree


@cuda.jit
def atomic_sum(x, total):
    """Thread i adds x[i] to the total: a read and an atomic addition."""
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(total, 0, x[i])


@cuda.jit
def divergent_sum(x, total):
    """Block b adds 256 neighbours in shared memory, then thread 0 adds their sum to the total.

    In step s thread t adds the value of thread t + 2^s to its own if t is a multiple of 2^(s + 1): threads with work
    are ever further apart, so that a warp runs for 16 threads, then 8, 4, 2 and 1.
    """
    values = cuda.shared.array(THREADS, x.dtype)
    i, thread = cuda.grid(1), cuda.threadIdx.x
    values[thread] = x[i] if i < x.size else x.dtype.type(0)
    step = 1
    while step < THREADS:
        cuda.syncthreads()
        if thread % (2 * step) == 0:
            values[thread] += values[thread + step]
        step *= 2
    if thread == 0:
        cuda.atomic.add(total, 0, values[0])


@cuda.jit
def strided_sum(x, total):
    """As `divergent_sum`, but thread t takes the t-th of the pairs: threads with work are neighbours, and fill warps.

    In step s the cells that neighbours touch are 2^(s + 1) apart, in 16 banks, 8, 4, 2 and 1: shared memory needs
    2 passes for a request, 4, then 8 until fewer than 8 threads are left.
    """
    values = cuda.shared.array(THREADS, x.dtype)
    i, thread = cuda.grid(1), cuda.threadIdx.x
    values[thread] = x[i] if i < x.size else x.dtype.type(0)
    step = 1
    while step < THREADS:
        cuda.syncthreads()
        cell = 2 * step * thread
        if cell < THREADS:
            values[cell] += values[cell + step]
        step *= 2
    if thread == 0:
        cuda.atomic.add(total, 0, values[0])


@cuda.jit
def tree_sum(x, total):
    """Block b adds 256 neighbours in shared memory, then thread 0 adds their sum to the total.

    In step s thread t < 128 / 2^s adds the value of thread t + 128 / 2^s to its own: 256 values, 128, 64 ... 1. Threads
    with work are neighbours, and so are the cells that they touch: no bank conflicts. One read of a number, and one
    atomic addition of 256.
    """
    values = cuda.shared.array(THREADS, x.dtype)
    i, thread = cuda.grid(1), cuda.threadIdx.x
    values[thread] = x[i] if i < x.size else x.dtype.type(0)
    add_up(values, thread, 1)
    if thread == 0:
        cuda.atomic.add(total, 0, values[0])


@cuda.jit
def first_add_sum(x, total):
    """As `tree_sum`, but block b adds 512 numbers: thread t reads two, 256 apart, and adds them before step 0."""
    values = cuda.shared.array(THREADS, x.dtype)
    thread = cuda.threadIdx.x
    i = 2 * THREADS * cuda.blockIdx.x + thread
    own = x[i] if i < x.size else x.dtype.type(0)
    if i + THREADS < x.size:
        own += x[i + THREADS]
    values[thread] = own
    add_up(values, thread, 1)
    if thread == 0:
        cuda.atomic.add(total, 0, values[0])


@cuda.jit
def shuffle_sum(x, total):
    """Thread i adds x[i], x[i + threads of the grid], ... in a register; a warp adds its 32 sums by shuffles.

    No barrier and no shared memory: lanes read each other's registers. One read of a number, and one atomic addition of
    the 32 T numbers of a warp.
    """
    own = x.dtype.type(0)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        own += x[i]
    own = warp_sum(own)
    if cuda.threadIdx.x % WARP == 0:
        cuda.atomic.add(total, 0, own)


@cuda.jit
def grid_sum(x, partial, total):
    """As `shuffle_sum`, without atomics: thread 0 of block b leaves the sum of its block in partial[b]; when all blocks
    have arrived at the barrier of the grid, thread 0 of block 0 adds these up, always in the same order. One read of a
    number, and for each block one read and one write more.

    Args:
        x: (n,).
        partial: (blocks,), for the kernel's own use; all blocks have to run at once (a cooperative launch).
        total: (1,).
    """
    values = cuda.shared.array(THREADS, x.dtype)
    thread = cuda.threadIdx.x
    own = x.dtype.type(0)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        own += x[i]
    values[thread] = own
    add_up(values, thread, 1)
    if thread == 0:
        partial[cuda.blockIdx.x] = values[0]
    cuda.cg.this_grid().sync()
    if cuda.grid(1) == 0:
        own = x.dtype.type(0)
        for b in range(partial.size):
            own += partial[b]
        total[0] = own


def rungs(x: np.ndarray) -> dict[str, Rung]:
    """The launches for x (n,), n > 0, of a floating dtype."""
    whole = blocks(x.size, THREADS)
    grids = {
        atomic_sum: whole, divergent_sum: whole, strided_sum: whole, tree_sum: whole,
        first_add_sum: blocks(x.size, 2 * THREADS), shuffle_sum: GRID, grid_sum: GRID,
    }  # fmt: skip
    found = {}
    for kernel, grid in grids.items():
        total, partial = np.zeros(1, x.dtype), [np.full(GRID, np.nan, x.dtype)] if kernel is grid_sum else []
        found[kernel.py_func.__name__] = Rung(kernel, grid, THREADS, [x, *partial, total], total)
    return found
