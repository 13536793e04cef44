# %% [markdown]
# # Graphs
#
# In eager mode, Python calls one operation after the other, again in every step. A graph records the step once, as a
# program; passes rewrite the program; then it is replayed, without Python in between and in memory that was laid out
# beforehand. Here you look at every stage of that.
#
# Exercises stand where they arise: try each before you open the cell that follows.

# %%
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import miniflow as flow
import miniflow.nn.functional as F
from miniflow import nn

_ = flow.manual_seed(0)

# %% [markdown]
# ## From eager to a graph
#
# A graph is a class: modules become attributes in `__init__`, and `build` says what a call computes.


# %%
class Predict(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def build(self, x):
        print("build runs")
        return self.model(x).softmax(1)


model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
predict = Predict(model)
x = flow.rand(2, 4)

for _ in range(3):
    y = predict(x)

assert (y == model(x).softmax(1)).all()

# %% [markdown]
# `build` ran once, at the first call. Its tensors had shapes and dtypes but no values, and every operation on them was
# recorded. This is the record: a slot `%n` for every array, with its type, written once; inputs and parameters first,
# then an instruction for each operation with the module and the line of Python that it comes from.

# %%
print(predict.recorded)

# %% [markdown]
# Since `build` runs only once, what Python does in it is done once too: the `print` above, or a branch. A branch on the
# *value* of a tensor cannot be recorded, and is an error that names the line.


# %%
class Branch(nn.Graph):
    def build(self, x):
        if x.sum() > 0:
            return x
        return -x


try:
    Branch()(x)
except flow.errors.GraphTraceError as error:
    print(error)

# %% [markdown]
# **Exercise 1.** Write the graph `Positive` that returns `x` where the sum of `x` is positive, and else `-x`, for any
# `x`. `flow.where(condition, a, b)` chooses between values.


# %%
# Solution
class Positive(nn.Graph):
    def build(self, x):
        return flow.where(x.sum() > 0, x, -x)


# %%
positive = Positive()
assert (positive(x) == x).all() and (positive(-x) == x).all()

# %% [markdown]
# ## A training step
#
# With `add_optimizer` a call is a whole training step: `build` calls `backward` once, and the update of the parameters
# belongs to the graph. This is a small block of a transformer, which will show what the passes do.


# %%
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.drop(self.down(F.gelu(self.up(self.norm(x)))))


class Train(nn.Graph):
    def __init__(self, model, optimizer):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)

    def build(self, x, target):
        loss = (self.model(x) - target).square().mean()
        loss.backward()
        return loss


def new_step():
    flow.manual_seed(0)
    block = Block(64)
    return Train(block, flow.optim.SGD(block.parameters(), lr=1.0, momentum=0.9))


x, target = flow.rand(256, 64), flow.rand(256, 64)
step = new_step()
losses = [step(x, target).item() for _ in range(30)]
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
assert losses[-1] < losses[0] / 2

# %%
print(step.recorded)

# %% [markdown]
# Three phases stand one after the other: forward, backward with the same modules in reverse, and the update. What lives
# on from call to call, parameters and what the optimizer
# remembers, is read as a *state* and gets its new value at the end, by
# `write`. Numbers that change from call to call are in angle brackets: the learning rate, which a schedule may change;
# whether a step is the first; seed and offset of the draw for dropout, so that every call drops other elements, those
# that eager mode would drop.
#
# In the picture, forward goes down on the left, and the gradients come up beside it. Dashed lines are values that are
# kept for backward.

# %%
figure = step.show(recorded=True)

# %% [markdown]
# ## Passes
#
# A pass is a function from a program to a better one with the same results. `run_pass` runs one of them. This prints
# which instructions it took away, and which it put in their place.

# %%
from miniflow.graph.ir import instruction_text, numbering
from miniflow.graph.passes import PIPELINE, run_pass


def differences(before, after):
    names = numbering(before)
    for slot in numbering(after):
        names.setdefault(slot, f"%{len(names)}")  # the same name in both programs
    old, new = [[instruction_text(i, names) for i in program.instructions] for program in (before, after)]
    lines = [f"  - {line}" for line in old if line not in new] + [f"  + {line}" for line in new if line not in old]
    return "\n".join(line if len(line) < 160 else f"{line[:156]} ..." for line in lines)


