# %% [markdown]
# # Kernels without a GPU
#
# A GPU runs one function, the *kernel*, in many thousands of threads at once. With `numba.cuda` such kernels are
# written in Python. Here you write some, from an elementwise one to a matrix product in tiles and a LayerNorm, and
# you need no GPU: miniflow compiles the same source for the CPU. It also runs kernels in a second, slow way that finds
# the mistakes about which a GPU keeps silent, and that shows how they use memory. Where there is a GPU, the kernels
# run on it unchanged.
#
# Exercises stand where they arise: try each before you open the cell that follows.

# %%
import os

os.environ["MINIFLOW_CUDA"] = "host"  # use the CPU, even where there is a GPU: see the end for what changes without

import math

import matplotlib.pyplot as plt
import numpy as np

from miniflow.hostcuda import KernelCheckError, check, cuda, show

# %% [markdown]
# ## A thread for each element
#
# A launch starts a *grid* of *blocks*, each of so many *threads*. All run the same kernel; what tells them apart is
# their number. In one dimension that is
#
#     cuda.grid(1) = blockIdx.x * blockDim.x + threadIdx.x
#
# Thread i owns element i of the result.


# %%
@cuda.jit
def add_scaled(a, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


# %% [markdown]
# Arrays have to be in the memory of the device: `to_device` copies one there, `copy_to_host` back. A launch names the
# grid and the block in square brackets. For 1,000 elements and blocks of 256 threads it takes 4 blocks, 1,024 threads:
# the last 24 have nothing to do, which is what the `if` is for.

# %%
rng = np.random.default_rng(0)
x, y = [rng.standard_normal(1000).astype(np.float32) for _ in range(2)]
x_on_device, y_on_device = cuda.to_device(x), cuda.to_device(y)
out = cuda.device_array(1000, np.float32)

add_scaled[4, 256](np.float32(2), x_on_device, y_on_device, out)

assert np.allclose(out.copy_to_host(), 2 * x + y)

# %% [markdown]
# What ran is a translation. The compiler first finds what the threads of a block do between two barriers. Here there
# is no barrier, so that is all they do:

# %%
print(add_scaled.inspect_host(stage="regions"))

# %% [markdown]
# Then it writes this down. The threads of a block have become a loop, and the `if` the end of that loop, so that the
# compiler can work on 8 or 16 threads with one instruction. The loop stands there twice: where the first and the last
# index lie in the arrays, nothing else needs to be checked; otherwise every index is. (A GPU checks none;
# `cuda.jit(boundscheck=False)` leaves that out.)

# %%
generated = add_scaled.inspect_host()
print(generated[generated.index("def blocks") :])

# %% [markdown]
# **Exercise 1.** Grids and blocks may have two dimensions: `column, row = cuda.grid(2)` gives both numbers of a
# thread, x first. Write a kernel `add_bias(x, bias, out)` that computes `out[i, j] = x[i, j] + bias[j]` for matrices
# of any shape.


# %%
# Solution
@cuda.jit
def add_bias(x, bias, out):
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = x[row, column] + bias[column]


# %%
matrix, bias = rng.standard_normal((50, 70)).astype(np.float32), rng.standard_normal(70).astype(np.float32)
out = cuda.device_array((50, 70), np.float32)
add_bias[(3, 4), (32, 16)](cuda.to_device(matrix), cuda.to_device(bias), out)
assert np.array_equal(out.copy_to_host(), matrix + bias)

# %% [markdown]
# ## What a GPU does not tell
#
# Without the `if`, the last 24 threads write behind the end of the array. A GPU does that and says nothing; some other
# array has 24 wrong elements afterwards. Here the first such thread ends the launch with an `IndexError`. With
# `check=True` every access is checked for more, and all that is wrong is listed. (`MINIFLOW_CHECK=1` in the environment
# does this to all kernels of a program.)


# %%
@cuda.jit(check=True)
def add_scaled_carelessly(a, x, y, out):
    i = cuda.grid(1)
    out[i] = a * x[i] + y[i]


try:
    add_scaled_carelessly[4, 256](np.float32(2), x_on_device, y_on_device, cuda.device_array(1000, np.float32))
except KernelCheckError as error:
    print(error)

# %% [markdown]
# ## Neighbours
#
# The 32 threads of a *warp* go in step, and their accesses to global memory go out together, in sectors of 32 bytes.
# If neighbouring threads read neighbouring elements, 32 numbers of 4 bytes are 4 sectors. Here are two kernels that
# copy a matrix. In one, neighbouring threads have neighbouring columns, in the other neighbouring rows.


# %%
@cuda.jit
def copy_along_rows(x, out):
    j, i = cuda.grid(2)
    out[i, j] = x[i, j]


@cuda.jit
def copy_along_columns(x, out):
    i, j = cuda.grid(2)
    out[i, j] = x[i, j]


# %% [markdown]
# `check.launch` runs a kernel with all checks; with `profile=True` it counts too, for each line of the source, what
# was loaded and stored and how many sectors that took.

# %%
square = cuda.to_device(rng.standard_normal((32, 32)).astype(np.float32))
out = cuda.device_array((32, 32), np.float32)
along_rows = check.launch(copy_along_rows, [square, out], grid=1, block=(32, 32), profile=True)
along_columns = check.launch(copy_along_columns, [square, out], grid=1, block=(32, 32), profile=True)
print(along_rows, along_columns, sep="\n\n")
assert along_columns.total.sectors == 8 * along_rows.total.sectors

# %% [markdown]
# The same as a picture. Above, colours say which warp touches which element. Below, what the first warp asks for: its
# 32 lanes from top to bottom, addresses to the right. Both kernels give the right result, but along the columns a GPU
# moves 8 times as many bytes as it needs.

# %%
figure = show(along_columns)

# %% [markdown]
# **Exercise 2.** Thread i of a warp reads `x[2 * i]`. How many sectors does the warp need? Think first; then write
# the kernel `every_other(x, out)` with `out[i] = x[2 * i]`, launch it with one block of 32 threads, and let
# `sectors_read` be the sectors of its reads: those of both sides together are `profile.total.sectors`, and the write
# takes 4.


# %%
# Solution
@cuda.jit
def every_other(x, out):
    i = cuda.grid(1)
    out[i] = x[2 * i]


profile = check.launch(every_other, [x_on_device, cuda.device_array(32, np.float32)], grid=1, block=32, profile=True)
sectors_read = profile.total.sectors - 4

# %%
assert sectors_read == 8  # half of each sector is not used

# %% [markdown]
# ## A matrix product
#
# One thread for each element of `c = a @ b`, straight from the formula. A thread reads a row of `a` and a column of
# `b`: 2 K elements for one result.


# %%
@cuda.jit
def matmul(a, b, c):
    column, row = cuda.grid(2)
    if row < c.shape[0] and column < c.shape[1]:
        total = np.float32(0)
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        c[row, column] = total


# %%
size = 32
a, b = [rng.standard_normal((size, size)).astype(np.float32) for _ in range(2)]
a_on_device, b_on_device = cuda.to_device(a), cuda.to_device(b)
c = cuda.device_array((size, size), np.float32)

profile = check.launch(matmul, [a_on_device, b_on_device, c], grid=(2, 2), block=(16, 16), profile=True)
assert np.allclose(c.copy_to_host(), a @ b, atol=1e-4)
print("reads for each result:", profile.total.global_loads / c.size)

# %% [markdown]
# A GPU multiplies some twenty times in the time it takes to read one number from global memory. But the threads of a
# block read the same numbers again and again, so they can read for each other. A block has *shared memory*, which is
# small and fast. In each step its 16 x 16 threads copy a tile of `a` and a tile of `b` there, one element each, and
# then every thread uses 16 elements of both. `syncthreads()` is a *barrier*: no thread passes before all have come.
# It is needed, since a thread uses what others have copied.

# %%
TILE = 16


@cuda.jit
def tiled_first_try(a, b, c):
    a_tile = cuda.shared.array((TILE, TILE), np.float32)
    b_tile = cuda.shared.array((TILE, TILE), np.float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    zero = np.float32(0)
    total = zero
    for start in range(0, a.shape[1], TILE):
        a_tile[y, x] = a[row, start + x] if row < a.shape[0] and start + x < a.shape[1] else zero
        b_tile[y, x] = b[start + y, column] if start + y < b.shape[0] and column < b.shape[1] else zero
        cuda.syncthreads()
        for k in range(TILE):
            total += a_tile[y, k] * b_tile[k, x]
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


tiled_first_try[(2, 2), (16, 16)](a_on_device, b_on_device, c)
print("largest error:", abs(c.copy_to_host() - a @ b).max())

# %% [markdown]
# The result is right, and the kernel is wrong. Look at it again before you open the next cell: where could a thread
# that is faster than the others do harm?

# %%
try:
    check.launch(tiled_first_try, [a_on_device, b_on_device, c], grid=(2, 2), block=(16, 16))
except KernelCheckError as error:
    print(error.findings[0])

# %% [markdown]
# It is a *race*. A thread that is done with its 16 products goes on to the next tile and overwrites elements that a
# slower thread still needs. The CPU happens to run the threads in an order in which nothing goes wrong, and a GPU
# mostly does too: until the block is larger, the GPU another one, or the day an unlucky one. The checks do not depend
# on luck. They report any two accesses to one element, by different threads and one of them a write, with no barrier
# between them.
#
# **Exercise 3.** Mend it: write `tiled`.


# %%
# Solution
@cuda.jit
def tiled(a, b, c):
    a_tile = cuda.shared.array((TILE, TILE), np.float32)
    b_tile = cuda.shared.array((TILE, TILE), np.float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    zero = np.float32(0)
    total = zero
    for start in range(0, a.shape[1], TILE):
        a_tile[y, x] = a[row, start + x] if row < a.shape[0] and start + x < a.shape[1] else zero
        b_tile[y, x] = b[start + y, column] if start + y < b.shape[0] and column < b.shape[1] else zero
        cuda.syncthreads()  # the tiles are complete
        for k in range(TILE):
            total += a_tile[y, k] * b_tile[k, x]
        cuda.syncthreads()  # nobody reads them any more
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


# %%
profile = check.launch(tiled, [a_on_device, b_on_device, c], grid=(2, 2), block=(16, 16), profile=True)
assert np.allclose(c.copy_to_host(), a @ b, atol=1e-4)
assert profile.total.global_loads == 2 * size / TILE * c.size
print("reads for each result:", profile.total.global_loads / c.size)

# %% [markdown]
# The reads went down by a factor of 16, the side of the tile. In the upper half of the picture a number is the thread
# that comes first, as x.y. Each element of a tile is written by the thread at its place, and then read by 16 threads,
# in both of the 2 steps. In the lower half, the warp's accesses to global memory make whole sectors, and those to
# shared memory come to different *banks*: two words in one bank would have to be fetched one after the other.

# %%
figure = show(profile)

# %% [markdown]
# ## LayerNorm: a warp for each row
#
# $y = (x - \text{mean}) / \sqrt{\text{variance} + \varepsilon} \cdot \text{weight} + \text{bias}$, with mean and
# variance of each row. A sum over a row needs many threads to work together, and those of one warp can do it without
# shared memory and without a barrier: they can read each other's registers. `shfl_xor_sync(mask, value, 16)` gives a
# lane the value of that lane whose number differs in the bit 16. Adding it, then the same with 8, 4, 2, 1, leaves the
# sum of all 32 in every lane: a *butterfly*.
#
# A function with `device=True` is called by kernels, not launched.

# %%
EVERYONE = 0xFFFFFFFF  # a bit for each of the 32 lanes


@cuda.jit(device=True)
def warp_sum(value):
    for k in range(5):
        value += cuda.shfl_xor_sync(EVERYONE, value, 16 >> k)
    return value


# %% [markdown]
# A block has 32 x 4 threads: `threadIdx.y` numbers its 4 warps, each of which owns a row. Lane l takes the elements
# l, l + 32, l + 64 ... of it, so that the warp reads neighbours.


# %%
@cuda.jit
def layer_norm(x, weight, bias, eps, y):
    lane = cuda.threadIdx.x
    row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if row < x.shape[0]:
        width = np.float32(x.shape[1])
        total = np.float32(0)
        for j in range(lane, x.shape[1], 32):
            total += x[row, j]
        mean = warp_sum(total) / width
        squares = np.float32(0)
        for j in range(lane, x.shape[1], 32):
            squares += (x[row, j] - mean) ** 2
        scale = np.float32(1) / math.sqrt(warp_sum(squares) / width + eps)
        for j in range(lane, x.shape[1], 32):
            y[row, j] = (x[row, j] - mean) * scale * weight[j] + bias[j]


# %%
rows, width = 10, 100
x = rng.standard_normal((rows, width)).astype(np.float32) * 3 + 5
weight, bias = [rng.standard_normal(width).astype(np.float32) for _ in range(2)]
arguments = [cuda.to_device(x), cuda.to_device(weight), cuda.to_device(bias), np.float32(1e-5)]
y = cuda.device_array((rows, width), np.float32)
layer_norm[3, (32, 4)](*arguments, y)


def layer_norm_numpy(x, weight, bias, eps=1e-5):
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + eps) * weight + bias


assert np.allclose(y.copy_to_host(), layer_norm_numpy(x, weight, bias), atol=1e-4)

# %%
profile = check.launch(layer_norm, [*arguments, y], grid=3, block=(32, 4), profile=True)
print(profile)

# %% [markdown]
# No finding, and few sectors more than ideal: not every row of 100 elements begins where a sector begins. But x is read
# three times. `miniflow/kernels/layer_norm.py` keeps it in registers, and finds mean and variance in one pass.
#
# **Exercise 4.** Write `softmax(x, y)`, with $y_{ij} = e^{x_{ij} - m_i} / \sum_k e^{x_{ik} - m_i}$, by the same
# picture: a warp for each row. $m_i$, the largest element of the row, keeps the exponentials from overflowing. You
# need a `warp_max`; begin with `-math.inf`.


# %%
# Solution
@cuda.jit(device=True)
def warp_max(value):
    for k in range(5):
        value = max(value, cuda.shfl_xor_sync(EVERYONE, value, 16 >> k))
    return value


@cuda.jit
def softmax(x, y):
    lane = cuda.threadIdx.x
    row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if row < x.shape[0]:
        largest = np.float32(-math.inf)
        for j in range(lane, x.shape[1], 32):
            largest = max(largest, x[row, j])
        largest = warp_max(largest)
        total = np.float32(0)
        for j in range(lane, x.shape[1], 32):
            total += math.exp(x[row, j] - largest)
        total = warp_sum(total)
        for j in range(lane, x.shape[1], 32):
            y[row, j] = math.exp(x[row, j] - largest) / total


# %%
check.launch(softmax, [arguments[0], y], grid=3, block=(32, 4))
powers = np.exp(x - x.max(1, keepdims=True))
assert np.allclose(y.copy_to_host(), powers / powers.sum(1, keepdims=True), atol=1e-6)

# %% [markdown]
# ## How fast is it?
#
# numba has a simulator for machines without a GPU. It runs each thread of a block as a thread of Python, and knows
# neither shuffles nor races. It is chosen when numba is loaded, so it gets a process of its own, and the source of
# `tiled` as it stands above, for the same 32 x 32 matrices.

# %%
import inspect
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def best_time(function, repeats=20):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


program = f"""
import time
import numpy as np
from numba import cuda

TILE = {TILE}

{inspect.getsource(tiled.py_func)}

a = np.ones(({size}, {size}), np.float32)
start = time.perf_counter()
tiled[(2, 2), (TILE, TILE)](a, a, np.zeros_like(a))
print(time.perf_counter() - start)
"""
environment = {name: value for name, value in os.environ.items() if name != "MINIFLOW_CUDA"}
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "simulated.py"
    path.write_text(program)
    result = subprocess.run(
        [sys.executable, path],
        env={**environment, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

seconds = {
    "numba's simulator": float(result.stdout),
    "checks": best_time(lambda: check.launch(tiled, [a_on_device, b_on_device, c], (2, 2), (16, 16)), 2),
    "host executor": best_time(lambda: tiled[(2, 2), (16, 16)](a_on_device, b_on_device, c)),
    "numpy": best_time(lambda: a @ b),
}
for name, value in seconds.items():
    print(f"{name:18} {value * 1e6:12,.1f} microseconds")
print(f"{seconds[list(seconds)[0]] / seconds['host executor']:,.0f} times faster than the simulator")

# %%
figure, axes = plt.subplots(figsize=(7, 2.4), layout="constrained")
axes.barh(list(seconds), list(seconds.values()), color=["#b45f06", "#999999", "#38761d", "#3d85c6"])
axes.set_xscale("log")
axes.invert_yaxis()
axes.set_xlabel("seconds for a product of 32 x 32 matrices")
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# NumPy calls a library that was tuned for this CPU for decades; the kernel was written for another machine. On larger
# matrices:

# %%
size = 384
a, b = [rng.standard_normal((size, size)).astype(np.float32) for _ in range(2)]
a_on_device, b_on_device = cuda.to_device(a), cuda.to_device(b)
c = cuda.device_array((size, size), np.float32)
grid = (size // TILE, size // TILE)


def on_the_host():
    tiled[grid, (TILE, TILE)](a_on_device, b_on_device, c)
    cuda.synchronize()


for name, function in [("host executor", on_the_host), ("numpy", lambda: a @ b)]:
    print(f"{name:18} {2 * size**3 / best_time(function) / 1e9:8.1f} billion operations a second")
assert np.allclose(c.copy_to_host(), a @ b, atol=1e-3)

# %% [markdown]
# ## Where the kernels are used
#
# miniflow's tensors know the device "cuda" everywhere. Without a GPU it is emulated: its operations run kernels such
# as these, from the folder `miniflow/kernels/`, in the host executor.

# %%
import miniflow as flow

tensor = flow.tensor(x, device="cuda")
normalized = flow.nn.functional.layer_norm(tensor, (width,), *[flow.tensor(p, device="cuda") for p in (weight, bias)])
print(repr(normalized.device), tuple(normalized.shape))
assert np.allclose(normalized.cpu().numpy(), layer_norm_numpy(x, weight, bias), atol=1e-4)

# %% [markdown]
# From here: `python -m miniflow --device cuda` trains LeNet with nothing but these kernels.
# `miniflow/kernels/ladders/` goes on where `tiled` ends; `miniflow/hostcuda/` is the compiler. On a machine with a
# GPU, leave out the line that sets `MINIFLOW_CUDA`: then `cuda` is `numba.cuda` itself, and only the checks and
# profiles need the CPU. What a GPU would run can be seen without one, if `numba-cuda` is installed:
# `tiled.inspect_asm()` compiles it to PTX.
