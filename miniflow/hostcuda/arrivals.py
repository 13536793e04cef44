"""Which threads reach a barrier, and which miss it: the barriers of the checked executor.

Each thread that reaches a barrier, a shuffle or a vote calls `reach_barrier`; then `complete_barrier` is called once
for the group. A thread that left by an early `return` is not waited for, as on GPUs since Volta. A thread that went
around the barrier has missed it; that is a mistake if it reaches another barrier, or the kernel's end.
"""

from __future__ import annotations

from numba import types

from miniflow.hostcuda import shadow
from miniflow.hostcuda.shadow import NOBODY, NOTHING, WARP_LANES, block_at, inner, lane_at, report, state, symbol
from miniflow.hostcuda.syntax import GRID, WARP

__all__ = ["begin_block", "end_blocks", "reach_barrier", "leave", "fence", "complete_barrier", "shuffled_from"]
FULL = 0xFFFFFFFF
SHUFFLES = ("at", "up", "down", "xor")
LANE_WORDS = shadow.LANE_STATE.itemsize // 8


@inner
def number_of(s, index):
    """The number of a thread in the grid, from its index among the lane states."""
    return index if s.cooperative else s.block * s.threads + index


@inner
def current_lane(s):
    """The state of the current thread."""
    return lane_at(s.lanes, s.slot * s.threads + s.thread)


@inner
def report_missed_barrier(s, index, other_site, mask):
    """This thread skipped a barrier at which others wait: reported once a block."""
    lane = lane_at(s.lanes, index)
    missed, first = lane.missed, index // s.threads * s.threads
    report(s, shadow.BARRIERS, missed, other_site, NOBODY, lane.missed_by, number_of(s, index), mask)
    for t in range(first, first + s.threads):
        lane = lane_at(s.lanes, t)
        lane.missed = 0 if lane.missed == missed else lane.missed


@inner
def end_block(s, threads):
    """A block ends, or all of a grid that synchronises. Warps do not wait for lanes that have ended."""
    if s.logged > shadow.SLOTS // 4:
        shadow.count()
    for t in range(threads):
        lane = lane_at(s.lanes, t)
        if lane.missed and not lane.missed_mask:
            report_missed_barrier(s, t, NOTHING, NOTHING)


@symbol(1)
def begin_block(block):
    """A block begins, after another has ended; where the grid synchronises, it may also go on."""
    s = state()
    if s.cooperative:
        s.slot = s.block = block
        return
    end_block(s, s.threads)
    s.block = block
    s.now += 1
    s.started = block_at(s.blocks, block).barrier = s.now
    shadow.words_at(s.lanes, s.threads * LANE_WORDS)[:] = 0


@symbol(0)
def end_blocks():
    """The last block has ended."""
    s = state()
    shadow.settle_doubt(s)
    end_block(s, s.threads * (s.slot + 1))


@symbol(2)
def reach_barrier(level, mask):
    """The current thread reaches a barrier of a level; `mask` names the lanes that a warp waits for."""
    s = state()
    lane = current_lane(s)
    lane.mask, lane.at[level] = mask & FULL, s.at[level]


@symbol(0)
def leave():
    """The current thread returns early."""
    current_lane(state()).left = 1


@symbol(0)
def fence():
    """`threadfence`."""
    current_lane(state()).fenced = 1


@inner
def order_lanes(s, first, end_block):
    """`syncwarp`: accesses of the lanes of a mask happen before all that these lanes do next."""
    s.now += 1
    known = shadow.words_at(s.known, end_block * WARP_LANES)
    for t in range(first, end_block):
        lane = lane_at(s.lanes, t)
        if lane.at[WARP] == s.at[WARP]:
            for u in range(first, end_block):
                if lane.mask >> (u - first) & 1 and lane_at(s.lanes, u).at[WARP] == s.at[WARP]:
                    known[t * WARP_LANES + u - first] = s.now


@symbol(5)
def complete_barrier(level, site, first, end_block, orders):
    """The threads first <= t < end of the block (of the grid, for its barrier) that reached the barrier leave it.

    `orders`: whether the barrier orders accesses of memory.
    """
    s = state()
    base = 0 if level == GRID else s.slot * s.threads
    first, end_block = first + base, end_block + base
    first_here, named, diverged = NOBODY, FULL, False
    for t in range(first, end_block):
        lane = lane_at(s.lanes, t)
        if lane.at[level] == s.at[level]:
            lane.met = s.at[level] if level == WARP else lane.met
            if lane.missed:  # others wait in vain for it at an earlier barrier
                diverged = True
                report_missed_barrier(s, t, site, lane.missed_mask)
            if level == WARP and not lane.mask >> (t - first) & 1:
                report(s, shadow.OWN_LANE, site, NOTHING, NOBODY, number_of(s, t), t - first, lane.mask)
                lane.mask |= 1 << (t - first)
            named = lane.mask if first_here < 0 else named | lane.mask
            first_here = t if first_here < 0 else first_here
    if first_here >= 0 and not diverged:
        for t in range(first, end_block):
            lane = lane_at(s.lanes, t)
            expected = level != WARP or named >> (t - first) & 1
            if expected and lane.at[level] != s.at[level] and not lane.left and not lane.missed:
                lane.missed, lane.missed_by = site, number_of(s, first_here)
                lane.missed_mask = named if level == WARP else 0
    if level == WARP and orders:
        order_lanes(s, first, end_block)
    elif level != WARP:
        s.now += 1
        block_at(s.blocks, s.block).barrier = s.now
    if level == GRID:
        s.grid_stamp = s.now
        for block in range((end_block - first) // s.threads):
            block_at(s.blocks, block).barrier = s.now
    s.at[level] += 1


@symbol(6, types.int64)
def shuffled_from(how, thread, step, first, end_block, site):
    """The thread whose value a shuffle reads: the thread itself, if the lane asked for does not take part."""
    s = state()
    lane, length, base = thread - first, end_block - first, s.slot * s.threads
    source = (step & 31, lane - step, lane + step, lane ^ step)[how]
    if source < 0 or source > 31:
        return thread
    if source < length and lane_at(s.lanes, base + first + source).met == lane_at(s.lanes, base + thread).met:
        return first + source
    why = -length if source >= length else lane_at(s.lanes, base + first + source).left
    report(s, shadow.LANE_ABSENT, site, NOTHING, NOBODY, number_of(s, base + thread), source, why)
    return thread
