# %% [markdown]
# # Kernel puzzles
#
# After this lesson you can write CUDA kernels: you choose which thread computes which element, guard the ends of
# arrays, share data between the threads of a block, and find races. You need no GPU. Time: 60 minutes for puzzles 1 to
# 10, and 60 for the others. You need Python and NumPy.
#
# Solve the tasks in the notebook, `notebooks/06_kernel_puzzles.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/06_kernel_puzzles/student.py` when you run it, and checks the task. Or write in that file, which `python -m
# tutorials start 6` makes; `python -m tutorials check 6` checks all of it. The docstring of each kernel says what it
# computes, the shapes, and how many threads are started.

# %%
import os

os.environ["MINIFLOW_CUDA"] = "host"  # use the CPU, even where there is a GPU

import numpy as np

from miniflow.hostcuda import KernelCheckError, check, cuda, show
from tutorials import check as check_lesson
from tutorials import implementation

impl = implementation(6)

# %% [markdown]
# ## One kernel, many threads
#
# A *kernel* is a function that a GPU runs in many *threads* at the same time. All threads run the same code. Each has a
# number, `cuda.threadIdx.x`, and uses it to choose its element. A kernel returns nothing: it writes into an array.
#
# With `numba.cuda` kernels are written in Python. miniflow compiles the same source for the CPU, so that it runs
# without a GPU. Here is a first kernel and its *launch*. The square brackets name how many blocks and how many threads
# are started; `to_device` copies an array to the memory of the device, `copy_to_host` copies one back.


# %%
@cuda.jit
def negate(x, out):
    t = cuda.threadIdx.x
    out[t] = -x[t]


x = cuda.to_device(np.arange(5, dtype=np.float32))
out = cuda.device_array(5, np.float32)
negate[1, 5](x, out)
print(out.copy_to_host())

# %% [markdown]
# The compiler turns the threads of a block into a loop. The next cell shows what it made, before it is compiled to
# machine code. With many threads the loop uses vector instructions of the CPU.

# %%
print(negate.inspect_host(stage="regions"))

# %% [markdown]
# In this lesson kernels are launched by `check.launch(kernel, arrays, grid, block)`. It is slower, looks at every
# access to memory, and reports mistakes about which a GPU is silent. It takes NumPy arrays directly.
#
# **Task 6.1.** *Map.* `add_ten` adds 10 to each element of x. There is one block, with one thread for each element.
#
# **Task 6.2.** *Zip.* `add_pairs` adds two arrays. How many elements does a thread read?

# %%
x, out = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
check.launch(impl.add_ten, [x, out], grid=1, block=5)
print(out)

# %% [markdown]
# ## More threads than elements
#
# A launch usually starts more threads than there are elements. What does a thread without an element do?

# %%
try:
    check.launch(negate, [x, out], grid=1, block=8)
except KernelCheckError as error:
    print(error)

# %% [markdown]
# Three threads read and write behind the end of the arrays. A GPU does this and says nothing: some other array has
# wrong elements afterwards. The report names the line, the thread and the index, and says how often it happened.
#
# **Task 6.3.** *Guard.* `guarded` is `add_ten` with an `if`: a thread without an element does nothing.
#
# ## Two dimensions
#
# A block may have two dimensions. Then `cuda.threadIdx.x` and `cuda.threadIdx.y` number a thread. The threads of a
# block are ordered by x first, and so are the elements of a row. Let **x count columns and y count rows**: then
# neighbouring threads have neighbouring elements. In a kernel, `rows, columns = x.shape` gives the sizes of a matrix.
#
# **Task 6.4.** *Map in two dimensions.* `double` multiplies each element by 2. Guard both dimensions.
#
# **Task 6.5.** *Broadcast.* `broadcast` adds a column of shape (m, 1) and a row of shape (1, n). An axis of size 1 has
# only the index 0.

# %%
column, row = np.array([[10], [20]], np.float32), np.array([[1, 2, 3]], np.float32)
out = np.zeros((2, 3), np.float32)
check.launch(impl.broadcast, [column, row, out], grid=1, block=(8, 8))
print(out)

# %% [markdown]
# ## Blocks
#
# A block has at most 1,024 threads. For larger arrays a launch starts a *grid* of blocks. The number of a thread in the
# grid is
#
#     cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
#
# or `cuda.grid(1)` for short. In two dimensions, `cuda.grid(2)` gives a pair of numbers, x before y. 70 elements and
# blocks of 32 threads take 3 blocks, 96 threads: the last 26 have no element.
#
# **Task 6.6.** *Blocks.* `square` squares each element of an array of any size.
#
# **Task 6.7.** *Blocks in two dimensions.* `add_bias` adds `bias[j]` to column j of a matrix of any shape.

