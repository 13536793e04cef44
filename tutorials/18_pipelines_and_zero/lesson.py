# %% [markdown]
# # Pipelines and ZeRO
#
# A model may be too large for one device. After this lesson you can spread its layers over devices that work at the
# same time, a *pipeline*, and you can say in advance how long they wait for each other. You can also share out what
# Adam remembers, *ZeRO*, and predict each byte that is kept and sent. All devices are simulated. Time: 75 minutes, in
# two halves. You need global tensors (lesson 15), data parallel training (lesson 16) and `nn.Graph` (lesson 0). It
# builds on the collectives of lesson 15 and the sharded optimizer of lesson 16.
#
# Solve the tasks in the notebook, `notebooks/18_pipelines_and_zero.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/18_pipelines_and_zero/student.py` when you run it, and checks the task. Or write in that file, which
# `python -m tutorials start 18` makes; `python -m tutorials check 18` checks all of it.

# %%
import importlib

import numpy as np

import miniflow as flow
from tutorials import check, implementation

impl = implementation(18)
training = importlib.import_module("tutorials.18_pipelines_and_zero.training")
S, B = flow.sbp.split, flow.sbp.broadcast

# %% [markdown]
# ## First half: a pipeline
#
# Cut the layers into *stages*, one for each device. A stage computes, sends its activations to the next stage, and
# waits. With one batch, only one device works at a time. So the batch is cut into *micro-batches*: while stage 1
# computes with the first, stage 0 begins with the second. There is one update for the whole batch, with the mean of the
# gradients of all micro-batches.
#
# A *task* is forward or backward of one micro-batch in one stage: F2 or B2. A *schedule* gives the order of tasks for
# each stage. Losses and gradients do not depend on it, but time and memory do. There are two well-known ones:
#
# - *GPipe*: forward of all micro-batches, then backward of all.
# - *1F1B*, one forward, one backward: a stage first computes as many forwards as there are stages behind it. From then
#   on each forward is followed by a backward, which frees the activations of the oldest micro-batch. When no forward is
#   left, the other backwards follow.
#
# **Task 18.1.** Write `all_forward_all_backward` and `one_forward_one_backward`. There may be fewer micro-batches than
# stages.

# %%
for stage in range(3):
    order = impl.one_forward_one_backward(stage, 3, 4)
    print("stage", stage, *[f"{phase[0].upper()}{i}" for phase, i in order])

# %% [markdown]
# ## When does each task run?
#
# A stage does its tasks strictly in order. A task starts when two things are true: the stage is free, and what the task
# needs is there. Results for another stage are on their way for `message` seconds. Both stages can compute in the
# meantime.
#
# You do not need a clock to simulate this. Go through the stages again and again. If the next task of a stage has all
# its results, its start is known: it is the maximum of some ends, plus the message. If there are tasks left, but no
# stage can go on, then the schedule *hangs*. On real devices that is a program which never ends and says nothing, so a
# simulator that names the waiting tasks is worth having.
#
# **Task 18.2.** Write `needs` and `simulate`.

# %%
orders = [impl.one_forward_one_backward(stage, 3, 4) for stage in range(3)]
times = impl.simulate(orders)
print("B0 of stage 0 runs from", *times[0, "backward", 0])
try:
    impl.simulate([orders[0], orders[1][::-1], orders[2]])
except impl.Hang as error:
    print(error)

# %% [markdown]
# ## What a schedule costs
#
# The *bubble* is the part of the time in which stages wait. With s stages, k micro-batches, messages that take no time
# and stages that are equally fast, each stage works k (f + b) seconds: f for a forward and b for a backward. The first
# micro-batch needs (s - 1) f seconds to get to the last stage, and the last gradient (s - 1) b seconds to come back. So
# a step takes (k + s - 1)(f + b) seconds, and the bubble is (s - 1) / (k + s - 1). The formula holds for GPipe and for
# 1F1B.
#
# The difference is memory. A stage keeps the activations of a micro-batch from its forward to its backward.
#
# **Task 18.3.** Write `bubble` and `alive`. From the formula, `enough_micro_batches` computes how many micro-batches a
# small bubble needs. Use integers: a rounding error of floats could make it one too many.

# %%
for schedule in (impl.all_forward_all_backward, impl.one_forward_one_backward):
    orders = [schedule(stage, 4, 8) for stage in range(4)]
    print(f"bubble {impl.bubble(impl.simulate(orders)):.4f}, formula {3 / 11:.4f},", end=" ")
    print("alive:", [impl.alive(order) for order in orders])
print("micro-batches for a bubble of at most 10 %:", impl.enough_micro_batches(4, 10))

