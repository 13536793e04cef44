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
    """

    filename: str
    line: int
    column: int = 0

    @property
    def text(self) -> str:
        """The source line, stripped."""
        return linecache.getline(self.filename, self.line).strip()

    def __str__(self) -> str:
        return f"{os.path.basename(self.filename)}:{self.line}"


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
        call_text = f" (called at {self.caller})" if self.caller else ""
        site_of = f"{self.site}{call_text}: " if self.site else ""
        return f"{self.kind}: {site_of}{self.what}{again}\n    {self.remedy}"


def raise_findings(findings: list[Finding]) -> None:
    """Raise what was found, if anything: by kind, then by place; those of one kind at the same place are counted.

    Raises:
        KernelCheckError: with all findings in its message and as its attribute `findings`.
    """
    folded: dict[tuple, Finding] = {}
    races = {(f.array, site) for f in findings if f.kind == "race" for site in (f.site, f.other)}
    for new in findings:
        key = (new.kind, new.site, new.other, new.array, "" if new.site else new.what)
        if new.kind == "uninitialised read" and (new.array, new.site) in races:  # it is one because threads race
            continue
        folded[key] = replace(folded[key], count=folded[key].count + new.count) if key in folded else new
    unique = tuple(sorted(folded.values(), key=_order))
    if unique:
        number = "1 finding" if len(unique) == 1 else f"{len(unique)} findings"
        lines = [f"kernel {unique[0].kernel}: {number}", *map(str, unique[:LIMIT])]
        if len(unique) > LIMIT:
            lines.append(f"... and {len(unique) - LIMIT} more: see the attribute `findings` of this error")
        raise KernelCheckError("\n".join(lines), unique)


def _order(finding: Finding) -> tuple:
    sites = [(s.filename, s.line, s.column) if s else ("", 0, 0) for s in (finding.site, finding.other)]
    return (ORDER.index(finding.kind), *sites, finding.array, finding.what)


GUARD = "guard the access with an `if`, or shift the index; a literal -1 is taken as meant"
NARROW = "an int{bits} holds at most {most}: if the index has overflown, compute it with 64 bits; else "
BARRIER = "put cuda.syncthreads() between the two, where all threads of the block pass; or use cuda.atomic for both"
SYNCWARP = "put cuda.syncwarp() between the two, which are threads of one warp, or cuda.syncthreads()"
BLOCKS = "let each element belong to one block, use cuda.atomic for both, or split the work into two launches"
FENCE = "a flag or counter orders blocks only if the writing thread calls cuda.threadfence() before its cuda.atomic"
IN_ONE_STEP = "use cuda.atomic, which reads and writes in one step; or let each element belong to one thread"
SAME = "this changes nothing as long as all write the same value; plainer is one thread that writes it, as by an `if`"
STANDS = "a barrier stands where all threads of the {} pass: move it out of the branch or loop, and guard only the work"
NAMED = "all lanes of a mask must make the same call: move it out of the branch, or name only the lanes in it"
ORIGIN = "{origin} leaves garbage: write the element first"
READ_ONLY = "pass the array as an argument that is copied back: not by cuda.In, and not read-only"
ASKED = "has asked for {element} {spins:,} times in a row: it seems to wait for another thread"
WAITING = "the checks run threads and blocks one after another: a thread can wait for a later one at a barrier only"
NEUTRAL = "let all 32 lanes call it, with a neutral value where they have no element; else its result is undefined"
OWN = "a lane that calls must be in the mask: build it with cuda.ballot_sync, or let only the named lanes call"
SENTENCES = {
    "unwritten": ("uninitialised read", "reads {element} in {space} memory, which nothing has written", ORIGIN),
    "constant": ("constant write", "writes {element}, which is constant", READ_ONLY),
    "spinning": ("exception", ASKED, WAITING),
    "absent": ("warp", "takes the value of lane {lane} in {call}, but that lane {state}", NEUTRAL),
    "own_lane": ("warp", "calls {call} with mask 0x{mask:08x}, which does not name its own lane {lane}", OWN),
}
"""Kind, sentence and remedy of what needs no decision."""
ABSENT = ("does not take part", "has finished")
END = "went around it and has reached the kernel's end"
FIELDS = re.compile(r"(.*?)((?:\['\w+'\])*)")
LITERAL = re.compile(r"(^|[(,] ?)-\d+([,)]|$)")
KINDS = "outside negative race unwritten constant spinning barriers absent own_lane".split()
"""Kinds of rows in the order of `shadow.OUTSIDE` ...; each is a method of Row or a key of SENTENCES."""


def sentences(launch: Any, rows: np.ndarray) -> list[Finding]:
    """The findings of a launch: one for each row, but for negative literals, and for absent lanes that wait elsewhere.

    Args:
        launch: has `kernel`, `grid`, `block`, `sites`, `memory`, `shared_bytes`, `uses_atomics` and `spins`.
    """
    all_rows = [Row(launch, row) for row in rows]
    elsewhere = {str(row.site) for row in all_rows if row.row["kind"] == shadow.BARRIERS and row.row["value"]}
    absent = [row.row["kind"] == shadow.LANE_ABSENT and str(row.site) in elsewhere for row in all_rows]
    literal = [row.row["kind"] == shadow.NEGATIVE and LITERAL.search(row.written) for row in all_rows]
    return [row.finding() for row, *skipped in zip(all_rows, absent, literal, strict=True) if not any(skipped)]


class Row:
    """A row of numbers; `array` and `index` are those of the argument if it is known, else of the kernel's view."""

    def __init__(self, launch: Any, row: Any):
        self.launch, self.row, self.threads = launch, row, math.prod(launch.block)
        self.site, self.caller, self.array, self.written = self.site_of(row["site"])
        self.array, field = FIELDS.fullmatch(self.array).groups()
        field = field.replace("['", ".").replace("']", "")
        self.other_site = self.site_of(row["other_site"])[0] if row["other_site"] else None
        self.call, count = self.call_text(row["site"]), row["dims"]
        self.index, self.shape, self.bits = (tuple(row[name][:count].tolist()) for name in ("index", "shape", "bits"))
        self.stretch = launch.memory.stretches[row["stretch"]] if row["stretch"] >= 0 else None
        if shadow.NEGATIVE < row["kind"] <= shadow.SPINNING:
            offset = int(row["address"]) - int(launch.memory.table[row["stretch"]]["start"])
            array, index = self.stretch.array(offset, self.array) or (None, self.index)
            self.array, self.index = array.name if array else self.array, index
        self.element = f"{self.array}{list(self.index)}{field}"

    def finding(self) -> Finding:
        """The row as a Finding."""
        kind, message, remedy = getattr(self, KINDS[self.row["kind"]], self.sentence)()
        block, thread = self.coordinates(self.row["who"])
        accessed = (self.array, self.index) if self.row["kind"] <= shadow.SPINNING else ("", None)
        sites = self.site, None if kind == "divergent barrier" else self.caller, self.other_site
        message, count = f"{self.thread_text(self.row['who'])} {message}", int(self.row["times"])
        return Finding(kind, self.launch.kernel.__name__, message, remedy, *sites, *accessed, block, thread, count)

    # places and threads

    def site_of(self, number: int) -> tuple[Site, Site | None, str, str]:
        """A place, where the device function was called that it is in, and what is accessed with which index."""
        call, number = divmod(int(number), 1 << SITE_BITS)
        *site, what, index, called_in, called_at = self.launch.sites[number]
        if call:
            called_in, called_at = self.launch.sites[call][:2]
        return Site(*site), Site(called_in, called_at) if called_at else None, what, index

    def coordinates(self, number: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The block and the thread that a number stands for."""
        parts = zip(divmod(int(number), self.threads), (self.launch.grid, self.launch.block), strict=True)
        block, thread = (tuple(map(int, np.unravel_index(n, dims, "F"))) for n, dims in parts)
        return block, thread

    def thread_text(self, number: int, beside: int = -1) -> str:
        """A thread; its block is left out beside one of the same."""
        block, thread = self.coordinates(number)
        return f"thread {thread}" + (f" of block {block}" if number // self.threads != beside // self.threads else "")

    def call_text(self, number: int) -> str:
        """The barrier at a place, and where the device function was called that it stands in."""
        _, caller, what, _ = self.site_of(number)
        return f"cuda.{what}" + (f" (called at line {caller.line})" if caller else "")

    def overflow(self) -> str:
        """The remedy if a negative index of few bits has overflown; "" for 64 bits."""
        bits = min((b for i, b in zip(self.index, self.bits, strict=True) if i < 0), default=64)
        return NARROW.format(bits=bits, most=2 ** (bits - 1) - 1) if bits < 64 else ""

    # each returns the kind of the finding, what the thread does, and the remedy

    def sentence(self) -> tuple[str, str, str]:
        why, space = int(self.row["value"]), self.stretch.space if self.stretch else ""
        words = {
            "element": self.element, "space": space, "spins": self.launch.spins, "call": self.call,
            "origin": "device_array" if space == "global" else f"cuda.{space}.array",
            "lane": self.row["other"], "mask": self.row["value"],
            "state": f"does not exist: the warp has {-why} threads" if why < 0 else ABSENT[why > 0],
        }  # fmt: skip
        kind, text, remedy = SENTENCES[KINDS[self.row["kind"]]]
        return kind, text.format(**words), remedy.format(**words)

    def outside(self) -> tuple[str, str, str]:
        whole = next((a.shape for a in self.stretch.placed if a.name == self.array), ()) if self.stretch else ()
        shape = whole if whole[: len(self.shape)] == self.shape else self.shape
        axis = next((k for k, (i, n) in enumerate(zip(self.index, shape, strict=False)) if not -n <= i < n), 0)
        remedy = f"{self.overflow()}guard it: `if index < {self.array}.shape[{axis}]`, or launch fewer threads"
        if self.row["stretch"] == 0:
            remedy = f"launch with more dynamic shared memory than {self.launch.shared_bytes} bytes: "
            remedy += f"{self.launch.kernel.__name__}[grid, block, stream, bytes]"
        return "out of bounds", f"uses {self.element}, but {self.array} has shape {shape}", remedy

    def negative(self) -> tuple[str, str, str]:
        axis = next(k for k, i in enumerate(self.index) if i < 0)
        wrapped = f"{self.index[axis] + self.shape[axis]}{f' along dim {axis}' * (len(self.index) > 1)}"
        return "negative index", f"uses {self.element}, which wraps around to index {wrapped}", self.overflow() + GUARD

    def race(self) -> tuple[str, str, str]:
        row, kinds = self.row, (self.row["verb"], self.row["other_verb"])
        verbs = ["atomically updates" if k >= ATOMIC else "reads" if k == READ else "writes" for k in kinds]
        verbs[0] = "reads" if kinds[0] == UPDATE and kinds[1] != READ else verbs[0]
        same_block = row["who"] // self.threads == row["other"] // self.threads
        missing = "no barrier between them" if same_block else "nothing orders blocks"
        remedy = (BARRIER if row["warps"] else SYNCWARP) if same_block else BLOCKS
        places = map(self.site_of, (row["site"], row["other_site"]))
        statements = [(str(site), *accessed) for site, _, *accessed in places]
        if max(kinds) >= ATOMIC:
            remedy = f"use cuda.atomic for both accesses, or {remedy.partition(';')[0]}"
        elif statements[0] == statements[1]:  # h[k] += 1, or h[k] = h[k] + 1
            remedy = IN_ONE_STEP
        elif not same_block and self.launch.uses_atomics:
            remedy = f"{BLOCKS}; {FENCE}"
        other = f"{self.thread_text(row['other'], row['who'])} {verbs[1]} at {self.other_site}"
        if not row["value"]:
            other, remedy = f"{other}, with the same value", SAME
        return "race", f"{verbs[0]} {self.element} in {self.stretch.space} memory, which {other}; {missing}", remedy

    def barriers(self) -> tuple[str, str, str]:
        row, mask = self.row, int(self.row["value"])
        elsewhere = self.call_text(row["other_site"]) if self.other_site else ""
        if mask:
            text = f"waits in {self.call} for lane {row['other'] % self.threads % WARP_LANES}, which its mask "
            return "warp", f"{text}0x{mask:08x} names, but that waits at {self.other_site} in {elsewhere}", NAMED
        went = f"waits in {elsewhere} at {self.other_site}" if elsewhere else END
        remedy = STANDS.format("grid" if "grid.sync" in self.call else "block")
        text = f"waits in {self.call}, while {self.thread_text(row['other'], row['who'])} {went}"
        return "divergent barrier", text, remedy