# %%
x, out = np.arange(70, dtype=np.float32), np.zeros(70, np.float32)
check.launch(impl.square, [x, out], grid=3, block=32)
print(out[[0, 31, 32, 69]])

# %% [markdown]
# ## Neighbours
#
# Why should neighbouring threads have neighbouring elements? The 32 threads of a *warp* work in step, and their
# accesses to global memory go out together, in *sectors* of 32 bytes. 32 neighbouring numbers of 4 bytes are 4 sectors.
# With `profile=True`, `check.launch` counts the accesses and the sectors of each line. This kernel copies a matrix, and
# neighbouring threads have neighbouring rows:


# %%
@cuda.jit
def copy_along_columns(x, out):
    i, j = cuda.grid(2)
    out[i, j] = x[i, j]


square = np.ones((32, 32), np.float32)
along_columns = check.launch(copy_along_columns, [square, square.copy()], grid=1, block=(32, 32), profile=True)
print(along_columns)

# %% [markdown]
# It loads 1,024 elements and stores as many. In the ideal case this takes 256 sectors, but it takes 2,048: 8 times as
# many. In the picture, the upper half shows which warp accesses which element. The lower half shows what the first warp
# asks for: its 32 threads, called *lanes*, from top to bottom, and the addresses to the right.

# %%
figure = show(along_columns)

# %% [markdown]
# ## Shared memory
#
# Global memory is slow: a GPU multiplies many times while it reads one number. So each element should be read once.
# Each block has *shared memory*, small and fast, where its threads can exchange what they have read.
# `cuda.shared.array(size, dtype)` makes an array there, one for each block. It is not set to zero. The size has to be a
# constant: a number, or a name such as `BLOCK` that is defined outside of the kernel.
#
# This kernel rotates the elements of each block by one place:


# %%
@cuda.jit
def rotate(x, out):
    tile = cuda.shared.array(32, np.float32)
    t = cuda.threadIdx.x
    tile[t] = x[cuda.grid(1)]
    out[cuda.grid(1)] = tile[(t + 1) % 32]


x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
try:
    check.launch(rotate, [x, out], grid=2, block=32)
except KernelCheckError as error:
    print(error.findings[0])

# %% [markdown]
# This is a *race*: two threads access one element, at least one of them writes, and nothing says who is first. It may
# go well for years. The check does not depend on luck: it reports every race. `cuda.syncthreads()` is a *barrier*: no
# thread of the block goes on before all of them have come here. All threads have to come to it, so a barrier must not
# stand in an `if` that only some threads enter. Such a *divergent* barrier is reported, too.
#
# **Task 6.8.** *Shared memory.* `reverse` reverses the elements of each block. Thread i reads only `x[i]` and writes
# only `out[i]`. The size of x is a multiple of the block, so you need no guard.
#
# **Task 6.9.** *Pooling.* `pool` adds up windows of three: `out[i] = x[i - 2] + x[i - 1] + x[i]`. At the beginning the
# window is shorter. There is one block. Every element is read from global memory once. From here on, the shared
# arrays and the numbers of the thread are given.
#
# **Task 6.10.** *Dot product.* `dot` multiplies two arrays element by element, in one block. When all products are in
# shared memory, thread 0 adds them up and writes the result.

# %%
out = np.zeros(1, np.float32)
profile = check.launch(impl.dot, [x[:20], x[:20], out], grid=1, block=32, profile=True)
print(out, x[:20] @ x[:20], "reads:", profile.total.global_loads)

# %% [markdown]
# The sum of the products of 20 numbers took 40 reads: each element of both arrays once.
#
# **Task 6.11.** *Convolution.* `convolve` computes `out[i]` as the sum of `weight[k] * x[i + k]` for the 4 weights.
# What is beyond the end of x counts as 0. There are many blocks. The last threads of a block need 3 elements that
# belong to the next block, so the tile has `SPAN` = 35 elements: each thread reads one element into it, and the first
# three threads read one more. The weights are read into shared memory, too, once for each block.
#
# An `if` can stand in an expression: `value = x[i] if i < x.size else 0`. If it is false, nothing is read.

# %%
x, weight = np.arange(70, dtype=np.float32), np.array([1, 0, 0, 1], np.float32)
out = np.zeros(70, np.float32)
profile = check.launch(impl.convolve, [x, weight, out], grid=3, block=32, profile=True)
print(out[:4], out[-4:], "reads:", profile.total.global_loads)

