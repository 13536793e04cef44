"""The picture of lesson 13: the bytes that a network moves, and its values in an arena, before and after fusion."""

import matplotlib.pyplot as plt
import numpy as np

KIB = 1024


def draw(impl):
    """On the left the bytes that each group moves; on the right the blocks of both programs in their arenas."""
    program = impl.network()
    alone, fused = [[number] for number in range(len(program.instructions))], impl.fuse(program)
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained", width_ratios=[1, 1.2, 1.2])
    draw_moved(axes[0], impl, program, {"one by one": alone, "fused": fused})
    for axis, name, groups in ((axes[1], "one by one", alone), (axes[2], "fused", fused)):
        draw_arena(axis, impl, program, name, groups)
    axes[2].sharey(axes[1])
    return figure


def draw_moved(axis, impl, program, both):
    """A stack for each program, of the bytes of matrix products and of pointwise groups."""
    ops = [step.op for step in program.instructions]
    products = [[group for group in groups if ops[group[0]] not in impl.FORMULAS] for groups in both.values()]
    bottom = [0, 0]
    for label, color, parts in (("matrix products", "tab:gray", products), ("pointwise", "tab:orange", both.values())):
        top = [impl.moved(program, groups) / KIB for groups in parts]
        bars = axis.bar(list(both), np.subtract(top, bottom), 0.6, bottom, label=label, color=color)
        axis.bar_label(bars, fmt="{:,.0f}", label_type="center")
        bottom = top
    axis.set_title("KiB moved")
    axis.legend(loc="lower center", fontsize=8)


def draw_arena(axis, impl, program, name, groups):
    """A rectangle for each block: when it is in use, and where."""
    found = impl.blocks(program, groups)
    offsets = impl.place(found)
    colors = plt.get_cmap("Pastel1")
    for k, (block, offset) in enumerate(zip(found, offsets)):
        left, bottom, width, height = block.first, offset / KIB, block.last + 1 - block.first, block.nbytes / KIB
        axis.bar(left, height, width, bottom, align="edge", color=colors(k % 9), edgecolor="black")
        axis.text(left + width / 2, bottom + height / 2, " ".join(block.names), ha="center", va="center", fontsize=9)
    axis.axhline(impl.bound(found) / KIB, color="red", linestyle="--")
    own = sum(impl.nbytes(program, n) for block in found for n in block.names)
    size = impl.arena(found, offsets)
    title = f"{name}: arena of {size:,} bytes,\nlower bound (red) {impl.bound(found):,}; without sharing {own:,}"
    axis.set_title(title, fontsize=10)
    axis.set(xlabel="position of the group", ylabel="KiB", xlim=(0, len(groups) + 1))
