# %% [markdown]
# # Matrix multiplication, from naive to tiled
#
# After this lesson you have written four kernels for the same matrix product, each of which reads less memory than the
# one before, and you can predict what a kernel reads. Time: 60 minutes. You need kernels and shared memory (lesson 6).
# No GPU is needed: the kernels run on the CPU, which counts what they read. It builds on puzzle 6.14, whose code you
# can copy and change.
#
# Solve the tasks in the notebook, `notebooks/08_matmul.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/08_matmul/student.py` when you run it, and checks the task. Or write in that file, which `python -m
# tutorials start 8` makes; `python -m tutorials check 8` checks all of it.

# %%
import numpy as np

from miniflow.hostcuda import check as checked
from tutorials import check, implementation

impl = implementation(8)

# %% [markdown]
# ## One thread, one output
#
# For $C = A B$ with shapes (M, K), (K, N) and (M, N), the formula is
#
# $$c_{ij} = \sum_k a_{ik} b_{kj}.$$
#
# **Task 8.1.** Write the kernel `naive`. Thread `i, j = cuda.grid(2)` computes `c[i, j]`. The grid consists of whole
# blocks, so it may be larger than C: threads beyond its edge must neither read nor write. Begin with
# `total = np.float32(0)` and write to `c` once, since `c` may hold anything before. `cuda.grid(2)` gives x, the first
# number of grid and block, first.
#
# `checked.launch` runs a kernel and looks at every access. An index outside of an array is an error; so is a *race*, in
# which one thread writes what another one reads, with no barrier between. It also counts. Each load of each thread from
# global memory is counted; caches are not part of the model.

# %%
SIZE = 64
rng = np.random.default_rng(0)
a, b = (rng.standard_normal((SIZE, SIZE)).astype(np.float32) for _ in "ab")


def measure(kernel, grid, block):
    c = np.full((SIZE, SIZE), np.nan, np.float32)
    counts = checked.launch(kernel, [a, b, c], grid, block, profile=True).total
    assert np.allclose(c, a @ b, atol=1e-4)
    reads, sectors = counts.global_loads / c.size, counts.sectors / c.size
    print(f"{kernel.__name__:10} for one output: {reads:7.2f} reads, {32 * sectors:8.1f} bytes moved")


measure(impl.naive, (2, 16), (32, 4))

# %% [markdown]
# Each output needs 2 K = 128 reads, of 4 bytes each. Why are so many more than 512 bytes moved?
#
# ## Neighbours
#
# The 32 threads of a *warp* read at the same time. They have consecutive numbers, and `threadIdx.x` runs first: in a
# block of (32, 4), a warp is 32 threads with the same y. Global memory answers in *sectors* of 32 bytes: eight
# neighbouring numbers. In `naive`, the threads of a warp have different rows. Each of them needs another sector, and
# uses 4 bytes of it.
#
# **Task 8.2.** Write `coalesced`, in which thread (x, y) of the grid computes `c[y, x]`. Now a warp reads 32 neighbours
# of a row of B. Such accesses are called *coalesced*. The check counts sectors.

# %%
measure(impl.coalesced, (2, 16), (32, 4))

# %% [markdown]
# The number of reads is the same, but all bytes of a sector are used. And where all threads of a warp read the same
# element of A, one sector is enough for all.
#
# ## Tiles
#
# Each element of A is still read N times, once for each column of C. The threads of a block can read for each other: a
# block has *shared memory*, which is small and fast. The sum over k is cut into steps of TILE = 16. In each step, the
# 16 x 16 threads of a block copy a 16 x 16 tile of A and one of B to shared memory, and then every thread multiplies 16
# pairs from there.
#
#                              |  ...  |
#                     B  start | tile  |          a_tile[y, x] = A[row, start + x]
#                              |  ...  |          b_tile[y, x] = B[start + y, column]
#     A    start               +-------+
#        ... | tile | ...      |   C   |          then, for each k of a tile, the product
#                              +-------+          of a_tile[y, k] and b_tile[k, x]
#
# Here x and y are the thread's numbers in its block, and row and column those of its output. Two barriers,
# `cuda.syncthreads()`, are needed. No thread may read a tile before all have written it, and no thread may write the
# next tile before all have read this one. *All* threads of the block must come to a barrier. So threads beyond the edge
# cannot leave early, and no barrier may stand in an `if` that only some of them enter.
#
# **Task 8.3.** Write `tiled`, for sizes that need not be multiples of 16. (Puzzle 6.14 does the same in smaller tiles.)
# The tiles, x and y are given, and so are two functions: `element(x, i, j)` is `x[i, j]`, or 0 beyond the edge, since
# zeros add nothing to a sum; `put(x, i, j, value)` writes if there is such an element.

