"""What the checked executor reports: rows of numbers, which `lookup` and `arrivals` wrote, become sentences.

Each mistake is one `Finding`, folded where a line repeats it, in a fixed order.
"""

from __future__ import annotations

import linecache
import math
import os
import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from miniflow.hostcuda import shadow
from miniflow.hostcuda.errors import KernelCheckError
from miniflow.hostcuda.shadow import ATOMIC, READ, SITE_BITS, UPDATE, WARP_LANES

LIMIT = 20
"""How many different findings are spelled out."""

ORDER = (
    "typing", "divergent barrier", "warp", "out of bounds", "negative index", "race", "stream", "uninitialised read",
    "constant write", "exception",
)  # fmt: skip


@dataclass(frozen=True)
class Site:
    """A place in the source.

    Attributes:
        filename: with its path.
        line: counted from 1.
        column: counted from 0; two accesses on one line differ in it.
        text: the source line, stripped.
    """

    filename: str
    line: int
    column: int = 0
    text: str = ""

    def __str__(self) -> str:
        return f"{os.path.basename(self.filename)}:{self.line}"


def place(filename: str, line: int, column: int = 0) -> Site:
    """A place with the text of its line."""
    return Site(filename, line, column, linecache.getline(filename, line).strip())


@dataclass(frozen=True)
class Finding:
    """One mistake.

    Attributes:
        kind: one of ORDER.
        kernel: the kernel's name.
        what: what happened, in one sentence with names, indices, threads and lines.
        remedy: what to do.
        site: where.
        caller: the kernel's line, if the site is in a device function that it calls there.
        other: the second place, of a race.
        array: the name of the array, if one is concerned.
        index: the element's index.
        block, thread: which thread did it (the later one, of a race).
        count: how often the same happened at the same place.
    """

    kind: str
    kernel: str
    what: str
    remedy: str
    site: Site | None = None
    caller: Site | None = None
    other: Site | None = None
    array: str = ""
    index: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None
    thread: tuple[int, ...] | None = None
    count: int = 1

    def __str__(self) -> str:
        again = f" ({self.count} times; this is the first)" if self.count > 1 else ""
        called = f" (called at {self.caller})" if self.caller else ""
        place = f"{self.site}{called}: " if self.site else ""
        return f"{self.kind}: {place}{self.what}{again}\n    {self.remedy}"


def raise_findings(findings: list[Finding]) -> None:
    """Raise what was found, if anything: by kind, then by place; those of one kind at the same place are counted.

    Raises:
        KernelCheckError: with all findings in its message and as its attribute `findings`.
    """
    folded: dict[tuple, Finding] = {}
    races = {(f.array, site) for f in findings if f.kind == "race" for site in (f.site, f.other)}
    for one in findings:
        key = (one.kind, one.site, one.other, one.array, "" if one.site else one.what)
        if one.kind == "uninitialised read" and (one.array, one.site) in races:  # it is one because threads race
            continue
        folded[key] = replace(folded[key], count=folded[key].count + one.count) if key in folded else one
    found = tuple(sorted(folded.values(), key=_order))
    if found:
        number = "1 finding" if len(found) == 1 else f"{len(found)} findings"
        lines = [f"kernel {found[0].kernel}: {number}", *map(str, found[:LIMIT])]
        if len(found) > LIMIT:
            lines.append(f"... and {len(found) - LIMIT} more: see the attribute `findings` of this error")
        raise KernelCheckError("\n".join(lines), found)


def _order(finding: Finding) -> tuple:
    places = [(s.filename, s.line, s.column) if s else ("", 0, 0) for s in (finding.site, finding.other)]
    return (ORDER.index(finding.kind), *places, finding.array, finding.what)


GUARD = "guard the access with an `if`, or shift the index; a literal -1 is taken as meant"
BARRIER = "put cuda.syncthreads() between the two, where all threads of the block pass; or use cuda.atomic for both"
SYNCWARP = "put cuda.syncwarp() between the two, which are threads of one warp, or cuda.syncthreads()"
BLOCKS = "let each element belong to one block, use cuda.atomic for both, or split the work into two launches"
FENCE = "a flag or counter orders blocks only if the writing thread calls cuda.threadfence() before its cuda.atomic"
IN_ONE_STEP = "use cuda.atomic, which reads and writes in one step; or let each element belong to one thread"
STANDS = "a barrier stands where all threads of the {} pass: move it out of the branch or loop, and guard only the work"
NAMED = "all lanes of a mask must make the same call: move it out of the branch, or name only the lanes in it"
OWN = "a lane that calls must be in the mask: build it with cuda.ballot_sync, or let only the named lanes call"
NEUTRAL = "let all 32 lanes call it, with a neutral value where they have no element; else its result is undefined"
WAITING = "the checks run threads and blocks one after another: a thread can wait for a later one at a barrier only"
OVERFLOWN = "the index has overflown, or was never set: compute it with 64 bits"
NARROW = "an int{bits} holds at most {most}: if the index has overflown, compute it with 64 bits; else "
READ_ONLY = "pass the array as an argument that is copied back: not by cuda.In, and not read-only"
END = "went around it and has reached the kernel's end"
ABSENT = ("does not take part", "has finished")
FAR = 1 << 31
TELLERS = "outside negative race unwritten constant spinning barriers absent own_lane".split()
"""The method that tells each kind of row, in the order of `shadow.OUTSIDE` ..."""


