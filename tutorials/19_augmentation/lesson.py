# %% [markdown]
# # Augmentation, and a vision project
#
# A network needs many images, and you may have few. After this lesson you can make many of a few: you rotate them, cut
# parts out, change their colours and mix them. You have written each change yourself, in NumPy. Then you train a small
# residual network with and without them, and look at what it learned. Time: 60 minutes. You need a training loop
# (lesson 4), and you should know what an epoch and held-out images are (lesson 10). It builds on the transformations
# and the loader of lesson 10, and on the loss of lesson 4.
#
# Solve the tasks in the notebook, `notebooks/19_augmentation.ipynb`: a cell that begins with `%%task` writes to
# `tutorials/19_augmentation/student.py` when you run it, and checks the task. Or write in that file, which `python -m
# tutorials start 19` makes; `python -m tutorials check 19` checks all of it.

# %%
import importlib

import matplotlib.pyplot as plt
import numpy as np

import miniflow as flow
from tutorials import check, implementation

impl = implementation(19)
shapes = importlib.import_module("tutorials.19_augmentation.shapes")


def show(images, titles=()):
    """A row of images (3, height, width)."""
    figure, axes = plt.subplots(1, len(images), figsize=(1.1 * len(images), 1.4), layout="constrained")
    for k, (axis, image) in enumerate(zip(axes, images)):
        axis.imshow(image.transpose(1, 2, 0), interpolation="nearest")
        axis.set(xticks=[], yticks=[])
        axis.set_title(titles[k] if k < len(titles) else "", fontsize=8)
    plt.show()


images, labels = shapes.images(10, seed=2)
print(images.shape, images.dtype, images.min(), images.max())
show(images, [shapes.CLASSES[k] for k in labels])

# %% [markdown]
# The images are drawn by a function, from a seed. So there can be as many as we like: 100 to train on, and 1,000
# held-out ones, which tell precisely how good the network is.
#
# A change of an image is a good augmentation if it keeps the class, and if the new image could be a real one. A rotated
# star is a star. But a 6 upside down is a 9: for the digits of lesson 10, this change would teach something wrong.
#
# ## Between the pixels
#
# After a rotation, the pixels of the new image come from places *between* the pixels of the old one. *Bilinear
# interpolation* says which value is there. Between two pixels in a row it goes in a straight line from one value to the
# other: at 0.3 of the way, it is 0.7 of the first one and 0.3 of the second. Do this in the row above the point and in
# the row below it. Then do it once more between the two results.
#
# To change the size of an image, we need the place of each new pixel in the old image. Pixels are small squares. Pixel
# $k$ goes from $k$ to $k + 1$ if we measure from the edge of the image, and its center is at $k + \frac12$. If $n$
# pixels become $m$, all lengths are multiplied by $n / m$ on the way back: the center of the new pixel is at $(k +
# \frac12) \frac nm$ from the edge of the old image. Pixel numbers count from the center of the first pixel, so subtract
# $\frac12$ at the end. Many programs have got this wrong: their images moved a little whenever the size was changed.
#
# **Task 19.1.** Write `bilinear` and `resized`. `np.clip` and `np.floor` are useful. An array of row numbers and one of
# column numbers, both of one shape, are an index: `image[:, rows, columns]`. `np.meshgrid(y, x, indexing="ij")` makes
# two such arrays of one y for each row and one x for each column.

# %%
small = np.float32([[[0, 1], [2, 3]]])
print(impl.bilinear(small, np.array([0, 0.5, 1, 0.25]), np.array([0.5, 0.5, 0, -7])), "expected 0.5, 1.5, 2 and 0.5")
print(impl.resized(small, 1, 4))

# %% [markdown]
# ## Rotation
#
# It seems natural to ask where each pixel goes. But then two pixels may go to one place, and to some places none: the
# new image has holes. So ask the other way round: for each pixel of the new image, where does it *come from*? This is
# *inverse warping*, and all geometric changes are done in this way.
#
# If an image is rotated counterclockwise by the angle $a$ and enlarged by $s$, then a point which was $d$ pixels below
# the center and $r$ pixels to the right of it goes to
#
# $$d' = s\,(d \cos a - r \sin a), \qquad r' = s\,(d \sin a + r \cos a).$$
#
# Check the signs: for $a = 90°$, a point on the right, $d = 0$ and $r = 1$, goes to $d' = -1$, which is above the
# center. To go back, rotate by $-a$ and divide by $s$.
#
# **Task 19.2.** Write `rotated`. The center of the image is the pixel ((height - 1) / 2, (width - 1) / 2): for an even
# number of pixels, it is between two of them.

