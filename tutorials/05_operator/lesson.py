# %% [markdown]
# # Write an operator
#
# After this lesson you can add an operator to miniflow: one that runs on the CPU, on CUDA devices and in graphs, and
# that has gradients of any order. Time: 60 minutes. You need gradients (lesson 2), and for one task a first look at
# CUDA kernels: puzzles 1 to 4 of lesson 6. You need no GPU. It builds on the rules of lesson 2 and on the guard of
# puzzle 6.3. The last lesson puts your code of this one into a framework of your own.
#
# Solve the tasks in the notebook, `notebooks/05_operator.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/05_operator/student.py` when you run it, and checks the task. Or write in that file, which `python -m
# tutorials start 5` makes; `python -m tutorials check 5` checks all of it. You do not change the package: `register.py`
# in the same folder registers your operators for the time of a `with` block, and afterwards miniflow is as it was.

# %%
import os

os.environ.setdefault("MINIFLOW_CUDA", "host")  # CUDA kernels run on the CPU

import numpy as np

import miniflow as flow
from tutorials import check, implementation
from tutorials.implementation import load
from tutorials.lessons import lesson

impl = implementation(5)
register = load(lesson(5).folder / "register.py")
rng = np.random.default_rng(0)

# %% [markdown]
# ## A pointwise operator is a formula
#
# In a *pointwise* operator, each element of the result depends on one element of each operand. You write what happens
# to one element. miniflow calls your function with symbols, and makes the loops from the recorded formula: for each
# dtype, for the CPU, for CUDA, for fused loops in graphs. So broadcasting and dtypes are not your concern. The function
# may use arithmetic, comparisons, and the functions of `formulas/scalar.py`, such as `abs`, `sqrt` and `where`. An `if`
# on an element is not possible, since a symbol has no value; write `where(condition, x, y)`.
#
# The operator is *squareplus*, a smooth form of relu: $(x + \sqrt{x^2 + b}) / 2$ with $b > 0$. As it stands, the
# formula fails for large negative $x$: two nearly equal numbers are subtracted, and most digits are lost.

# %%
x = np.float32([-1000, -100, 100])
print("float32:", (x + np.sqrt(x * x + 4)) / 2)
print("float64:", (x.astype(np.float64) + np.sqrt(x.astype(np.float64) ** 2 + 4)) / 2)

# %% [markdown]
# With $r = \sqrt{x^2 + b}$ we have $(r + x)(r - x) = b$. So for negative $x$ there is a second form of $(x + r) / 2$,
# in which nothing is subtracted.
#
# **Task 5.1.** Write `squareplus(x, b)`. The relative error in float32 has to be below 0.00001 for all $x$ from -10,000
# to 10,000. Both branches of `where` are computed for each element, so keep away from a division by zero in both.

# %%
with register.restored():
    squareplus = register.add_squareplus(impl.squareplus)
    print(squareplus(flow.tensor(x), 4.0).numpy())
    print(squareplus(flow.tensor(x[:, None], device="cuda"), flow.tensor([4.0, 1.0], device="cuda")).numpy())

# %% [markdown]
# A gradient is a function of one element as well. Its first parameter is the cotangent `dy`, the gradient of the
# result. Then it names what it needs: operands, and `out`, the result. Just these are kept until backward.
#
# **Task 5.2.** Write `squareplus_grad_x` and `squareplus_grad_b`. Differentiate the formula on paper. The gradient of x
# contains $1 + x / r$, which loses its digits as well: write it with `out`. You do not add up over broadcast
# dimensions: miniflow does.
#
# To differentiate a gradient again, miniflow calls the same functions with tensors, and records their operators. So you
# get second gradients without more work:

# %%
with register.registered(impl) as squareplus:
    x = flow.tensor([-2.0, 0.0, 2.0], requires_grad=True)
    (first,) = flow.autograd.grad(squareplus(x, 5.0).sum(), [x], create_graph=True)
    (second,) = flow.autograd.grad(first.sum(), [x])
print("first: ", first.detach().numpy(), "  second:", second.numpy())

