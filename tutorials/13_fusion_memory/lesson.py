# %% [markdown]
# # Fusion and memory planning
#
# After this lesson you can fuse instructions into one loop, predict how many bytes a program moves, and give all of its
# values places in one block of memory. At the end you see both in `nn.Graph`. Time: 60 minutes. You need Python, a
# little NumPy, and the idea of lesson 12: a program is a list of instructions. It builds on the programs of lesson 12;
# what it needs of them is given.
#
# Solve the tasks in the notebook, `notebooks/13_fusion_memory.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/13_fusion_memory/student.py` when you run it, and checks the task. Or write in that file, which `python -m
# tutorials start 13` makes; `python -m tutorials check 13` checks all of it.

# %%
import timeit

import numpy as np

import miniflow as flow
from miniflow import nn
from miniflow.graph.passes import PIPELINE, run_pass
from miniflow.graph.plan import plan
from tutorials import check, implementation

impl = implementation(13)

# %% [markdown]
# ## Which instructions may be fused?
#
# Values have names here. The op of an instruction is *pointwise* if it is in `FORMULAS`: element `i` of its result
# depends on element `i` of its operands alone. Pointwise instructions with results of one shape can run as one *fused*
# loop. Then a value between them is in a register of the processor, and is neither stored nor read.

# %%
small = impl.program("b = exp(x); c = matmul(b, w); d = mul(b, c)", "d", x=(2, 3), w=(3, 3))
print(*small.instructions, small.shapes, sep="\n")

# %% [markdown]
# `b` and `d` are pointwise, and `d` reads `b`. But they cannot be one loop: `c` needs all of `b`, and `d` needs `c`, so
# `c` would have to run before *and* after the loop. Such groups are not *convex*: a path leads out of the group and
# back. A cycle can also go through two groups: a member of the first reads the second, and a member of the second reads
# the first. So one question decides about all groups together: is there an order in which they can run?
#
# **Task 13.1.** `schedule(program, groups)` returns the groups in such an order, or None. A group can run when each
# value that it reads is an input of the program, or is made by the group itself or by groups that ran before it. Choose
# such a group again and again. If groups are left and none of them can run, there is no order. Any order that works is
# right. Leave the given lists as they are.

# %%
print(impl.schedule(small, [[2], [0], [1]]), impl.schedule(small, [[0, 2], [1]]))

# %% [markdown]
# **Task 13.2.** `fuse(program)` begins with one group for each instruction. If a pointwise instruction reads the result
# of another one, the groups of the two may become one. Their results have the same shape, since operands of a pointwise
# op have the shape of its result. Merge the two groups if there still is an order of all groups. Go on until no two
# groups can be merged in this way: a merger can allow another one that failed before. Groups that no read joins stay
# apart, although one loop could compute both.

# %%
network = impl.network()
alone, fused = [[number] for number in range(len(network.instructions))], impl.fuse(network)
print(len(alone), "instructions,", len(fused), "groups")
for group in fused:
    print("; ".join(f"{network.instructions[n].output} = {network.instructions[n].op}" for n in group))

# %% [markdown]
# ## Bytes moved
#
# Pointwise ops compute little for each byte that they read or write. So memory sets their time, and we count bytes.
#
# **Task 13.3.** `arrays(program, group)` returns two lists: what the group reads from memory, each name once, and what
# it has to write. `moved(program, groups)` adds up the bytes of both over all groups. `nbytes` knows the bytes of a
# value. Matrix products count their operands once, too; that is the least they can do.

# %%
print(f"{impl.moved(network, alone):,} bytes before, {impl.moved(network, fused):,} after fusion")

# %% [markdown]
# ## Write the loop
#
# **Task 13.4.** `source(program, group)` returns the text of a function `loop`. For a group with
# `s = sigmoid(u); g = mul(u, s)`, of which only `g` is needed outside, it computes
#
#     def loop(in_u, out_g):
#         for i in range(out_g.size):
#             ...
#
# with four more lines: `u` is read at `i`, `s` and `g` are computed, `g` is written at `i`. The arguments are arrays of
# one dimension, and come in the order of `arrays`. `FORMULAS[op].format("u", "s")` is the expression for one element.
# Each element is read once and written once. All reads at `i` come before all writes at `i`: a result may be in the
# memory of an operand, as you will see. Names other than `i` are yours to choose; no value is called `i`.

# %%
lines = "a = mul(x, y); b = add(a, x); c = relu(b); d = mul(c, y); e = add(d, c); f = relu(e)"
chain = impl.program(lines, "f", x=(4_000_000,), y=(4_000_000,))
print(text := impl.source(chain, list(range(6))))


# %%
def one_by_one():
    c = np.maximum(x * y + x, 0)
    return np.maximum(c * y + c, 0)


x, y = np.random.default_rng(0).standard_normal((2, 4_000_000), np.float32)
f, loop = np.empty_like(x), impl.compiled(text)
seconds = [min(timeit.repeat(run, number=1)) for run in (lambda: loop(x, y, f), one_by_one)]
print("fused {:.1f} ms, one by one {:.1f} ms".format(*(1e3 * s for s in seconds)))
print("the same:", np.allclose(f, one_by_one(), atol=1e-4))

# %% [markdown]
# The loop moves 48 million bytes in place of 256 million, and is several times faster.
#
# ## Lifetimes
#
# A written value needs memory from the position of the group that writes it to that of the last group that reads it, or
# to the end if it is an output. Positions count from 0 in the list of groups; the end is `len(groups)`.
#
# A pointwise group may compute *in place*: a result takes over the memory of an operand that this group reads last. A
# matrix product may not, since it reads elements again after it wrote others. And nobody may write to an input of the
# program, which belongs to the caller.
#
# **Task 13.5.** `blocks(program, groups)` returns a list of `Block`, in the order in which they are first written. A
# block is memory that holds one value after another. Go through the groups. If a group is pointwise, the blocks of
# operands that it reads last become free for its results. Each result takes one of these. If there is none, it gets a
# new block. No other block is used again: that comes in the next task. Only what a group writes needs memory.

