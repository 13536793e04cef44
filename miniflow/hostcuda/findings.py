"""What the checked executor reports: a `Finding` for each mistake, folded where a line repeats it, in a fixed order."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, NoReturn

from miniflow.hostcuda.errors import KernelCheckError

LIMIT = 20
"""How many different findings are spelled out."""

ORDER = (
    "typing",
    "limit",
    "divergent barrier",
    "warp",
    "out of bounds",
    "negative index",
    "race",
    "uninitialised read",
    "constant write",
    "exception",
)


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
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    count: int = 1

    def __str__(self) -> str:
        again = f" ({self.count} times; this is the first)" if self.count > 1 else ""
        called = f" (called at {self.caller})" if self.caller else ""
        place = f"{self.site}{called}: " if self.site else ""
        return f"{self.kind}: {place}{self.what}{again}\n    {self.remedy}"


class Findings:
    """Collects them; those of one kind at the same place are counted, not listed."""

    def __init__(self, kernel: str):
        self.kernel = kernel
        self.first: dict[tuple, Finding] = {}
        self.counts: dict[tuple, int] = {}
        self.cause: Exception | None = None

    def add(self, kind: str, what: str, remedy: str, **details: object) -> None:
        """Note one mistake; `details` are attributes of Finding."""
        finding = Finding(kind, self.kernel, what, remedy, **details)  # type: ignore[arg-type]
        key = (kind, finding.site, finding.other, finding.array, "" if finding.site else what)
        self.first.setdefault(key, finding)
        self.counts[key] = self.counts.get(key, 0) + 1

    def exception(self, thread: Any, error: Exception, filename: str, line: int) -> None:
        """Python raised in a thread, which a GPU does not do."""
        what = f"{thread} stops with {type(error).__name__}: {error}"
        remedy = "a GPU raises nothing: it goes on with an undefined value"
        self.add("exception", what, remedy, site=Site(filename, line), block=thread.block.index, thread=thread.index)

    def sorted(self) -> tuple[Finding, ...]:
        """By kind, then by place."""
        races = {(f.array, site) for f in self.first.values() if f.kind == "race" for site in (f.site, f.other)}
        found = [
            Finding(**{**vars(f), "count": self.counts[key]})
            for key, f in self.first.items()
            if f.kind != "uninitialised read" or (f.array, f.site) not in races  # it is one because threads race
        ]
        return tuple(sorted(found, key=_order))

    def report(self) -> None:
        """Raise what was found, if anything.

        Raises:
            KernelCheckError: with all findings in its message and as its attribute `findings`.
        """
        found = self.sorted()
        if found:
            self._raise(found)

    def _raise(self, found: tuple[Finding, ...]) -> NoReturn:
        number = "1 finding" if len(found) == 1 else f"{len(found)} findings"
        lines = [f"kernel {self.kernel}: {number}", *(str(finding) for finding in found[:LIMIT])]
        if len(found) > LIMIT:
            lines.append(f"... and {len(found) - LIMIT} more: see the attribute `findings` of this error")
        raise KernelCheckError("\n".join(lines), found) from self.cause


def _order(finding: Finding) -> tuple:
    site = finding.site or Site("", 0)
    other = finding.other or Site("", 0)
    places = (site.filename, site.line, site.column, other.filename, other.line, other.column)
    return (ORDER.index(finding.kind), *places, finding.array, finding.what)
