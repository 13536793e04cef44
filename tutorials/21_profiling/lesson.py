# %% [markdown]
# # Profiling and rooflines
#
# After this lesson you can say where a training step spends its time, how fast each of its operators could be on your
# machine, and what limits it. You have written the small tools for it: a fair timer, a profiler's table, the costs of
# operators, and the roofline model. At the end you make one function faster, and measure by how much. Time: 45 minutes.
# You need a training step (lesson 0 or 4). It helps to have counted the reads of a kernel (lesson 8).
#
# Solve the tasks in the notebook, `notebooks/21_profiling.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/21_profiling/student.py` when you run it, and checks the task. Or write in that file, which `python -m
# tutorials start 21` makes; `python -m tutorials check 21` checks all of it.

# %%
import time

import numpy as np

import miniflow as flow
from miniflow import nn
from miniflow.profiler import profile, record_function
from tutorials import check, implementation

impl = implementation(21)

# %% [markdown]
# ## A fair timer
#
# How long does a function take? Calling it once says little. The first call may compile kernels, read files, and fill
# caches. And other programs run on your machine: now and then a call takes twice as long, for no reason of its own. So
# call the function a few times before you look at the clock. Then time many calls, and take the *median*: one slow call
# moves the mean, but not the median. Threads that wait for each other make it worse: the numbers in this notebook were
# measured with one thread, `OPENBLAS_NUM_THREADS=1`, which has to be set before Python starts.
#
# **Task 21.1.** Write `median_time`. Look at the clock once before each timed call, and once after it.

# %%
product = lambda size: (lambda a, b: lambda: a @ b)(flow.randn(size, size), flow.randn(size, size))  # noqa: E731
for size in (64, 256, 1024):
    seconds = impl.median_time(product(size), time.perf_counter, 2, 9)
    print(f"{size} x {size}: {1e6 * seconds:9.1f} us, {2e-9 * size**3 / seconds:6.1f} billion operations in a second")

# %% [markdown]
# ## Where the time goes
#
# `flow.profiler` notes when each operator begins and ends. It has the names of `torch.profiler`, so what you learn here
# works there too. `record_function` marks a part of the program. Let us look at one step of training.

# %%
flow.manual_seed(0)
model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.LayerNorm(512), nn.Linear(512, 10))
optimizer = flow.optim.Adam(model.parameters(), lr=1e-3)
pixels, digits = flow.randn(256, 784), flow.randint(0, 10, (256,))


def step():
    with record_function("forward"):
        loss = nn.functional.cross_entropy(model(pixels), digits)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


for _ in range(3):
    step()
with profile(record_shapes=True, with_flops=True) as prof:
    step()
print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))

# %% [markdown]
# Events lie within each other: `backward` holds the products that compute gradients. "CPU total" is the whole time of
# an event. "Self CPU" is that time without the events directly within it, and these times add up to the time of the
# whole program: only they say where it went.
#
#     step      |--------------------------------------|   38, of them 38 - 10 - 16 = 12 its own
#     loss         |---------|                             10
#     backward                  |--------------|           16, of them 16 - 4 - 5 = 7 its own
#     matmul                       |--|                     4
#     add                              |----|               5
#
# **Task 21.2.** Write `self_times`. Go through the events in their order, and keep a list of those that are still
# running, the innermost last. When an event begins, all those that have ended by then leave the list.

# %%
events = [(event.name, event.start, event.end) for event in prof.events()]
mine = impl.self_times(events)
for row in sorted(prof.key_averages(), key=lambda row: -row.self_cpu_time_total)[:4]:
    print(f"{row.key:26} {mine[row.key] / 1000:10.1f} us, the table has {row.self_cpu_time_total:10.1f} us")

# %% [markdown]
# ## What an operator costs
#
# An operator does two things: it *computes*, and it *moves* data between memory and processor. For both you can count
# what is needed at least. A product of matrices (m, k) and (k, n) has m n results, and each is a sum of k products: 2 m
# n k operations. It reads both matrices once, and writes the result once, each number in 4 bytes. A real one may read
# more than that (lesson 8), but never less.
#
# **Task 21.3.** Write `cost` for five operators. Operands may broadcast, and a small operand is read only once: it
# stays in a cache. `math.prod(shape)` is the number of elements, also for `()`.
#
# Compare with the table above, which counts in the same way.

# %%
for name, shapes in [
    ("linear", [(256, 784), (512, 784), (512,)]), ("matmul", [(512, 256), (256, 784)]), ("relu", [(256, 512)]),
    ("add", [(256, 512), (512,)]),
]:  # fmt: skip
    operations, moved = impl.cost(name, *shapes)
    print(
        f"{name:7} {operations / 1e6:8.2f} million operations, {moved / 1e6:5.2f} MB: {operations / moved:6.2f} a byte"
    )

