"""What a kernel's memory accesses cost on a GPU, counted for each source line by the checked executor.

A warp's 32 lanes access memory together: one *request*. Global memory answers it in sectors of 32 bytes, so that 32
neighbouring float32 cost 4 sectors and 32 scattered ones 32. Shared memory has 32 banks of 4 bytes, each of which gives
one word at a time: a request takes as many passes as the busiest bank has different words to give (an n-way conflict).
Elements of 8 bytes are served for half a warp at a time.

Lanes belong to one request if they come to the same place in the source in the same rounds of the loops around it.
"""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from miniflow.hostcuda import shadow
from miniflow.hostcuda.findings import Site
from miniflow.hostcuda.memory_map import Stretch
from miniflow.hostcuda.shadow import READ, STATE_ARRAY, WARP_LANES, WRITE

SECTOR, BANKS, WORD = 32, 32, 4
SMALL = 1024
"""For the picture, arrays of at most so many elements remember which thread touched which element."""
HEADINGS = ("line", *"loads stores atomics sectors ideal".split(), "per request", "loads", "stores", "conflicts", "")
"""Of the table's columns; the last, without heading, is the source."""
KINDS = {READ: "load", WRITE: "store", shadow.ATOMIC: "atomic"}


@dataclass
class Counts:
    """The counts of one source line, or in total.

    Attributes:
        global_loads, global_stores, atomics: elements, of all threads; atomics in global and shared memory.
        global_requests: of warps.
        sectors: that these touched; ideal_sectors: that would do for as many bytes, packed.
        shared_loads, shared_stores: elements.
        shared_requests: of warps.
        passes: that shared memory needed for them; conflicts: how many of these a layout without conflicts would save.
        worst_conflict: the n of the worst n-way conflict; 1 without any.
    """

    global_loads: int = 0
    global_stores: int = 0
    atomics: int = 0
    global_requests: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    shared_loads: int = 0
    shared_stores: int = 0
    shared_requests: int = 0
    passes: int = 0
    conflicts: int = 0
    worst_conflict: int = 1

    def add(self, **counts: int) -> None:
        """Sum, and the maximum of `worst_conflict`."""
        for name, value in counts.items():
            setattr(self, name, (max if name == "worst_conflict" else operator.add)(getattr(self, name), value))


@dataclass
class Request:
    """One warp's access at a place.

    Attributes:
        site: where in the source.
        array: name of the array.
        space: "global" or "shared".
        kind: "load", "store" or "atomic".
        itemsize: bytes of an element.
        addresses: for each lane that takes part, the byte at which its element begins.
        cost: sectors of global memory, passes of shared memory; ideal: what another layout could come down to.
        worst_conflict: as in Counts.
        number: how many requests there were at this place.
        worst: whether it is shown because it costs more than the first.
    """

    site: Site
    array: str
    space: str
    kind: str
    itemsize: int
    addresses: dict[int, int]
    cost: int
    ideal: int
    worst_conflict: int
    worst: bool
    number: int = 0


@dataclass
class Touches:
    """For each index of an array the first thread that touched it, as (block, thread), and how often it was read."""

    name: str
    shape: tuple[int, ...]
    space: str
    readers: dict[tuple[int, ...], tuple[int, int]] = field(default_factory=dict)
    writers: dict[tuple[int, ...], tuple[int, int]] = field(default_factory=dict)
    reads: dict[tuple[int, ...], int] = field(default_factory=lambda: defaultdict(int))


