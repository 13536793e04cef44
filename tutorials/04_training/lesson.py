# %% [markdown]
# # Modules, losses and optimizers
#  It uses miniflow's tensors in place of your variables of lesson 2. The last lesson puts your code of this one into a
# framework of your own.
#
# After this lesson you have written what trains a network: layers, the cross-entropy, SGD, Adam, and the loop around
# them. Your code recognizes handwritten digits. Time: 50 minutes. You need tensors with gradients (`00_quickstart`).
# Solve the tasks in the notebook, `notebooks/04_training.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/04_training/student.py` when you run it, and checks the task. Or write in that file, which `python -m
# tutorials start 4` makes; `python -m tutorials check 4` checks all of it.

# %%
import miniflow as flow
from tutorials import check, implementation

impl = implementation(4)
_ = flow.manual_seed(0)

# %% [markdown]
# ## Modules
#
# A *module* is a function that holds tensors, its *parameters*. Training changes them. The most common module is
# `Linear`: it maps $x$ to $x W^T + b$. The weight $W$ has shape (out_features, in_features), the bias $b$ has shape
# (out_features,).
#
# What are good first values? Not zeros: then all hidden units compute the same, and stay the same. And if they are too
# large, so are the results of every layer. A result is a sum of `in_features` products. So the numbers are drawn
# uniformly from $-k$ to $k$, where $k = 1/\sqrt{\text{in\_features}}$.
#
# **Task 4.1.** Write `Linear` and `Sequential`. `flow.empty(2, 3).uniform_(-k, k)` draws numbers, and
# `requires_grad_()` comes last: it makes the tensor a leaf that gets a gradient. `parameters()` is a list of the
# tensors themselves, not of copies.

# %%
model = impl.Sequential(impl.Linear(784, 64), flow.relu, impl.Linear(64, 10))
print([tuple(p.shape) for p in model.parameters()])
print("largest weight:", round(model.parameters()[0].abs().max().item(), 4), "  k =", round(784**-0.5, 4))

# %% [markdown]
# ## The loss
#
# The network gives a number for each class, the *logits* $x$. Softmax makes probabilities of them: $p_c = e^{x_c} /
# \sum_j e^{x_j}$. The *cross-entropy* is $-\log p_t$, where $t$ is the label. It is 0 if the network is sure and right,
# and large if it is sure and wrong.
#
# With the formula as it stands, a computer fails: $e^{1000}$ is infinite, and infinity divided by infinity is NaN. But
# softmax does not change if you subtract the same number from all logits of a row. Subtract the largest of them. Then
# every exponent is at most 0, and the sum is at least 1:
#
# $$-\log p_t = \log \sum_j e^{x_j - m} - (x_t - m), \qquad m = \max_j x_j.$$
#
# **Task 4.2.** `cross_entropy(logits, labels)` returns the mean of this over all rows. Use `amax` with `keepdim`, and
# `gather` to take one logit of each row. Write it with tensor operations, but without `logsumexp` and `log_softmax`.

# %%
logits = flow.tensor([[1000.0, 0.0, 998.0]], requires_grad=True)
label = flow.tensor([0])
print("as on paper:", (-(logits.exp() / logits.exp().sum(dim=1, keepdim=True)).log()[0, 0]).item())
loss = impl.cross_entropy(logits, label)
loss.backward()
print("yours:", round(loss.item(), 4))
print("gradient:", logits.grad.numpy().round(4))

# %% [markdown]
# On paper, the gradient is $p$, with 1 subtracted at the label. You did not write it: the tape made it from the
# gradients of `exp`, `log`, `gather` and the others. The elements of a row add up to 0.
#
# ## SGD and momentum
#
# Plain gradient descent moves a parameter $p$ by $-\text{lr} \cdot g$. In a narrow valley it goes from one side to the
# other. *Momentum* keeps a velocity for each parameter, $v \leftarrow \mu v + g$, and moves $p$ by
# $-\text{lr} \cdot v$. What changes its sign in each step cancels; what points the same way adds up.
#
# Three things matter. Change the parameter in place, as `p -= ...` does: the model holds this tensor, and would not
# know of a new one. Do it within `flow.no_grad()`: a step is not part of the function that is differentiated. And
# gradients add up in `grad` from one `backward` to the next, so `zero_grad` has to forget them.
#
# **Task 4.3.** Write `zero_grad` of `Optimizer`, and `SGD`. Each parameter has a velocity of its own, 0 at first.
#
# ## Adam
#
# Some gradients are a thousand times larger than others. Adam divides by their usual size. It keeps two means for each
# parameter, of $g$ and of $g^2$, in which old gradients fade:
#
# $$m \leftarrow \beta_1 m + (1 - \beta_1) g, \qquad s \leftarrow \beta_2 s + (1 - \beta_2) g^2.$$
#
# Both start at 0, so they are too small at first: after step $t$ the weights of all gradients add up to $1 - \beta^t$,
# not to 1. So divide by it, and then $p \leftarrow p - \text{lr} \cdot \hat m / (\sqrt{\hat s} + \epsilon)$.
#
# **Task 4.4.** Write `Adam`. The first step is `lr` against the sign of the gradient, whatever its size:

# %%
p = flow.zeros(3, requires_grad=True)
optimizer = impl.Adam([p], lr=0.5)
p.grad = flow.tensor([1000.0, 1.0, -0.001])
optimizer.step()
print(p.detach().numpy().round(3))

# %% [markdown]
# ## The loop
#
# **Task 4.5.** `accuracy` is the share of right answers; `argmax` finds the largest logit of each row. `train` goes
# through all batches in each epoch. For each batch: compute the loss, forget the old gradients, call `backward`, take a
# step, and keep the loss as a number.
#
# How do you know that a loop is right? Give it a problem whose answer you know. Here the loss is the mean of
# $(p - t)^2$, so the best $p$ is the mean of all $t$.

# %%
p, targets = flow.zeros((), requires_grad=True), flow.tensor([1.0, 2.0, 6.0])
optimizer = flow.optim.SGD([p], lr=0.1)
_ = impl.train(lambda x: p * x, lambda y, t: ((y - t) ** 2).mean(), optimizer, [(1.0, targets)], 50)
print("p:", round(p.item(), 3), "  mean:", targets.mean().item())

# %% [markdown]
# When all tasks pass, the check trains a network on 4,000 digits with each optimizer, and tests it on 1,000 others.

# %%
passed = check(4)

# %% [markdown]
# The number to beat is the best accuracy in the title. With momentum the network already knows its training digits by
# heart, so more epochs do not help. In `tutorials/04_training/picture.py`, try more hidden units with smaller batches
# and a smaller learning rate, or move the training images by a pixel in each epoch.
#
# ## In miniflow's source
#
# `miniflow/nn/modules/linear.py` is `Linear`, and `module.py` beside it finds parameters by their attributes.
# `miniflow/ops/losses.py` has the cross-entropy as one operator, with its gradient. `miniflow/formulas/update_rules.py`
# has SGD and Adam for one element; `kernels/optim.py` runs them over many parameters at once.
#
# Further reading: Kingma and Ba 2015, "Adam: A Method for Stochastic Optimization"; Sutskever et al. 2013, "On the
# importance of initialization and momentum in deep learning"; Goh 2017, "Why Momentum Really Works", with pictures.
