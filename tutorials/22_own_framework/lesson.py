# %% [markdown]
# # Your own framework
#
# In this last lesson you put together what you wrote before: broadcasting, an engine for gradients, a gradient checker,
# optimizers, an operator, a convolution and a loader. The result is a small framework of your own. It trains a
# convolutional network on handwritten digits until it reads 95 % of those that it has not seen, and you look at where
# its time goes, beside miniflow. Time: 60 minutes. You need lessons 1 to 4, 9 and 10; lesson 5 helps.
#
# Solve the tasks in the notebook, `notebooks/22_own_framework.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/22_own_framework/student.py` when you run it, and checks the task. Or write in that file, which `python -m
# tutorials start 22` makes; `python -m tutorials check 22` checks all of it.

# %%
import numpy as np

import miniflow as flow
from tutorials import check, implementation

impl = implementation(22)
mine = impl.mine
print(mine)

# %% [markdown]
# ## The parts
#
# `mine` has your code of the lessons as modules. What you have not written is taken from the solutions; the line above
# names it.
#
# | part | lesson | what is used here |
# |---|---|---|
# | `mine.storage` | 1 | `sum_to`, the gradient of every broadcast |
# | `mine.autograd` | 2 | `Variable`, `backward`, `add`, `mul`, `matmul`, `total` |
# | `mine.checker` | 3 | `Operator`, `check` |
# | `mine.training` | 4 | `Linear` for its first numbers, `Sequential`, `cross_entropy`, `SGD`, `Adam` |
# | `mine.operator` | 5 | `squareplus`, `squareplus_grad_x` |
# | `mine.convolution` | 9 | `conv2d_unfold`, `input_gradient`, `parameter_gradients` |
# | `mine.data` | 10 | `Digits`, `RandomShift`, `Shuffle`, `Loader`, `learning_rate` |
#
# If one of them is wrong, this lesson goes wrong in places that are hard to find. `python -m tutorials list` shows
# which lessons are done.
#
# ## Operators
#
# The engine of lesson 2 knows sums, products and matrix products. A network for images needs more. An operator is a
# function that computes a value, and returns `Variable(value, parents, pull)`: `pull` takes the gradient of the result,
# and returns one gradient for each parent, in their order.
#
# **Task 22.1.** `conv2d(x, weight, bias, stride, padding)` makes the convolution of lesson 9 an operator. Its value and
# its three gradients are there; you connect them.
#
# **Task 22.2.** `squareplus(x)` does the same for the formula of lesson 5 and its gradient. You wrote the formula for
# numbers; here the same lines get whole arrays, since `abs`, `sqrt` and `where` are NumPy's. `flatten` and `transpose`
# only rearrange: what is the gradient of that?

# %%
x = impl.Variable(np.linspace(-2, 2, 5))
print(impl.squareplus(x).value)

# %% [markdown]
# Your checker of lesson 3 takes operators on arrays. So it can check those of your engine, too:


# %%
def on_arrays(function):
    """An operator of the engine as one that lesson 3 checks."""

    def pull(cotangent, *arrays):
        engine, inputs = mine.autograd, [impl.Variable(a) for a in arrays]
        engine.backward(engine.total(engine.mul(function(*inputs), impl.Variable(cotangent))))
        return [v.grad for v in inputs]

    def draw(rng):
        return [rng.standard_normal(shape) for shape in ((2, 2, 5, 4), (3, 2, 3, 3), (3,))]

    return mine.checker.Operator(lambda *a: function(*map(impl.Variable, a)).value, pull, draw)


convolution = on_arrays(lambda x, w, b: impl.squareplus(impl.conv2d(x, w, b, 2, 1)))
print("gradients are right:", mine.checker.check(convolution, np.random.default_rng(0)))

# %% [markdown]
# ## The loss
#
# The cross-entropy of lesson 4 works on tensors of miniflow. Its value is a number, and you may take it from there. Its
# gradient you know on paper: for a row with the shares $p = \mathrm{softmax}(z)$ and the label $k$, the gradient for
# $z$ is $p$, minus 1 at $k$. The loss is the mean over the rows.
#
# **Task 22.3.** `cross_entropy(logits, labels)`. The gradient is multiplied by `g`, the gradient of the result. Let
# `exp` not overflow: take the largest logit of each row away before.

