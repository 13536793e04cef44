# %% [markdown]
# # Parallel training
#
# After this lesson you can train one model on several devices: by splitting the batch, the layers, or the state of the
# optimizer. You count what each way sends, and run the same function on threads and on processes. Time: 60 minutes. You
# need NumPy, gradients of a linear layer (lesson 2) and all-reduce (lesson 15). It builds on the gradients of lesson 2,
# and on the collectives of lesson 15, which are given.
#
# Solve the tasks in the notebook, `notebooks/16_parallel_training.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/16_parallel_training/student.py` when you run it, and checks the task. Or write in that file, which `python
# -m tutorials start 16` makes; `python -m tutorials check 16` checks all of it.

# %%
import importlib

import numpy as np

import miniflow as flow
from tutorials import check, implementation

impl = implementation(16)
ranks = importlib.import_module("tutorials.16_parallel_training.ranks")

# %% [markdown]
# ## One program on all ranks
#
# A *rank* is a process with one device. All ranks run the same function, each with its own data. `comm` connects a
# rank to the others: `comm.rank` is its number, `comm.size` how many there are, and there are three collectives, which
# all ranks have to call in the same order:
#
# - `comm.all_reduce(array)` returns the sum of the arrays of all ranks, of any one shape.
# - `comm.reduce_scatter(array)` returns one part of this sum, of flat arrays: `np.array_split(sum, size)[rank]`.
# - `comm.all_gather(array)` returns the flat arrays of all ranks, one after the other.
#
# Here ranks are threads: `ranks.run(function, 4)` calls `function(comm)` on each of four, and returns the results, and
# the comms, which have counted the bytes.

# %%
results, comms = ranks.run(lambda comm: comm.all_reduce(np.array([1.0, comm.rank])), 4)
print(results[3], [comm.bytes for comm in comms])

# %% [markdown]
# ## Data parallel
#
# Each rank has all parameters, and computes with a part of the batch: `np.array_split(x, size)[rank]`. The loss is a
# mean over rows. If all parts were equal, the mean of the ranks' means would be the mean of all. The last batch of an
# epoch is smaller, and then parts differ, or are empty. So each rank's mean counts by its share of the rows.
#
# **Task 16.1.** `own_summands` returns this rank's loss and gradients, times its share of the rows, from the given
# `loss_and_gradients`. `data_parallel` adds them up over the ranks: one all-reduce for the loss, one for each gradient.

# %%
params, batches = ranks.problem(seed=0)
loss, gradients = impl.loss_and_gradients(params, *batches[-1])
results, comms = ranks.run(lambda comm: impl.data_parallel(comm, params, *batches[-1]), 3)
print(len(batches[-1][0]), "rows; loss on one rank:", round(loss, 6), " on three:", round(results[0][0], 6))
print("equal gradients:", all(np.allclose(a, b) for a, b in zip(gradients, results[0][1])))

# %% [markdown]
# ## Buckets
#
# Each message takes some time, the *latency*, even if it is small. So the gradients of several parameters are put into
# one flat array, a *bucket*. One bucket for everything would wait for the end of backward. But backward has the
# gradients of the last layer first, and while it goes on with the others, these can already be sent.
#
# **Task 16.2.** `buckets(sizes, limit)` goes through the parameters from the last to the first. A parameter joins the
# current group if the group stays within `limit`; otherwise it starts a new group. `reduce_buckets` sends one
# all-reduce for each group, with the given `flatten` and `unflatten`. `finish_time` says when the last all-reduce ends.
# One runs at a time, in the order of the groups, and it starts when all gradients of its group are ready.

# %%
sizes, ready = [400, 8, 400, 8], [4.0, 3.0, 2.0, 1.0]
for limit in (8, 408, 1000):
    groups = impl.buckets(sizes, limit)
    print(groups, round(impl.finish_time(ready, sizes, groups, latency=1, rate=400), 2), "seconds")

