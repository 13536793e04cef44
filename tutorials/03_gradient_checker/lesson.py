# %% [markdown]
# # A gradient checker
#
# After this lesson you can tell a wrong gradient from a right one, and know what a careless test does not see. Time: 45
# minutes. You need NumPy and the idea of a derivative. It checks gradients such as those of lesson 2. The last lesson
# puts your code of this one into a framework of your own.
#
# Solve the tasks in the notebook, `notebooks/03_gradient_checker.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/03_gradient_checker/student.py` when you run it, and checks the task. Or write in that file, which `python
# -m tutorials start 3` makes; `python -m tutorials check 3` checks all of it.

# %%
import numpy as np

from tutorials import check, implementation

impl = implementation(3)

# %% [markdown]
# ## Wrong gradients pass many tests
#
# A network whose gradients are a little wrong still learns, only worse. So gradients need tests of their own. But a
# test can be blind: some well-known courses accept a gradient of zero, or one whose elements are in another order. In
# this lesson your checker is judged: it has to accept eight right operators, and to reject ten wrong ones.
#
# ## Differences
#
# A derivative is a limit of differences. The *central* difference is $(f(x + h) - f(x - h)) / 2h$. Its error falls with
# $h^2$, that of the one-sided difference only with $h$.
#
# An operator has many inputs and many outputs. Choose one number $g$ for each output, the *cotangent*, and look at the
# sum of $f(x) \cdot g$: that is one number, and it has one slope for each element of each input.
#
# **Task 3.1.** `numeric(f, inputs, cotangent, step)` returns these slopes, one array for each input. Move one element
# at a time, and move a copy.

# %%
x = np.asarray([[1.0, 2.0], [3.0, 4.0]])
print(impl.numeric(lambda x: x**2, [x], np.ones((2, 2)))[0])

# %% [markdown]
# ## When are two gradients equal?
#
# The difference may be large where the gradient is large, so the tolerance is relative: `rtol * |expected|`. Where the
# gradient is 0 a relative tolerance allows nothing, so a small absolute one is added. NaN is equal to nothing. And
# shapes count: NumPy would broadcast a gradient of shape (3,) to (2, 3) and say that all is well.
#
# **Task 3.2.** Write `close`.

# %%
print(impl.close(np.asarray([1e6 + 5]), np.asarray([1e6])), impl.close(np.asarray([5.0]), np.asarray([0.0])))

# %% [markdown]
# ## Which cotangent?
#
# With a cotangent of ones, an operator may return its gradients in any order: their sum is the same. With equal signs,
# errors may cancel. So take numbers that all differ, of both signs, none of them small.
#
# **Task 3.3.** Write `random_cotangent`.
#
# **Task 3.4.** Write `check`: draw inputs, choose a cotangent, ask the operator, compare with `numeric`. An operator
# that returns too few gradients, or that changes its inputs, is wrong too.
#
# ## A library
#
# **Task 3.5.** Complete `from_miniflow`: tensors that require a gradient, a call, and `backward` with the cotangent.
# Now your checker works for every operator of miniflow.

# %%
import miniflow as flow

relu = impl.from_miniflow(flow.relu, lambda rng: [rng.uniform(0.5, 1.5, (2, 3)) * rng.choice([-1, 1], (2, 3))])
print(impl.check(relu, np.random.default_rng(0)))

# %% [markdown]
# When all tasks pass, the check draws the error of your differences for many steps. On the right the step is too large,
# and the curve bends away. On the left it is too small: $f(x + h)$ and $f(x - h)$ agree in most digits, and these are
# lost in the difference.

# %%
passed = check(3)

# %% [markdown]
# The number to beat is the error in the picture. Use more points, $(8 f(x + h) - 8 f(x - h) - f(x + 2h) + f(x - 2h)) /
# 12h$, and it gets smaller: by how much, and at which step?
#
# ## In miniflow's source
#
# `miniflow/autograd/gradcheck.py` is the checker of the library, for gradients of any order. `tests/checks.py` holds
# every operator to it: random cotangents, inputs away from kinks, and an error if all true gradients are so small that
# nothing could be seen. PyTorch's is `torch.autograd.gradcheck`.
