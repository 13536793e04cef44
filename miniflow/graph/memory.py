"""How much memory a replay needs, in words and as a picture: `graph.memory()`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from miniflow.graph.ir import OPTIMIZER, PARAMETER, Slot
from miniflow.graph.plan import Plan, alive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FRESH, IN_PLACE, PEAK = "#4c78a8", "#f58518", "#e45756"
LARGEST = 10  # blocks that are listed
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class MemoryReport:
    """The planned memory of one program.

    Attributes:
        plan: where values are stored.
        before: peak bytes of results if each had its own memory from its instruction to its last use.
        after: peak bytes as planned: `arena` and, beside it, outputs and what kernels allocate at each call.
        arena: bytes that are allocated once.
        states: bytes of parameters, buffers and optimizer states, which are not planned.

    >>> import miniflow as flow
    >>> from miniflow.graph.plan import plan
    >>> from miniflow.graph.trace import record
    >>> step = record(lambda x: [(x + 1).exp().sum()], [((64, 64), "float32", flow.device("cpu"))])
    >>> print(MemoryReport(plan(step)))
    results      16.06 KiB at most in 2 blocks (before planning 32.00 KiB)
    states       0 B
    instruction  block      shape     op
    0 to 2       16.00 KiB  [64, 64]  add, exp
    2 to 3       4 B        []        sum
    """

    def __init__(self, plan: Plan):
        self.plan = plan
        self.before, self.after, self.arena = plan.peak_before, plan.peak_after, plan.arena_bytes
        self.states = sum(slot.nbytes for slot in plan.program.states)

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        """Totals, and the largest blocks."""
        plan, blocks = self.plan, self.plan.blocks
        kinds = {kind: sum(s.nbytes for s in plan.program.states if s.kind == kind) for kind in (PARAMETER, OPTIMIZER)}
        parts = ", ".join(f"{kind}s {size(n)}" for kind, n in kinds.items() if n)
        rows = [("instruction", "block", "shape", "op")]
        for block in sorted(blocks, key=lambda block: (-block.nbytes, block.first))[:LARGEST]:
            names = ", ".join(self._op_of[slot] for slot in block.slots)
            rows.append((f"{block.first} to {block.last}", size(block.nbytes), str(list(block.slots[0].shape)), names))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = ["  ".join([*map(str.ljust, row[:3], widths), row[3]]) for row in rows]
        return "\n".join(
            [
                f"results      {size(self.after)} at most in {len(blocks)} blocks "
                f"(before planning {size(self.before)})",
                f"states       {size(self.states)}{f': {parts}' if parts else ''}",
                *lines,
            ]
        )

    @property
    def _op_of(self) -> dict[Slot, str]:
        return {slot: i.op.function_name for i in self.plan.program.instructions for slot in i.outputs}

    def picture(self, *, axes: Axes | None = None) -> Axes:
        """Draw the arena: instructions from left to right, addresses upwards, one box for each block while it lives.

        Results that took over the memory of an input have another color. The line shows how many bytes are alive at
        each instruction, the dashed one where they are most.

        Args:
            axes: matplotlib axes to draw into; by default, those of a new pyplot figure.

        Returns:
            the axes.
        """
        axes = axes or _new_axes()
        scale, unit = _unit(self.arena)
        self._draw_blocks(axes, scale)
        spans = [(block.nbytes, block.first, block.last) for block in self.plan.blocks]
        self._draw_use(axes, alive(spans), scale)
        axes.set(
            xlim=(0, len(self.plan.program.instructions) + 1),
            ylim=(0, 1.05 * self.arena / scale or 1),
            xlabel="instruction",
            ylabel=f"place in the arena, {unit}",
            title=f"{self.plan.program.name}: {size(self.after)} at most (before planning {size(self.before)})",
        )
        axes.xaxis.get_major_locator().set_params(integer=True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="upper left", bbox_to_anchor=(0, -0.12), ncols=4, frameon=False)
        return axes

    def _draw_blocks(self, axes: Axes, scale: float) -> None:
        from matplotlib.patches import Rectangle

        number_of = {slot: n for n, i in enumerate(self.plan.program.instructions) for slot in i.outputs}
        labels = {FRESH: "result", IN_PLACE: "result in the memory of an input"}
        for block in self.plan.blocks:
            starts = [number_of[slot] for slot in block.slots] + [block.last + 1]
            for i, (first, last) in enumerate(zip(starts, starts[1:], strict=False)):
                color = FRESH if i == 0 else IN_PLACE
                corner, height, label = (first, block.offset / scale), block.nbytes / scale, labels.pop(color, None)
                axes.add_patch(
                    Rectangle(corner, last - first, height, fc=color, alpha=0.75, ec="white", lw=0.5, label=label)
                )

    def _draw_use(self, axes: Axes, bytes_alive: list[int], scale: float) -> None:
        if bytes_alive:
            heights = [n / scale for n in (*bytes_alive, bytes_alive[-1])]
            axes.step(range(len(heights)), heights, where="post", color="#222222", lw=1.2, label="bytes alive")
            top = bytes_alive.index(max(bytes_alive))
            axes.axvline(top + 0.5, color=PEAK, linestyle="--", linewidth=1, label="peak")


def size(nbytes: int) -> str:
    """Bytes as they are read: `16.06 KiB`."""
    scale, unit = _unit(nbytes)
    return f"{nbytes} B" if unit == "B" else f"{nbytes / scale:.2f} {unit}"


def _unit(nbytes: int) -> tuple[float, str]:
    power = 0
    while nbytes >= 1024 ** (power + 1) and power < len(UNITS) - 1:
        power += 1
    return 1024.0**power, UNITS[power]


def _new_axes() -> Any:
    import matplotlib.pyplot as plt

    subplots: Callable = plt.subplots
    return subplots(figsize=(9, 5), constrained_layout=True)[1]
