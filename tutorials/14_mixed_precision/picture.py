"""The picture of lesson 14: gradients in the range of float16, the factor of your scaler, and memory by segments."""

import tracemalloc

import matplotlib.pyplot as plt
import numpy as np

import miniflow as flow

LAYERS, STEPS, INTERVAL = 24, 60, 4
WEIGHT = 1 / 2000  # of the loss, as if it were one of several
FIRST, SHOWN = 2.0**24, 2.0**16  # factors


def train(impl):
    """The gradients of the first step in float32; the factor before each step, and whether the step was made."""
    flow.manual_seed(0)
    layers = [layer for _ in range(5) for layer in (flow.nn.Linear(20, 20), flow.nn.Tanh())]
    model, cross_entropy = flow.nn.Sequential(*layers, flow.nn.Linear(20, 2)), flow.nn.CrossEntropyLoss()
    x = flow.randn(256, 20)
    labels, loss_function = (x[:, 0] * x[:, 1] > 0).long(), lambda y, labels: cross_entropy(y, labels) * WEIGHT
    loss_function(model(x), labels).backward()
    gradients = np.concatenate([p.grad.numpy().ravel() for p in model.parameters()])
    optimizer, scaler = flow.optim.SGD(model.parameters(), lr=200.0), impl.LossScaler(FIRST, INTERVAL)
    factors = [scaler.factor]
    for _ in range(STEPS):
        impl.train_step(model, loss_function, optimizer, scaler, x, labels)
        factors.append(scaler.factor)
    return gradients, np.array(factors)


def peak(impl, segments):
    """The peak of memory in forward and backward of a deep network, in arrays of one layer; 0 segments: plain."""
    layers = [flow.nn.Sequential(flow.nn.Linear(8, 8), flow.nn.Tanh()) for _ in range(LAYERS)]
    y = x = flow.randn(2048, 8, requires_grad=True)
    tracemalloc.start()
    for part in np.array_split(np.arange(LAYERS), segments or 1):
        chain = flow.nn.Sequential(*[layers[k] for k in part])
        y = impl.checkpoint(chain, y) if segments else chain(y)
    y.sum().backward()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found / (4 * x.numel())


def draw(impl):
    """Three panels: which gradients float16 can hold; the factor of each step; the peak of memory."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    gradients, factors = train(impl)
    left.axvspan(-24, 16, color="lightgray", label="range of float16")
    for factor in (1.0, SHOWN):
        zero, infinite = impl.lost(gradients, factor)
        label = f"times {factor:,.0f}: {zero:.0%} become 0, {infinite:.0%} inf"
        left.hist(np.log2(np.abs(gradients[gradients != 0]) * factor), bins=60, alpha=0.7, label=label)
    left.set(title="gradients", xlabel="log2 of the magnitude", ylim=(0, left.get_ylim()[1] * 1.35))
    middle.semilogy(factors, base=2, drawstyle="steps-post", color="C1")
    skipped = np.flatnonzero(np.diff(factors) < 0)
    middle.plot(skipped, factors[skipped], "rx", label="skipped: a gradient was inf")
    middle.set(title="factor of the loss", xlabel="step")
    counts = [1, 2, 3, 4, 6, 8, 12, 24]
    plain, *peaks = [peak(impl, count) for count in (0, *counts)]
    right.axhline(plain, color="gray", linestyle="--", label="without recomputation")
    right.plot(counts, peaks, "o-")
    right.set(title=f"peak memory: {min(peaks):.1f} arrays in place of {plain:.1f}", xlabel="segments", ylim=(0, None))
    for axis in (left, middle, right):
        axis.legend(fontsize=8)
    return figure