def run_all(program, config):
    idle = []
    for name in PIPELINE:
        after = run_pass(name, program, config)
        changes = differences(program, after)
        if changes:
            print(f"{name}: {len(program.instructions)} -> {len(after.instructions)} instructions\n{changes}\n")
        else:
            idle.append(name)
        program = after
    print("without effect here:", ", ".join(dict.fromkeys(idle)))
    return program


config = step.config
optimized = run_all(step.recorded, config)

# %% [markdown]
# Each file in `miniflow/graph/passes` opens with what its pass does and where the idea comes from. What to look for
# above:
#
# - *algebraic* and *constant_folding*: the gradient of `square().mean()` was recorded as eager mode computes it, with a
#   power of 1, and a division of constants.
# - *bias_gelu*: a linear layer that something follows element by element gives its bias away.
# - *dropout_mask* and *elementwise_fusion*: what is computed element by element becomes one loop, written and compiled
#   for it; the values in between are never stored.
# - *multi_tensor_update*: six parameters, one update.
#
# The other passes have their hour in other programs. Here are some, each with what it is for.

# %%
from miniflow.graph.trace import record


def recorded(function, *shapes):
    """The program of a function of tensors."""
    return record(function, [(shape, np.dtype("float32"), flow.device("cpu")) for shape in shapes])


def show_pass(name, program):
    print(f"{name}:\n{differences(program, run_pass(name, program, config))}\n")


show_pass("dead_code", recorded(lambda x: [x.exp(), x.sin()][:1], (3,)))
show_pass("constant_folding", recorded(lambda x: [x * flow.ones(3).exp()], (3,)))
show_pass("cse", recorded(lambda x: [x.exp() * x.exp()], (3,)))
show_pass("layout", recorded(lambda x, y: [x.mT @ y], (5, 4), (5, 6)))
show_pass("relu_after_pool", recorded(lambda x: [F.max_pool2d(x.relu(), 2)], (8, 4, 16, 16)))
show_pass(
    "normalization_activation", recorded(lambda x: [F.batch_norm(x, None, None, training=True).relu()], (8, 4, 9))
)

# %% [markdown]
# Gradients leave a pattern of their own: what was taken apart in forward is put together in backward, by adding arrays
# that are mostly zeros. `add_to_output` writes each part to its place instead.

# %%
weight = flow.rand(4, 4, requires_grad=True)


def gradient_of_halves(x):
    left, right = (x @ weight).chunk(2, 1)
    return flow.autograd.grad((left.exp() * right).sum(), [weight])


show_pass("add_to_output", recorded(gradient_of_halves, (3, 4)))

# %% [markdown]
# Any pass can be switched off, which is the way to find out what it is worth: `graph.config.disable_pass("cse")`. And
# `MINIFLOW_DEBUG_PASS=ALL` in the environment prints all programs, before and after each pass.
#
# After the passes the step looks like this. Dark boxes were fused of several instructions.

# %%
figure = step.show()

# %% [markdown]
# **Exercise 2.** With how many instructions can `x * 2 + x * 2` be computed? Record the function `twice` for a matrix
# of 1000 by 1000, send it through `cse` and then `elementwise_fusion`, and let `fewest` be the number of instructions
# that are left. Look at the program before you believe it.


# %%
def twice(x):
    return [x * 2 + x * 2]


# %%
# Solution
program = recorded(twice, (1000, 1000))
for name in ("cse", "elementwise_fusion"):
    program = run_pass(name, program, config)
print(program)
fewest = len(program.instructions)

# %%
assert fewest == 1

# %% [markdown]
# ## Memory
#
# The program says when each value is computed and when it is read for the last time. So all memory can be laid out
# before the first replay: values that do not live at the same time share it, views cost nothing, and many operations
# write over their input. Here for LeNet, with a batch of 32.

# %%
from miniflow.vision.models import LeNet


class Classify(Train):
    def build(self, images, labels):
        loss = F.cross_entropy(self.model(images), labels)
        loss.backward()
        return loss


def classifier(model):
    return Classify(model, flow.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))


images, labels = (tensor[:32] for tensor in flow.data.mnist("train").tensors)
lenet = classifier(LeNet())
lenet(images, labels)
report = lenet.memory()
print(report)

# %% [markdown]
# Every rectangle is a block of memory: its height is its size, from left to right the instructions during which it is
# in use.

# %%
axes = report.picture()

