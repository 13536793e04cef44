"""A profile as a picture: which thread touches which element, and how each line's warp reaches into memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from miniflow.hostcuda.profile import BANKS, SECTOR, WORD, Profile, Request, Touches, bank_passes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 3  # of panels
PANEL = (4.1, 3.5)  # inches
LABELLED = 16  # arrays of at most so many columns have the thread written into each cell
WIDE = 64  # sectors; memory further apart is drawn without its grid
INK, PALE, GOOD, BAD = "#222222", "#999999", "#38761d", "#b45f06"
BLOCKS = ("#cfe2f3", "#fce5cd", "#d9ead3", "#ead1dc", "#fff2cc", "#d9d2e9", "#d0e0e3", "#f4cccc")


def show(profile: Profile, *, figure: Figure | None = None) -> Figure:
    """Draw a profile.

    Upper panels: the small arrays, as a grid of elements. A number is the thread that touches the element first, the
    colour its block (or, where there is one block, its warp).
    Lower panels: for each place in the source its first request, the 32 lanes of a warp from top to bottom. To the
    right is, for global memory, the address, cut into sectors of 32 bytes: the fewer are coloured the better. For
    shared memory it is the bank: two different words in one bank are a conflict.

    Args:
        profile: of a launch with `profile=True`.
        figure: a matplotlib figure to draw into; by default a new one from pyplot, which notebooks show by themselves.

    Returns:
        the figure; `figure.savefig(path)` writes it to a file.

    Raises:
        ValueError: if the profile is empty: nothing was launched with it, or the kernel accesses no arrays.
    """
    panels = _panels(profile)
    if not panels:
        raise ValueError("show: the profile holds no accesses; launch the kernel with profile=True first")
    if figure is None:
        import matplotlib.pyplot

        figure = matplotlib.pyplot.figure()
    touched = [panel for panel in panels if panel[0] is draw_touches]
    requests = [panel for panel in panels if panel[0] is draw_request]
    rows = [group[i : i + COLUMNS] for group in (touched, requests) for i in range(0, len(group), COLUMNS)]
    columns = max(map(len, rows))
    figure.set_size_inches(PANEL[0] * columns, PANEL[1] * len(rows) + 0.5)
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)
    grid = figure.add_gridspec(len(rows), columns)
    for i, row in enumerate(rows):
        for j, (draw, *what) in enumerate(row):
            draw(figure.add_subplot(grid[i, j]), profile, *what)
    figure.suptitle(
        f"{profile.kernel}: grid {_dims(profile.grid)}, block {_dims(profile.block)}", color=INK, fontsize=12
    )
    return figure


def _panels(profile: Profile) -> list[tuple]:
    panels: list[tuple] = []
    for touches in profile.touches.values():
        if touches.readers:
            panels.append((draw_touches, touches, touches.readers, "read"))
        if touches.writers:
            panels.append((draw_touches, touches, touches.writers, "written"))
    panels += [
        (draw_request, request) for request in sorted(profile.requests, key=lambda r: (r.site.line, r.site.column))
    ]
    return panels


# Who touches what


def draw_touches(
    axes: Axes, profile: Profile, touches: Touches, owners: dict[tuple, tuple[int, int]], verb: str
) -> None:
    """An array as a grid of cells, each with the thread that touches it first."""
    shape = _flat_shape(touches.shape)
    blocks = math.prod(profile.grid) > 1 and touches.space == "global"
    text = shape[1] <= LABELLED and shape[0] <= LABELLED
    for index, (block, thread) in owners.items():
        row, column = _cell(index, touches.shape)
        group = block if blocks else thread // 32
        axes.add_patch(_rectangle(column - 0.5, row - 0.5, 1, 1, BLOCKS[group % len(BLOCKS)], "white"))
        if text:
            label = _thread_label(thread, profile.block)
            size = min(9, 110 / max(shape) / max(2, len(label)) * 2)
            axes.text(column, row, label, ha="center", va="center", fontsize=size, color=INK)
    _frame(axes, shape, shape[1] if len(touches.shape) < 2 else 1)
    counts = [touches.reads[index] for index in owners] if verb == "read" else []
    often = f", each {_range(counts)}" if counts else ""
    colour = "block" if blocks else "warp"
    axes.set_title(f"{touches.name} ({touches.space}) {verb}{often}", fontsize=10, color=INK)
    axes.set_xlabel(f"number: thread, colour: {colour}" if text else f"colour: {colour}", fontsize=8, color=PALE)


def _frame(axes: Axes, shape: tuple[int, int], step: int) -> None:
    """The outline and the axes of an array; `step` is how far the index goes from row to row."""
    rows, columns = shape
    axes.add_patch(_rectangle(-0.5, -0.5, columns, rows, "none", PALE))
    axes.set_xlim(-0.6, columns - 0.4)
    axes.set_ylim(rows - 0.4, -0.6)
    axes.set_aspect("equal" if max(shape) <= 8 * min(shape) else "auto")
    for axis, count in ((axes.xaxis, columns), (axes.yaxis, rows)):
        axis.set_ticks(range(0, count, max(1, math.ceil(count / 8))))
    axes.set_yticks(axes.get_yticks(), [str(int(row) * step) for row in axes.get_yticks()])
    axes.tick_params(labelsize=8, length=0, labelcolor=PALE)
    axes.spines[:].set_visible(False)


def _flat_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of the picture: a long vector is broken into rows, more dims become rows."""
    if len(shape) < 2:
        size = math.prod(shape)
        width = min(size, LABELLED if size <= LABELLED**2 else 2 * LABELLED)
        return -(-size // width), width
    return math.prod(shape[:-1]), shape[-1]


def _cell(index: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, int]:
    """Where in the picture an element stands: row, column."""
    number = 0
    for i, n in zip(index, shape, strict=True):
        number = number * n + i
    return divmod(number, _flat_shape(shape)[1])


def _thread_label(number: int, block: tuple[int, int, int]) -> str:
    """The thread's number, or its coordinates in a block of two or three dims."""
    x, y, z = number % block[0], number // block[0] % block[1], number // (block[0] * block[1])
    if block[2] > 1:
        return f"{x},{y},{z}"
    return f"{x},{y}" if block[1] > 1 else str(x)


# How a warp reaches into memory


def draw_request(axes: Axes, profile: Profile, request: Request) -> None:
    """One request of a warp: lanes downwards, to the right sectors of global or banks of shared memory."""
    if request.space == "global":
        _draw_sectors(axes, request)
    else:
        _draw_banks(axes, request)
    axes.set_ylim(32, 0)
    axes.set_yticks([0.5, 8.5, 16.5, 24.5, 31.5], ["0", "8", "16", "24", "31"])
    axes.set_ylabel("lane", fontsize=8, color=PALE)
    axes.tick_params(labelsize=8, length=2, labelcolor=PALE, color=PALE)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(PALE)


def _draw_sectors(axes: Axes, request: Request) -> None:
    addresses = request.addresses
    first = min(addresses.values()) // SECTOR * SECTOR
    count = max(addresses.values()) // SECTOR + 1 - first // SECTOR
    ideal = -(-len(set(addresses.values())) * request.itemsize // SECTOR)
    colour = GOOD if request.sectors <= ideal + 1 else BAD
    for sector in {address // SECTOR for address in addresses.values()}:
        axes.axvspan(sector - first / SECTOR, sector - first / SECTOR + 1, color=colour, alpha=0.16, linewidth=0)
    if count <= WIDE:
        for sector in range(count + 1):
            axes.axvline(sector, color=PALE, linewidth=0.3)
    for lane, address in addresses.items():
        width = max(request.itemsize / SECTOR, count / 120)
        axes.add_patch(_rectangle((address - first) / SECTOR, lane + 0.1, width, 0.8, colour, "none"))
    axes.set_xlim(0, max(count, 4))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel(f"32-byte sector of {request.array}, from its byte {first}", fontsize=8, color=PALE)
    _title(axes, request, f"{request.sectors} {_plural('sector', request.sectors)} (ideal {ideal})", colour)


def _draw_banks(axes: Axes, request: Request) -> None:
    passes, _, worst = bank_passes(request.addresses, request.itemsize)
    colour = GOOD if worst == 1 else BAD
    for bank in range(0, BANKS + 1, 4):
        axes.axvline(bank, color=PALE, linewidth=0.3)
    for lane, address in request.addresses.items():
        bank = address / WORD % BANKS
        axes.add_patch(
            _rectangle(bank + 0.05, lane + 0.1, max(0.9, request.itemsize / WORD - 0.1), 0.8, colour, "none")
        )
    axes.set_xlim(0, BANKS)
    axes.set_xticks([0.5, 8.5, 16.5, 24.5, 31.5], ["0", "8", "16", "24", "31"])
    axes.set_xlabel(f"bank of {request.array}", fontsize=8, color=PALE)
    verdict = "no conflict" if worst == 1 else f"{worst}-way conflict"
    _title(axes, request, f"{verdict}, {passes} {_plural('pass', passes)}", colour)


def _title(axes: Axes, request: Request, verdict: str, colour: str) -> None:
    text = request.site.text if len(request.site.text) <= 40 else request.site.text[:37] + "..."
    verb = {"load": "read", "store": "write", "atomic": "atomic"}[request.kind]
    axes.text(
        0, 1.13, f"{request.site.line}: {text}", transform=axes.transAxes, fontsize=8, color=INK, family="monospace"
    )
    axes.text(0, 1.04, f"{verb} {request.array}: {verdict}", transform=axes.transAxes, fontsize=9, color=colour)


def _plural(word: str, count: int) -> str:
    return word if count == 1 else word + ("es" if word.endswith("s") else "s")


def _range(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    if low != high:
        return f"{low} to {high} times"
    return "once" if low == 1 else f"{low} times"


def _dims(dims: tuple[int, int, int]) -> str:
    last = max([i for i, n in enumerate(dims) if n > 1], default=0)
    return " x ".join(map(str, dims[: last + 1]))


def _rectangle(x: float, y: float, width: float, height: float, face: str, edge: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, facecolor=face, edgecolor=edge, linewidth=0.5)
