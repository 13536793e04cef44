# %% [markdown]
# # Mixed precision, resuming and recomputation
#
# After this lesson you can train in half precision without losing small gradients, stop a run and go on as if nothing
# had happened, and trade time for memory. Time: 60 minutes. You need a training loop (lesson 4) and what a float is. It
# builds on the training loop of lesson 4.
#
# Solve the tasks in the notebook, `notebooks/14_mixed_precision.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/14_mixed_precision/student.py` when you run it, and checks the task. Or write in that file, which `python
# -m tutorials start 14` makes; `python -m tutorials check 14` checks all of it.

# %%
import tempfile
from pathlib import Path

import numpy as np

import miniflow as flow
from tutorials import check, implementation

impl = implementation(14)
_ = flow.manual_seed(0)

# %% [markdown]
# ## Two kinds of half precision
#
# A float32 has 1 bit for the sign, 8 for the exponent and 23 for the fraction. Half precision has 16 bits, so it takes
# half of the memory. *bfloat16* is the upper half of a float32: 8 bits of exponent, 7 of fraction. *float16* has 5 and
# 10: more digits, but a small range.
#
# To round a float32 to bfloat16, look at its bits as an integer (`x.view(np.uint32)`) and clear the lower 16. That
# alone would always round towards zero. Nearest is better: add half of the last place that stays, `0x8000`, before you
# clear. There is one more rule: a number exactly halfway between two goes to the *even* one, whose last bit is 0, so
# that errors do not add up. So add `0x7FFF`, and 1 more if the last bit that stays is 1. A carry into the exponent is
# right: it gives the next power of two, or infinity. But a NaN could become infinity, or 0: keep it apart.
#
# In float16 the smallest number is $2^{-24}$. What is not above half of it becomes 0: it *underflows*. What rounds to
# more than 65,504 becomes infinity: it *overflows*.
#
# **Task 14.1.** Write `round_to_bfloat16(x)`, for arrays of any strides, and `lost(gradients, scale)`. First multiply,
# then convert with `to_float16`, which is given. The shares are of the gradients that are not 0 before.

# %%
x = np.float32([1.0, 1.0039062, 1.0117188, 3.4e38, np.nan])
print("yours:   ", impl.round_to_bfloat16(x))
print("miniflow:", flow.tensor(x).bfloat16().float().numpy())
gradients = np.float32([3e-9, 2e-7, 0.001, 2.0])
for scale in (1.0, 1024.0, 65536.0):
    zero, infinite = impl.lost(gradients, scale)
    print(f"times {scale:g}: {zero:.0%} become 0, {infinite:.0%} become inf")

# %% [markdown]
# ## Loss scaling
#
# Many gradients are smaller than $2^{-24}$. In float16 they are lost, and the parameters behind them do not learn. The
# remedy: multiply the loss by a large factor. By the chain rule all gradients are multiplied by it. Before the step,
# divide them by it again, in float32.
#
# Which factor? As large as possible. *Dynamic* loss scaling finds it by trial. If a gradient is inf or NaN, leave out
# this step, and halve the factor; it does not fall below 1. After `interval` good steps in a row, double it, and begin
# to count again. A skipped step ends the row.
#
# **Task 14.2.** Write the methods of `LossScaler`. A tensor knows `isfinite()`, and `div_` divides in place.

# %%
p = flow.ones(2, requires_grad=True)
optimizer, scaler = flow.optim.SGD([p], lr=0.5), impl.LossScaler(8.0, interval=2)
for gradient in ([8.0, 16.0], [float("inf"), 8.0], [4.0, 4.0], [4.0, 4.0]):
    p.grad = flow.tensor(gradient)
    made = scaler.step(optimizer, [p])
    print("step made:", made, "  p:", p.tolist(), "  factor:", scaler.factor)

# %% [markdown]
# ## Mixed precision
#
# Why not store the parameters in half precision, too? A step changes them by little, and the sum is rounded: in
# bfloat16, 1 + 0.001 is 1.
#
# So the parameters stay float32: they are called *master weights*. Only the computation is in half precision, where
# that is fast and safe: matrix products are, losses are not. Within `flow.autocast(device, dtype=...)` miniflow chooses
# for each operator. Gradients of parameters arrive in float32. Backward runs in the dtypes of forward, whatever
# block it is called in.
#
# **Task 14.3.** Write `train_step`. Autocast is for the model and the loss alone. Everything else is the loop that you
# know, with `scaler.scale` and `scaler.step` in it. Forget the old gradients before backward. Use only these two
# methods of the scaler, with a list of all parameters of the model.

