# %% [markdown]
# # A recorder and a replay of your own
#
# After this lesson you have written what `nn.Graph` is in small: a recorder that turns a Python function into a
# program, a replay, two passes that make the program shorter, and a planner that lets values share memory. Time: 60
# minutes. You need Python and a little NumPy.
#
# Solve the tasks in the notebook, `notebooks/12_recorder.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/12_recorder/student.py` when you run it, and checks the task. Or write in that file, which `python -m
# tutorials start 12` makes; `python -m tutorials check 12` checks all of it.

# %%
import numpy as np

import miniflow as flow
from miniflow import nn
from tutorials import check, implementation

impl = implementation(12)

# %% [markdown]
# ## A symbol computes nothing
#
# In eager mode `a + b` computes at once. Here `a` is a `Symbol`: it has a number and no elements. Its operators append
# an instruction to a program, and return the symbol of the result. An instruction is an op, the numbers of the values
# that it reads, and the number of its result. Every value gets the next free number, `program.size`: first the inputs,
# then each constant and each result as it comes up. After 5 values, `a + 2.0` makes constant 5, and then result 6.
#
# **Task 12.1.** Write `number_of`, `append` and the four operators of `Symbol`, which call the given `apply` as `exp`
# does. Python calls `__radd__` for `2.0 + a`, since the left operand is no symbol. Keep the order of the operands. A
# constant is a copy: the caller may change the array later, and the record must not change with it.

# %%
program = impl.Program([0, 1], {}, [], [])
a, b = impl.Symbol(program, 0), impl.Symbol(program, 1)
y = impl.relu(a * b) + 2.0
print(program.instructions, program.constants, y.number, sep="\n")

# %% [markdown]
# ## Record
#
# **Task 12.2.** `record(function, count)` makes a program with `count` inputs, numbered from 0. It runs the function
# once on their symbols, and notes the numbers of its results as outputs. The function returns one result or a tuple. A
# result that is no symbol, such as 3.0, is a constant.


# %%
def function(x, y):
    for _ in range(2):
        x = x * y + 1.0
    return x, impl.exp(x)


print(program := impl.record(function, 2))

# %% [markdown]
# The loop is gone: Python ran it while recording. For the same reason an `if` is decided once, and an `if` on a symbol
# cannot be decided: `Symbol.__bool__` raises an error.
#
# ## Replay
#
# **Task 12.3.** `replay(program, arrays)` runs the instructions in order and returns the list of outputs. Keep the
# values in a dictionary by number. `OPS` has a NumPy function for each op. The program stays as it is: it is replayed
# many times. Another number of arrays than of inputs is a `ValueError`.

# %%
x, y = np.array([0.5, 1], np.float32), np.array([0.25, -1], np.float32)
print(impl.replay(program, [x, y]), function(x, y), sep="\n")

# %% [markdown]
# ## Passes
#
# A pass takes a program and returns a better one with the same outputs. The network below was written with waste.

# %%
print(program := impl.record(impl.network, 7))

# %% [markdown]
# **Task 12.4.** `eliminate(program)` drops *dead code*: instructions and constants on which no output depends. A result
# that is read only by dead code is dead as well. In which order do you have to look at the instructions, so that you
# meet all readers of a value before the value? Inputs stay, because the caller gives them.
#
# **Task 12.5.** `merge(program)` finds *common subexpressions*: if two instructions have the same op and the same
# inputs in the same order ($A B$ is not $B A$), keep the first, and let the readers of the second read the first. Note
# which value replaces which, and rename the inputs of each instruction before you compare it. Do not forget the
# outputs. Constants of equal shape and equal bits are merged too: compare `shape` and `tobytes()`, since 0.0 == -0.0.

# %%
shorter = impl.merge(impl.eliminate(program))
print(shorter)
print(len(program.instructions), "instructions before,", len(shorter.instructions), "after")

# %% [markdown]
# ## Memory planning
#
# Most values are needed for a short time only. A value is *live* from the instruction that writes it to the one that
# reads it last. Values that are not live at the same time can share a buffer.
#
# **Task 12.6.** `last_reads(program)` says for each result of an instruction which instruction, counted from 0, reads
# it last. Outputs are needed after the end, so for them it is the number of instructions. A result that nobody reads
# still has to be written somewhere: for it, it is its own instruction.
#
# `plan(program)` gives each result a buffer. Go through the instructions with a list of free buffers. The result takes
# a free one; only if there is none, take a new number. Then the buffers of the values that were read here for the last
# time become free. The result comes first: a matrix product cannot write into what it still reads. The check runs your
# plan in buffers full of NaN, and counts them: no plan needs fewer.

# %%
places = impl.plan(shorter)
print(len(places), "values in", len(set(places.values())), "buffers:", list(places.values()))

# %% [markdown]
# When all tasks pass, the check draws the lifetime of each value, in the color of its buffer.

# %%
passed = check(12)

# %% [markdown]
# The number to beat is the bytes of the buffers, in the title; 21,504 are possible. Let `add`, `mul`, `exp` and `relu`
# write into an operand of the same shape that they read for the last time: element by element that is safe. Do this in
# a function of your own, since the check asks for a plan without it.
#
# ## The same in nn.Graph
#
# In miniflow a graph is a class: modules become attributes in `__init__`, and `build` says what a call computes. The
# first call records `build`, and every call replays the record.


# %%
class Predict(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def build(self, x):
        print("build runs")
        return self.model(x).softmax(1)


_ = flow.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
predict, x = Predict(model), flow.rand(2, 4)
for _ in range(3):
    y = predict(x)
print("as in eager mode:", bool((y == model(x).softmax(1)).all()))
print(predict.recorded)

# %% [markdown]
# `build` ran once, and so did its `print`. The record has a value `%n` for each array, with its type: first inputs and
# parameters, then an instruction for each op, with the module and the line of Python that it comes from. A branch on
# the *value* of a tensor is an error that names the line. `flow.where` chooses between two values, and can be recorded.


# %%
class Branch(nn.Graph):
    def build(self, x):
        return x if x.sum() > 0 else -x


class Where(nn.Graph):
    def build(self, x):
        return flow.where(x.sum() > 0, x, -x)


try:
    Branch()(x)
except flow.errors.GraphTraceError as error:
    print(error)
print(bool((Where()(-x) == x).all()))

# %% [markdown]
# A graph records a program for each combination of shapes and dtypes of its inputs. With `add_optimizer`, a call is a
# whole training step; lesson 13 shows one, with its passes and its memory. `flow.save(graph, folder)` writes a program
# with its arrays, and `flow.load(folder)` runs it without the Python code above.
#
# ## In miniflow's source
#
# `miniflow/graph/symbol.py` has the symbols, which know shape and dtype, and `miniflow/graph/trace.py` the recorder:
# `dispatch` asks it for the kernel of every op. So backward and the optimizer are recorded too, and parameters are
# states, not constants. `miniflow/graph/ir.py` has `Program`; `miniflow/graph/passes/dead_code.py` and
# `miniflow/graph/passes/cse.py` are your passes, and `miniflow/graph/plan.py` plans memory: one arena, in which values
# of different sizes get offsets.
#
# Further reading: Cytron et al. 1991, "Efficiently computing static single assignment form and the control dependence
# graph"; Cocke 1970, "Global common subexpression elimination"; Pisarchyk and Lee 2020, "Efficient memory management
# for deep neural net inference"; JAX, "Autodidax: JAX core from scratch", a recorder in Python.
