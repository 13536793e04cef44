# %% [markdown]
# # Reductions, softmax and LayerNorm
#
# After this lesson you can write kernels in which many threads compute one number: sums in shared memory and by
# shuffles, softmax, and LayerNorm with its gradients. Time: 60 minutes. You need lesson 6, and the chain rule. It
# builds on puzzles 6.8 and 6.13, whose code you can copy and change.
#
# Solve the tasks in the notebook, `notebooks/07_layer_norm.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/07_layer_norm/student.py` when you run it, and checks the task. Or write in that file, which `python -m
# tutorials start 7` makes; `python -m tutorials check 7` checks all of it. The checks launch your kernels with
# `check.launch`, which finds races, and they count reads of global memory.

# %%
import os

os.environ["MINIFLOW_CUDA"] = "host"  # use the CPU, even where there is a GPU

import numpy as np

from miniflow.hostcuda import check
from tutorials import check as check_lesson
from tutorials import implementation

impl = implementation(7)
rng = np.random.default_rng(0)

# %% [markdown]
# ## A tree in shared memory
#
# The kernel `row_sums`, which is given, adds up each row of a matrix. A block owns a row. Each thread adds up every
# `blockDim.x`-th element of the row in a variable of its own, and writes this to a cell of shared memory. Then
# `tree_sum` adds up the cells. It is a *device function*: kernels call it, and it runs in their threads.
#
# With n values left, the second half is added to the first. If n is odd, let the first half have one more: of 5 values,
# cells 3 and 4 are added to cells 0 and 1, cell 2 stays, and 3 values are left.
#
# **Task 7.1.** Write `tree_sum(values, size)`. A barrier stands before the call. In each step each thread adds at most
# one cell to its own, and then comes a barrier, to which all threads come. Use a `for` loop with `STEPS` steps; a step
# with one value left changes nothing. At the end all threads may read `values[0]`.

# %%
x = rng.standard_normal((3, 1000)).astype(np.float32)
out = np.zeros(3, np.float32)
profile = check.launch(impl.row_sums, [x, out], grid=3, block=48, profile=True)
print(out, x.sum(1), "reads per element:", profile.total.global_loads / x.size)

# %% [markdown]
# ## Shuffles
#
# The 32 lanes of a warp can read each other's variables, without shared memory and without a barrier.
# `cuda.shfl_xor_sync(EVERYONE, value, 16)` returns the `value` of the lane whose number differs in the bit 16: lane 3
# gets that of lane 19, and lane 19 that of lane 3. If each lane adds it to its own value, every lane holds the sum of
# two. After the same with 8, 4, 2 and 1, every lane holds the sum of all 32. This is called a *butterfly*.
# `EVERYONE`, a bit for each lane, says that all lanes take part, so all 32 have to make the call.
#
# **Task 7.2.** Write the device functions `warp_sum(value)` and `warp_max(value)`, which return the result in every
# lane. `max(a, b)` works in kernels.
#
# ## Softmax
#
# $\text{softmax}(x)_j = e^{x_j} / \sum_k e^{x_k}$. In float32 $e^{89}$ is infinite already. So subtract the largest
# element $m$ of the row from each element first; this does not change the result.
#
# The simple way reads the row three times: for $m$, for the sum, and for the result. *Online* softmax finds $m$ and the
# sum in one pass (Milakov and Gimelshein 2018). A lane keeps the largest element so far and the sum of
# $e^{x_k - \text{largest}}$ so far. If a larger element $x$ comes, the sum is multiplied by $e^{\text{largest} - x}$,
# and 1 is added. Else $e^{x - \text{largest}}$ is added. At the end each lane scales its sum from its own largest
# element to that of the row. Then the sums are added up.
#
# **Task 7.3.** Write `softmax`. A warp owns a row: lane l takes the elements l, l + 32, l + 64 and so on. Elements may
# be -inf, as in attention with a mask, and a lane may see no others, or no element at all. Begin with
# `np.float32(-math.inf)`, and take care: $-\infty - (-\infty)$ is NaN, and so is its exponential.

# %%
x = np.array([[1000, 1001, -np.inf], [3, 2, 1]], np.float32)
out = np.zeros_like(x)
profile = check.launch(impl.softmax, [x, out], grid=1, block=(32, 4), profile=True)
print(out.round(3), "reads per element:", profile.total.global_loads / x.size)

