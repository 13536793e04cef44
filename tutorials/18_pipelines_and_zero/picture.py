"""The picture of lesson 18: your two schedules with messages that take half a second, and what a rank keeps by ZeRO."""

import matplotlib.pyplot as plt

STAGES, MICRO_BATCHES, MESSAGE = 4, 8, 0.5
COLORS = {"forward": "#4c78a8", "backward": "#f58518"}


def gantt(impl, axis, schedule):
    """A row for each stage, a bar for each task."""
    orders = [schedule(stage, STAGES, MICRO_BATCHES) for stage in range(STAGES)]
    times = impl.simulate(orders, message=MESSAGE)
    for (stage, phase, i), (start, end) in times.items():
        axis.barh(stage, end - start, 0.85, start, color=COLORS[phase], edgecolor="white")
        axis.text((start + end) / 2, stage, str(i), ha="center", va="center", color="white", fontsize=8)
    for phase, color in COLORS.items():
        axis.barh(0, 0, color=color, label=phase)
    axis.legend(loc="lower right")
    seconds = max(last for _, last in times.values())
    axis.set(yticks=range(STAGES), ylim=(STAGES - 0.5, -0.5), xlim=(0, 42), ylabel="stage", xlabel="seconds")
    counts = [impl.alive(order) for order in orders]
    axis.set_title(f"{schedule.__name__}: {seconds:.0f} s, bubble {impl.bubble(times):.0%}, alive {counts}", loc="left")


def memory(impl, axis, ranks=8, nbytes=4):
    """Bytes of each parameter on one of eight ranks."""
    below, found = [0.0] * 4, [impl.kept(zero, ranks, 1000 * nbytes) for zero in range(4)]
    for name in ("parameters", "gradients", "states"):
        height = [row[name] / 1000 for row in found]
        bars = axis.bar(range(4), height, 0.7, below, label=name)
        axis.bar_label(bars, [f"{h:g}" for h in height], label_type="center", color="white", fontsize=8)
        below = [a + b for a, b in zip(below, height)]
    axis.set(xticks=range(4), xticklabels=["none", "1", "2", "3"], xlabel="stage of ZeRO", ylabel="bytes")
    axis.set_title(f"one rank of {ranks}: bytes per parameter", loc="left")
    axis.legend()


def draw(impl):
    """Left: the schedules, one above the other. Right: memory."""
    panels = [["GPipe", "memory"], ["1F1B", "memory"]]
    figure, axes = plt.subplot_mosaic(panels, figsize=(13, 4.6), layout="constrained", width_ratios=(2.4, 1))
    gantt(impl, axes["GPipe"], impl.all_forward_all_backward)
    gantt(impl, axes["1F1B"], impl.one_forward_one_backward)
    memory(impl, axes["memory"])
    return figure
