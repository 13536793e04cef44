"""The picture of lesson 0: the losses and the answers of a network that your functions trained."""

import matplotlib.pyplot as plt
import numpy as np

import miniflow as flow
from miniflow import nn

EPOCHS, BATCH, HIDDEN, RATE = 3, 64, 64, 0.02


def draw(impl):
    """The loss of each step on the left; on the right how often each digit (row) was read as each digit (column)."""
    flow.manual_seed(0)
    (images, labels), held_out = (flow.data.mnist(split, normalize=False).tensors for split in ("train", "test"))
    digits = flow.utils.data.TensorDataset(impl.normalize(images), labels)
    loader = flow.utils.data.DataLoader(digits, batch_size=BATCH, shuffle=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))
    optimizer = flow.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    losses, shares = [], []
    for _ in range(EPOCHS):
        losses += [impl.training_step(model, optimizer, *batch) for batch in loader]
        counts = impl.confusion(model, impl.normalize(held_out[0]), held_out[1]).numpy()
        shares.append(np.trace(counts) / counts.sum())

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
    flow.show.losses(losses, axes=left)
    left.set_title(f"{impl.count_parameters(model):,} parameters, {EPOCHS} epochs of {len(loader)} steps")
    actual, predicted = np.indices(counts.shape).reshape(2, -1).repeat(counts.ravel(), axis=1)
    flow.show.confusion(predicted, actual, axes=right)
    right.set_title(f"held-out digits: {shares[0]:.1%} right after one epoch,\n{shares[-1]:.1%} after {EPOCHS}")
    return figure
