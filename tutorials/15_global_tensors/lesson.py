# %% [markdown]
# # Global tensors
#
# A model that is too large or too slow for one device is spread over several. After this lesson you can say what each
# device holds, which messages a change of layout takes, how many bytes it sends, and which layout an operation chooses.
# All devices are simulated: a laptop is enough. Time: 60 minutes. You need NumPy and matrix products.
#
# Solve the tasks in the notebook, `notebooks/15_global_tensors.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/15_global_tensors/student.py` when you run it, and checks the task. Or write in that file, which `python -m
# tutorials start 15` makes; `python -m tutorials check 15` checks all of it.

# %%
import numpy as np

import miniflow as flow
from tutorials import check, implementation

impl = implementation(15)
S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
flow.parallel.simulate(4)
_ = flow.manual_seed(0)

# %% [markdown]
# ## Split, broadcast, partial sum
#
# A *rank* is a process with one device. A *placement* says which ranks hold a tensor, and the *SBP* says how:
#
# - `S(d)`, split: each rank holds a part of dim d. If n ranks cannot get equal parts, the first ranks get one element
#   more. A part may be empty.
# - `B`, broadcast: each rank holds all of it.
# - `P`, partial sum: each rank holds an array of the whole shape, and the tensor is the sum of all these arrays.
#
# Such a tensor is a *global tensor*. It has the shape of the whole, and programs use it like any other.

# %%
everyone = flow.placement.all("cpu")
x = flow.tensor(np.arange(10, dtype=np.float32).reshape(5, 2), placement=everyone, sbp=S(0))
print(x.shape, x.sbp, [shard.tolist() for shard in x.shards.values()])

# %% [markdown]
# **Task 15.1.** In this lesson a global tensor is a list of NumPy arrays, the *shards*, one for each rank. `parts(size,
# ranks)` gives start and stop of each rank's part. `spread` makes shards of an array: for P, rank 0 gets the array and
# the others zeros. Shards share no memory. The given `cut` copies parts along a dim. `whole` is the way back, for any
# partial sum. `sbp.kind` is "S", "B" or "P", and `sbp.dim` the dim of a split.

# %%
print(impl.parts(5, 4))
print([shard.shape for shard in impl.spread(np.ones((5, 2)), S(0), 4)])

# %% [markdown]
# ## Collectives
#
# Ranks have no common memory. All that one rank learns from another goes through `network.send(sender, receiver,
# array)`, which returns the copy that arrives. Your functions play all ranks, one after the other. The check counts the
# bytes. It also uses a network that loses everything: then no rank may know what others have. A *collective* is
# communication of all ranks. In a *ring*, rank r sends only to rank r + 1, the last one to rank 0: `network.shift` lets
# all ranks do this once.
#
# - *All-gather*: each rank has a shard, and wants all of them. First each rank sends its own shard, then n - 2 times
#   what came in last.
# - *Reduce-scatter*: each rank has a summand for each of n blocks, and rank r wants the sum of block r. A rank receives
#   a block, adds its own summand, and sends the sum on. After n - 1 steps a block is at its rank: where does it start?
# - *All-reduce*: each rank has an array, and all want the sum. Cut the arrays, flat, into n blocks; reduce-scatter;
#   all-gather.
#
# **Task 15.2.** Write `all_gather`, `reduce_scatter` and `all_reduce`. With one rank nothing is sent.

# %%
network = impl.Network(4)
arrays = [np.full((2, 4), 10.0**rank) for rank in range(4)]
print(impl.all_reduce(arrays, network)[3][0], network.messages, "messages,", network.bytes, "bytes")

# %% [markdown]
# ## Boxing
#
# A change of layout is called *boxing*. From B or to P nothing has to be sent: each rank takes its part (B to S),
# rank 0 keeps the array (B to P), or each rank writes its part among zeros (S to P). S to B is an all-gather, P to B an
# all-reduce, P to S a reduce-scatter. From S(i) to S(j), each rank cuts its shard along j, and sends each other rank
# one block: an *all-to-all*.
#
# **Task 15.3.** Write `all_to_all` and `box`. Parts are joined along the dim that they were cut along. To write a part
# among zeros you need the size of the whole: add up those of the shards.

# %%
network = impl.Network(4)
shards = impl.spread(np.arange(32, dtype=np.float32).reshape(4, 8), S(0), 4)
print(impl.box(shards, S(0), S(1), network)[3].tolist(), network.bytes, "bytes")

# %% [markdown]
# In miniflow, `x.to_global(sbp=...)` boxes, and `flow.boxing.explain` tells the price in advance.
#
# **Task 15.4.** `cost(shape, ranks, before, after)` predicts the number of elements that all ranks together send, an
# int. In a ring each of n blocks passes n - 1 links. In an all-to-all everything is sent but what stays: the elements
# that lie in the same rank's part along both dims. The parts may be uneven.

