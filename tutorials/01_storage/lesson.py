# %% [markdown]
# # Storage, strides and broadcasting
#
# After this lesson you can say where in memory each element of a tensor is, make views without copying, and undo a
# broadcast, which is what its gradient does. Time: 45 minutes. You need Python and a little NumPy. The last lesson puts
# your code of this one into a framework of your own.
#
# Solve the tasks in the notebook, `notebooks/01_storage.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/01_storage/student.py` when you run it, and checks the task. Or write in that file, which `python -m
# tutorials start 1` makes; `python -m tutorials check 1` checks all of it.

# %%
import numpy as np

import miniflow as flow
from tutorials import check, implementation

impl = implementation(1)

# %% [markdown]
# ## An array is a list of numbers, and a rule
#
# Memory has one dimension. An array of shape (2, 3) is six numbers in a row, the *storage*, and a rule that says which
# of them is element (1, 2). In *row-major* order, which NumPy and miniflow use, the rows lie one after the other.

# %%
x = np.array([[10, 11, 12], [20, 21, 22]])
print(x.ravel())

# %% [markdown]
# To go one step to the right, go one number ahead. To go one step down, go a whole row ahead: three numbers. These
# steps, (3, 1), are the *strides*. NumPy counts them in bytes; here they are counted in elements.

# %%
print(x.strides, "bytes, which are", tuple(step // x.itemsize for step in x.strides), "elements")

# %% [markdown]
# **Task 1.1.** `contiguous_strides(shape)` gives the strides of a row-major array. The last stride is 1. Each other
# one is the number of elements behind it: for (2, 3, 4) they are (12, 4, 1).
#
# **Task 1.2.** `offset(index, strides, start)` gives the place of an element in storage. Each index is multiplied by
# its stride; the first element is at `start`.
#
# **Task 1.3.** `index_at(position, shape)` is the way back, for row-major order: which index has element number 7? A
# GPU thread asks itself this question: it knows its number, and wants to know its element. Divide by the sizes, the
# last first, and keep the remainders.

# %%
print(impl.contiguous_strides((2, 3, 4)))
print(impl.offset((1, 2), (3, 1), 0), impl.index_at(7, (2, 3, 4)))

# %% [markdown]
# ## Views
#
# A transpose copies nothing: it exchanges the strides. A slice moves the start, and a step multiplies a stride. Such an
# array is a *view*: it shares its storage with another one, so who writes to one writes to both.

# %%
y = flow.tensor(x)
print(y.stride(), y.T.stride(), y[:, ::2].stride())
y.T[0, 1] = 0
print(y)

# %% [markdown]
# ## Broadcasting
#
# `x + bias` with shapes (2, 3) and (3,) repeats the bias for every row. The rule: write both shapes right-aligned. A
# missing dimension counts as 1. Two sizes have to be equal, or one of them has to be 1.
#
# **Task 1.4.** `broadcast_shape(a, b)` gives the common shape, and raises `ValueError` if there is none. What is the
# common size of 0 and 1?
#
# **Task 1.5.** Repeating does not need a copy. Which stride lets you read the same element again and again?
# `broadcast_strides(shape, strides, target)` gives the strides of the larger view.

# %%
print(impl.broadcast_shape((4, 1, 3), (5, 1)))
print(impl.broadcast_strides((3,), (1,), (1000, 3)))

# %% [markdown]
# The number to beat: how many bytes does a bias of 1,000 numbers take when it is added to 1,000 rows? A copy takes four
# million. Your view takes none: all rows are the same 4,000 bytes.

# %%
bias = np.ones(1000, np.float32)
strides = impl.broadcast_strides((1000,), (1,), (1000, 1000))
view = np.lib.stride_tricks.as_strided(bias, (1000, 1000), [step * bias.itemsize for step in strides])
copy = np.tile(bias, (1000, 1))
print(f"the copy: {copy.nbytes:,} bytes; your view: {0 if np.shares_memory(view, bias) else view.nbytes} more")

# %% [markdown]
# ## The way back: adding up
#
# If one number was used 1,000 times, its gradient is the sum of 1,000 gradients. So the gradient of a broadcast adds up
# over every dimension that was repeated.
#
# **Task 1.6.** `sum_to(array, shape)` adds up `array` until it has `shape`, which was broadcast to its shape. Sum the
# dimensions that were missing away; the others, of size 1, stay (`keepdims`).

# %%
print(impl.sum_to(np.ones((4, 2, 3), np.float32), (1, 3)))

# %% [markdown]
# Once all tasks pass, the check draws where the elements of four views are: made by your functions.

# %%
passed = check(1)

# %% [markdown]
# ## In miniflow's source
#
# `miniflow/ops/shape.py` has views (`View`, `Expand`) and `sum_to_shape`, which every operator that broadcasts calls in
# its gradient. `kernels/` turns thread numbers into indices as `index_at` does.
#
# Further reading: the NumPy paper, Harris et al. 2020, "Array programming with NumPy", on strides and broadcasting; E.
# Yang, "PyTorch internals", 2019, on views.