# %%
show([impl.rotated(images[0], a, s) for a, s in [(0, 1), (0.3, 1), (0.6, 1), (1.57, 1), (0, 0.7), (0.3, 1.5)]])

# %% [markdown]
# ## A random part
#
# A network for photographs is nearly always trained on *random resized crops*: a random part of the image, in the size
# of the whole one. The object is then at other places, larger, smaller, wider or higher.
#
# Two random numbers make the part. One is its share of the area, $A$. The other is the ratio $q$ of its width to its
# height. For an image of $H \times W$ pixels, height and width follow: $\sqrt{A H W / q}$ and $\sqrt{A H W q}$. The
# *logarithm* of $q$ is uniform. Then q and 1 / q are equally likely, so that there are as many high parts as wide
# ones.
#
# **Task 19.3.** Write `crop_box`. Read its description carefully: it says what to do with a part that does not fit.
# `rng.uniform(low, high)` and `rng.integers(count)` draw.

# %%
rng = np.random.default_rng(0)
parts = []
for _ in range(8):
    top, left, height, width = impl.crop_box(rng, 32, 32)
    parts.append(impl.resized(images[1][:, top : top + height, left : left + width], 32, 32))
show([images[1], *parts], ["the whole image"])

# %% [markdown]
# ## Colours
#
# The light may be brighter, or of another colour. *Colour jitter* blends the image with another one: *brightness* with
# black, *contrast* with one grey for the whole image, *saturation* with the same image in grey. A blend is $f$ times
# the image plus $1 - f$ times the other one. With $f > 1$ it goes on in the direction away from the other one: then the
# result may be below 0 or above 1, and is cut off there.
#
# **Task 19.4.** Write `blend`, `contrast` and `saturation`. `grey` and `brightness` are there.

# %%
blends = [(change, f) for change in (impl.brightness, impl.contrast, impl.saturation) for f in (0.3, 1.7)]
show([images[3], *[change(images[3], f) for change, f in blends]], ["", *[f"{c.__name__[:10]} {f}" for c, f in blends]])

# %% [markdown]
# ## Soft targets
#
# So far a label was a number, for instance 2 of 5 classes. The same as a distribution over the classes is (0, 0, 1, 0,
# 0). A *soft target* is any other distribution. *Label smoothing* with 0.1 takes a tenth from the right class, and
# gives this tenth to all classes equally, to the right one too: (0.02, 0.02, 0.92, 0.02, 0.02). The network then need
# not push its logits to infinity, and is less sure of its mistakes.
#
# The cross-entropy of a target $t$ and logits $z$ is $-\sum_k t_k \log \operatorname{softmax}(z)_k$. For (0, 0, 1, 0,
# 0) it is the loss that you know.
#
# **Task 19.5.** Write `soft_targets` with NumPy, and `soft_cross_entropy` with tensors. Softmax first and then the
# logarithm overflows for large logits. `logits.log_softmax(dim=1)` does not.

# %%
print(impl.soft_targets(np.array([2, 0]), 5, smoothing=0.1))
logits = flow.tensor([[2.0, 0, 0, 1000]])
print(impl.soft_cross_entropy(logits, flow.tensor([[0.5, 0, 0, 0.5]])), "expected 499")

# %% [markdown]
# ## Two images in one
#
# *Mixup* goes further. It adds up two images: $\lambda$ of the one and $1 - \lambda$ of the other. The target is mixed
# in the same way. Such an image is no real one. But the network learns to change its answer evenly from one class to
# the other, and it cannot learn its images by heart.
#
# *CutMix* shows a box of the other image instead. The box should have the share $1 - \lambda$ of the area, so its sides
# are those of the image times $\sqrt{1 - \lambda}$. Its middle is a random pixel. So a part of the box may be outside
# of the image, where it cannot be seen. Then $\lambda$ has to be corrected: the target needs the share that is really
# there.
#
# In both, the partners come from the same batch, in a random order.
#
# **Task 19.6.** Write `mixup`, `cut_box` and `cutmix`.

