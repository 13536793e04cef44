"""What the lanes of a warp do together in the checked executor: shuffles, votes, matches, `syncwarp`, `activemask`.

As PTX has it: an operation takes place when all threads named in its mask that still run have come to an operation of
that kind with that mask, wherever it stands in the source. A thread that has returned is not waited for; but shuffling
from a lane that does not take part is undefined, and reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

FULL = 0xFFFFFFFF

Lanes = list  # of threads that take part, in order
Arguments = dict  # lane -> what it passed after the mask


def step(warp: Any) -> list:
    """Carry out what can be; returns the threads that go on, each with its `answer`."""
    groups = _groups(warp)
    ready = []
    for (operation, mask), lanes in groups.items():
        if operation != "activemask" and not missing(warp, mask, lanes):
            _carry_out(warp, operation, lanes)
            ready.extend(lanes)
    if not ready:
        for (operation, _), lanes in groups.items():
            if operation == "activemask":
                _answer(lanes, dict.fromkeys((t.lane for t in lanes), np.uint32(_mask_of(lanes))))
                ready.extend(lanes)
    return ready


def _groups(warp: Any) -> dict[tuple[str, int], Lanes]:
    """The waiting lanes by (operation, mask); for `activemask`, which has none, by (operation, place)."""
    groups: dict[tuple[str, int], Lanes] = {}
    for thread in warp.lanes:
        if thread.waiting is not None and thread.waiting[0] in OPERATIONS:
            operation, site, args = thread.waiting
            mask = site if operation == "activemask" else named(thread)
            groups.setdefault((operation, mask), []).append(thread)
    return groups


def named(thread: Any) -> int:
    """The mask that a waiting thread passed, its own lane included."""
    operation, site, args = thread.waiting
    mask = int(args[0]) & FULL if args else FULL
    if not mask >> thread.lane & 1:
        thread.note(
            "warp",
            f"{thread} calls cuda.{operation} with mask 0x{mask:08x}, which does not name its own lane {thread.lane}",
            "a lane that calls must be in the mask: build it with cuda.ballot_sync, or let only the named lanes call",
            site,
        )
        mask |= 1 << thread.lane
        thread.waiting = (operation, site, (mask, *args[1:]))
    return mask


def missing(warp: Any, mask: int, lanes: Lanes) -> Lanes:
    """The threads that a mask names, that still run, and that are not here."""
    return [t for t in warp.lanes if mask >> t.lane & 1 and not t.finished and t not in lanes]


def _carry_out(warp: Any, operation: str, lanes: Lanes) -> None:
    if operation == "syncwarp":
        warp.sync(lanes)
        _answer(lanes, {})
        return
    args = {t.lane: t.waiting[2][1:] for t in lanes}
    _answer(lanes, OPERATIONS[operation](lanes, args))


def _answer(lanes: Lanes, answers: dict[int, Any]) -> None:
    for thread in lanes:
        thread.answer = answers.get(thread.lane)


def _int32(mask: int) -> np.int32:
    """A mask as numba.cuda's votes and matches return it; `activemask` gives a uint32."""
    return np.uint32(mask).astype(np.int32)


def _mask_of(lanes: Lanes) -> int:
    return sum(1 << thread.lane for thread in lanes)


# Shuffles


def _shuffle(source_of: Callable[[int, int], int]) -> Callable:
    """A shuffle in which lane i reads lane source_of(i, operand); outside the warp it keeps its own value."""

    def shuffle(lanes: Lanes, args: Arguments) -> dict[int, Any]:
        answers = {}
        for thread in lanes:
            value, operand = args[thread.lane]
            source = source_of(thread.lane, int(operand))
            if source in args:
                value = args[source][0]
            elif 0 <= source < 32:
                _inactive(thread, source)
            answers[thread.lane] = value
        return answers

    return shuffle


def _inactive(thread: Any, source: int) -> None:
    lanes = thread.warp.lanes
    state = "has finished" if source < len(lanes) and lanes[source].finished else "does not take part"
    if source >= len(lanes):
        state = f"does not exist: the warp has {len(lanes)} threads"
    operation, site, _ = thread.waiting
    thread.note(
        "warp",
        f"{thread} takes the value of lane {source} in cuda.{operation}, but that lane {state}",
        "let all 32 lanes call it, with a neutral value where they have no element; else its result is undefined",
        site,
    )


# Votes


def _vote(count: Callable[[list], Any]) -> Callable:
    """One answer for all."""

    def vote(lanes: Lanes, args: Arguments) -> dict[int, Any]:
        return dict.fromkeys(args, count([(lane, bool(values[0])) for lane, values in args.items()]))

    return vote


def _ballot(votes: list) -> Any:
    return _int32(sum(1 << lane for lane, said in votes if said))


def _match_any(lanes: Lanes, args: Arguments) -> dict[int, Any]:
    return {
        lane: _int32(sum(1 << other for other, theirs in args.items() if theirs[0] == values[0]))
        for lane, values in args.items()
    }


def _match_all(lanes: Lanes, args: Arguments) -> dict[int, Any]:
    values = [value for value, *_ in args.values()]
    agreed = all(value == values[0] for value in values)
    return dict.fromkeys(args, (_int32(_mask_of(lanes) if agreed else 0), agreed))


def _vote_intrinsic(lanes: Lanes, args: Arguments) -> dict[int, Any]:
    """(ballot, verdict) of mode 0 all, 1 any, 2 equal, 3 ballot."""
    votes = [(lane, bool(values[1])) for lane, values in args.items()]
    said = [vote for _, vote in votes]
    mode = int(next(iter(args.values()))[0])
    verdict = (all(said), any(said), len(set(said)) == 1, False)[mode]
    return dict.fromkeys(args, (_ballot(votes) if mode == 3 else _int32(0), verdict))


OPERATIONS: dict[str, Any] = {
    "syncwarp": None,
    "activemask": None,
    "shfl_sync": _shuffle(lambda lane, source: source & 31),
    "shfl_up_sync": _shuffle(lambda lane, delta: lane - delta),
    "shfl_down_sync": _shuffle(lambda lane, delta: lane + delta),
    "shfl_xor_sync": _shuffle(lambda lane, mask: lane ^ mask),
    "all_sync": _vote(lambda votes: all(said for _, said in votes)),
    "any_sync": _vote(lambda votes: any(said for _, said in votes)),
    "eq_sync": _vote(lambda votes: len({said for _, said in votes}) == 1),
    "ballot_sync": _vote(_ballot),
    "match_any_sync": _match_any,
    "match_all_sync": _match_all,
    "vote_sync_intrinsic": _vote_intrinsic,
}
"""Name -> function of the lanes and their arguments that gives each lane's answer."""
