"""The picture of lesson 16: losses on 1, 2 and 4 ranks, bytes, and how long a step takes with buckets of each size."""

import importlib

import matplotlib.pyplot as plt
import numpy as np

ranks = importlib.import_module("tutorials.16_parallel_training.ranks")
SIZES = [250_000, 1_000] * 24  # bytes of weight and bias of 24 layers
READY = [0.008 * (1 - k / len(SIZES)) for k in range(len(SIZES))]  # backward takes 8 ms
LATENCY, RATE = 200e-6, 1.25e9  # a network of 10 Gbit/s


def losses(impl, axis):
    """Training on 1, 2 and 4 ranks: three curves."""
    params, batches = ranks.problem(0, rows=250)
    for size, width in ((1, 7), (2, 3.5), (4, 1)):
        results, _ = ranks.run(lambda comm: impl.train(comm, params, batches * 8, 0.2, 0.9), size)
        axis.plot(results[0][0], linewidth=width, label=f"{size} rank{'s'[: size > 1]}")
    axis.set(title="losses of your train", xlabel="step", ylabel="loss")
    axis.legend()


def nbytes(impl, axis):
    """What one rank sends in a step of data and of tensor parallel training, and what it keeps."""
    params, ((x, labels), *_) = ranks.problem(0, rows=200, inputs=32, hidden=64, classes=10)

    def work(comm):
        impl.data_parallel(comm, params, x, labels)
        data, axes = comm.bytes, (1, 0, 0)
        w1, b1, w2 = (np.array_split(p, comm.size, axis)[comm.rank] for p, axis in zip(params, axes))
        _, hidden = impl.block_forward(comm, x, w1, b1, w2, params[3])
        impl.block_backward(comm, x, hidden, w1, w2, np.zeros((len(x), 10)))
        return data, comm.bytes - data, impl.ShardedSGD(comm, params, 0.1, 0.9).velocity.nbytes

    counts = [1, 2, 4, 8]
    found = np.array([ranks.run(work, size)[0][0] for size in counts]) / 1000
    names = ("data parallel: sent in a step", "tensor parallel: sent in a step", "ShardedSGD: state")
    axis.plot(counts, found, "o-", label=names)
    axis.set(title="kilobytes of one rank", xlabel="ranks", xticks=counts, ylim=(0, 1.6 * found.max()))
    axis.legend()


def times(impl, axis):
    """The end of the last all-reduce, by the limit of buckets."""
    limits = np.geomspace(1_000, 8_000_000, 80)
    ends = [impl.finish_time(READY, SIZES, impl.buckets(SIZES, b), LATENCY, RATE) * 1000 for b in limits]
    best = int(np.argmin(ends))
    axis.semilogx(limits, ends, label="last all-reduce ends")
    axis.axhline(READY[0] * 1000, linestyle="--", color="gray", label="backward ends")
    axis.plot(limits[best], ends[best], "o", color="tab:red")
    axis.set(title=f"24 layers: at best {ends[best]:.2f} ms", xlabel="limit of a bucket, bytes", ylabel="ms", ylim=0)
    axis.legend(loc="lower left")


def draw(impl):
    """Three panels."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    for panel, axis in zip((losses, nbytes, times), axes):
        panel(impl, axis)
    return figure