# %%
logits = impl.Variable([[2.0, 1.0, 0.1]])
loss = impl.cross_entropy(logits, np.array([0]))
mine.autograd.backward(loss)
print(loss.value, logits.grad)

# %% [markdown]
# ## Modules and the optimizer
#
# **Task 22.4.** `Linear(inputs, outputs)` has a weight and a bias: make a `Linear` of lesson 4, and take the numbers of
# its parameters. Its call uses operators of the engine, so that all of it is recorded. `Conv2d` begins like a linear
# layer of `inputs * size * size` inputs, with the weight in another shape.
#
# **Task 22.5.** The optimizers of lesson 4 change tensors in place, and your parameters are variables. `Optimizer` has
# a tensor for each variable. Write `zero_grad`, for the variables, and `step(rate)`: hand over the gradients, set the
# `lr` of the inner optimizer, let it step, and copy the numbers back.

# %%
model = impl.network()
print(*[p.value.shape for p in model.parameters()])
print(sum(p.value.size for p in model.parameters()), "parameters")

# %% [markdown]
# ## Training
#
# **Task 22.6.** `train_epoch` is the loop that you know: the loss of a batch, gradients, a step. The loader of lesson
# 10 gives tensors, whose `numpy()` are arrays. `accuracy` counts right answers.
#
# Now all parts work together: images that are shifted at random, a new order in each epoch, a learning rate that rises
# and falls. Ten epochs take about twenty seconds.

# %%
EPOCHS, PEAK = 10, 0.004
flow.manual_seed(0)
train, test = ([x.numpy() for x in flow.data.mnist(part, normalize=False).tensors] for part in ("train", "test"))
digits = mine.data.Digits(*train, mine.data.RandomShift(1, 0))
loader = mine.data.Loader(digits, mine.data.Shuffle(len(digits), 0), 50)
model = impl.network()
optimizer = impl.Optimizer(model.parameters(), lambda tensors: mine.training.Adam(tensors))
for epoch in range(EPOCHS):
    rate_of = lambda step: mine.data.learning_rate(step, EPOCHS * len(loader), len(loader), PEAK)  # noqa: E731
    losses = impl.train_epoch(model, optimizer, loader, rate_of, epoch * len(loader))
    print(f"epoch {epoch}: loss {np.mean(losses):.3f}")
right = impl.accuracy(model, *test)
print(f"{right:.1%} of 1,000 test digits are right; at least 95 %:", right >= 0.95)

# %% [markdown]
# The number to beat is 97 %, which `python -m miniflow` reaches. What would you change: the network, the shifts, the
# rate? If you try many settings, choose by held-out digits (lesson 10), and use the test digits once.
#
# ## One step, beside miniflow
#
# Where does a step spend its time? Python's own profiler counts the calls and the time of each function.

# %%
import cProfile
import pstats


def step():
    mine.autograd.backward(impl.cross_entropy(model(impl.Variable(train[0][:50])), train[1][:50]))


profile = cProfile.Profile()
profile.runcall(step)
pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(8)

# %% [markdown]
# Most of the time goes to matrix products, and to `unfold` and `fold`, which only copy. The same network in miniflow
# has the same matrix products, in float32, and its convolution goes through blocks that stay in the cache. When all
# tasks pass, the check trains once more, and draws the loss, the functions of one step of yours, and the time of a step
# beside miniflow's. Lesson 21 has the tools to find out what limits each.

# %%
passed = check(22)

# %% [markdown]
# ## In miniflow's source
#
# Each of your parts has a larger relative: `miniflow/autograd/` the engine, `miniflow/ops/` the operators with their
# gradients, `miniflow/nn/modules/` the modules, `miniflow/optim/` the optimizers, `miniflow/utils/data/` the loader.
# What yours does not have: devices, dtypes, views, in-place operations, and graphs (lessons 12 and 13).
#
# Further reading: A. Karpathy, "micrograd", 2020, an engine on one screen; S. Rush, "MiniTorch", 2020, and T. Chen and
# Z. Kolter, "needle", of their course on deep learning systems, 2022, which end with a framework of the student's, too.
