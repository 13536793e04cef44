"""What a kernel's memory accesses cost on a GPU, counted for each source line by the checked executor.

A warp's 32 lanes access memory together: one *request*. Global memory answers it in sectors of 32 bytes, so that 32
neighbouring float32 cost 4 sectors and 32 scattered ones 32. Shared memory has 32 banks of 4 bytes, each of which gives
one word at a time: a request takes as many passes as the busiest bank has different words to give (an n-way conflict).
Elements of 8 bytes are served for half a warp at a time.

Lanes belong to one request if they come to the same place in the source for the same time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from miniflow.hostcuda.findings import Site

SECTOR, BANKS, WORD, WARP = 32, 32, 4, 32
SMALL = 1024
"""Arrays of at most so many elements remember which thread touched which element, for the picture."""


@dataclass
class Counts:
    """Of one source line, or in total.

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

    def add(self, other: Counts) -> None:
        """Sum, and the maximum of `worst_conflict`."""
        mine = vars(self)
        worst = max(self.worst_conflict, other.worst_conflict)
        for name, value in vars(other).items():
            if value:
                mine[name] += value
        self.worst_conflict = worst


@dataclass
class Request:
    """One warp's access: the first at its place, kept for the picture.

    Attributes:
        site: where in the source.
        array: name of the array.
        space: "global" or "shared".
        kind: "load", "store" or "atomic".
        itemsize: bytes of an element.
        addresses: for each lane that takes part, the byte at which its element begins.
    """

    site: Site
    array: str
    space: str
    kind: str
    itemsize: int
    addresses: dict[int, int]

    @property
    def sectors(self) -> int:
        return len(sectors(self.addresses.values(), self.itemsize))

    @property
    def passes(self) -> int:
        return bank_passes(self.addresses, self.itemsize)[0]


@dataclass
class Touches:
    """Who touched an array: for each index the first thread, as (block, thread) numbers, and how often it was read."""

    name: str
    shape: tuple[int, ...]
    space: str
    readers: dict[tuple[int, ...], tuple[int, int]] = field(default_factory=dict)
    writers: dict[tuple[int, ...], tuple[int, int]] = field(default_factory=dict)
    reads: dict[tuple[int, ...], int] = field(default_factory=lambda: defaultdict(int))


class _Place:
    """The accesses of one block at one place: for each warp its requests, each lane -> address."""

    def __init__(self, space: str, array: Any, threads: int, warps: int):
        self.space, self.array, self.itemsize = space, array.name, array.itemsize
        self.counts = [0] * threads
        self.warps: list[list[dict[int, int]]] = [[] for _ in range(warps)]


class Profile:
    """The counts of a launch (or of several, if it is handed to several).

    Attributes:
        kernel: its name.
        grid, block: of the launch.
        lines: Site (without column) -> Counts, in order of the source.
        requests: the first request at each place.
        touches: name of a small array -> Touches.

    Example:
        `profile = check.launch(kernel, arguments, grid, block, profile=True)`; `print(profile)` shows the table.
    """

    def __init__(self) -> None:
        self.kernel = ""
        self.grid: tuple[int, int, int] = (0, 0, 0)
        self.block: tuple[int, int, int] = (0, 0, 0)
        self._lines: dict[tuple[str, int], Counts] = defaultdict(Counts)
        self._sites: dict[tuple[str, int], Site] = {}
        self.requests: list[Request] = []
        self.touches: dict[str, Touches] = {}
        self._seen: set[tuple] = set()
        self._places: dict[tuple[int, str], _Place] = {}

    @property
    def total(self) -> Counts:
        """The sum over all lines."""
        total = Counts()
        for counts in self._lines.values():
            total.add(counts)
        return total

    @property
    def lines(self) -> dict[Site, Counts]:
        return {self._sites[key]: self._lines[key] for key in sorted(self._lines)}

    def line(self, text: str) -> Counts:
        """The counts of the lines that contain a text."""
        found = Counts()
        for site, counts in self.lines.items():
            if text in site.text:
                found.add(counts)
        return found

    # What the executor calls

    def begin(self, run: Any, values: Iterable[Any]) -> None:
        """A launch begins."""
        self.kernel, self.grid, self.block = run.function.__name__, run.grid, run.block
        self._program = run.program

    def access(self, thread: Any, array: Any, position: int, index: Any, site: int, kind: str) -> None:
        """A thread accesses an element."""
        space = array.memory.space
        if space not in ("global", "shared"):
            return
        place = self._places.get((site, kind))
        if place is None:
            place = self._places[site, kind] = _Place(space, array, len(thread.block.threads), len(thread.block.warps))
        number = place.counts[thread.number]
        place.counts[thread.number] = number + 1
        requests = place.warps[thread.warp.number]
        if number == len(requests):
            requests.append({})
        address = position * array.itemsize if array.flat is not None else position
        requests[number][thread.lane] = address + array.memory.base
        if array.root.host.size <= SMALL and (space == "global" or thread.block.number == 0):
            self._touch(thread, array.root, address, kind)

    def _touch(self, thread: Any, array: Any, address: int, kind: str) -> None:
        touches = self.touches.get(array.name)
        if touches is None:
            touches = self.touches[array.name] = Touches(array.name, array.shape, array.memory.space)
        place = _index_at(array, address)
        if place is None:
            return
        who = (thread.block.number, thread.number)
        if kind != "store":
            touches.readers.setdefault(place, who)
            touches.reads[place] += 1
        if kind != "load":
            touches.writers.setdefault(place, who)

    def end_block(self, block: Any) -> None:
        """All accesses of the block are known: count its requests."""
        for (site_number, kind), place in self._places.items():
            site = self._program.sites[site_number]
            key = (site.filename, site.line)
            self._sites.setdefault(key, Site(site.filename, site.line, 0, site.text))
            requests = [addresses for warp in place.warps for addresses in warp]
            for addresses in requests:
                self._lines[key].add(count(place.space, kind, place.itemsize, addresses))
            if (site, place.array, kind) not in self._seen:
                self._seen.add((site, place.array, kind))
                self.requests.append(Request(site, place.array, place.space, kind, place.itemsize, requests[0]))
        self._places.clear()

    def __str__(self) -> str:
        return table(self)