# %% [markdown]
# The 3 blocks read the 70 elements, 6 of them in two blocks, and 4 weights each: 88 reads.
#
# ## Steps that halve and double
#
# Thread 0 alone needs 32 steps to add 32 numbers. With all threads 5 steps are enough, because $2^5 = 32$. Write each
# such loop as `for k in range(STEPS)`: a `while` that does not end cannot be stopped in a notebook.
#
# **Task 6.12.** *Prefix sum.* In each block `out[i]` is the sum of the block's elements up to and with `x[i]`. In
# step k, thread t adds the value that stands $2^k$ places before its own, if there is one. Then after step 0 each cell
# holds the sum of up to 2 elements, after step 1 of up to 4, and so on. In each step all threads read first, into a
# variable; then comes a barrier; then they write; then comes another barrier. Cells without an element count as 0. The
# check counts how often the threads, which work in step, access shared memory.
#
# **Task 6.13.** *Sum along an axis.* In `axis_sum` a block owns a row of at most 32 elements. In each step the first
# half of the cells that are left adds the second half: 16 threads add cell t + 16 to cell t, then 8 threads cell t + 8,
# and so on. At the end the first cell holds the sum, and thread 0 writes it. Here one barrier in each step is enough.
# Why?

# %%
x = np.arange(24, dtype=np.float32).reshape(4, 6)
out = np.zeros(4, np.float32)
check.launch(impl.axis_sum, [x, out], grid=4, block=32)
print(out, x.sum(1))

# %% [markdown]
# ## A matrix product in tiles
#
# A thread that computes one element of $A B$ by the formula reads a row of A and a column of B. Its neighbours read the
# same row, or the same column. So let a block of 8 x 8 threads read for all of its threads: first the tile of 8 x 8
# elements at the beginning of its rows of A, and the tile at the beginning of its columns of B. Each thread reads one
# element of both, and then uses 8 elements of both. After this come the next tiles along the inner dimension.
#
# **Task 6.14.** *Matrix product.* `matmul` does this for any shapes. In each round, thread (x, y) of a block reads the
# element of its own row of A that is in column x of A's tile, and the element of its own column of B that is in row y
# of B's tile. Where a tile is beyond the matrix, put 0 into the cell. You need two barriers in each round: when are the
# tiles complete, and when may they be overwritten? A thread outside of the result has work to do as well, until the
# last write.

# %%
rng = np.random.default_rng(0)
a, b = [rng.standard_normal((24, 24)).astype(np.float32) for _ in range(2)]
out = np.zeros((24, 24), np.float32)
profile = check.launch(impl.matmul, [a, b, out], grid=(3, 3), block=(8, 8), profile=True)
print("largest error is small:", bool(abs(out - a @ b).max() < 1e-4))
print("reads for each result:", profile.total.global_loads / out.size, "in place of", 2 * 24)

# %% [markdown]
# The reads went down by 8, the side of the tile. The number to beat is 6 reads for each result. Copy the kernel to a
# cell, change the tile to 16 x 16, and launch it with a grid of 2 x 2 blocks: how many reads are left?
#
# `show(profile)` draws this kernel, too. For shared memory the lower half shows *banks*: two different words in one
# bank are fetched one after the other.
#
# When all puzzles pass, the check draws the output of each kernel. A number is the thread that wrote the element, as x
# or x,y. The color is its block, or its warp if there is only one block.

# %%
passed = check_lesson(6)

# %% [markdown]
# ## In miniflow's source
#
# The kernels of miniflow's operators are in `kernels/`: `kernels/scan.py` has prefix sums,
# `kernels/reduce.py` sums along axes, `kernels/matmul.py` the matrix product.
# `python -m miniflow --device cuda` trains a network with nothing but these kernels. `miniflow/hostcuda/` is the
# compiler; `miniflow/hostcuda/check.py` finds races and `miniflow/hostcuda/profile.py` counts. On a machine with a GPU
# leave `MINIFLOW_CUDA` out: then `cuda` is `numba.cuda` itself.
#
# Further reading: A. Rush, "GPU Puzzles", 2022, from which the order of the puzzles comes; D. Hillis and G. Steele
# 1986, "Data parallel algorithms", the prefix sum; M. Harris 2007, "Optimizing parallel reduction in CUDA"; NVIDIA,
# "CUDA C++ Programming Guide", on shared memory and barriers.