# %% [markdown]
# ## Tensor parallel
#
# If the model is too large, its layers are split, and each rank sees the whole batch. In $y = \text{relu}(x W_1 + b_1)
# W_2 + b_2$ each rank has some of the hidden units: columns of $W_1$, a part of $b_1$, rows of $W_2$. The product with
# $W_2$ is a sum over all hidden units, so each rank has a summand of it. In backward, the gradient $g$ of $y$ is the
# same on all ranks. Each rank computes the gradients of its own parts. One gradient is again a sum over all hidden
# units. Which?
#
# **Task 16.3.** Write `block_forward` and `block_backward`, with one all-reduce each. The gradient of relu is 0 where
# the hidden unit is 0.

# %%
x, w1, b1, w2, b2 = (np.random.default_rng(k).normal(size=s) for k, s in enumerate([(5, 3), (3, 8), 8, (8, 2), 2]))


def block(comm):
    own = [np.array_split(a, comm.size, axis)[comm.rank] for a, axis in ((w1, 1), (b1, 0), (w2, 0))]
    return impl.block_forward(comm, x, *own, b2)


for size in (1, 4):
    results, comms = ranks.run(block, size)
    y, hidden = results[0]
    print(size, "ranks:", y[0].round(6), " hidden units of rank 0:", hidden.shape, comms[0].calls)

# %% [markdown]
# ## A sharded optimizer
#
# In data parallel training each rank has the whole state of the optimizer, and all make the same update. That is a
# waste of memory: Adam's state is twice as large as the model. But an all-reduce is a reduce-scatter and an all-gather.
# Between the two, each rank has the gradient of one part of the parameters. There it can update this part, with this
# part of the state, and gather new parameters in place of gradients. No more bytes are sent. This is *ZeRO*, stage 1.
#
# **Task 16.4.** Write `ShardedSGD`. Flatten all parameters into one array, and all gradients into another one. The rank
# keeps only its part of the velocity. The check counts the bytes of all arrays that your object keeps.
#
# **Task 16.5.** Write `train`: for each batch `own_summands`, the loss of the whole batch, and a step.

# %%
for size in (1, 2, 4):
    results, comms = ranks.run(lambda comm: impl.train(comm, params, batches, lr=0.1, momentum=0.9), size)
    print(size, "ranks:", [round(loss, 6) for loss in results[0][0]], sum(comm.bytes for comm in comms), "bytes")

# %% [markdown]
# Now with processes: `ranks.launch` starts two by MPI, and `main` in `ranks.py` connects them. Your function does not
# change. This needs `pip install "miniflow-edu[mpi]"`.

# %%
print(ranks.launch(2) if ranks.MPI else "MPI is not installed")

# %% [markdown]
# When all tasks pass, the check draws the losses, the bytes, and the time of a step with buckets of each size.

# %%
passed = check(16)

# %% [markdown]
# The curves of 1, 2 and 4 ranks lie on each other: it is the same training. The number to beat is the time in the title
# on the right. There all buckets have one limit, but the last bucket has to wait for the end of backward. In a function
# of your own, make groups of different sizes for `SIZES` in `tutorials/16_parallel_training/picture.py`.
#
# ## In miniflow
#
# With global tensors only layouts are said, and the collectives follow: parameters B and a batch S(0) are data
# parallel, weights S(0) and S(1) tensor parallel (`flow.nn.Linear` has its weight transposed).

# %%
flow.parallel.simulate(4)
everyone, S, B = flow.placement.all("cpu"), flow.sbp.split, flow.sbp.broadcast
layer = flow.nn.Linear(6, 3).to_global(everyone, B)
batch = flow.rand(64, 6, placement=everyone, sbp=B).to_global(sbp=S(0))
layer(batch).sum().backward()
print(layer.weight.grad.sbp, flow.parallel.stats()["all_reduce"], "bytes, which are 2 (n - 1) T:", 2 * 3 * 3 * 6 * 4)

# %% [markdown]
# `miniflow/nn/parallel/distributed.py` is `DistributedDataParallel`: it has buckets, and starts an all-reduce as soon
# as one is full. `miniflow/parallel/comm/mpi.py` has the collectives of processes. Lesson 18 goes on from here: devices
# that each have some of the layers and work at the same time, and all three stages of ZeRO.
#
# Further reading: Li et al. 2020, "PyTorch distributed: experiences on accelerating data parallel training"; Shoeybi et
# al. 2019, "Megatron-LM: training multi-billion parameter language models using model parallelism"; Rajbhandari et al.
# 2020, "ZeRO: memory optimizations toward training trillion parameter models".
