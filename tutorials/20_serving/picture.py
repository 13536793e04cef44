"""The picture of lesson 20: what batches and the delay do to latencies."""

import matplotlib.pyplot as plt
import numpy as np


def latencies(impl, gap, most, delay):
    """Those of 2,000 requests that come every `gap` ms on average; a batch takes 4 ms, and half a ms for each row."""
    arrivals = np.cumsum(np.random.default_rng(0).exponential(gap, 2000)).tolist()
    batches = impl.schedule(arrivals, lambda rows: 4 + 0.5 * rows, most, delay)
    ends = [end for _, end, rows in batches for _ in range(rows)]
    return [end - arrival for end, arrival in zip(ends, arrivals)]


def draw(impl):
    """p50 and p99 for more and more requests: one by one, with batches, and with batches that wait."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", sharey=True)
    rates = np.array([20, 50, 100, 150, 200, 300, 500, 800])
    for axis, share in zip(axes, (0.5, 0.99)):
        for name, most, delay in (("one by one", 1, 0), ("batches of 8", 8, 0), ("batches of 8, delay 10 ms", 8, 10)):
            found = [impl.percentile(latencies(impl, 1000 / rate, most, delay), share) for rate in rates]
            axis.loglog(rates, found, "o-", label=name)
        axis.set_xticks(rates[::2], [str(rate) for rate in rates[::2]])
        axis.set_xticks([], minor=True)
        axis.set(xlabel="requests in a second", ylabel="ms", title=f"p{100 * share:.0f}")
    axes[0].legend()
    return figure