# %%
targets, order = impl.soft_targets(labels, 5), np.arange(1, 11) % 10
for name, (mixed, soft) in {
    "mixup": impl.mixup(images, targets, order, 0.6),
    "CutMix": impl.cutmix(images, targets, order, 0.6, 25, 16),
}.items():
    print(name, *[f"{share:.3f} {shapes.CLASSES[k]}" for k, share in enumerate(soft[0]) if share])
    show([images[0], images[1], *mixed[:4]])

# %% [markdown]
# ## What the network looks at
#
# Our network ends like most networks for images. The last convolution gives *features*: channels $c$ for each place.
# Their mean over all places goes to a linear layer. So the logit of class $k$ is
#
# $$\sum_c w_{kc} \operatorname*{mean}_{y,x} f_c(y, x) + b_k = \operatorname*{mean}_{y,x} \Big(\sum_c w_{kc} f_c(y, x)
# \Big) + b_k.$$
#
# In the brackets is a number for each place: how much this place says for class $k$. As a picture, this is a *class
# activation map*. If it is bright at the shape, the network is right for the right reason. If it is bright in a corner,
# be careful.
#
# A *confusion matrix* counts which class gets which answer. Right answers are on its diagonal. It shows what the
# accuracy hides, for instance that all mistakes are squares which were taken for disks.
#
# **Task 19.7.** Write `class_activation_map` and `confusion_matrix`. Both are short. Note that NumPy adds with an index
# once only: after `a[[3, 3]] += 1`, `a[3]` has grown by 1. `np.add.at` counts each.

# %%
features = np.float32([[[0, 1], [0, 1]], [[1, 1], [0, 0]]])  # two channels: what is on the right, and at the top
print(impl.class_activation_map(features, np.float32([[1, 1], [2, -1]]), label=1))
print(impl.confusion_matrix(np.array([0, 0, 0, 1]), np.array([0, 1, 1, 1]), 2))

# %% [markdown]
# ## The project
#
# When all tasks pass, the check trains the network of `tutorials/19_augmentation/project.py` twice on the same 100
# images: once on the images as they are, and once with your changes. Both trainings have the same first weights, the
# same number of steps and the same learning rates. Augmentation is the only difference. It costs no more steps, only
# the time to change the images. Both together take less than a minute. `augmented` in that file makes a new image: it
# cuts a part out in half of all cases, flips in half of them, rotates in half of them, and always changes the colours.

# %%
passed = check(19)

# %% [markdown]
# The network without augmentation has learned its 100 images by heart, and this helps little with others. The other one
# never saw an image twice, so it had to learn what the images of a class have in common.
#
# Is the difference real? Of 1,000 images, the share of right answers varies by chance: one standard deviation is
# $\sqrt{0.8 \cdot 0.2 / 1000}$, or 1.3 %. The training varies more: we did it with seeds 0, 1 and 2, which give other
# first weights and other training images. On the same held-out images, 68 %, 59 % and 66 % of the answers were right
# without augmentation, and 91 %, 84 % and 82 % with it. So the difference is not chance.
#
# Not every augmentation helps. Mixup and CutMix are off in the project. With `MIXED = 0.5` and seed 0, 86 % were right
# instead of 91 %: mixed images are harder, and 200 steps are few. In long trainings of large networks they help, as
# the papers show. So measure what you add.
#
# The number to beat is the held-out accuracy with augmentation, in the picture: with these 100 images, and 200 steps.
# In `tutorials/19_augmentation/project.py` change how often and how much is changed, `SMOOTHING`, or the network. If
# you have tried many settings, draw new held-out images at the end, with another seed. Why?
#
# ## In miniflow's source
#
# `miniflow/vision/transforms/` has these changes for Pillow's images and for tensors: `geometry.py` warps, `color.py`
# blends, `augmentation.py` draws the random numbers. `miniflow/vision/data/mixup.py` has mixup and CutMix,
# `miniflow/vision/loss.py` the losses, and `miniflow/vision/models/resnet.py` the residual blocks of this network.
# `python -m miniflow.vision` trains on the digits, or on a folder of your own images.
#
# Further reading: Szegedy et al. 2015, "Going deeper with convolutions", on random resized crops, and 2016, "Rethinking
# the Inception architecture", on label smoothing; Zhang et al. 2018, "mixup: beyond empirical risk minimization"; Yun
# et al. 2019, "CutMix: regularization strategy to train strong classifiers with localizable features"; Zhou et al.
# 2016, "Learning deep features for discriminative localization", on class activation maps; Cubuk et al. 2020,
# "RandAugment: practical automated data augmentation with a reduced search space".