# %% [markdown]
# ## LayerNorm
#
# LayerNorm makes mean 0 and variance 1 of each row, and then scales and shifts each column:
#
# $$\hat x_{rj} = (x_{rj} - \text{mean}_r) \cdot \text{rstd}_r, \qquad
# y_{rj} = \hat x_{rj} \cdot \text{weight}_j + \text{bias}_j, \qquad
# \text{rstd}_r = 1 / \sqrt{\text{variance}_r + \varepsilon}.$$
#
# The variance is the mean of $(x - \text{mean})^2$. It is also the mean of $x^2$ minus $\text{mean}^2$, which needs one
# pass less. But if the mean is large, these are two large numbers that are nearly equal, and the difference of their
# rounded values is wrong. The picture below shows how wrong.
#
# **Task 7.4.** Write `layer_norm`. It also writes mean and rstd of each row: the gradients need them. Read the row
# three times: for the mean, for the variance, for the result. One lane of the warp writes the statistics.

# %%
x = (rng.standard_normal((5, 100)) * 3 + 7).astype(np.float32)
weight, bias = np.ones(100, np.float32), np.zeros(100, np.float32)
y, mean, rstd = np.zeros_like(x), np.zeros(5, np.float32), np.zeros(5, np.float32)
check.launch(impl.layer_norm, [x, weight, bias, np.float32(1e-5), y, mean, rstd], grid=2, block=(32, 4))
print("mean of x", mean.round(2), "1 / rstd", (1 / rstd).round(2))
print("mean of y is 0:", np.allclose(y.mean(1), 0, atol=1e-5), "standard deviation is 1:", np.allclose(y.std(1), 1))

# %% [markdown]
# ## The gradients
#
# Let `dy` be the gradient of y. First the gradient of $\hat x$, which is $g_j = dy_j \cdot \text{weight}_j$. Each
# element of a row changes mean and rstd of the row too, so two sums over the row appear. With n elements in a row:
#
# $$dx_j = \text{rstd} \cdot \Big(g_j - \frac1n \sum_k g_k - \hat x_j \cdot \frac1n \sum_k g_k \hat x_k\Big).$$
#
# **Task 7.5.** Write `layer_norm_grad`, again with a warp for each row. Compute both sums in one pass, and take mean
# and rstd from the arrays: read them once into variables.
#
# **Task 7.6.** Weight and bias are used in every row, so their gradients are sums over the rows:
# $d\text{weight}_j = \sum_r dy_{rj} \hat x_{rj}$ and $d\text{bias}_j = \sum_r dy_{rj}$. In `parameter_grad` a thread
# owns a column and goes down the rows. Why do neighbouring threads read neighbouring elements here?

# %%
dy, dx = rng.standard_normal(x.shape).astype(np.float32), np.zeros_like(x)
check.launch(impl.layer_norm_grad, [dy, x, weight, mean, rstd, dx], grid=2, block=(32, 4))
print("sum of dx over each row is 0:", np.allclose(dx.sum(1), 0, atol=1e-4))
dweight, dbias = np.zeros(100, np.float32), np.zeros(100, np.float32)
check.launch(impl.parameter_grad, [dy, x, mean, rstd, dweight, dbias], grid=4, block=32)
print("dbias is right:", np.allclose(dbias, dy.sum(0), atol=1e-5))

# %% [markdown]
# A shift of a whole row changes nothing in y. So the gradient of x along such a shift, its sum over the row, is 0.
#
# When all tasks pass, the check draws two pictures of your kernels: the error of the variance for rows with a larger
# and larger mean, and the reads of global memory per element.

# %%
passed = check_lesson(7)

# %% [markdown]
# On the left, the error of the other formula grows with the square of the mean, and yours stays far below. The number
# to beat is on the right: the 5 reads per element of `layer_norm`, 3 of x, one of weight and one of bias. If a lane
# keeps its elements in `cuda.local.array(4, np.float32)`, rows of up to 128 elements need 3 reads.
#
# ## In miniflow's source
#
# `kernels/reduce.py` has the tree and the butterfly, `kernels/softmax.py` the softmax, and
# `kernels/layer_norm.py` keeps rows in registers or in shared memory and finds mean and variance in one pass,
# by Welford's method. `kernels/ladders/reduction.py` and `kernels/ladders/layer_norm.py` go from the
# naive kernel to the fast one in steps; `python -m miniflow.kernels.ladders` counts the reads of each.
#
# Further reading: M. Harris 2007, "Optimizing parallel reduction in CUDA"; M. Milakov and N. Gimelshein 2018, "Online
# normalizer calculation for softmax"; B. Welford 1962, "Note on a method for calculating corrected sums of squares and
# products"; J. Ba, J. Kiros and G. Hinton 2016, "Layer normalization".