class Profile:
    """The counts of a launch (or of several, if it is handed to several).

    Attributes:
        kernel: its name.
        grid, block: of the launch.
        lines: Site (without column) -> Counts, in order of the source.
        requests: the first request at each place, and the worst if that costs more.
        touches: name of a small array -> Touches.
        large: names of the arrays that are too large for that, and their sizes.

    Example:
        `profile = check.launch(kernel, arguments, grid, block, profile=True)`; `print(profile)` shows the table.
    """

    def __init__(self) -> None:
        self.kernel = ""
        self.grid: tuple[int, int, int] = (0, 0, 0)
        self.block: tuple[int, int, int] = (0, 0, 0)
        self._lines: dict[Site, Counts] = defaultdict(Counts)
        self._requests: dict[tuple, tuple[Request, Request]] = {}
        self.touches: dict[str, Touches] = {}
        self.large: dict[str, int] = {}

    @property
    def total(self) -> Counts:
        """The sum over all lines."""
        return self.line("")

    @property
    def lines(self) -> dict[Site, Counts]:
        return dict(sorted(self._lines.items(), key=lambda line: (line[0].filename, line[0].line)))

    @property
    def requests(self) -> list[Request]:
        return [r for first, worst in self._requests.values() for r in (first, worst)[: 1 + (worst.cost > first.cost)]]

    def line(self, text: str) -> Counts:
        """The counts of the lines that contain a text."""
        total = Counts()
        for site, counts in self.lines.items():
            if text in site.text:
                total.add(**vars(counts))
        return total

    # what the executor calls

    def begin(self, run: Any) -> dict[str, np.ndarray]:
        """A launch begins; what it collects requests in."""
        self.kernel, self.grid, self.block = run.kernel.__name__, run.grid, run.block
        table = np.zeros(shadow.SLOTS, shadow.REQUEST)
        shadow.COUNTING[:] = [lambda: self.count(run, table)]
        return {"requests": table}

    def count(self, run: Any, table: np.ndarray) -> None:
        """Count the requests that were collected, and forget them."""
        requests = table[table["lanes"] != 0]
        requests = requests[np.argsort(requests["made"])]
        table["lanes"] = STATE_ARRAY["logged"] = 0
        places = requests["tag"] * len(run.memory.stretches) + requests["stretch"]
        for first in np.sort(np.unique(places, return_index=True)[1]):
            tag, stretch = requests[["tag", "stretch"]][first]
            site, kind = run.sites[tag & ((1 << shadow.SITE_BITS) - 1)], KINDS[tag >> shadow.KIND_BITS]
            self._count_site(site, run.memory.stretches[stretch], kind, requests[places == places[first]])

    def _count_site(self, row: tuple, stretch: Stretch, kind: str, requests: np.ndarray) -> None:
        """Count the requests of one kind at one place in the source, for arrays in one stretch."""
        filename, line, column, name, *_ = row
        width, addresses = int(requests["width"][0]), requests["at"]
        active = requests["lanes"][:, None] >> np.arange(WARP_LANES) & 1 > 0
        costs, ideal, worst = (global_cost if stretch.space == "global" else shared_cost)(addresses, active, width)
        counts = {f"{stretch.space}_requests": len(requests), "worst_conflict": int(worst.max())}
        counts["atomics" if kind == "atomic" else f"{stretch.space}_{kind}s"] = int(active.sum())
        if stretch.space == "global":
            counts |= {"sectors": int(costs.sum()), "ideal_sectors": int(ideal.sum())}
        else:
            counts |= {"passes": int(costs.sum()), "conflicts": int((costs - ideal).sum())}
        self._lines[Site(filename, line)].add(**counts)

        def request(k: int) -> Request:
            of_lanes = {int(lane): int(addresses[k, lane]) for lane in np.flatnonzero(active[k])}
            located = stretch.array(next(iter(of_lanes.values())), name)
            cost = [int(numbers[k]) for numbers in (costs, ideal, worst)]
            array = located[0].name if located else name
            return Request(Site(filename, line, column), array, stretch.space, kind, width, of_lanes, *cost, k > 0)

        key = filename, line, column, kind, stretch.space
        first, most = self._requests.get(key) or (request(0), request(0))
        most = request(int(costs.argmax())) if costs.max() > most.cost else most
        self._requests[key] = first, most
        first.number = most.number = first.number + len(requests)
        self._touch(stretch, kind, addresses, active, requests["warp"])

    def _touch(self, stretch: Stretch, kind: str, addresses: np.ndarray, active: np.ndarray, warps: np.ndarray) -> None:
        """Remember the first thread at each element of small arrays; of shared memory, in the first block."""
        small = [array for array in stretch.placed if math.prod(array.shape) <= SMALL]
        self.large |= {a.name: math.prod(a.shape) for a in stretch.placed if a not in small}
        threads = math.prod(self.block)
        block, warp = np.divmod(warps, -(-threads // WARP_LANES))
        active = active & ((block == 0) | (stretch.space == "global"))[:, None] & bool(small)
        thread_numbers = ((block * threads + warp * WARP_LANES)[:, None] + np.arange(WARP_LANES))[active]
        offsets = np.unique(addresses[active], return_index=True, return_counts=True)
        for offset, first, times in zip(*offsets, strict=True):
            located = stretch.array(int(offset), "")
            if located is None or located[0] not in small:
                continue
            array, index = located
            touches = self.touches.setdefault(array.name, Touches(array.name, array.shape, stretch.space))
            thread = divmod(int(thread_numbers[first]), threads)
            if kind != "store":
                touches.readers.setdefault(index, thread)
                touches.reads[index] += int(times)
            if kind != "load":
                touches.writers.setdefault(index, thread)

    def __str__(self) -> str:
        """A table with a row for each source line, and their sum."""
        several = len({site.filename for site in self.lines}) > 1
        cells = [HEADINGS]
        cells += [_table_row(str(site) if several else str(site.line), c, site.text) for site, c in self.lines.items()]
        cells.append(_table_row("total", self.total, ""))
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        widths[9] = max(widths[9], 18 - widths[7] - widths[8])  # room for the heading above
        spans = [sum(widths[first:last]) + 2 * (last - first - 1) for first, last in ((1, 7), (7, 10))]
        groups = (" global memory ".center(spans[0], "-"), " shared memory ".center(spans[1], "-"))
        lines = [
            f"kernel {self.kernel}: grid {self.grid}, block {self.block}; elements accessed, 32-byte sectors moved"
        ]
        lines.append("  ".join([" " * widths[0], *groups]))
        for *numbers, text in cells:
            padded = [number.rjust(width) for number, width in zip(numbers, widths, strict=False)]
            lines.append("  ".join([*padded, text]).rstrip())
        return "\n".join(lines)


# the cost of requests: of each, with at[request, lane] and active[request, lane]


def segments(addresses: np.ndarray, active: np.ndarray, width: int, size: int) -> np.ndarray:
    """The units of so many bytes that elements of a width touch, sorted for each request; -1 for none."""
    first, last = addresses // size, (addresses + width - 1) // size
    several = np.arange(int((last - first).max()) + 1)
    touched = np.where(active[..., None], np.minimum(first[..., None] + several, last[..., None]), -1)
    return np.sort(touched.reshape(*addresses.shape[:-1], -1), axis=-1)


def is_new(numbers: np.ndarray) -> np.ndarray:
    """Where sorted numbers differ from the one before; never for -1."""
    return np.diff(numbers, axis=-1, prepend=-1) != 0


def global_cost(addresses: np.ndarray, active: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(sectors, sectors if the elements were packed, 1)."""
    sectors = is_new(segments(addresses, active, width, SECTOR)).sum(axis=1)
    elements = is_new(np.sort(np.where(active, addresses, -1), axis=1)).sum(axis=1)
    return sectors, -(-elements * width // SECTOR), np.ones_like(sectors)


def shared_cost(addresses: np.ndarray, active: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(passes that shared memory needs, passes without conflicts, n of the worst n-way conflict)."""
    group = WARP_LANES // min(max(1, width // WORD), WARP_LANES)  # lanes that are served at a time
    words = segments(addresses.reshape(-1, group), active.reshape(-1, group), width, WORD)
    rows, columns = np.nonzero(is_new(words))
    loads = np.bincount(rows * BANKS + words[rows, columns] % BANKS, minlength=len(words) * BANKS)
    busiest = loads.reshape(len(addresses), -1, BANKS).max(axis=2)
    return busiest.sum(axis=1), (busiest > 0).sum(axis=1), busiest.max(axis=1)


def _table_row(label: str, c: Counts, text: str) -> tuple[str, ...]:
    """One row of the table; an empty cell where nothing was counted."""
    per_request = f"{c.sectors / c.global_requests:.1f}" if c.global_requests else ""
    conflicts = f"{c.conflicts:,} ({c.worst_conflict}-way)" if c.conflicts else "0" * bool(c.shared_requests)
    counts = (c.global_loads, c.global_stores, c.atomics, c.sectors, c.ideal_sectors, c.shared_loads, c.shared_stores)
    cells = [f"{n:,}" if n else "" for n in counts]
    return (label, *cells[:5], per_request, *cells[5:], conflicts, text)
