"""The picture of lesson 12: when each value of a network's program lives, and in which of your buffers."""

import matplotlib.pyplot as plt
import numpy as np

SHAPES = [(32, 20), (20, 48), (48,), (48, 24), (24,), (24, 48), (48, 10)]


def draw(impl):
    """A bar for each value, from the instruction that writes it to the one that reads it last."""
    program = impl.merge(impl.eliminate(impl.record(impl.network, len(SHAPES))))
    last, places = impl.last_reads(program), impl.plan(program)
    rng = np.random.default_rng(0)
    arrays = [0.2 * rng.standard_normal(shape).astype(np.float32) for shape in SHAPES]
    values = impl.replay(program._replace(outputs=list(places)), arrays)
    nbytes = {number: array.nbytes for number, array in zip(places, values)}
    buffers = [max(nbytes[n] for n, place in places.items() if place == k) for k in range(max(places.values()) + 1)]

    figure, axis = plt.subplots(figsize=(9, 4.4), layout="constrained")
    colors, length = plt.get_cmap("tab10"), len(program.instructions)
    for row, (_, _, number) in enumerate(program.instructions):
        axis.barh(row, min(last[number] + 1, length + 0.5) - row, left=row, color=colors(places[number]), height=0.8)
        axis.text(row + 0.1, row, f"{places[number]}", color="white", va="center", fontsize=8)
    labels = [f"%{number} = {op}" for op, _, number in program.instructions]
    axis.set_yticks(range(length), labels, fontsize=8)
    axis.invert_yaxis()
    axis.set(xlabel="instruction", xlim=(0, length + 0.5), xticks=range(0, length + 1, 2))
    used = f"{len(buffers)} buffers (number and color): {sum(buffers):,} bytes in place of {sum(nbytes.values()):,}"
    axis.set_title(f"{len(places)} values in {used}")
    return figure
