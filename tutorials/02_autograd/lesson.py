# %% [markdown]
# # Automatic differentiation from nothing
#
# After this lesson you have written an engine that differentiates any program of sums, products and a few functions, of
# numbers and of arrays, and trained a network with it. Time: 60 minutes. You need Python, NumPy, and the chain rule. It
# builds on `sum_to` of lesson 1, which is given here. The last lesson puts your code of this one into a framework of
# your own.
#
# Solve the tasks in the notebook, `notebooks/02_autograd.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/02_autograd/student.py` when you run it, and checks the task. Or write in that file, which `python -m
# tutorials start 2` makes; `python -m tutorials check 2` checks all of it.

# %%
from tutorials import check, implementation

impl = implementation(2)

# %% [markdown]
# ## A value remembers how it was made
#
# A `Variable` holds a value and its *parents*: the variables that it was computed from. It also holds a function,
# `pull`. This function takes the gradient of the result and returns the gradient of each parent. That is the chain
# rule for one step, and all of calculus that the engine needs.
#
# For $y = a \cdot b$ and a gradient $g$ of $y$, the gradient of $a$ is $g \cdot b$, and that of $b$ is $g \cdot a$.
#
# **Task 2.1.** Write `add` and `mul`. Each returns a `Variable` with the value, the two parents, and `pull`.

# %%
a, b = impl.Variable(3.0), impl.Variable(4.0)
y = impl.mul(a, b)
print(y, y.parents, y.pull(1.0))

# %% [markdown]
# **Task 2.2.** Write `exp`, `power` and `relu`. The slope of $e^a$ is $e^a$; of $a^k$ it is $k\,a^{k-1}$; of relu it
# is 1 where $a > 0$, else 0. Write them with NumPy functions, and they work for arrays too.
#
# ## In which order?
#
# A gradient may only be passed on when it is complete. In the program below `x` is used twice, so two gradients
# arrive there. So go through the variables in an order in which every variable comes after its parents, from the last
# to the first. Such an order is called *topological*.
#
# **Task 2.3.** `order(root)` returns all variables that `root` was computed from, each once, parents first. Two
# programs break simple solutions. In 18 doublings, `x = x + x`, there are 262,144 paths but only 19 variables. And a
# chain of 5,000 steps is deeper than Python lets a function call itself. Use a list as your own stack.

# %%
x = impl.Variable(1.0)
for _ in range(18):
    x = impl.add(x, x)
print(len(impl.order(x)), "variables")

# %% [markdown]
# ## Backward
#
# **Task 2.4.** `backward(root)` starts with the gradient 1 of the root. It visits the variables in reversed order,
# and adds what `pull` returns to the gradients of the parents. At the end `grad` of each variable is the sum of what
# it was before and the new gradient: so gradients of two calls add up, as in PyTorch.
#
# If an operand was broadcast, its gradient is too large. `sum_to`, which is given, adds it up to the shape of the
# value.

# %%
a, b = impl.Variable(3.0), impl.Variable(4.0)
y = impl.add(impl.mul(a, b), impl.power(a, 2))
impl.backward(y)
print("dy/da =", a.grad, "  by hand:", b.value + 2 * a.value)
print("dy/db =", b.grad, "  by hand:", a.value)

# %% [markdown]
# **Task 2.5.** Two rules for arrays. `matmul`: for $Y = A B$ the gradients are $G B^T$ and $A^T G$; check that the
# shapes fit. `total` adds up all elements; what is the gradient of each?
#
# ## Training
#
# **Task 2.6.** `descend` is gradient descent. In each step: forget the gradients of the step before, compute the
# loss, call `backward`, write down the loss, and move every parameter by `rate` against its gradient.
#
# When all tasks pass, the check trains a network of one hidden layer on two moons with your engine, and draws it.

# %%
passed = check(2)

# %% [markdown]
# The number to beat is the loss in the title on the right. Can you get below it in 400 steps? Try another rate in
# `tutorials/02_autograd/picture.py`, or remember the last step and add 0.9 of it to the next (momentum).
#
# ## In miniflow's source
#
# `miniflow/dispatch/tape.py` is this engine's `Variable`: a `Node` knows its operator and where gradients go. In place
# of a topological sort every node has a number, and backward visits the newest first: parents are always older.
# `miniflow/autograd/` has `backward`. Each operator in `miniflow/ops` has its `backward` beside it; it is written in
# operators, not in NumPy, so that gradients can be differentiated again.
#
# Further reading: Baydin et al. 2018, "Automatic differentiation in machine learning: a survey"; Karpathy, micrograd,
# the same idea for numbers; HIPS autograd, the same for NumPy.