# %% [markdown]
# What is kept from forward for backward makes the peak. *Activation checkpointing* forgets it, and computes it again
# when backward gets there: more work, less memory, the same numbers bit for bit. It is an option of a module in a
# graph.

# %%
deep = nn.Sequential(*[Block(64) for _ in range(8)])
plain, checkpointed = [Train(deep, flow.optim.SGD(deep.parameters(), lr=0.01)) for _ in range(2)]
for block in checkpointed.model:
    block.config.activation_checkpointing = True

x, target = flow.rand(512, 64), flow.rand(512, 64)
for graph in (plain, checkpointed):
    graph(x, target)
    print(f"{graph.memory().after / 2**20:.1f} MiB")

assert checkpointed.memory().after < plain.memory().after

# %% [markdown]
# ## Time
#
# The same step in eager mode and as a graph. The first call of a graph takes longer, since it records and compiles;
# loops that numba has compiled are kept in files for the next time.


# %%
def eager_step(model, optimizer, images, labels):
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def milliseconds(step, repeats):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def compare(name, make, images, labels, repeats):
    model, other = make(), make()
    optimizer = flow.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    graph = classifier(other)
    start = time.perf_counter()
    graph(images, labels)
    first = time.perf_counter() - start
    eager_step(model, optimizer, images, labels)
    eager = milliseconds(lambda: eager_step(model, optimizer, images, labels), repeats)
    replay = milliseconds(lambda: graph(images, labels), repeats)
    print(f"{name:10s} eager {eager:7.3f} ms, graph {replay:7.3f} ms: {eager / replay:.2f} times; first {first:.2f} s")


def perceptron():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


compare("MLP, 1", perceptron, images[:1], labels[:1], 300)
compare("MLP, 32", perceptron, images, labels, 300)
compare("LeNet, 32", LeNet, images, labels, 5)

# %% [markdown]
# The smaller the operations, the more of the time is Python's, and the more a graph saves.
#
# **Exercise 3.** A graph compiles one plan for each shape of its inputs. Write the function `padded(images, labels)`
# that fills an incomplete batch up to 32 with zeros, with the label -100, which `cross_entropy` ignores. Then the loss
# is that of the smaller batch, and the graph does not compile again.


# %%
# Solution
def padded(images, labels):
    missing = 32 - len(images)
    images = flow.cat([images, flow.zeros(missing, 1, 28, 28)])
    return images, flow.cat([labels, flow.full((missing,), -100, dtype=flow.int64)])


# %%
expected = F.cross_entropy(lenet.model(images[:20]), labels[:20])
assert abs(lenet(*padded(images[:20], labels[:20])) - expected) < 1e-5
assert len(lenet._plans) == 1

# %% [markdown]
# ## Larger batches and smaller numbers
#
# Two more things that are done by passes, since a program is easier to rewrite than Python. *Gradient accumulation*
# cuts a batch into parts that go through the model one after the other, and updates once: the memory of a small batch,
# the gradient of a large one. *Mixed precision* computes matrix products in half precision, where the hardware is
# faster at it, and keeps parameters in float32.

# %%
accumulating, halved = classifier(perceptron()), classifier(perceptron())
accumulating.config.set_gradient_accumulation_steps(4)
halved.config.enable_amp(True, dtype=flow.bfloat16)
print("4 losses, one update:", accumulating(images, labels))
print("in bfloat16:         ", halved(images, labels))

# %% [markdown]
# ## Without the code
#
# A compiled graph can be written to a folder: the program as JSON, the arrays beside it. What loads it does not need
# the classes from above, and a training graph goes on training.

# %%
with tempfile.TemporaryDirectory() as folder:
    flow.save(step, Path(folder) / "block")
    for path in sorted((Path(folder) / "block").iterdir()):
        print(path.name, path.stat().st_size, "bytes")
    loaded = flow.load(Path(folder) / "block")

print(loaded)
x, target = flow.rand(256, 64), flow.rand(256, 64)
flow.manual_seed(1)
first = loaded(x, target)
flow.manual_seed(1)
assert first == step(x, target)

# %% [markdown]
# From here: `miniflow/graph/trace.py` records, `miniflow/graph/ir.py` is the program, `miniflow/graph/passes` has a
# file for each pass, `plan.py` lays out memory, and `replay.py` writes the Python function that runs. That function is
# worth a look too.

# %%
print("\n".join(step._last.replay.source.splitlines()[:12]))
