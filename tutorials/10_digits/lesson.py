# %% [markdown]
# # Data loading, and a network for digits
#
# After this lesson you have written what stands between a folder of images and a network: a data set, the order of an
# epoch, batches and augmentation. You train a convolutional network with it, and measure honestly how good it is. Time:
# 50 minutes. You need a training loop (lesson 0 or 4) and a little NumPy. It builds on the training loop of lesson 4.
# The last lesson puts your code of this one into a framework of your own.
#
# Solve the tasks in the notebook, `notebooks/10_digits.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/10_digits/student.py` when you run it, and checks the task. Or write in that file, which `python -m
# tutorials start 10` makes; `python -m tutorials check 10` checks all of it.

# %%
import matplotlib.pyplot as plt

import miniflow as flow
from tutorials import check, implementation

impl = implementation(10)
_ = flow.manual_seed(0)
images, labels = (tensor.numpy() for tensor in flow.data.mnist("train", normalize=False).tensors)
print(images.shape, images.dtype, labels.shape, labels.dtype)

# %% [markdown]
# ## A data set, and data that nobody trains on
#
# A *data set* gives a sample for an index. It may *transform* the sample, for instance move the image a little: then
# the network sees another image in each epoch. A transformation may write into the array that it gets. So it gets a
# copy. Without the copy, small changes would add up from epoch to epoch.
#
# A network can learn its training images by heart. So its accuracy is measured on *held-out* images, which it was not
# trained on, and on these as they are: without random changes. If you choose among many settings by their held-out
# accuracy, even this number becomes too good. So there is a third set, the *test* digits. They are used once, at the
# end.
#
# **Task 10.1.** Write `__len__` and `__getitem__` of `Digits`, and `split`. Is the file sorted by class? Then its last
# images would be nines only. So choose the held-out images at random, by a permutation of all indices.

# %%
train, held_out = impl.split(images, labels, 1000, seed=0)
image, label = train[7]
print(len(train), len(held_out), image.shape, label, held_out.transform)

# %% [markdown]
# ## The order of an epoch
#
# An *epoch* is one pass over the training data. The order should be another one each time, since the batches are then
# mixed in new ways. But a run should be repeatable, so the order follows from a seed.
#
# **Task 10.2.** Write `__init__` and `__iter__` of `Shuffle`. Make the generator once, in `__init__`: a generator made
# from the same seed in each epoch gives the same order each time. `permutation` and `tolist` are useful. Each index
# comes exactly once in each epoch, also if the epoch before was left early.

# %%
order = impl.Shuffle(5, seed=1)
print(sorted(order) == [0, 1, 2, 3, 4], [list(order) for _ in range(3)])

# %% [markdown]
# ## Batches
#
# **Task 10.3.** `collate` stacks samples into two tensors. `Loader` goes through the indices of `order`, and yields a
# batch as soon as it has `size` samples. The last batch may be smaller: with `drop_last` it is left out, since the
# statistics of a tiny batch are bad for batch normalization. `len(loader)` is the number of batches.
#
# Read a sample only when its batch is asked for. A data set can be larger than memory.

# %%
loader = impl.Loader(train, impl.Shuffle(len(train), seed=0), 64)
print([tuple(batch.shape) for batch in next(iter(loader))])
for drop_last in (False, True):
    counted = impl.Loader(held_out, range(1000), 64, drop_last)
    print(len(counted), "batches, the last of", [len(labels) for _, labels in counted][-1])

# %% [markdown]
# ## Augmentation
#
# A digit that is moved by two pixels is the same digit. The network does not know that, and 3,000 images do not show it
# well. So show each image at another place in each epoch. This is *augmentation*.
#
# **Task 10.4.** `shifted(image, down, right)` moves an image. What moves out is lost, and zeros come in: `np.roll`
# would bring in the pixels of the other side. One way is `np.pad` with zeros on all sides, and then a slice. `__call__`
# of `RandomShift` draws `down` and `right`, each by itself. `rng.integers(low, high)` never gives `high`.

# %%
augmented, _ = impl.split(images, labels, 1000, seed=0, transform=impl.RandomShift(2, seed=0))
figure, axes = plt.subplots(1, 8, figsize=(8, 1.2), layout="constrained")
for axis in axes:
    axis.imshow(augmented[7][0][0], cmap="gray_r")
    axis.set(xticks=[], yticks=[])

# %% [markdown]
# ## Training
#
# Large steps are fast at the start of the training, and too large at its end. And the very first gradients, of random
# weights, are no good guide for large steps. So the learning rate rises for some steps, the *warm-up*, and then falls
# like half a cosine. With peak $p$, $w$ steps of warm-up and $n$ steps in all, the rate of step $k = 0, 1, \dots, n-1$
# is
#
# $$p\,\frac{k + 1}{w} \ \text{ if } k < w, \qquad\text{else}\qquad \frac{p}{2}\left(1 + \cos \pi \frac{k - w}{n - w}
# \right).$$
#
# **Task 10.5.** Write `learning_rate` and `train_epoch`. `model.train()` comes first, because batch normalization and
# dropout do something else in training than in evaluation. Set the rate before each step, in each dictionary of
# `optimizer.param_groups`. The result is the mean over all samples. It is not the mean over the batches, since the last
# batch may be smaller: weight the loss of each batch by its number of samples.

# %%
print([round(impl.learning_rate(k, 10, 3, 0.3), 3) for k in range(10)])

# %% [markdown]
# ## Evaluation
#
# In evaluation mode dropout does nothing, and batch normalization uses the statistics that it kept in training: the
# answer for an image does not depend on the images beside it.
#
# **Task 10.6.** Write `evaluate`. Note `module.training` of each module in `model.modules()` first, call
# `model.eval()`, and set each back at the end. A call of `model.train()` at the end would be wrong: a user may have put
# some layers into evaluation mode for good. As above, the loss is the mean over all samples.

# %%
model = impl.network()
optimizer = flow.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
small = impl.Loader(train, range(640), 64)
before = impl.evaluate(model, small)[0]
for epoch in range(2):
    loss = impl.train_epoch(model, small, optimizer, lambda k: impl.learning_rate(k, 20, 5, 0.05), 10 * epoch)
after, share = impl.evaluate(model, small)
print(f"640 digits: loss {before:.1f} before training, {after:.1f} after two epochs, mode {model.training}")

# %% [markdown]
# When all tasks pass, the check trains the network for five epochs on 3,000 digits that are moved by up to two pixels.
# The held-out loss is below the training loss here: it is measured after the epoch, on images that are not moved, and
# without dropout.

# %%
passed = check(10)

# %% [markdown]
# The number to beat is the share of right answers on held-out digits, in the title. In
# `tutorials/10_digits/picture.py` try more channels, larger shifts, other rates, or rotate the images a little. Then
# set `USE_TEST = True`, once: how far is the test accuracy from the held-out one?
#
# ## In miniflow's source
#
# `miniflow/utils/data/` has `dataset.py`, `sampler.py`, `collate.py` and `dataloader.py`; its loader can also read in
# worker processes. `miniflow/optim/lr_scheduler/` has the schedules, and `miniflow/ops/normalization.py` batch
# normalization in both modes.
#
# Further reading: LeCun et al. 1998, "Gradient-based learning applied to document recognition"; Ioffe and Szegedy 2015,
# "Batch normalization"; Loshchilov and Hutter 2017, "SGDR: Stochastic gradient descent with warm restarts"; Goyal et
# al. 2017, "Accurate, large minibatch SGD", on warm-up; Recht et al. 2019, "Do ImageNet classifiers generalize to
# ImageNet?", on test sets that were used often.