# %% [markdown]
# ## A real pipeline
#
# In miniflow a stage is a module on a placement of its own. In an `nn.Graph`, `self.model[k].config` has options for a
# module, and `self.config` has those for the whole graph:
#
# - `module.to_global(placement, B)` moves the parameters, and `module.config.set_stage(k, placement)`, called on the
#   graph's module, lets its inputs follow: activations are sent forward, gradients back.
# - `set_gradient_accumulation_steps(k)` of the graph's config cuts the batch into micro-batches. `build` is written for
#   one of them, and the graph returns one loss for each.
# - `set_pipeline_schedule` of the graph's config takes a schedule: yours fits.
#
# **Task 18.4.** Write `Pipeline`. The optimizer is `flow.optim.Adam`; do not forget `add_optimizer`.

# %%
flow.parallel.simulate(4)
widths = [16, 32, 32, 32, 4]
x, y = training.batch(0, 64, widths)
places = [flow.placement("cpu", [rank]) for rank in range(4)]
pipeline = impl.Pipeline(training.blocks(0, widths), places, 8, impl.one_forward_one_backward, 0.01)
inputs = training.spread(x, places[0]), training.spread(y, places[-1])
losses = [pipeline(*inputs).numpy().mean() for _ in range(4)]
print("4 stages: ", *np.round(losses, 6))
print(pipeline.schedule())

# %% [markdown]
# On one device, the same training has the same losses:

# %%
model = flow.nn.Sequential(*training.blocks(0, widths))
optimizer, losses = flow.optim.Adam(model.parameters(), lr=0.01), []
for _ in range(4):
    loss = flow.nn.functional.mse_loss(model(flow.tensor(x)), flow.tensor(y))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print("one device:", *np.round(losses, 6))

# %% [markdown]
# A schedule that hangs is found before the first step. And the memory that the graph plans shows what `alive` counts:

# %%
for schedule in (impl.all_forward_all_backward, impl.one_forward_one_backward):
    graph = impl.Pipeline(training.blocks(0, widths), places, 8, schedule, 0.01)
    graph(*inputs)
    print(f"{schedule.__name__}: {graph.memory().after / 1024:.0f} KiB for activations and gradients of all stages")


def backward_too_early(stage, stages, micro_batches):
    order = impl.one_forward_one_backward(stage, stages, micro_batches)
    return order[::-1] if stage == 1 else order


try:
    impl.Pipeline(training.blocks(0, widths), places, 8, backward_too_early, 0.01)(*inputs)
except flow.errors.GraphError as error:
    print(error)

# %% [markdown]
# Here one process computes all stages, one after the other. Under MPI (lesson 16) each stage is a process. It sends
# without waiting for the receiver, so the stages really work at the same time.
#
# ## Second half: ZeRO
#
# In data parallel training each of n ranks holds all parameters, T bytes, and all of Adam's states, 2 T bytes. They are
# the same on all ranks, so most of this memory is wasted. In lesson 16 you saw the way out, with arrays and SGD. With
# global tensors it is three changes of layout:
#
# 1. The gradient is a partial sum, P: each rank has the summand of its rows. P to S(0) is a reduce-scatter.
# 2. The parameter is B. B to S(0) sends nothing: each rank takes its part. With states in S(0), Adam's formula runs on
#    every rank for its own part.
# 3. The new parameter is S(0). S(0) to B is an all-gather.
#
# Each of the three is one `x.to_global(sbp=...)`. No other operation should read the gradient while it is P: the sum of
# the ranks' squares is not the square of their sum. `training.counted` calls a function, and tells by how much the
# counters of `flow.parallel.stats()` have grown.
#
# **Task 18.5.** Write `ShardedAdam`. All parameters have at least as many rows as there are ranks.

# %%
everyone = flow.placement.all("cpu")
x, y = (training.spread(array, everyone, S(0)) for array in training.batch(0, 16, [8, 4]))
weight = flow.zeros(8, 4, placement=everyone, sbp=B)
optimizer = impl.ShardedAdam([weight], lr=0.1)
for _ in range(3):
    error = x @ weight - y
    gradient = x.t() @ error * (2 / error.numel())
    [weight], sent = training.counted(optimizer.step, [weight], [gradient])
    print(f"loss {(error * error).mean().item():.4f}, the gradient is {gradient.sbp[0]}, bytes sent: {sent}")
print("(n - 1) T =", 3 * 8 * 4 * 4, " m on rank 0:", tuple(optimizer.m[0].shards[0].shape))

