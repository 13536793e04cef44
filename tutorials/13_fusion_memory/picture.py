"""The picture of lesson 13: the bytes that a network moves, and its values in an arena, before and after fusion."""

import matplotlib.pyplot as plt

KIB = 1024


def draw(impl):
    """On the left the bytes that each program moves; on the right the blocks of both in their arenas."""
    program = impl.network()
    both = {"one by one": [[number] for number in range(len(program.instructions))], "fused": impl.fuse(program)}
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained", width_ratios=[1, 1.2, 1.2])
    bars = axes[0].bar(list(both), [impl.moved(program, groups) / KIB for groups in both.values()], 0.6)
    axes[0].bar_label(bars, fmt="{:,.0f}", label_type="center")
    axes[0].set_title("KiB moved")
    for axis, (name, groups) in zip(axes[1:], both.items()):
        draw_arena(axis, impl, program, name, groups)
    axes[2].sharey(axes[1])
    return figure


def draw_arena(axis, impl, program, name, groups):
    """A rectangle for each block: when it is in use, and where."""
    found = impl.blocks(program, groups)
    offsets = impl.place(found)
    for block, offset in zip(found, offsets):
        left, bottom, width, height = block.first, offset / KIB, block.last + 1 - block.first, block.nbytes / KIB
        axis.bar(left, height, width, bottom, align="edge", alpha=0.5, edgecolor="black")
        axis.text(left + width / 2, bottom + height / 2, " ".join(block.names), ha="center", va="center", fontsize=9)
    axis.axhline(impl.bound(found) / KIB, color="red", linestyle="--")
    own = sum(impl.nbytes(program, n) for block in found for n in block.names)
    size = impl.arena(found, offsets)
    title = f"{name}: arena of {size:,} bytes,\nlower bound (red) {impl.bound(found):,}; without sharing {own:,}"
    axis.set_title(title, fontsize=10)
    axis.set(xlabel="position of the group", ylabel="KiB", xlim=(0, len(groups) + 1))
