"""The picture of lesson 15: each message of your all-reduce, and the bytes of each change of layout."""

import matplotlib.pyplot as plt
import numpy as np

RANKS = 4
SHAPE = (8, 12)


def messages(impl):
    """What your all-reduce sends: for each message its sender, its block, and the ranks whose summands it holds."""

    class Recorder(impl.Network):
        sent = []

        def send(self, sender, receiver, array):
            value, block = int(array[0]), 0
            while value >= 1 << RANKS:  # summand of rank r in block k: bit r of the k-th group of bits
                value, block = value >> RANKS, block + 1
            self.sent.append((sender, block, [r for r in range(RANKS) if value >> r & 1]))
            return super().send(sender, receiver, array)

    arrays = [np.asarray([1 << RANKS * k + r for k in range(RANKS)]) for r in range(RANKS)]
    impl.all_reduce(arrays, Recorder(RANKS))
    return Recorder.sent


def counted(impl, before, after):
    """The bytes that `box` sends for an array of `SHAPE`."""
    network = impl.Network(RANKS)
    impl.box(impl.spread(np.ones(SHAPE, np.float32), before, RANKS), before, after, network)
    return network.bytes


def draw(impl):
    """Left: the blocks on their way around the ring. Right: bytes from each layout to each other one."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.2), layout="constrained", width_ratios=(1.5, 1))
    sent, steps, colors = messages(impl), [0] * RANKS, plt.get_cmap("Set2")
    for sender, block, ranks in sent:
        left.add_patch(plt.Rectangle((steps[sender] - 0.46, sender - 0.42), 0.92, 0.84, color=colors(block)))
        text = f"block {block}\n{'+'.join(map(str, ranks))}"
        left.text(steps[sender], sender, text, ha="center", va="center", fontsize=9)
        steps[sender] += 1
    left.set(xlim=(-0.6, max(steps) - 0.4), ylim=(RANKS - 0.5, -0.5), xlabel="step", ylabel="rank that sends")
    left.set(xticks=range(max(steps)), yticks=range(RANKS))
    left.set_title(f"all-reduce: {len(sent)} messages; below each block, the ranks whose summands it holds")

    layouts = [impl.S(0), impl.S(1), impl.B, impl.P]
    table = np.array([[counted(impl, before, after) for after in layouts] for before in layouts])
    right.imshow(table, cmap="Blues", vmax=1.3 * table.max())
    for i, j in np.ndindex(*table.shape):
        right.text(j, i, f"{table[i, j]:,}", ha="center", va="center")
    names = list(map(str, layouts))
    right.set(xticks=range(4), yticks=range(4), xticklabels=names, yticklabels=names, xlabel="to", ylabel="from")
    right.set_title(f"boxing of {SHAPE[0]} x {SHAPE[1]} float32 on {RANKS} ranks: bytes sent")
    return figure
