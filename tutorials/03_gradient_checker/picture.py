"""The picture of lesson 3: the error of your differences for steps from 1 to 1e-12."""

import matplotlib.pyplot as plt
import numpy as np


def errors(impl):
    """Steps, and the error of the gradient of exp(sin(x)) at 1 for each, by both kinds of differences."""
    x, steps = np.asarray([1.0]), 10.0 ** np.arange(0, -12.5, -0.25)

    def f(v):
        return np.exp(np.sin(v))

    exact = float((np.cos(x) * f(x))[0])
    central = [abs(float(impl.numeric(f, [x], np.ones(1), step=h)[0][0]) - exact) for h in steps]
    one_sided = [abs(float((f(x + h) - f(x))[0]) / h - exact) for h in steps]
    return steps, central, one_sided


def draw(impl):
    """Large steps miss the curve, small steps lose digits: in between is the best one."""
    steps, central, one_sided = errors(impl)
    figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
    axis.loglog(steps, one_sided, label="one-sided: (f(x + h) - f(x)) / h")
    axis.loglog(steps, central, label="central, yours")
    best = int(np.argmin(central))
    axis.annotate(f"{central[best]:.0e} at h = {steps[best]:.0e}", (steps[best], central[best]), (1e-4, 1e-13))
    axis.set(xlabel="step h", ylabel="error", title="the gradient of exp(sin(x)) at 1", ylim=(1e-14, 10))
    axis.legend()
    return figure