# %%
measure(impl.tiled, (4, 4), (16, 16))

# %% [markdown]
# The reads went down by a factor of 16, the side of the tile.
#
# ## More work for each thread
#
# A larger block of outputs would read even less, but a block has at most 1,024 threads. So let each thread make several
# outputs. It keeps their sums in variables of its own, which a GPU holds in *registers*, its fastest memory. That has a
# second advantage: for one k a thread reads 2 + 2 numbers from the tiles and makes 4 products. In `tiled` it needs two
# reads for one product.
#
# **Task 8.4.** Write `blocked`. A block has 16 x 16 threads and makes SIDE x SIDE = 32 x 32 outputs. Its tile of A has
# shape (SIDE, TILE) and that of B has (TILE, SIDE), so each thread copies EACH = 2 elements of each. Thread (x, y)
# makes the outputs in rows y and y + TILE and columns x and x + TILE of the block, which is at row
# `cuda.blockIdx.y * SIDE` and column `cuda.blockIdx.x * SIDE` of C; `cuda.grid(2)` does not help here. `totals` and
# `b_values` are arrays of one thread: set `totals` to 0 first. Write loops over `range(EACH)`, so that another EACH
# works too. The check counts reads of shared memory as well: for each k, read EACH numbers from each tile, no more.

# %%
measure(impl.blocked, (2, 2), (16, 16))

# %% [markdown]
# ## Prediction
#
# You do not have to run a kernel to know what it reads. A block makes `rows` x `columns` outputs. Over all steps it
# reads its rows of A and its columns of B, each element once. So how often is one element of A read in all, by how many
# blocks? At the edge, a block may have fewer rows, and reads only these.
#
# **Task 8.5.** `reads(m, n, k, rows, columns)` is the number of elements that all blocks read, exactly, for any sizes;
# it returns an int. `intensity(...)`, with the same arguments, is the number of operations for each byte moved, a
# float. It counts $2\,m\,n\,k$ operations, and 4 bytes for each read and for each output, which is written once.

# %%
for name, side in [("naive", 1), ("tiled", 16), ("blocked", 32)]:
    reads, intensity = (f(SIZE, SIZE, SIZE, side, side) for f in (impl.reads, impl.intensity))
    print(f"{name:8} {reads:8,} reads, {reads / SIZE**2:6.2f} for one output; {intensity:5.2f} operations a byte")

# %% [markdown]
# An NVIDIA H100 does about 67 trillion operations of float32 in a second, and reads 3.35 trillion bytes: 20 operations
# for each byte. With a lower intensity a kernel waits for memory, if no cache helps. This is the *roofline* model. For
# large matrices, side 16 comes to 4 operations a byte, 32 to 8, and 128 to 32.
#
# When all tasks pass, the check draws what your kernels read for one output beside your prediction.

# %%
passed = check(8)

# %% [markdown]
# The number to beat: 4 reads for one output with `blocked`, for these 64 x 64 matrices. What does EACH = 4 give? And
# what limits it? (Two tiles have to fit in 48 KiB of shared memory, and all sums in a thread's 255 registers.)
#
# ## In miniflow's source
#
# `kernels/ladders/matmul.py` has the same ladder with a rung more, 8 x 8 outputs for a thread, and says why the library
# runs the one before it: `kernels/matmul.py`, 64 x 64 outputs for a block, 8 x 2 for a thread, transposed inputs.
# `kernels/ladders/transpose.py` is about nothing but coalescing and bank conflicts, `kernels/ladders/reduction.py` adds
# divergence. `python -m miniflow.kernels.ladders` counts the reads, requests and conflicts of all ladders.
# `miniflow/hostcuda/profile.py` is the profiler.
#
# Further reading: NVIDIA, "CUDA C++ Programming Guide", the chapter on shared memory; Volkov and Demmel 2008,
# "Benchmarking GPUs to tune dense linear algebra"; Williams, Waterman and Patterson 2009, "Roofline: an insightful
# visual performance model for multicore architectures"; Boehm 2022, "How to optimize a CUDA matmul kernel for
# cuBLAS-like performance".