# %% [markdown]
# ## An operator with kernels
#
# The second operator is a *linear recurrence* along the first dim of tensors of shape (steps, columns):
#
# $$y_t = a_t \, y_{t-1} + x_t, \qquad y_{-1} = 0.$$
#
# Moving averages, discounted rewards and state-space models compute it. Each step needs the step before, so it would
# take one operator call for each step. As an operator of its own it is one call. Such an operator is a class,
# `Recurrence`, and one function for each kind of device.
#
# `infer` runs first. It gets the arrays, and returns the shape and the NumPy dtype of the result, which miniflow then
# allocates. It refuses what the kernels could not work with. A good message says which operator it was, what it got,
# and what it expected.
#
# **Task 5.3.** Write `infer`. Both shapes have to be equal: nothing is broadcast. `require_floating(name, x)` and
# `require_one_dtype(name, x, a)`, which are imported, raise the `DTypeError`; a `ShapeError` you raise yourself.
#
# **Task 5.4.** Write `recurrence_cpu(y, x, a)`. The array `y` is allocated but not filled: it may hold anything. Leave
# `x` and `a` as they are. A loop over the steps is enough, since NumPy handles all columns of a step at once. There may
# be no steps at all, or no columns.
#
# **Task 5.5.** Write `recurrence_kernel(x, a, y)`. Thread `cuda.grid(1)` makes one column. The launch has at least as
# many threads as there are columns, so compare before you read. Steps are a loop in the thread. Read each element of
# `x` and `a` once, write each element of `y` once, and do not read `y`: the check counts. A first value of the right
# dtype is `x.dtype.type(0)`.

# %%
x, a = flow.tensor([[1.0, 1.0], [0.0, 1.0], [0.0, 1.0]]), flow.full((3, 2), 0.5)
with register.registered(impl):
    print(impl.recurrence(x, a).numpy())
    print("on CUDA the same:", (impl.recurrence(x.cuda(), a.cuda()).cpu() == impl.recurrence(x, a)).all().item())

# %% [markdown]
# ## Its gradient
#
# Let $dy_t$ be the gradient of $y_t$ from what comes after the operator. $y_t$ counts a second time: $y_{t+1}$ is made
# of it. Call the sum of both $g_t$:
#
# $$g_t = dy_t + a_{t+1} \, g_{t+1}.$$
#
# That is a recurrence again, which runs from the last step to the first. The gradient of $x_t$ is $g_t$. What is the
# gradient of $a_t$, the factor of $y_{t-1}$?
#
# **Task 5.6.** Write `recurrence_gradients(a, y, dy)`, which `backward` calls with the tensors that the class says it
# saves. Return the gradients of `x` and of `a`. Call `recurrence` itself: `flip(0)` reverses the steps of a tensor. Use
# only functions of tensors, such as `flow.roll`, `flow.cat` and `flow.zeros_like`, and neither NumPy nor in-place
# changes: then the gradient is recorded, and can be differentiated again. Think of no steps at all: then `y[:1]` has no
# rows, and `flow.zeros(1, columns)` has one.

# %%
with register.registered(impl):
    x, a = [flow.tensor(rng.uniform(-1, 1, (5, 3)), requires_grad=True) for _ in "xa"]
    print("gradients agree with differences:", flow.autograd.gradcheck(impl.recurrence, [x, a]))
    print("second gradients:", flow.autograd.gradgradcheck(impl.recurrence, [x, a]))

# %% [markdown]
# When all tasks pass, the check draws three pictures. The recurrence averages a noisy signal: the larger $a$, the
# smoother, and the later. Its gradient shows why: how much each input counts for the last result.

# %%
passed = check(5)

# %% [markdown]
# The number to beat is in the title on the right: the peak of memory while backward runs, counted in arrays of the size
# of $x$. Four are there before: $x$, $a$, $y$ and $dy$; two are the result. So 6 are possible. Write a second operator,
# `RecurrenceGrad`, whose kernels compute both gradients in one loop from the last step to the first, and call it in
# `recurrence_gradients` while `flow.is_grad_enabled()` is false.
#
# ## In miniflow's source
#
# `docs/ADD_AN_OPERATOR.md` says what else there is to do in the package: tests, and rules for global tensors.
# `miniflow/ops/activation.py` has pointwise operators; `miniflow/ops/softmax.py` is a class like yours, with its
# kernels in `miniflow/backends/cpu/softmax.py` and `kernels/softmax.py`. `miniflow/dispatch/dispatcher.py`
# calls them.
#
# Further reading: Barron 2021, "Squareplus: a softplus-like algebraic rectifier"; Martin and Cundy 2018, "Parallelizing
# linear recurrent neural nets over sequence length"; Gu and Dao 2023, "Mamba: linear-time sequence modeling with
# selective state spaces"; Bradbury et al. 2018, "JAX: composable transformations of Python+NumPy programs".
