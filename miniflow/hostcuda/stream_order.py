"""Which work in streams is ordered, for the checks: on a GPU, work in two streams may run at once.

Here all work is done when its call returns. What is noted is who used a piece of device memory, and in which stream; a
later use in another stream is a mistake if one of the two writes, unless the earlier work comes first for certain:

    by stream.synchronize(), event.synchronize(), cuda.synchronize()   before all work that is given later
    by event.record(first) and event.wait(second)                      before what the second stream is given later
    by the default stream                                              it waits for all others, and they for it
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

HOST, ALL = "host", "all"
REMEDY = "between the two, call stream.synchronize() for the first, or event.record(first) and event.wait(second)"
_ticks = itertools.count(1)
_before: dict[Any, dict[Any, int]] = defaultdict(dict)
"""Work that a stream is given now comes after this work of others: stream -> its latest tick. HOST stands for every
stream that is given work, ALL for the work of all."""


@dataclass
class Use:
    """A copy or a kernel that used device memory; `checked` if it is one that asks for checks."""

    stream: Any
    tick: int
    writes: bool
    description: str
    checked: bool

    def precedes(self, stream: Any) -> bool:
        """Whether this is finished before what a stream is given now."""
        known = (_before[who].get(whose, 0) for who in (stream, HOST) for whose in (self.stream, ALL))
        return self.stream == stream or max(known) >= self.tick


def handle_of(stream: Any) -> Any:
    """The key of a stream here: ALL for CUDA's default streams, 0 and 1."""
    return ALL if not stream or int(stream) < 2 else int(stream)


def record_work(stream: Any) -> dict[Any, int]:
    """All work given to a stream so far, and what comes before that: what an event records."""
    return {**_before[handle_of(stream)], handle_of(stream): next(_ticks)}


def wait(stream: Any, work: dict[Any, int]) -> None:
    """What a stream (or HOST) is given from now on comes after `work`."""
    for other, tick in work.items():
        _before[stream][other] = max(tick, _before[stream].get(other, 0))


def conflict(allocation: Any, stream: Any, writes: bool, description: str, checked: bool) -> str:
    """Note a use of an allocation; what is wrong with it, "" if all is well."""
    use = Use(handle_of(stream), next(_ticks), writes, description, checked)
    if use.stream == ALL:
        wait(HOST, {ALL: use.tick})
    earlier = [u for u in allocation.uses if (u.writes or writes) and (u.checked or checked)]
    allocation.uses = [use] if writes else [*(u for u in allocation.uses if u.writes or u.stream != use.stream), use]
    for other in earlier:
        if not other.precedes(use.stream):
            verbs = ["writes" if u.writes else "reads" for u in (use, other)]
            both = f"{description} {verbs[0]} what {other.description} {verbs[1]} in another stream"
            return f"{both}, and nothing orders the two"
    return ""