# %%
model, x = flow.nn.Linear(4, 1), flow.randn(32, 4)
optimizer, scaler = flow.optim.SGD(model.parameters(), lr=0.1), impl.LossScaler(2.0**10)
target = x.sum(dim=1, keepdim=True)
losses = [impl.train_step(model, flow.nn.MSELoss(), optimizer, scaler, x, target) for _ in range(60)]
print("loss at first:", round(losses[0], 3), "  at last:", round(losses[-1], 3), "  weights:", model.weight.dtype)

# %% [markdown]
# ## Stop and resume
#
# A long run is stopped some day: the power fails, or its time is up. What belongs to a checkpoint? All that the next
# step depends on. Weights alone are not enough: Adam has its means, the scheduler counts epochs, the scaler has its
# factor, and dropout and shuffling draw random numbers.
#
# And if the run is stopped while it writes the checkpoint, the file is useless, and the old one is gone. So write to
# another file in the same folder first. Then `os.replace(temporary, path)` gives it the name, in one step: whoever
# looks finds the old file or the new one, and never half of one.
#
# **Task 14.4.** Write `save_run` and `load_run`. `write(state, temporary)` writes a dict of dicts and tensors, and
# `flow.load(path)` reads it. `flow.get_rng_state()` is the state of the random generator, a tensor, and
# `flow.set_rng_state(state)` sets it. None of the parts has the name "random".

# %%
model = flow.nn.Sequential(flow.nn.Linear(4, 8), flow.nn.Dropout(0.5), flow.nn.Linear(8, 1))
optimizer, scaler = flow.optim.Adam(model.parameters()), impl.LossScaler()
parts, weights = {"model": model, "optimizer": optimizer, "scaler": scaler}, []
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "run.safetensors"
    impl.save_run(path, parts)
    for _ in range(2):
        impl.load_run(path, parts)
        losses = [impl.train_step(model, flow.nn.MSELoss(), optimizer, scaler, x, target) for _ in range(5)]
        weights.append(model[0].weight.detach().numpy().copy())
print("the same bits after 5 steps from one checkpoint:", np.array_equal(*weights))

# %% [markdown]
# ## Recomputation
#
# Backward needs the results of forward, so all of them are kept: that is most of the memory of training. You can keep
# only the input of a part of the network, and compute this part again in backward. PyTorch calls it *checkpointing*;
# it has nothing to do with files.
#
# `flow.autograd.Function` is an operator of your own. `forward(ctx, ...)` runs without recording; what you assign to
# `ctx`, such as `ctx.function = function`, you find in `backward`. A tensor among the inputs is kept by
# `ctx.save_for_backward(x)` and found in `ctx.saved_tensors`, a tuple. `backward(ctx, dy)` returns one gradient for
# each input of `forward`.
#
# **Task 14.5.** Write `forward` and `backward` of `Recomputed`. In backward, start from a copy without history,
# `x.detach().requires_grad_()`, call the function within `flow.enable_grad()`, and then `backward(dy)` of its result:
# it adds to `grad` of your copy, and of the parameters. Dropout has to draw the same mask as in forward. Afterwards,
# the random generator has to be as it was before your backward.

# %%
flow.manual_seed(3)
x = flow.ones(6, requires_grad=True)
y = impl.checkpoint(lambda x: flow.nn.functional.dropout(2 * x, 0.5), x)
y.sum().backward()
print("result:  ", y.detach().numpy())
print("gradient:", x.grad.numpy())

# %% [markdown]
# The result is 4 where the mask let $2x$ pass, since dropout doubles what it keeps; the gradient is 4 there, too.
#
# When all tasks pass, the check draws three pictures. On the left, a network's gradients with and without a factor. In
# the middle, the factor that your scaler finds: it rises until a gradient overflows. On the right, the peak of memory
# of a network with 24 layers that is cut into segments, each of which is recomputed.

# %%
passed = check(14)

# %% [markdown]
# The number to beat is the peak in the title on the right, counted in arrays of the size of one layer's result. With
# $s$ segments, $s$ inputs are kept, and during backward one segment of $24 / s$ layers: about $\sqrt{24}$ segments are
# best. You can get below it: let a segment call `checkpoint` itself, for parts of its own. Try it in `peak` of
# `tutorials/14_mixed_precision/picture.py`.
#
# ## In miniflow's source
#
# `miniflow/amp/grad_scaler.py` is the scaler, `miniflow/amp/autocast.py` chooses dtypes; each operator names its class
# for it, such as `amp = "white"`. `miniflow/serialization/atomic.py` replaces files; it also waits until the disk has
# the data (fsync), so that a power failure does no harm. `miniflow/utils/checkpoint.py` recomputes.
#
# Further reading: Micikevicius et al. 2018, "Mixed precision training"; Kalamkar et al. 2019, "A study of BFLOAT16 for
# deep learning training"; Chen et al. 2016, "Training deep nets with sublinear memory cost"; Griewank and Walther 2000,
# "Algorithm 799: revolve", which says how to recompute best.
