"""A profile as a picture: which thread touches which element, and how each line's warp reaches into memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from miniflow.hostcuda.profile import BANKS, SECTOR, SMALL, WORD, Profile, Request, Touches

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 3  # of panels
PANEL = (4.1, 3.5)  # inches
LABELLED = 16  # arrays of at most so many rows and columns have the thread written into each cell
WIDE = 64  # sectors; memory further apart is drawn without its grid
INK, PALE, GOOD, BAD = "#222222", "#999999", "#38761d", "#b45f06"
BLOCKS = ("#cfe2f3", "#fce5cd", "#d9ead3", "#ead1dc", "#fff2cc", "#d9d2e9", "#d0e0e3", "#f4cccc")


def show(profile: Profile, *, figure: Figure | None = None) -> Figure:
    """Draw a profile.

    Upper panels: the small arrays, as a grid of elements. A number is the thread that touches the element first, the
    color its block (or, where there is one block, its warp). The title names the arrays that are too large.
    Lower panels: for each place in the source its first request, and its worst if that costs more; how many there are
    is said. The 32 lanes of a warp go from top to bottom. To the right is, for global memory, the address, cut into
    sectors of 32 bytes: the fewer are colored the better. For shared memory it is the bank: two different words in one
    bank are a conflict.

    Args:
        profile: of a launch with `profile=True`.
        figure: a matplotlib figure to draw into; by default a new one from pyplot, which notebooks show by themselves.

    Returns:
        the figure; `figure.savefig(path)` writes it to a file.

    Raises:
        ValueError: if the profile is empty: nothing was launched with it, or the kernel accesses no arrays.
    """
    verbs = [(t, verb) for t in profile.touches.values() for verb in ("read", "written")]
    touched = [(draw_touches, t, verb) for t, verb in verbs if (t.readers if verb == "read" else t.writers)]
    requests = sorted(profile.requests, key=lambda r: (r.site.line, r.site.column))
    if not requests:
        raise ValueError("show: the profile holds no accesses; launch the kernel with profile=True first")
    if figure is None:
        import matplotlib.pyplot

        figure = matplotlib.pyplot.figure()
    groups = (touched, [(draw_request, request) for request in requests])
    rows = [group[i : i + COLUMNS] for group in groups for i in range(0, len(group), COLUMNS)]
    columns = max(map(len, rows))
    figure.set_size_inches(PANEL[0] * columns, PANEL[1] * len(rows) + 0.5)
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)
    grid = figure.add_gridspec(len(rows), columns)
    for i, row in enumerate(rows):
        for j, (draw, *drawn) in enumerate(row):
            draw(figure.add_subplot(grid[i, j]), profile, *drawn)
    title = f"{profile.kernel}: grid {_dims(profile.grid)}, block {_dims(profile.block)}"
    if profile.large:
        large = ", ".join(f"{name} ({size:,})" for name, size in profile.large.items())
        title += f"\nnot drawn, as they have more than {SMALL:,} elements: {large}"
    figure.suptitle(title, color=INK, fontsize=12)
    return figure


def draw_touches(axes: Axes, profile: Profile, touches: Touches, verb: str) -> None:
    """An array as a grid of cells, each with the thread that touches it first."""
    from matplotlib.colors import ListedColormap

    size, owners = math.prod(touches.shape), touches.readers if verb == "read" else touches.writers
    columns = touches.shape[-1] if len(touches.shape) > 1 else min(size, LABELLED * (1 + (size > LABELLED**2)))
    shape = (-(-size // columns), columns)  # a long vector is broken into rows, more dims become rows
    by_block = math.prod(profile.grid) > 1 and touches.space == "global"
    colors, labelled = np.ma.masked_all(shape), max(shape) <= LABELLED
    for index, (block, thread) in owners.items():
        row, column = divmod(int(np.ravel_multi_index(index, touches.shape)) if index else 0, columns)
        colors[row, column] = (block if by_block else thread // 32) % len(BLOCKS)
        if labelled:
            coordinates = np.unravel_index(thread, profile.block, "F")
            label = ",".join(str(n) for k, n in enumerate(coordinates) if k == 0 or math.prod(profile.block[k:]) > 1)
            font = min(9, 110 / max(shape) / max(2, len(label)) * 2)
            axes.text(column, row, label, ha="center", va="center", fontsize=font, color=INK)
    aspect = "equal" if max(shape) <= 8 * min(shape) else "auto"
    axes.imshow(colors, ListedColormap(BLOCKS), vmin=0, vmax=len(BLOCKS) - 1, aspect=aspect)
    for axis, count in ((axes.xaxis, columns), (axes.yaxis, shape[0])):
        axis.set_ticks(range(0, count, max(1, math.ceil(count / 8))))
    step = columns if len(touches.shape) < 2 else 1
    axes.set_yticks(axes.get_yticks(), [str(int(row) * step) for row in axes.get_yticks()])
    axes.set_xticks(np.arange(1, columns) - 0.5, minor=True)
    axes.set_yticks(np.arange(1, shape[0]) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=0.5)
    axes.tick_params(which="both", labelsize=8, length=0, labelcolor=PALE)
    axes.spines[:].set_color(PALE)
    low, high = (f([touches.reads[i] for i in owners], default=1) for f in (min, max))
    often = f"{low} to {high} times" if low != high else "once" if low == 1 else f"{low} times"
    axes.set_title(
        f"{touches.name} ({touches.space}) {verb}{f', each {often}' * (verb == 'read')}", fontsize=10, color=INK
    )
    color = f"color: {'block' if by_block else 'warp'}"
    axes.set_xlabel(f"number: thread, {color}" if labelled else color, fontsize=8, color=PALE)


def draw_request(axes: Axes, profile: Profile, request: Request) -> None:
    """One request of a warp: lanes downwards, to the right sectors of global or banks of shared memory."""
    lanes, addresses = (np.array([*numbers]) for numbers in (request.addresses.keys(), request.addresses.values()))
    if request.space == "global":
        good, first = request.cost <= request.ideal + 1, int(addresses.min()) // SECTOR * SECTOR
        left, wide = (addresses - first) / SECTOR, int(addresses.max() - first) // SECTOR + 1
        width, edges = max(request.itemsize / SECTOR, wide / 120), range(wide + 1 if wide <= WIDE else 0)
        for sector in np.unique(left.astype(int)):
            axes.axvspan(sector, sector + 1, color=GOOD if good else BAD, alpha=0.16, linewidth=0)
        axes.set_xlim(0, max(wide, 4))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel(f"32-byte sector of {request.array}, from its byte {first}", fontsize=8, color=PALE)
        verdict = f"{request.cost} {'sector' if request.cost == 1 else 'sectors'} (ideal {request.ideal})"
    else:
        good, edges = request.worst_conflict == 1, range(0, BANKS + 1, 4)
        left, width = addresses / WORD % BANKS + 0.05, max(0.9, request.itemsize / WORD - 0.1)
        axes.set_xlim(0, BANKS)
        axes.set_xticks([0.5, 8.5, 16.5, 24.5, 31.5], ["0", "8", "16", "24", "31"])
        axes.set_xlabel(f"bank of {request.array}", fontsize=8, color=PALE)
        verdict = "no conflict" if good else f"{request.worst_conflict}-way conflict"
        verdict += f", {request.cost} {'pass' if request.cost == 1 else 'passes'}"
    color = GOOD if good else BAD
    axes.vlines(edges, 0, 32, color=PALE, linewidth=0.3)
    axes.barh(lanes + 0.5, width, 0.8, left, color=color)
    axes.set_ylim(32, 0)
    axes.set_yticks([0.5, 8.5, 16.5, 24.5, 31.5], ["0", "8", "16", "24", "31"])
    axes.set_ylabel("lane", fontsize=8, color=PALE)
    axes.tick_params(labelsize=8, length=2, labelcolor=PALE, color=PALE)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(PALE)
    longest = 40 if request.number == 1 else 28
    text = request.site.text if len(request.site.text) <= longest else request.site.text[: longest - 3] + "..."
    which = f"  [{'worst' if request.worst else 'first'} of {request.number:,}]" * (request.number > 1)
    verb = {"load": "read", "store": "write", "atomic": "atomic"}[request.kind]
    line, style = f"{request.site.line}: {text}{which}", {"transform": axes.transAxes}
    axes.text(0, 1.13, line, **style, fontsize=8, color=INK, family="monospace")
    axes.text(0, 1.04, f"{verb} {request.array}: {verdict}", **style, fontsize=9, color=color)


def _dims(dims: tuple[int, int, int]) -> str:
    last = max([i for i, n in enumerate(dims) if n > 1], default=0)
    return " x ".join(map(str, dims[: last + 1]))