class Sentences:
    """Makes findings of rows.

    Args:
        launch: has `kernel`, `grid`, `block`, `sites`, `memory`, `shared_bytes` and `spins`.
    """

    def __init__(self, launch: Any):
        self.launch, self.threads = launch, math.prod(launch.block)

    def findings(self, rows: np.ndarray) -> list[Finding]:
        """Those of all rows."""
        elsewhere = {self.row_of(row["site"])[:2] for row in rows if row["kind"] == shadow.BARRIERS and row["value"]}
        found = []
        for row in rows:
            if row["kind"] == shadow.LANE_ABSENT and self.row_of(row["site"])[:2] in elsewhere:
                continue  # it is reported where that lane waits
            told = getattr(self, TELLERS[row["kind"]])(row)
            if told is not None:
                kind, what, remedy, details = told
                site, caller = self.site(row["site"])
                block, thread = self.coordinates(row["who"])
                common = {"site": site, "caller": caller, "block": block, "thread": thread, "count": int(row["times"])}
                what = f"{self.who(row['who'])} {what}"
                found.append(Finding(kind, self.launch.kernel.__name__, what, remedy, **{**common, **details}))
        return found

    # places and threads

    def row_of(self, number: int) -> tuple:
        """What is known of a place; see instrument.Sites."""
        return self.launch.sites[int(number) & ((1 << SITE_BITS) - 1)]

    def site(self, number: int) -> tuple[Site, Site | None]:
        """A place, and where the device function was called that it is in."""
        filename, line, column, _, _, called_in, called_at = self.row_of(number)
        call = int(number) >> SITE_BITS
        if call:
            called_in, called_at = self.launch.sites[call][:2]
        return place(filename, line, column), place(called_in, called_at) if called_at else None

    def coordinates(self, number: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The block and the thread that a number stands for."""
        parts = zip(divmod(int(number), self.threads), (self.launch.grid, self.launch.block), strict=True)
        block, thread = (tuple(map(int, np.unravel_index(n, dims, "F"))) for n, dims in parts)
        return block, thread

    def who(self, number: int, beside: int = -1) -> str:
        """A thread; its block is left out beside one of the same."""
        block, thread = self.coordinates(number)
        return f"thread {thread}" + (f" of block {block}" if number // self.threads != beside // self.threads else "")

    def call(self, number: int) -> str:
        """The barrier at a place, and where the device function was called that it stands in."""
        _, caller = self.site(number)
        return f"cuda.{self.row_of(number)[3]}" + (f" (called at line {caller.line})" if caller else "")

    # accesses: each gives the kind of the finding, what the thread does, the remedy, and attributes of Finding

    def asked(self, row: Any) -> tuple[str, tuple[int, ...], tuple[int, ...], str]:
        """What an access names: the array as written, the index, the array's first sizes; what an overflow needs."""
        count = int(row["dims"])
        index, shape, bits = (tuple(row[name][:count].tolist()) for name in ("index", "shape", "bits"))
        narrow = min((b for i, b in zip(index, bits, strict=True) if i < 0), default=64)
        overflow = NARROW.format(bits=narrow, most=2 ** (narrow - 1) - 1) if narrow < 64 else ""
        return self.row_of(row["site"])[3], index, shape, overflow

    def element(self, row: Any) -> tuple[str, str, dict[str, Any]]:
        """The element that an access is of, the kind of memory, and its array and index."""
        what, index, *_ = self.asked(row)
        region = self.launch.memory.regions[row["region"]]
        offset = int(row["address"]) - int(self.launch.memory.table[row["region"]]["start"])
        found = region.array(offset, what)
        what, index = (found[0].name, found[1]) if found else (what, index)
        return f"{what}{list(index)}", region.space, {"array": what, "index": index}

    def outside(self, row: Any) -> tuple:
        what, index, shape, overflow = self.asked(row)
        placed = self.launch.memory.regions[row["region"]].placed if row["region"] >= 0 else []
        whole = next((array.shape for array in placed if array.name == what), ())
        shape = whole if whole[: len(shape)] == shape else shape
        axis = next((k for k, (i, n) in enumerate(zip(index, shape, strict=False)) if not -n <= i < n), 0)
        remedy = f"{overflow}guard it: `if index < {what}.shape[{axis}]`, or launch fewer threads"
        if row["region"] == 0:
            remedy = f"launch with more dynamic shared memory than {self.launch.shared_bytes} bytes: "
            remedy += f"{self.launch.kernel.__name__}[grid, block, stream, bytes]"
        elif index and abs(index[axis]) >= FAR:
            remedy = OVERFLOWN
        text = f"uses {what}{list(index)}, but {what} has shape {shape}"
        return "out of bounds", text, remedy, {"array": what, "index": index}

    def negative(self, row: Any) -> tuple | None:
        what, index, shape, overflow = self.asked(row)
        if re.search(r"(^|[(,] ?)-\d+([,)]|$)", self.row_of(row["site"])[4]):  # a literal one is meant
            return None
        axis = next(k for k, i in enumerate(index) if i < 0)
        along = f" along dim {axis}" if len(index) > 1 else ""
        text = f"uses {what}{list(index)}, which wraps around to index {index[axis] + shape[axis]}{along}"
        return "negative index", text, overflow + GUARD, {"array": what, "index": index}

    def race(self, row: Any) -> tuple:
        element, space, details = self.element(row)
        kind, other_kind = row["verb"], row["other_verb"]
        other_site, _ = self.site(row["other_site"])
        verb = {READ: "reads", UPDATE: "writes" if other_kind == READ else "reads"}.get(kind, "writes")
        verb = "atomically updates" if kind >= ATOMIC else verb
        other_verb = "atomically updates" if other_kind >= ATOMIC else "reads" if other_kind == READ else "writes"
        same_block = row["who"] // self.threads == row["other"] // self.threads
        rows = [self.row_of(row[which]) for which in ("site", "other_site")]
        one_statement = rows[0][:2] == rows[1][:2] and rows[0][3:5] == rows[1][3:5]  # h[k] += 1, or h[k] = h[k] + 1
        missing = "no barrier between them" if same_block else "nothing orders blocks"
        remedy = (BARRIER if row["warps"] else SYNCWARP) if same_block else BLOCKS
        if "atomic" in verb + other_verb:
            remedy = f"use cuda.atomic for both accesses, or {remedy.partition(';')[0]}"
        elif one_statement:
            remedy = IN_ONE_STEP
        elif not same_block and self.launch.uses_atomics:
            remedy = f"{BLOCKS}; {FENCE}"
        other = f"{self.who(row['other'], row['who'])} {other_verb} at {other_site}"
        text = f"{verb} {element} in {space} memory, which {other}; {missing}"
        return "race", text, remedy, {"other": other_site, **details}

    def unwritten(self, row: Any) -> tuple:
        element, space, details = self.element(row)
        origin = "device_array" if space == "global" else f"cuda.{space}.array"
        text = f"reads {element} in {space} memory, which nothing has written"
        return "uninitialised read", text, f"{origin} leaves garbage: write the element first", details

    def constant(self, row: Any) -> tuple:
        element, _, details = self.element(row)
        return "constant write", f"writes {element}, which is constant", READ_ONLY, details

    def spinning(self, row: Any) -> tuple:
        element, _, details = self.element(row)
        text = f"has asked for {element} {self.launch.spins:,} times in a row: it seems to wait for another thread"
        return "exception", text, WAITING, details

    # barriers and warps

    def barriers(self, row: Any) -> tuple:
        mask, other = int(row["value"]), row["other_site"]
        other_site = self.site(other)[0] if other else None
        if mask:
            lane = row["other"] % self.threads % WARP_LANES
            text = f"waits in {self.call(row['site'])} for lane {lane}, which its mask 0x{mask:08x} names, but that "
            text += f"waits at {other_site} in {self.call(other)}"
            return "warp", text, NAMED, {"other": other_site}
        went = f"waits in {self.call(other)} at {other_site}" if other else END
        text = f"waits in {self.call(row['site'])}, while {self.who(row['other'], row['who'])} {went}"
        remedy = STANDS.format("grid" if "grid.sync" in self.row_of(row["site"])[3] else "block")
        return "divergent barrier", text, remedy, {"other": other_site, "caller": None}

    def absent(self, row: Any) -> tuple:
        why = int(row["value"])
        state = f"does not exist: the warp has {-why} threads" if why < 0 else ABSENT[why]
        text = f"takes the value of lane {row['other']} in {self.call(row['site'])}, but that lane {state}"
        return "warp", text, NEUTRAL, {}

    def own_lane(self, row: Any) -> tuple:
        text = f"calls {self.call(row['site'])} with mask 0x{row['value']:08x}, which does not name its own lane "
        return "warp", f"{text}{row['other']}", OWN, {}
