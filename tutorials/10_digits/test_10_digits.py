"""The checks of lesson 10. NumPy is the oracle; reads, steps and modes are counted."""

import numpy as np
import pytest

import miniflow as flow
from miniflow import nn
from tutorials import same

MAY_NOT_CALL = {
    "10.1": ["random_split"],
    "10.3": ["DataLoader"],
    "10.5": ["lr_scheduler"],
}


def drawn_digits(rng, count):
    """Images whose first pixel is their number, and labels."""
    images = rng.standard_normal((count, 1, 5, 7)).astype(np.float32)
    images[:, 0, 0, 0] = np.arange(count)
    return images, rng.integers(0, 10, count)


def numbers_of(digits):
    """The first pixels of the images of a data set."""
    return digits.images[:, 0, 0, 0].astype(int).tolist()


@pytest.mark.task("10.1")
def test_samples(impl, rng):
    images, labels = drawn_digits(rng, 6)
    stored, calls = images.copy(), []

    def add_in_place(image):
        calls.append(image)
        image += len(calls)
        return image * 2

    plain, digits = impl.Digits(stored, labels), impl.Digits(images, labels, add_in_place)
    same((len(plain), len(digits)), (6, 6), "len of 6 digits")
    for number, index in enumerate([2, 2, 5, 0, -1], start=1):
        image, label = plain[index]
        same(image, stored[index], f"the image of sample {index}", "without a transformation, as it is stored")
        same(label, int(labels[index]), f"the label of sample {index}", "int() makes one of a NumPy number")
        what = f"image {index}, in access {number} with a transformation that adds {number} in place, and doubles"
        same(digits[index][0], (stored[index] + number) * 2, what, "it gets a copy of the stored image each time")
        same(len(calls), number, f"calls of the transformation in {number} accesses", "once for each, and not before")
    same(images, stored, "the stored images after that", "they never change")


@pytest.mark.task("10.1")
@pytest.mark.parametrize("count, held", [(37, 9), (40, 20), (9, 0)])
def test_split(impl, rng, count, held):
    images, labels = drawn_digits(rng, count)
    seed, transform = int(rng.integers(1000)), lambda image: image + 1
    parts = impl.split(images, labels, held, seed, transform)
    what, numbers = f"split({count} images, {held} held out, seed {seed})", [numbers_of(part) for part in parts]
    same([len(part) for part in numbers], [count - held, held], f"the sizes of {what}", "training digits first")
    hint = "each image is in one part: an image in both would be trained on and tested on"
    same(sorted(numbers[0] + numbers[1]), list(range(count)), f"the images of both parts of {what}", hint)
    for part, found in zip(parts, numbers):
        same(part.images, images[found], f"images {found} of {what}")
        same(part.labels, labels[found], f"the labels of images {found} of {what}", "each with its image")
    same(parts[0].transform is transform, True, f"whether the training digits of {what} are transformed")
    same(parts[1].transform, None, f"the transformation of the held-out digits of {what}", "they are used as they are")
    again, other = ([numbers_of(part) for part in impl.split(images, labels, held, s)] for s in (seed, seed + 1))
    same(again, numbers, f"the images of a second {what}", "equal seeds give equal parts")
    differ = set(other[1]) != set(numbers[1])
    same(differ, held > 0, f"whether seed {seed + 1} holds out other images than {what}", "choose them at random")


@pytest.mark.task("10.2")
@pytest.mark.parametrize("count", [1, 2, 37, 0])
def test_each_index_once(impl, rng, count):
    seed = int(rng.integers(1000))
    order = impl.Shuffle(count, seed)
    for epoch in range(4):
        for _ in zip(range(epoch), order):  # an epoch that is left early
            pass
        got = list(order)
        what = f"the sorted indices of an epoch of Shuffle({count}, {seed})"
        same(sorted(got), list(range(count)), what, "once each")
        same({type(index) for index in got} - {int}, set(), "types of indices besides int", "tolist() makes ints")


@pytest.mark.task("10.2")
def test_orders(impl, rng):
    seed, counts = int(rng.integers(1000)), {}
    first, second = ([list(order) for _ in range(3)] for order in (impl.Shuffle(60, seed), impl.Shuffle(60, seed)))
    same(second, first, f"three epochs of another Shuffle(60, {seed})", "equal seeds give equal orders")
    hint = "make the generator once, in __init__: each epoch then draws other numbers"
    same(len({tuple(epoch) for epoch in first}), 3, f"the number of different orders in 3 epochs, seed {seed}", hint)
    same(list(impl.Shuffle(60, seed + 1)) in first, False, "whether another seed gives one of them", "use the seed")
    order = impl.Shuffle(4, seed)
    for _ in range(2400):
        found = tuple(order)
        counts[found] = counts.get(found, 0) + 1
    # 100 expected, with a deviation of 10
    if len(counts) < 24 or min(counts.values()) < 40 or max(counts.values()) > 170:
        raise AssertionError(f"2,400 epochs of 4 indices: expected each of 24 orders about 100 times, got {counts}")