def _index_at(array: Any, address: int) -> tuple[int, ...] | None:
    """The index of the element at an address; None if strides overlap or turn back, so that it is not plain to see."""
    offset = address - array.host.__array_interface__["data"][0] + array.memory.start
    index = [0] * array.rank
    for axis in sorted(range(array.rank), key=lambda axis: -array.strides[axis]):
        if array.shape[axis] > 1:
            if array.strides[axis] <= 0:
                return None
            index[axis], offset = divmod(offset, array.strides[axis])
    return tuple(index) if all(0 <= i < n for i, n in zip(index, array.shape, strict=True)) else None


def count(space: str, kind: str, itemsize: int, addresses: dict[int, int]) -> Counts:
    """The counts of one request."""
    n = len(addresses)
    result = Counts(atomics=n if kind == "atomic" else 0)
    if space == "global":
        result.global_requests = 1
        result.sectors = len(sectors(addresses.values(), itemsize))
        result.ideal_sectors = -(-len(set(addresses.values())) * itemsize // SECTOR)
        result.global_loads, result.global_stores = n * (kind == "load"), n * (kind == "store")
    else:
        result.shared_requests = 1
        result.passes, ideal, result.worst_conflict = bank_passes(addresses, itemsize)
        result.conflicts = result.passes - ideal
        result.shared_loads, result.shared_stores = n * (kind == "load"), n * (kind == "store")
    return result


def sectors(addresses: Iterable[int], itemsize: int) -> set[int]:
    """The 32-byte sectors that elements at these addresses touch."""
    return {
        sector for address in addresses for sector in range(address // SECTOR, (address + itemsize - 1) // SECTOR + 1)
    }


def bank_passes(addresses: dict[int, int], itemsize: int) -> tuple[int, int, int]:
    """(passes that shared memory needs, passes without conflicts, n of the worst n-way conflict) of one request."""
    width = max(1, itemsize // WORD)
    lanes = WARP // min(width, WARP)
    total, ideal, worst = 0, 0, 1
    for first in range(0, WARP, lanes):
        group = [address for lane, address in addresses.items() if first <= lane < first + lanes]
        words: dict[int, set[int]] = defaultdict(set)
        for address in group:
            for word in range(address // WORD, (address + itemsize - 1) // WORD + 1):
                words[word % BANKS].add(word)
        if words:
            busiest = max(map(len, words.values()))
            total, ideal, worst = total + busiest, ideal + 1, max(worst, busiest)
    return total, ideal, worst


HEADINGS = ("line", *"loads stores atomics sectors ideal".split(), "per request", "loads", "stores", "conflicts", "")
"""Of the table's columns; the last, without heading, is the source."""


def table(profile: Profile) -> str:
    """The profile as text: a row for each source line, and their sum."""
    several = len({site.filename for site in profile.lines}) > 1
    rows = [_row(str(site) if several else str(site.line), counts, site.text) for site, counts in profile.lines.items()]
    rows.append(_row("total", profile.total, ""))
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    widths[9] = max(widths[9], 18 - widths[7] - widths[8])  # room for the heading above
    title = (
        f"kernel {profile.kernel}: grid {profile.grid}, block {profile.block}; elements accessed, 32-byte sectors moved"
    )
    lines = [_groups(widths), _join(HEADINGS, widths), *(_join(row, widths) for row in rows)]
    return "\n".join([title, *(line.rstrip() for line in lines)])


def _row(label: str, c: Counts, text: str) -> tuple[str, ...]:
    """One line of the table; an empty cell where nothing was counted."""

    def number(value: int) -> str:
        return f"{value:,}" if value else ""

    each = f"{c.sectors / c.global_requests:.1f}" if c.global_requests else ""
    conflicts = f"{c.conflicts:,} ({c.worst_conflict}-way)" if c.conflicts else ("0" if c.shared_requests else "")
    in_global = (c.global_loads, c.global_stores, c.atomics, c.sectors, c.ideal_sectors)
    return (label, *map(number, in_global), each, number(c.shared_loads), number(c.shared_stores), conflicts, text)


def _join(cells: Iterable[str], widths: list[int]) -> str:
    *numbers, text = cells
    return "  ".join([*(cell.rjust(width) for cell, width in zip(numbers, widths, strict=False)), text])


def _groups(widths: list[int]) -> str:
    """The headings of two groups of columns, each over its columns."""
    spans = [sum(widths[first:last]) + 2 * (last - first - 1) for first, last in ((1, 7), (7, 10))]
    return (
        " " * (widths[0] + 2) + " global memory ".center(spans[0], "-") + "  " + " shared memory ".center(spans[1], "-")
    )