# %%
print(*(found := impl.blocks(network, fused)), sep="\n")

# %% [markdown]
# ## One arena
#
# All blocks lie in one piece of memory, the *arena*. To find the smallest arena is hard: no fast algorithm is known.
# *Greedy by size* is simple, and good: the largest block comes first, since it is the hardest to place.
#
# **Task 13.6.** `place(blocks)` returns the offset in bytes of each block, in the order of the list that it was given.
# Take the blocks by size, the largest first; of equal ones, the first in the list. Each gets the lowest offset from 0
# at which it overlaps with no block that was placed before it and that is in use at one of the same positions. The
# check looks at every byte of the arena, at every position. It accepts other rules if the arena is not larger.
#
# `bound(blocks)` is the largest sum of bytes that are in use at one position. A block is in use from `first` to `last`,
# both included. No arena can be smaller than this *lower bound*.

# %%
size = impl.arena(found, impl.place(found))
values = sum(impl.nbytes(network, name) for block in found for name in block.names)
print(f"arena: {size:,} bytes, {values:,} if each value had its own; lower bound: {impl.bound(found):,}")

# %% [markdown]
# When all tasks pass, the check draws the bytes that the network moves, and its blocks in the arena.

# %%
passed = check(13)

# %% [markdown]
# Fusion makes the arena smaller, too: `s` is never stored. Here greedy by size reaches the lower bound. But the bound
# depends on the order of the groups. The number to beat is the arena of the fused network: 229,376 bytes in the order
# of the solution, 163,840 in the best one. Which two values should never be in memory at the same time?
#
# ## The same in nn.Graph
#
# A graph with an optimizer is a whole training step: `build` computes the loss and calls `backward`, and the update is
# recorded too. `x + self.model(x)` is a small block of a transformer.


# %%
class Train(nn.Graph):
    def __init__(self):
        super().__init__()
        layers = {"norm": nn.LayerNorm(64), "up": nn.Linear(64, 128), "gelu": nn.GELU(), "down": nn.Linear(128, 64)}
        self.model = nn.Sequential(layers | {"drop": nn.Dropout(0.1)})
        self.add_optimizer(flow.optim.SGD(self.model.parameters(), lr=1.0, momentum=0.9))

    def build(self, x, target):
        loss = (x + self.model(x) - target).square().mean()
        loss.backward()
        return loss


_ = flow.manual_seed(0)
step, x, target = Train(), flow.rand(256, 64), flow.rand(256, 64)
losses = [step(x, target).item() for _ in range(30)]
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")

# %% [markdown]
# `step.recorded` is the program as it was recorded, and `step.ir` after all passes. Here are the passes that change the
# number of instructions, and then the loops that fusion wrote.

# %%
program = step.recorded
for name in PIPELINE:
    after = run_pass(name, program, step.config)
    if len(after.instructions) != len(program.instructions):
        print(f"{name}: {len(program.instructions)} -> {len(after.instructions)} instructions")
    program = after
print(*[i.attrs["body"] for i in step.ir.instructions if i.op.__name__ == "FusedElementwise"], sep="\n")

# %% [markdown]
# `multi_tensor_update` makes one update of six. Forward and backward are not fused with each other: values would have
# to be kept longer. `step.config.disable_pass("elementwise_fusion")` before the first call switches a pass off, and the
# variable `MINIFLOW_DEBUG_PASS=ALL` prints the program before and after each. `show()` draws the program: forward goes
# down, gradients come up, and dark boxes were fused.

# %%
figure = step.show()

# %% [markdown]
# What was gained? Here `moved` is your count for the programs of `nn.Graph`, and `memory()` draws the arena.


# %%
def moved(program):
    steps = [i for i in program.instructions if not i.op.view]
    return sum(slot.nbytes for i in steps for slot in (*i.reads, *i.outputs))


unfused = Train()
unfused.config.disable_pass("elementwise_fusion")
unfused(x, target)
print(f"moved: {moved(step.ir):,} bytes, without fusion {moved(unfused.ir):,}")
print(f"arena: {plan(step.ir).arena_bytes:,} bytes, {plan(step.ir, reuse=False).arena_bytes:,} without sharing")
axes = step.memory().picture()

# %% [markdown]
# Fusion moves fewer bytes, and sharing makes the arena less than half as large. "Before planning" in the title is what
# eager mode would need, which frees each value after its last use: the arena is as good, and is allocated only once. At
# the peak, most of it holds values that forward keeps for backward. *Activation checkpointing* forgets such values and
# computes them again.
#
# ## In miniflow's source
#
# `miniflow/graph/passes/elementwise_fusion.py` chooses the groups, and `miniflow/graph/rewrite.py` merges them
# unless a path leads out and back. `miniflow/graph/codegen/fused.py` writes the loops. `miniflow/graph/plan.py` is your
# planner: `assign_offsets` is `place`, but takes the smallest gap that fits and not the lowest.
#
# Further reading: Kennedy and McKinley 1993, "Maximizing loop parallelism and improving data locality via loop fusion
# and distribution"; Pisarchyk and Lee 2020, "Efficient memory management for deep neural net inference"; Chen et al.
# 2018, "TVM: an automated end-to-end optimizing compiler for deep learning"; Ansel et al. 2024, "PyTorch 2".