# %%
x = flow.rand(4, 8, placement=everyone, sbp=S(0))
_ = flow.boxing.explain(x, S(1))
print(4 * impl.cost((4, 8), 4, S(0), S(1)), "bytes by your formula")

# %% [markdown]
# ## Signatures
#
# An operation runs on every rank by itself if the shards fit together. For $C = AB$: rows of A give rows of C; columns
# of B give columns of C; and columns of A with the same rows of B give one summand of C. This rule is a *signature*:
# (S(1), S(0)) to P. Give each dim a letter: "mk" times "kn" is "mn". A letter that is split is split wherever it
# stands. An operand without it is broadcast; a result without it was summed over it, so it is partial. Two things more:
#
# - $(A_0 + A_1) B = A_0 B + A_1 B$: if only A is partial, so is C. Of a sum $X + Y$, both have to be partial. For relu
#   there is no such rule. `partial` says which sets of operands may be partial.
# - A maximum over rows cannot be made of summands, so the letter of the rows is `fixed`: it is never split.
#
# Which signature does an operation use?
#
# - One that the operands fit as they are is used at once, whatever comes later.
# - If there is none, operands are boxed. That has a price: the elements that are sent for it, and those that the result
#   *owes*. A partial sum has to be reduced sooner or later, by a reduce-scatter at the least. The lowest price counts.
#   Without debts each sum of a split and a partial tensor would be partial, since padding sends nothing.
# - Of equal prices, that of a result that is not partial is taken, then that of fewer boxed operands, then the first.
#
# **Task 15.5.** Write `signatures`, then `choose`.

# %%
for operands, result in impl.signatures(["mk", "kn"], "mn", [(0,), (1,)]):
    print(*operands, "to", result)
a, b = (flow.rand(8, 8, placement=everyone, sbp=S(0)) for _ in "ab")
_ = flow.sbp.explain(flow.matmul, a, b)
a = a.to_global(sbp=S(1))
_ = flow.sbp.explain(flow.matmul, a, b)

# %% [markdown]
# ## A network with one all-reduce
#
# Split the weight of the first layer by columns, S(1), and that of the second by rows, S(0). The hidden units are then
# split as both products need them, and nothing is sent between the two. The second product is a partial sum.
#
# **Task 15.6.** Write `two_layers`. Only one all-reduce is allowed. Each bias is added once: where?

# %%
rng, network = np.random.default_rng(0), impl.Network(4)
layouts = {(5, 3): B, (3, 8): S(1), (8,): S(0), (8, 6): S(0), (6,): B}
inputs = [impl.spread(rng.standard_normal(shape), sbp, 4) for shape, sbp in layouts.items()]
print(impl.two_layers(*inputs, network)[0].shape, network.bytes, "bytes, one all-reduce:", 2 * 3 * 5 * 6 * 8)

# %% [markdown]
# When all tasks pass, the check draws your ring, and the bytes of your boxing.

# %%
passed = check(15)

# %% [markdown]
# The number to beat is that of the messages on the left: 24, in 6 steps. With 4 ranks, 16 messages in 4 steps are
# enough, for the same number of bytes. In the first step exchange half of the array with the rank that is two away, in
# the second a quarter with a neighbour (*recursive halving*), and then gather in reversed order. Write it as a function
# of its own, since the check asks for a ring.
#
# ## Real processes
#
# Under MPI each rank is a process with its own shards, and the script is the same: `python -m
# miniflow.distributed.launch --nproc_per_node 4 script.py`. That needs `pip install "miniflow-edu[mpi]"`. A placement
# may also be a mesh, with an SBP for each of its dimensions. Boxing is then the cheapest path of steps, and a step may
# change several dimensions. Here the first dimension splits the rows and the second the columns.

# %%
mesh = flow.placement("cpu", [[0, 1], [2, 3]])
x = flow.rand(4, 8, placement=mesh, sbp=(S(0), S(1)))
_ = flow.boxing.explain(x, (B, B))

# %% [markdown]
# ## In miniflow's source
#
# `miniflow/sbp.py` has `signatures`, and each operator in `miniflow/ops` states its own; a maximum over split rows is
# that of each rank, and then an all-reduce that takes the maximum instead of the sum. In `miniflow/parallel`,
# `partition.py` is task 15.1, `comm/mpi.py` the collectives, `boxing.py` tasks 15.3 and 15.4, for meshes too,
# `signature.py` chooses, and `dispatch.py` runs an operator on shards.
#
# Further reading: Yuan et al. 2021, "OneFlow: Redesign the distributed deep learning framework from scratch", where SBP
# comes from; Thakur, Rabenseifner and Gropp 2005, "Optimization of collective communication operations in MPICH"; Xu et
# al. 2021, "GSPMD: general and scalable parallelization for ML computation graphs".
