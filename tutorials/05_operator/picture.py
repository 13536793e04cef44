"""The picture of lesson 5: both operators, drawn and differentiated by miniflow."""

import os

os.environ.setdefault("MINIFLOW_CUDA", "host")  # CUDA kernels run on the CPU

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import miniflow as flow
from tutorials.implementation import load

register = load(Path(__file__).with_name("register.py"))
STEPS, COLUMNS, FACTORS = 120, 1024, (0.5, 0.9, 0.98)


def peak(impl):
    """The largest memory in use during backward on a CUDA device, in arrays of the size of x."""
    x, a, dy = [flow.full((STEPS, COLUMNS), 0.5, device="cuda", requires_grad=k < 2) for k in range(3)]
    y = impl.recurrence(x, a)
    flow.cuda.reset_peak_memory_stats()
    y.backward(dy)
    return flow.cuda.max_memory_allocated() / (x.numel() * 4)


def draw(impl):
    """squareplus and its slope; averages of a noisy signal; how much each input counts for the last average."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    with register.registered(impl) as squareplus:
        x = flow.linspace(-4, 4, 161)
        x.requires_grad_()
        for color, b in enumerate((0.1, 1.0, 8.0)):
            y = squareplus(x, b)
            (slope,) = flow.autograd.grad(y.sum(), [x])
            left.plot(x.detach().numpy(), y.detach().numpy(), color=f"C{color}", label=f"b = {b:g}")
            left.plot(x.detach().numpy(), slope.numpy(), color=f"C{color}", linestyle="--", linewidth=1)
        t = np.arange(STEPS)
        signal = np.sin(t / 15) + 0.4 * np.random.default_rng(0).standard_normal(STEPS)
        a = flow.tensor(np.tile(FACTORS, (STEPS, 1)).astype(np.float32))
        inputs = flow.tensor(signal[:, None].astype(np.float32)) * (1 - a)
        inputs.requires_grad_()
        means = impl.recurrence(inputs, a)
        means[-1].sum().backward()
        needed = peak(impl)
    middle.plot(t, signal, ".", color="lightgray", markersize=4)
    for k, factor in enumerate(FACTORS):
        middle.plot(t, means[:, k].detach().numpy(), label=f"a = {factor:g}")
        right.plot(t, inputs.grad[:, k].numpy(), label=f"a = {factor:g}")
    left.set(title="squareplus; dashed: its gradient", xlabel="x")
    middle.set(title="y[t] = a y[t-1] + (1 - a) signal[t]", xlabel="t")
    right.set(title=f"gradient of the last y; peak of backward: {needed:g} arrays", xlabel="t")
    for axis in (left, middle, right):
        axis.legend(fontsize=8)
    return figure