# %% [markdown]
# ## Three stages
#
# An all-reduce sends 2 (n - 1) T bytes, all ranks together. A reduce-scatter and an all-gather send (n - 1) T each. So
# the states are shared out for free. This is *stage 1*. More can be saved, but not for free any longer:
#
# - *Stage 2*: with micro-batches, a rank has to keep the sum of their gradients, T bytes, until the update. If it is to
#   keep its part only, each micro-batch needs a reduce-scatter of its own. In stage 1 there is one, of the sum.
# - *Stage 3*: the parameters are S(0), too. Each micro-batch gathers a parameter for forward, and again for backward;
#   in between its memory is free. After the update nothing is gathered: the next step does that.
#
# Backward reads the weight of a layer for the gradient of the layer's input, $g W^T$. The input of the first layer is
# the data, which needs no gradient. So backward does not read the first weight, and in stage 3 does not gather it.
#
# **Task 18.6.** `sent` counts the bytes of a step by collective, and `kept` those that a rank keeps. Without ZeRO and
# in stage 1 the gradients of micro-batches are summed on each rank before they are sent.

# %%
sizes = [4 * m * n for m, n in ((16, 64), (64, 64), (64, 4))]
for zero in range(4):
    print(zero, impl.sent(zero, 4, sizes, 2), impl.kept(zero, 4, sum(sizes)))

# %% [markdown]
# ## In a graph
#
# `config.enable_zero(stage=1)` does the same in a graph: `DataParallel` in `training.py` has no other line for it. Its
# parameters are B and its batches S(0), as before. Here are the losses of three steps, then the counted bytes, which
# should be equal to those of your formulas:

# %%
x, y = (training.spread(array, everyone, S(0)) for array in training.batch(0, 32, [16, 4]))
for zero in range(4):
    model = training.layers(0, [16, 64, 64, 4]).to_global(everyone, B)
    adam = flow.optim.Adam(model.parameters(), lr=0.01)
    graph = training.DataParallel(model, adam, zero, parts=2)
    losses = [graph(x, y).numpy().mean() for _ in range(3)]
    _, sent = training.counted(graph, x, y)
    print(f"ZeRO {zero}: losses", *np.round(losses, 5), "sent", sent)
    sent = {"all_reduce": 0, "reduce_scatter": 0, "all_gather": 0} | sent
    kept = impl.kept(zero, 4, sum(sizes))
    wanted = kept["parameters"], kept["states"]
    print("  as predicted:", sent == impl.sent(zero, 4, sizes, 2), training.held(adam, rank=0) == wanted)

# %% [markdown]
# Both halves together: two stages, each on two ranks that share the batch, with ZeRO among the two. The losses are
# partial sums of both ranks, and `numpy()` adds them up.

# %%
places = [flow.placement("cpu", [0, 1]), flow.placement("cpu", [2, 3])]
hybrid = impl.Pipeline(training.blocks(0, [16, 32, 4]), places, 4, impl.one_forward_one_backward, 0.01)
hybrid.config.enable_zero(stage=1, shard_min_size=1)
x, y = training.batch(0, 32, [16, 4])
inputs = training.spread(x, places[0], S(0)), training.spread(y, places[1], S(0))
print("losses:", *[hybrid(*inputs).numpy().mean().round(5) for _ in range(3)])
print("bytes sent:", training.counted(hybrid, *inputs)[1])

# %% [markdown]
# When all tasks pass, the check draws your schedules, with messages that take half a second, and the memory of ZeRO.

# %%
passed = check(18)

# %% [markdown]
# The number to beat is the 41 seconds of 1F1B. Because of the messages, its stages wait for gradients although forwards
# would be ready. GPipe takes 36 seconds, but keeps 8 micro-batches alive in each stage. Write a schedule that takes 36
# seconds with at most 6, 4, 3 and 1 alive, and draw it: `gantt` in `tutorials/18_pipelines_and_zero/picture.py` takes a
# function.
#
# ## In miniflow's source
#
# `miniflow/graph/schedule.py` has the two schedules, and `Schedule` is your simulator, with measured times where you
# call `graph.schedule(x, y)`; `graph.schedule().picture()` draws it. `miniflow/graph/passes/pipeline.py` puts the
# instructions of a graph in this order. `miniflow/graph/passes/zero.py` rewrites the update: the table in its head has
# your formulas.
#
# Further reading: Huang et al. 2019, "GPipe: efficient training of giant neural networks using pipeline parallelism";
# Narayanan et al. 2021, "Efficient large-scale language model training on GPU clusters using Megatron-LM", on 1F1B and
# on schedules with a smaller bubble; Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion
# parameter models".