class Counted(list):
    """Samples that note which of them are read."""

    def __getitem__(self, index):
        self.reads.append(index)
        return super().__getitem__(index)


@pytest.mark.task("10.3")
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("count, size", [(11, 4), (12, 4), (13, 4), (3, 4), (5, 1), (0, 4)])
def test_loader(impl, rng, count, size, drop_last):
    (images, labels), order = drawn_digits(rng, count), rng.permutation(count).tolist()
    data = Counted(zip(images, labels.tolist()))
    loader, what = impl.Loader(data, order, size, drop_last), f"Loader({count} samples, {size}, drop_last={drop_last})"
    sizes = [size] * (count // size) + [count % size] * (count % size > 0 and not drop_last)
    same(len(loader), len(sizes), f"len of {what}", "the number of batches, the last smaller one too")
    for _ in range(2):
        data.reads, batches = [], iter(loader)
        for number, length in enumerate(sizes):
            batch = next(batches, None)
            if batch is None:
                raise AssertionError(f"{what}: expected {len(sizes)} batches of {sizes} samples, got {number}")
            read = order[: number * size + length]
            at, name = read[-length:], f"batch {number} of {what}"
            same(all(isinstance(x, flow.Tensor) for x in batch), True, f"whether {name} is made of tensors")
            same(batch[0], images[at], f"images of {name}", f"its samples are {at}")
            same(batch[1], labels[at], f"labels of {name}", f"int64, of the samples {at}")
            same(data.reads, read, f"samples read after {name}", "in this order, once each, and not earlier")
        same(next(batches, None) is None, True, f"whether {what} ends after {len(sizes)} batches", "drop_last?")


@pytest.mark.task("10.4")
@pytest.mark.parametrize("shape", [(1, 5, 7), (3, 4, 3)])
def test_shifted(impl, rng, shape):
    image = rng.uniform(1, 2, shape).astype(np.float32)
    kept, (_, height, width) = image.copy(), shape
    for down, right in [(2, 0), (0, -1), (height, 0), (height + 3, 1), *rng.integers(-3, 4, (12, 2)).tolist(), (0, 0)]:
        wanted = np.zeros(shape, np.float32)
        for y, x in np.ndindex(height, width):
            if 0 <= y - down < height and 0 <= x - right < width:
                wanted[:, y, x] = kept[:, y - down, x - right]
        got = impl.shifted(image, down, right)
        hint = "zeros come in at the border, and down is positive downwards"
        same(got, wanted, f"shifted(image of shape {shape}, {down}, {right})", hint)
    same(np.shares_memory(got, image), False, "whether the result of shift (0, 0) is the image itself", "a new one")
    same(image, kept, "the image after all shifts", "it stays as it is")


@pytest.mark.task("10.4")
@pytest.mark.parametrize("most", [1, 2])
def test_random_shifts(impl, rng, most):
    image, seed, side = np.zeros((1, 7, 9), np.float32), int(rng.integers(1000)), 2 * most + 1
    image[0, 3, 4] = 1
    transform, again = impl.RandomShift(most, seed), impl.RandomShift(most, seed)
    got, what = [transform(image) for _ in range(80 * side**2)], f"RandomShift({most}, {seed})"
    repeated = np.stack([again(image) for _ in range(20)])
    same(repeated, np.stack(got[:20]), f"20 shifts of another {what}", "use self.rng")
    counts = np.sum(got, axis=0)[0, 3 - most : 4 + most, 4 - most : 5 + most].astype(int)
    # 80 expected for each shift, with a deviation below 9
    if counts.sum() != len(got) or counts.min() < 30 or counts.max() > 140:
        found = f"expected each shift from -{most} to {most}, both included, about 80 times, got {counts.tolist()}"
        raise AssertionError(f"{what}, {len(got)} times: {found}. Hint: down and right are drawn independently")


@pytest.mark.task("10.5")
@pytest.mark.parametrize("steps, warmup", [(10, 3), (7, 0), (5, 4), (12, 1)])
def test_learning_rate(impl, rng, steps, warmup):
    peak = float(rng.uniform(0.5, 2))
    angles = np.pi * np.arange(steps - warmup) / (steps - warmup)
    wanted = np.concatenate([peak * np.linspace(0, 1, warmup + 1)[1:], peak * np.cos(angles / 2) ** 2])
    for step in range(steps):
        what = f"learning_rate({step}, {steps}, {warmup}, {peak:.3f})"
        same(impl.learning_rate(step, steps, warmup, peak), float(wanted[step]), what, "steps count from 0", rtol=1e-9)


SIZES = (7, 7, 3)  # of batches: the last is smaller


def drawn_batches(rng):
    """Pairs of 5 features and a label of 4 classes: arrays, and the tensors that a loader gives."""
    arrays = [(rng.standard_normal((n, 5)), rng.integers(0, 4, n)) for n in SIZES]
    return arrays, [(flow.tensor(x), flow.tensor(y)) for x, y in arrays]


def losses_of(logits, labels):
    """The cross-entropy of each row, and the gradient of its sum."""
    p, rows = np.exp(logits) / np.exp(logits).sum(1)[:, None], np.arange(len(labels))
    return -np.log(p[rows, labels]), p - np.eye(4)[labels]


@pytest.mark.task("10.5")
def test_epoch(impl, rng):
    model, modes, asked, losses, first = nn.Linear(5, 4).double().eval(), [], set(), [], int(rng.integers(2, 9))
    model.register_forward_pre_hook(lambda module, inputs: modes.append(module.training))
    weight, bias = (p.detach().numpy().copy() for p in (model.weight, model.bias))
    for p in model.parameters():
        p.grad = flow.ones_like(p)  # left from before
    optimizer = flow.optim.SGD([{"params": [model.weight]}, {"params": [model.bias]}], lr=9.0)
    (arrays, batches), rates = drawn_batches(rng), rng.uniform(0.2, 0.9, len(SIZES))
    got = impl.train_epoch(model, batches, optimizer, lambda k: asked.add(k) or float(rates[k - first]), first)
    for (x, y), rate in zip(arrays, rates):
        found, gradient = losses_of(x @ weight.T + bias, y)
        losses.extend(found)
        weight, bias = weight - rate * gradient.T @ x / len(y), bias - rate * gradient.mean(0)
    same(modes, [True] * 3, "the training mode in 3 batches, of a model that was in evaluation mode", "model.train()")
    same(sorted(asked), [first, first + 1, first + 2], f"steps whose rate was asked for, the first is {first}")
    hint = "one step for each batch, with its own rate in each group, and its own gradient alone"
    same(model.weight, weight, f"the weight after batches of {SIZES}, rates {rates.round(2)}", hint, rtol=1e-8)
    same(model.bias, bias, f"the bias after batches of {SIZES}, rates {rates.round(2)}", hint, rtol=1e-8)
    hint = "the mean over samples: weight the loss of each batch by its size"
    same(got, float(np.mean(losses)), f"the loss of an epoch with batches of {SIZES}", hint, rtol=1e-9)


@pytest.mark.task("10.6")
@pytest.mark.parametrize("mode", [True, False])
def test_evaluation(impl, rng, mode):
    model = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Sequential(nn.Dropout(0.5)), nn.Linear(6, 4)).double()
    model[1].running_mean.copy_(flow.tensor(rng.standard_normal(6)))
    model.train(mode)
    model[1].train(not mode)
    model[2][0].train(not mode)
    modules, seen, what = list(model.modules()), [], f"evaluation of batches of {SIZES}"
    before = [module.training for module in modules]
    state = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    modes = lambda *_: seen.append((any(m.training for m in modules), flow.is_grad_enabled()))  # noqa: E731
    model.register_forward_pre_hook(modes)
    arrays, batches = drawn_batches(rng)
    x, labels = (np.concatenate(part) for part in zip(*arrays))
    got = impl.evaluate(model, batches)
    x = x @ state["0.weight"].T + state["0.bias"]
    x = (x - state["1.running_mean"]) / np.sqrt(state["1.running_var"] + model[1].eps)
    x = x @ state["3.weight"].T + state["3.bias"]
    found = f"(any module in training mode, gradients recorded) in {what}"
    same(seen, [(False, False)] * 3, found, "eval(), no_grad()")
    wanted = (float(losses_of(x, labels)[0].mean()), float((x.argmax(1) == labels).mean()))
    same((type(got), len(got)), (tuple, 2), f"type and length of {what}", "the loss and the accuracy")
    for name, value, expected in zip(("loss", "accuracy"), got, wanted):
        hint = "the mean over samples: weight each batch by its size"
        same(value, expected, f"the {name} in {what}", hint, rtol=1e-9)
    hint = "each module gets back the mode that it had"
    same([module.training for module in modules], before, f"training modes of all modules after {what}", hint)
    for name, tensor in model.state_dict().items():
        same(tensor, state[name], f"{name} after {what}", "nothing is learned here")
