# %% [markdown]
# # Global tensors
#
# A model that is too large or too slow for one device is spread over several. A *global tensor* is one tensor whose
# parts lie on several devices; a program uses it like any other, and the framework sends what has to be sent. You look
# at what each device holds, what an operation sends, and how data parallel and tensor parallel training follow from
# where the parameters lie.
#
# All devices are simulated in this process: a laptop is enough. At the end the same script runs as real processes.
#
# Exercises stand where they arise: try each before you open the cell that follows.

# %%
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np

import miniflow as flow
import miniflow.nn.functional as F
from miniflow import nn

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
flow.parallel.simulate(4)
_ = flow.manual_seed(0)

# %% [markdown]
# ## Split, broadcast, partial sum
#
# A *placement* is an array of ranks, each with a device. *SBP* says how a tensor lies on it:
#
# - `split(d)`: each rank holds a part of dim `d`,
# - `broadcast`: each rank holds all of it,
# - `partial_sum`: each rank holds an array of the whole shape, and the tensor is their sum.

# %%
everyone = flow.placement.all("cpu")
x = flow.tensor(np.arange(24, dtype=np.float32).reshape(4, 6), placement=everyone, sbp=S(0))
print(x)
for rank, shard in x.shards.items():
    print(rank, shard.tolist())

# %% [markdown]
# The shape is that of the whole. A picture shows the part of each rank; equal parts have one colour.

# %%
figure = x.show()

# %%
figure = x.to_global(sbp=B).show()

# %% [markdown]
# `to_global` changed the layout, not the values. A partial sum is hatched: on no rank is it the tensor.

# %%
y = x.to_global(sbp=P)
figure = y.show()
print([shard.sum().item() for shard in y.shards.values()], y.sum().item())

# %% [markdown]
# A placement may have several dimensions; then there is one SBP for each. On a mesh of two by two, the first dimension
# splits the rows here, the second the columns.

# %%
mesh = flow.placement("cpu", [[0, 1], [2, 3]])
figure = x.to_global(mesh, (S(0), S(1))).show()

# %% [markdown]
# ## Boxing
#
# A change of layout is called *boxing*. It is a collective of the ranks, and has a price: the bytes that they send.
# `flow.boxing.explain` tells it in advance.

# %%
x = x.to_global(everyone, S(0))
for sbp in (B, S(1), P):
    flow.boxing.explain(x, sbp)
    print()
_ = flow.boxing.explain(x.to_global(sbp=P), B)

# %% [markdown]
# With $T$ bytes in all and $n$ ranks: an all-gather sends $(n-1)T$, since each part goes to all others; an all-to-all
# $(n-1)T/n$; an all-reduce $2(n-1)T$: first each rank gets the sum of one part, then the sums are gathered. From
# broadcast every layout is free. What was really sent is counted:


# %%
def sent(function):
    """The result of a function, and the bytes that were sent meanwhile."""
    before = sum(flow.parallel.stats().values())
    result = function()
    return result, sum(flow.parallel.stats().values()) - before


total = x.numel() * 4
_, count = sent(lambda: x.to_global(sbp=B))
print(count, 3 * total)
assert count == 3 * total

# %% [markdown]
# On a mesh, boxing is a path of several collectives: the cheapest one.

# %%
z = x.to_global(mesh, (S(0), P))
_ = flow.boxing.explain(z, (B, B))
figure = flow.show.boxing(z, (B, B))

# %% [markdown]
# ## A matrix product in every layout
#
# Each rank computes with what it has, so an operation needs operands whose parts fit. Three layouts of a product
# $C = AB$ need no communication in the product itself:
#
# | A | B | C | because |
# |---|---|---|---|
# | S(0) | B | S(0) | rows of A give rows of C |
# | B | S(1) | S(1) | columns of B give columns of C |
# | S(1) | S(0) | P | columns of A with rows of B give one summand of C |
#
# Such a combination is called a *signature*. Every operator states its own; of those that are possible, the one whose
# boxing sends the fewest bytes is used.

