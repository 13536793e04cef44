"""Data loading, and a convolutional network. Fill in what raises Todo, then run: python -m tutorials check 10"""

import math

import numpy as np

import miniflow as flow
from miniflow import nn
from tutorials import Todo  # noqa: F401


class Digits:
    """Labelled images by index.

    Attributes:
        images: a NumPy array of float32, (N, 1, height, width).
        labels: a NumPy array of int64, (N,).
        transform: a function of one image (1, height, width) that returns one, or None. It may write into its argument.
    """

    def __init__(self, images, labels, transform=None):
        self.images, self.labels, self.transform = images, labels, transform

    def __len__(self):
        """How many there are."""
        # task 10.1: data sets
        return len(self.labels)
        # end

    def __getitem__(self, index):
        """The image and the label at an index: an array (1, height, width) and an int.

        The transformation is applied here, to a copy of the image, each time. `images` never changes.
        """
        # task 10.1: data sets
        image = self.images[index]
        if self.transform is not None:
            image = self.transform(image.copy())
        return image, int(self.labels[index])
        # end


def split(images, labels, count, seed, transform=None):
    """Divide images and labels at random into two `Digits`, those to train on and `count` held-out ones, maybe 0.

    Each image is in one of the two, with its label. Only the first gets the transformation. Equal seeds give equal
    results; the random numbers come from `np.random.default_rng(seed)`.

    Returns:
        a tuple: the training digits, the held-out digits.
    """
    # task 10.1: data sets
    order = np.random.default_rng(seed).permutation(len(labels))
    train, held_out = order[count:], order[:count]
    return Digits(images[train], labels[train], transform), Digits(images[held_out], labels[held_out])
    # end


class Shuffle:
    """The indices 0 to count - 1 in random order: each loop over it is an epoch, and has another order.

    Two of them with equal seeds give equal orders, epoch by epoch. All orders are equally likely. The random numbers
    come from a generator of its own, `np.random.default_rng(seed)`.
    """

    def __init__(self, count, seed):
        self.count = count
        # task 10.2: the order of an epoch
        self.rng = np.random.default_rng(seed)
        # end

    def __len__(self):
        return self.count

    def __iter__(self):
        """The indices of one epoch, ints; a generator, or an iterator of a list."""
        # task 10.2: the order of an epoch
        return iter(self.rng.permutation(self.count).tolist())
        # end


def collate(samples):
    """One batch of a list of pairs (image, label): tensors (N, 1, height, width) of float32 and (N,) of int64."""
    # task 10.3: batches
    images, labels = zip(*samples)
    return flow.tensor(np.stack(images)), flow.tensor(np.asarray(labels, np.int64))
    # end


class Loader:
    """Batches of a data set, made by `collate`; each loop over it is an epoch.

    Args:
        dataset: gives a sample for an index.
        order: what gives the indices, such as a `Shuffle` or a range; it has a length and is looped over in each epoch.
        size: of a batch. The last batch is smaller if the size does not divide the number of indices.
        drop_last: leave out a last batch that is smaller.
    """

    def __init__(self, dataset, order, size, drop_last=False):
        self.dataset, self.order, self.size, self.drop_last = dataset, order, size, drop_last

    def __len__(self):
        """How many batches there are in an epoch."""
        # task 10.3: batches
        full, rest = divmod(len(self.order), self.size)
        return full if rest == 0 or self.drop_last else full + 1
        # end

    def __iter__(self):
        """A generator of batches. It reads the samples of a batch only when the batch is asked for."""
        # task 10.3: batches
        samples = []
        for index in self.order:
            samples.append(self.dataset[index])
            if len(samples) == self.size:
                yield collate(samples)
                samples = []
        if samples and not self.drop_last:
            yield collate(samples)
        # end


def shifted(image, down, right):
    """A new image whose pixel (y, x) is pixel (y - down, x - right) of the old one, or 0 where there is none.

    An image that is moved out completely becomes 0.

    Args:
        image: a NumPy array, (channels, height, width). It stays as it is.
        down, right: ints; negative ones move it up and left.
    """
    # task 10.4: augmentation
    _, height, width = image.shape
    margin = max(abs(down), abs(right))
    padded = np.pad(image, ((0, 0), (margin, margin), (margin, margin)))
    top, left = margin - down, margin - right
    return padded[:, top : top + height, left : left + width]
    # end


class RandomShift:
    """A transformation: moves an image by -most, ..., most pixels down, and by as many right, all equally likely.

    Attributes:
        most: the largest shift.
        rng: a generator; `rng.integers(low, high)` draws from low to high - 1.
    """

    def __init__(self, most, seed):
        self.most, self.rng = most, np.random.default_rng(seed)

    def __call__(self, image):
        # task 10.4: augmentation
        down, right = self.rng.integers(-self.most, self.most + 1, 2)
        return shifted(image, down, right)
        # end


def network():
    """A small convolutional network, from images (N, 1, 28, 28) to logits (N, 10)."""

    def stage(inputs, outputs):  # halves height and width
        conv = nn.Conv2d(inputs, outputs, kernel_size=5, padding=2)
        return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))

    return nn.Sequential(stage(1, 8), stage(8, 16), nn.Flatten(), nn.Dropout(0.3), nn.Linear(16 * 7 * 7, 10))


def learning_rate(step, steps, warmup, peak):
    """The rate of a step, which counts from 0 to steps - 1: a float. It rises for `warmup` steps, which may be 0."""
    # task 10.5: an epoch of training
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / (steps - warmup)
    return peak * (1 + math.cos(math.pi * progress)) / 2
    # end


def train_epoch(model, loader, optimizer, rate_of, first):
    """Take one step for each batch against the gradient of its mean cross-entropy; the model is in training mode.

    Args:
        model: takes images, returns logits.
        loader: gives pairs (images, labels).
        optimizer: has `param_groups`, a list of dictionaries; before each step, "lr" of all of them is set.
        rate_of: a function from the number of a step to its learning rate.
        first: the number of the first step of this epoch.

    Returns:
        the mean loss over all samples of the epoch, each before the step of its batch: a float.
    """
    # task 10.5: an epoch of training
    model.train()
    total, count = 0.0, 0
    for step, (images, labels) in enumerate(loader, start=first):
        for group in optimizer.param_groups:
            group["lr"] = rate_of(step)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(labels)
        count += len(labels)
    return total / count
    # end


def evaluate(model, loader):
    """The mean cross-entropy over all samples, and the share of right answers: two floats.

    The model is in evaluation mode and nothing is recorded. Afterwards each of its modules is in the mode that it had.
    """
    # task 10.6: evaluation
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    total, right, count = 0.0, 0, 0
    with flow.no_grad():
        for images, labels in loader:
            logits = model(images)
            total += nn.functional.cross_entropy(logits, labels).item() * len(labels)
            right += (logits.argmax(dim=1) == labels).sum().item()
            count += len(labels)
    for module, mode in modes:
        module.training = mode
    return total / count, right / count
    # end
