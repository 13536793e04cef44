"""The picture of lesson 4: SGD, momentum and Adam train one network on the digits, by your code."""

import matplotlib.pyplot as plt
import numpy as np

import miniflow as flow

EPOCHS, BATCH, HIDDEN, WINDOW = 10, 64, 64, 25
OPTIMIZERS = {
    "SGD": lambda impl, parameters: impl.SGD(parameters, lr=0.05),
    "momentum": lambda impl, parameters: impl.SGD(parameters, lr=0.05, momentum=0.9),
    "Adam": lambda impl, parameters: impl.Adam(parameters, lr=0.002),
}


def run(impl, optimizer_of):
    """The losses of all steps, and the accuracy on digits that training did not see."""
    flow.manual_seed(0)
    digits, held_out = flow.data.mnist("train"), flow.data.mnist("test")
    model = impl.Sequential(lambda x: x.flatten(1), impl.Linear(784, HIDDEN), flow.relu, impl.Linear(HIDDEN, 10))
    loader = flow.utils.data.DataLoader(digits, batch_size=BATCH, shuffle=True)
    losses = impl.train(model, impl.cross_entropy, optimizer_of(impl, model.parameters()), loader, EPOCHS)
    return losses, impl.accuracy(model, *held_out.tensors)


def draw(impl):
    """The loss of each step, averaged over some steps, for each optimizer."""
    figure, axis = plt.subplots(figsize=(8, 3.8), layout="constrained")
    shares = {}
    for name, optimizer_of in OPTIMIZERS.items():
        losses, shares[name] = run(impl, optimizer_of)
        mean = np.convolve(losses, np.ones(WINDOW) / WINDOW, "valid")
        axis.semilogy(np.arange(WINDOW, len(losses) + 1), mean, label=name)
    axis.set(xlabel="step", ylabel=f"training loss, mean of {WINDOW} steps")
    axis.set_title("held-out digits: " + ", ".join(f"{name} {share:.1%}" for name, share in shares.items()))
    axis.legend()
    return figure