# %%
a, b = flow.rand(8, 8), flow.rand(8, 8)
whole = a @ b
for left, right in [(S(0), B), (B, S(1)), (S(1), S(0)), (S(0), S(0)), (P, B)]:
    x, y = a.to_global(everyone, B).to_global(sbp=left), b.to_global(everyone, B).to_global(sbp=right)
    c, count = sent(lambda x=x, y=y: x @ y)
    assert np.allclose(c.numpy(), whole.numpy(), atol=1e-5)
    print(f"{left!s:5} @ {right!s:5} = {c.sbp[0]!s:5} {count:4} bytes")

# %%
c, d = a.to_global(everyone, B).to_global(sbp=S(0)), b.to_global(everyone, B).to_global(sbp=S(0))
_ = flow.sbp.explain(flow.matmul, c, d)

# %% [markdown]
# **Exercise 1.** Compute `relu(a @ b) @ b` on the four ranks without sending anything, so that the result is split into
# rows. Choose the layouts `layout_a` and `layout_b`.

# %%
# Solution
layout_a, layout_b = S(0), B

# %%
a_spread = a.to_global(everyone, B).to_global(sbp=layout_a)
b_spread = b.to_global(everyone, B).to_global(sbp=layout_b)
result, count = sent(lambda: flow.relu(a_spread @ b_spread) @ b_spread)
assert count == 0 and result.sbp == (S(0),)

# %% [markdown]
# ## Data parallel training
#
# In data parallel training each rank has the whole model and a part of the batch: parameters are broadcast, the batch
# is split. Nothing else has to be said. The gradient of a parameter is a sum over the batch, so each rank computes a
# summand: a partial sum, which is made broadcast like the parameter by an all-reduce.


# %%
def network():
    flow.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


images, labels = flow.data.mnist("train").tensors