# %% [markdown]
# ## The roofline
#
# A processor computes and moves data at the same time. So the slower of the two decides. With a *peak* of operations in
# a second, and a *bandwidth* of bytes in a second, the least time is
#
# $$\max\left(\frac{\text{operations}}{\text{peak}}, \frac{\text{bytes}}{\text{bandwidth}}\right).$$
#
# **Task 21.4.** Write `roofline`.
#
# What are the peak and the bandwidth of *your* machine? Take the best that you can measure: the fastest product of
# matrices for the peak, and a copy of a large array for the bandwidth. (A copy reads and writes.)

# %%
COUNT = 1 << 24
peak = max(2 * n**3 / impl.median_time(product(n), time.perf_counter, 2, 7) for n in (256, 512, 1024))
source, target = np.ones(COUNT, np.float32), np.empty(COUNT, np.float32)
bandwidth = 8 * COUNT / impl.median_time(lambda: np.copyto(target, source), time.perf_counter, 2, 7)
print(f"peak {peak / 1e9:.0f} billion operations a second, bandwidth {bandwidth / 1e9:.1f} billion bytes a second")
print(f"so {peak / bandwidth:.1f} operations for each byte are needed to keep the processor busy\n")

for row in sorted(prof.key_averages(group_by_input_shape=True), key=lambda row: -row.self_cpu_time_total):
    if row.bytes > 100_000:
        least, limit = impl.roofline(row.flops / row.count, row.bytes / row.count, peak, bandwidth)
        print(f"{row.key:20} {row.cpu_time:8.1f} us, at least {1e6 * least:7.1f} us, limited by {limit}")

# %% [markdown]
# How far is each operator from the least time? The products come close to it. The small operators are limited by memory
# (the table counts no operations for most of them, so for these only the bytes speak). Where the measured time is
# *below* the least one, the data was not in memory, but still in a cache, which is faster.
#
# So there are three ways to make a program faster. Where an operator is far above its roof, write a better kernel.
# Where it is at its roof and limited by memory, move less: join operators (lesson 13), use 16 bits (lesson 14). Where
# it is limited by computing, compute less.
#
# ## A picture of time
#
# A table has no order. To see what happened *when*, browsers draw traces: open `chrome://tracing`, or ui.perfetto.dev,
# and load a file. The format is simple, and most profilers write it.
#
# **Task 21.5.** Write `chrome_trace`. The format counts in microseconds.

# %%
print(impl.chrome_trace(events[:2]))

# %% [markdown]
# `prof.export_chrome_trace("trace.json")` writes such a file, with more in it.
#
# ## One improvement
#
# k-means, and search for neighbours, need the distances of many points to many centers. Here is how it is often
# written. Profile it before you change anything.

# %%
points, centers = flow.randn(2000, 64), flow.randn(50, 64)
with profile() as before:
    impl.slow_distances(points, centers)
print(before.key_averages().table(sort_by="self_cpu_time_total", row_limit=5))

# %% [markdown]
# For each center, all points are read, differences are written, read, squared, written, and read again. Of the 50
# centers, each moves as much memory as 2,000 points have, five times. But
#
# $$\lVert x - c \rVert^2 = \lVert x \rVert^2 - 2 \langle x, c \rangle + \lVert c \rVert^2,$$
#
# and all $\langle x, c \rangle$ together are *one* product of matrices: much to compute for each byte, which is what
# processors are good at.
#
# **Task 21.6.** Write `distances`. What is a little below zero by rounding becomes 0: `clamp(min=0)`. The check counts
# operators and bytes with `flow.profiler`.

# %%
with profile() as after:
    impl.distances(points, centers)
print(after.key_averages().table(sort_by="self_cpu_time_total", row_limit=5))
for name, function, prof in (("slow_distances", impl.slow_distances, before), ("distances", impl.distances, after)):
    seconds = impl.median_time(lambda function=function: function(points, centers), time.perf_counter, 2, 15)
    moved = sum(row.bytes for row in prof.key_averages())
    print(f"{name:15} {1000 * seconds:7.2f} ms, {moved / 1e6:7.2f} MB moved")

# %% [markdown]
# When all tasks pass, the check draws the roof of your machine, the operators of the training step under it, and your
# improvement.

# %%
passed = check(21)

# %% [markdown]
# The number to beat: the time of `distances`. How many operators does yours have, and which of them is at its roof?
# What does a graph (`nn.Graph`, lesson 13) make of it?
#
# ## In miniflow's source
#
# `miniflow/profiler.py` is `flow.profiler`: while a profile is on, the table in which each operator keeps its kernels
# hands out kernels that look at the clock. `miniflow/hostcuda/profile.py` looks into kernels: reads, sectors, and bank
# conflicts by line. `benchmarks/harness.py` times miniflow beside PyTorch.
#
# Further reading: Williams, Waterman and Patterson 2009, "Roofline: an insightful visual performance model for
# multicore architectures"; Jain, "The Art of Computer Systems Performance Analysis", 1991; Google, "Trace Event
# Format".