def train(model, images=images, labels=labels, divide=lambda x: x, steps=8):
    """The losses of some steps; `divide` gives a batch its layout."""
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        rows = slice(128 * step, 128 * (step + 1))
        loss = F.cross_entropy(model(divide(images[rows])), divide(labels[rows]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


alone = train(network())
data_parallel = network().to_global(everyone, B)
data = images.to_global(everyone, B), labels.to_global(everyone, B)  # every rank has the digits
losses, count = sent(lambda: train(data_parallel, *data, lambda x: x.to_global(sbp=S(0))))
print([f"{loss:.4f}" for loss in alone])
print([f"{loss:.4f}" for loss in losses])
assert np.allclose(losses, alone, rtol=1e-5)

# %% [markdown]
# **Exercise 2.** How many bytes does one step send for the gradients? Write it as a function of the number of ranks and
# of the model.


# %%
# Solution
def gradient_bytes(ranks, model):
    return 2 * (ranks - 1) * sum(4 * p.numel() for p in model.parameters())


# %%
expected = 8 * gradient_bytes(4, data_parallel)
print(f"{count:,} bytes sent, {expected:,} of them for gradients")
assert expected <= count < 1.001 * expected  # the rest: sums of the loss

# %% [markdown]
# ## Tensor parallel training
#
# If the model is what is large, the parameters are split and every rank sees the whole batch. The first layer is split
# by its outputs (the rows of `weight`, S(0)), the second by its inputs (S(1)): the hidden activations are then split as
# both layers need them, and nothing is sent between the two. The second product is a partial sum.

# %%
tensor_parallel = network().to_global(everyone, B)
first, second = tensor_parallel[1], tensor_parallel[3]
for parameter, sbp in [(first.weight, S(0)), (first.bias, S(0)), (second.weight, S(1))]:
    parameter.data = parameter.data.to_global(sbp=sbp)

hidden, count = sent(lambda: tensor_parallel[:3](data[0][:8]))
print(hidden.sbp, count, tensor_parallel(data[0][:8]).sbp)
losses = train(tensor_parallel, *data)
assert np.allclose(losses, alone, rtol=1e-5)

# %% [markdown]
# On a mesh both go together: the first dimension splits the batch, the second the parameters.

# %%
both = network().to_global(mesh, (B, B))
for parameter, sbp in [(both[1].weight, S(0)), (both[1].bias, S(0)), (both[3].weight, S(1))]:
    parameter.data = parameter.data.to_global(sbp=(B, sbp))
data = images.to_global(mesh, (B, B)), labels.to_global(mesh, (B, B))
losses = train(both, *data, lambda x: x.to_global(sbp=(S(0), B)))
assert np.allclose(losses, alone, rtol=1e-5)
figure = both[1].weight.detach().show()

# %% [markdown]
# **Exercise 3.** This is the feed-forward part of a large language model. Somebody spread it over the ranks by
# splitting every weight along the dim that the product sums over, and made each product whole again: three
# all-reduces. Find layouts for `up`, `gate` and `down`, and places for `to_global`, so that one all-reduce is enough.
# The result is to be broadcast.

# %%
width, inner = 16, 32
tokens = flow.rand(4, width, placement=everyone, sbp=B)
shapes = {"up": (width, inner), "gate": (width, inner), "down": (inner, width)}
weights = {name: flow.rand(shape, placement=everyone, sbp=B) for name, shape in shapes.items()}


def first_try(up, gate, down):
    up, gate, down = (w.to_global(sbp=S(0)) for w in (up, gate, down))
    a = (tokens @ up).to_global(sbp=B)
    b = (tokens @ gate).to_global(sbp=B)
    return ((F.silu(b) * a) @ down).to_global(sbp=B)


wanted, count = sent(lambda: first_try(**weights))
print(count)

# %%
# Solution


def feed_forward(up, gate, down):
    up, gate, down = up.to_global(sbp=S(1)), gate.to_global(sbp=S(1)), down.to_global(sbp=S(0))
    return ((F.silu(tokens @ gate) * (tokens @ up)) @ down).to_global(sbp=B)


# %%
result, count = sent(lambda: feed_forward(**weights))
one_all_reduce = 2 * 3 * 4 * tokens.numel()
print(count, one_all_reduce)
assert result.sbp == (B,) and count == one_all_reduce
assert np.allclose(result.numpy(), wanted.numpy(), rtol=1e-5)

# %% [markdown]
# ## The same script on real ranks
#
# Under MPI each rank is a process and holds its own shards; the script is the same. It needs the extra `mpi`:
# `pip install "miniflow-edu[mpi]"`. `miniflow.distributed.launch` starts `mpiexec`.

# %%
SCRIPT = """
import miniflow as flow

everyone = flow.placement.all("cpu")
flow.manual_seed(0)
a = flow.rand(8, 8, placement=everyone, sbp=flow.sbp.split(1))
b = flow.rand(8, 8, placement=everyone, sbp=flow.sbp.split(0))
c = (a @ b).to_global(sbp=flow.sbp.split(0))
total = c.sum().item()  # all ranks have to ask for it
if flow.env.get_rank() == 0:
    print(f"{flow.env.get_world_size()} ranks, {c.sbp[0]}, sum {total:.4f}")
"""
Path("script.py").write_text(SCRIPT)
if importlib.util.find_spec("mpi4py"):
    launch = [sys.executable, "-m", "miniflow.distributed.launch", "--nproc_per_node", "4", "script.py"]
    print(subprocess.run(launch, capture_output=True, text=True, check=True).stdout)
exec(SCRIPT)

# %% [markdown]
# What next: `miniflow/sbp.py` has the rules by which operators state their signatures, and `miniflow/parallel` the
# rest: `signature.py` chooses, `boxing.py` moves, `dispatch.py` is the page that runs an operator on shards.
