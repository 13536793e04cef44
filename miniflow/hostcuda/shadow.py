"""Shadow memory: what the checked executor remembers of every element, and which accesses are ordered.

Each element that threads can share has a shadow cell: the last thread that wrote it, and up to two threads that read
or atomically updated it since, each with a stamp. Stamps count all that orders memory (barriers, `syncwarp`,
publications) in the order in which it happens. Two accesses, one of which writes, are a race unless they are ordered:

    two threads of a block   by a barrier of the block between them; in one warp, by `syncwarp` (shuffles and votes do
                             not order memory); or by a lock: one calls `threadfence` and then an atomic, and the other
                             later `atomic.cas` or `atomic.exch` on the same element
    two blocks               by a synchronisation of the grid, or by publication: one block calls `threadfence` and
                             then an atomic, and the other later calls an atomic on the same element. (CUDA's "last
                             block done"; taken for whole blocks, which is lenient.)
    atomics                  do not race with each other, but with plain accesses; reads with all but `atomic.cas`,
                             which finds out

Where many threads read one element, two are enough: of two warps if possible, so that any writer races with one of
them. (Shadow memory: Nethercote and Seward, 2007; epochs: FastTrack, Flanagan and Freund, 2009.)

The functions of `lookup` and `arrivals` are called by generated code, as symbols of LLVM (`symbol`). They are compiled
when a kernel is first checked, and kept on disk, so that a kernel with checks takes no longer to compile than one
without. They find their tables, which are NumPy arrays, through the record `STATE_ARRAY`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import carray, cfunc, from_dtype, njit, types
from numba.core import ccallback
from numba.extending import intrinsic

import miniflow.hostcuda.cache  # noqa: F401  (says where numba keeps machine code)

READ, WRITE, UPDATE, ATOMIC, EXCHANGE, COMPARE = map(np.int64, range(6))
"""Kinds of access; UPDATE reads and writes, EXCHANGE is an atomic that does not depend on the old value, COMPARE
(compare and swap) one that sees whether it has changed since it was read."""
OUTSIDE, NEGATIVE, RACE, UNWRITTEN, CONSTANT, SPINNING, BARRIERS, LANE_ABSENT, OWN_LANE = map(np.int64, range(9))
"""Kinds of findings."""
GLOBAL, SHARED, LOCAL = range(3)
SPACES = ("global", "shared", "local", "const")
NOBODY, NOTHING = np.int64(-1), np.int64(0)
"""In place of literals, of each of which numba would make a type."""
KIND_BITS, SITE_BITS = 24, 12
"""Bits of a tag: below SITE_BITS the site, below KIND_BITS the call site of the device function, above the kind."""
FOUND_KEPT, DIMS, WARP_LANES = 2048, 8, 32
"""Findings that are kept; dims of an index in one; lanes of a warp."""


SPARE = 65536
"""Bytes of zeros that stand for elements that do not exist."""
SLOTS = 1 << 16
"""For requests; they are counted when half of them are taken."""
ROUNDS = 1000003
"""A prime: rounds of nested loops are one number."""


def record(names: str, kind: type = np.int64, **tables: int) -> np.dtype:
    """A record of equal fields; `tables` are fields of several elements."""
    return np.dtype([(name, kind) for name in names.split()] + [(name, kind, size) for name, size in tables.items()])


STATE = record(
    "block thread threads slot cooperative now started grid_stamp stretch last_stretch finding_count spin_limit spins "
    "last row doubtful doubtful_address doubtful_size doubtful_value "
    "path logged stretches cells blocks lanes known findings spare requests",
    at=4,
)
"""Of the launch. `slot` numbers the blocks that are in memory at once, `at` counts the barriers of each level;
`row` is that of the last finding, `doubtful` one more than that of a race whose second value is being written;
`path` the rounds of loops that the thread is in; from `stretches` on, fields are addresses of tables."""
STRETCH = record("start end shift first space constant defined read written")
BLOCK_STATE = record("barrier published acquired", np.int32)
LANE_STATE = record("met mask missed missed_by missed_mask left fenced published acquired", at=4)
CELL = record("written release", np.int32, who=3, stamp=3, tag=3)
"""Of an element: the last writer, and two that read or atomically updated it since; `who` is a thread's number in the
grid, `tag` the kind of access and its site."""
FINDING = record(
    "kind site other_site stretch who other times value warps address verb other_verb dims",
    **dict.fromkeys(("index", "shape", "bits"), DIMS),
)
REQUEST = record("key tag stretch width warp made lanes", at=WARP_LANES)
"""Of the profile: where the lanes of a warp that come to a place together access memory."""

STATE_ARRAY = np.zeros(1, STATE)
llvmlite.binding.add_symbol("miniflow_hostcuda_state", STATE_ARRAY.ctypes.data)


inner = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)


@intrinsic
def state(typingctx: Any) -> Any:
    """The record of the launch."""
    kind = from_dtype(STATE)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = builder.module.globals.get("miniflow_hostcuda_state")
        address = address or ir.GlobalVariable(builder.module, ir.IntType(64), "miniflow_hostcuda_state")
        return builder.bitcast(address, context.get_value_type(kind))

    return kind(), codegen


@intrinsic
def _pointer(typingctx: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), codegen


def _record_at(dtype: np.dtype) -> Callable:
    """A function of a table's address and a number that gives the record there."""
    return njit(lambda address, number: carray(_pointer(address), number + 1, dtype)[number])


stretch_at, block_at, lane_at, cell_at, finding_at, request_at = map(
    _record_at, (STRETCH, BLOCK_STATE, LANE_STATE, CELL, FINDING, REQUEST)
)


@inner
def words_at(address, count):
    """The array of so many int64 at an address."""
    return carray(_pointer(address), count, np.int64)


# symbols of LLVM

SYMBOLS: dict[types.ExternalFunction, Callable] = {}


def symbol(arguments: int, result: Any = types.void) -> Callable:
    """Give a function of so many int64 a name in LLVM: its own and a prefix; what numba functions call."""

    def make(function: Callable) -> types.ExternalFunction:
        name = f"miniflow_hostcuda_{function.__name__}"
        named = types.ExternalFunction(name, result(*(types.int64,) * arguments))
        SYMBOLS[named] = function
        return named

    return make


@functools.cache
def add_symbols() -> list[ccallback.CFunc]:
    """Make them known to LLVM, before code that calls them is compiled or loaded."""
    compiled = []
    for named, function in SYMBOLS.items():
        compiled.append(cfunc(named.sig, cache=True, error_model="numpy")(function))
        llvmlite.binding.add_symbol(named.symbol, compiled[-1].address)
    return compiled


# order


@inner
def ordered(s, who, stamp):
    """Whether an earlier access comes before one of the present thread, however threads run."""
    thread = who - s.block * s.threads
    if 0 <= thread < s.threads:  # of the same block
        if thread == s.thread or stamp < block_at(s.blocks, s.block).barrier:
            return True
        first = s.slot * s.threads
        if stamp < lane_at(s.lanes, first + thread).published and stamp < lane_at(s.lanes, first + s.thread).acquired:
            return True
        if thread // WARP_LANES != s.thread // WARP_LANES:
            return False
        mine = (s.slot * s.threads + s.thread) * WARP_LANES
        return stamp < words_at(s.known, mine + WARP_LANES)[mine + thread % WARP_LANES]
    if stamp < s.grid_stamp:
        return True
    return stamp < block_at(s.blocks, who // s.threads).published and stamp < block_at(s.blocks, s.block).acquired


@inner
def conflict(s, cell, kind):
    """The number of an earlier access to the element with which this one races; -1 if there is none."""
    for k in range(3):
        if cell.stamp[k]:
            earlier = cell.tag[k] >> KIND_BITS
            low, high = min(kind, earlier), max(kind, earlier)
            harmless = low >= ATOMIC or low == READ and (high == READ or high == COMPARE)
            if not harmless and not ordered(s, cell.who[k], cell.stamp[k]):
                return k
    return -1


@inner
def enter_access(s, cell, kind, tag):
    """Enter an access into a cell."""
    who, k = s.block * s.threads + s.thread, 0
    if kind == WRITE or kind == UPDATE:
        cell.stamp[1] = cell.stamp[2] = 0
    elif cell.stamp[1] == 0 or is_before_barrier(s, cell, 1):
        k, cell.stamp[2] = 1, 0
    elif cell.who[1] != who or cell.stamp[1] != s.now or (cell.tag[1] ^ tag) >> KIND_BITS:
        k = 2
        warps = cell.who[2] // WARP_LANES, cell.who[1] // WARP_LANES
        if cell.stamp[2] and not is_before_barrier(s, cell, 2) and warps[0] != warps[1]:
            return
    else:
        return
    cell.who[k], cell.stamp[k], cell.tag[k] = who, s.now, tag


@inner
def is_before_barrier(s, cell, k):
    """Whether a barrier of the block separates an access of this block from all that follow."""
    thread = cell.who[k] - s.block * s.threads
    return 0 <= thread < s.threads and cell.stamp[k] < block_at(s.blocks, s.block).barrier


@inner
def publish(s, cell, kind, to_blocks):
    """An atomic: take over what others published there; publish, if a fence came before, also to other blocks."""
    block, lane = block_at(s.blocks, s.block), lane_at(s.lanes, s.slot * s.threads + s.thread)
    if to_blocks:
        block.acquired = max(block.acquired, cell.release)
    if kind == EXCHANGE or kind == COMPARE:
        lane.acquired = max(lane.acquired, cell.release)
    if lane.fenced:
        lane.fenced = 0
        s.now += 1
        lane.published = cell.release = s.now
        if to_blocks:
            block.published = s.now


@inner
def report(s, kind, site, other_site, stretch, who, other, value):
    """Count a finding. Its row, if it is the first of its kind, else one that nobody reads."""
    warps = who % s.threads // WARP_LANES ^ other % s.threads // WARP_LANES
    for k in range(s.finding_count):
        row = finding_at(s.findings, k)
        if row.kind == kind and row.site == site and row.other_site == other_site and row.stretch == stretch:
            row.times += 1
            row.warps |= warps
            s.row = k
            return finding_at(s.findings, FOUND_KEPT)
    row, s.row = finding_at(s.findings, s.finding_count), s.finding_count
    s.finding_count = min(s.finding_count + 1, FOUND_KEPT)
    row.kind, row.site, row.other_site, row.stretch, row.value = kind, site, other_site, stretch, value
    row.who, row.other, row.times, row.warps = who, other, 1, warps
    return row


# for the profile: the requests of warps


@ctypes.CFUNCTYPE(None)
def _count() -> None:
    COUNTING[-1]()


COUNTING: list[Callable[[], None]] = []
"""What counts the collected requests of the launch."""
llvmlite.binding.add_symbol("miniflow_hostcuda_count", ctypes.cast(_count, ctypes.c_void_p).value)
count = types.ExternalFunction("miniflow_hostcuda_count", types.void())


@inner
def log_access(s, number, kind, site, size, offset):
    """Enter an access into its warp's request: lanes that come to a place in the same rounds of loops share one."""
    if s.logged > SLOTS // 2:
        count()
    tag, lane = site | (kind << KIND_BITS), s.thread % WARP_LANES
    warp = s.block * ((s.threads + WARP_LANES - 1) // WARP_LANES) + s.thread // WARP_LANES
    key = (((tag * ROUNDS + warp) * ROUNDS + s.path) * ROUNDS + s.at[1]) * ROUNDS + s.at[2] + s.at[3]
    slot = (key ^ (key >> 17)) * 40503 % SLOTS
    request = request_at(s.requests, slot)
    while request.lanes and (request.key != key or request.lanes >> lane & 1):
        slot = (slot + 1) % SLOTS
        request = request_at(s.requests, slot)
    if not request.lanes:
        s.logged += 1
        request.key, request.tag, request.stretch, request.width = key, tag, number, size
        request.warp, request.made = warp, s.logged
    request.lanes |= 1 << lane
    request.at[lane] = offset


# accesses


@inner
def report_access(s, kind, site, stretch, address, verb, count, dims, other, other_tag):
    """Report what is wrong with one access."""
    who = s.block * s.threads + s.thread
    row = report(s, kind, site, other_tag & ((1 << KIND_BITS) - 1), stretch, who, other, NOTHING)
    row.address, row.verb, row.other_verb, row.dims = address, verb, other_tag >> KIND_BITS, count
    for k in range(min(count, DIMS)):
        row.shape[k], row.index[k], row.bits[k] = dims[4 * k], dims[4 * k + 2], dims[4 * k + 3]


@inner
def stretch_of(s, address):
    """The number of the stretch that an address lies in, or -1."""
    for number in range(-1, s.stretch):
        number = s.last_stretch if number < 0 else number
        stretch = stretch_at(s.stretches, number)
        if stretch.start <= address < stretch.end:
            s.last_stretch = number
            return number
    return -1


@inner
def zeros(s, size):
    """The address of zeros, which takes the place of an element that does not exist."""
    words_at(s.spare, (size + 7) // 8)[:] = 0
    return s.spare


@inner
def note_cells(s, stretch, number, address, size, kind, site, count, dims):
    """Compare an access with the shadow cells of its element, and enter it there."""
    tag, other, unwritten = site | (kind << KIND_BITS), NOBODY, False
    other_tag, offset = NOTHING, address - stretch.start
    of_block = stretch.space == SHARED or stretch.space == LOCAL
    for k in range(offset >> stretch.shift, (offset + size - 1 >> stretch.shift) + 1):
        cell = cell_at(s.cells, stretch.first + k)
        if of_block and max(cell.stamp[0], cell.stamp[1]) < s.started:  # of an earlier block
            cell.stamp[0] = cell.stamp[1] = cell.stamp[2] = cell.release = 0
        unwritten |= not stretch.defined and cell.written < (s.started if of_block else 1)
        if kind != READ:
            cell.written = s.now
        if stretch.space != LOCAL:
            earlier = conflict(s, cell, kind)
            if earlier >= 0 and other < 0:
                other, other_tag = np.int64(cell.who[earlier]), np.int64(cell.tag[earlier])
            enter_access(s, cell, kind, tag)
            if kind >= ATOMIC:
                publish(s, cell, kind, stretch.space == GLOBAL)
    if unwritten and kind != WRITE and kind != EXCHANGE:
        report_access(s, UNWRITTEN, site, number, address, kind, count, dims, NOBODY, NOTHING)
    if other >= 0:
        report_access(s, RACE, site, number, address, kind, count, dims, other, other_tag)
        if kind == WRITE and other_tag >> KIND_BITS == WRITE and size <= 8:
            s.doubtful, s.doubtful_address, s.doubtful_size = s.row + 1, address, size
            s.doubtful_value = value_at(address, size)
        else:
            finding_at(s.findings, s.row).value = 1


@inner
def value_at(address, size):
    """The bytes of an element, as a number."""
    value = np.int64(0)
    for byte in carray(_pointer(address), size, np.uint8):
        value = value << 8 | byte
    return value


@inner
def settle_doubt(s):
    """Note in the row of a race between two writes whether the second has changed the element: now it is written."""
    if s.doubtful:
        changed = value_at(s.doubtful_address, s.doubtful_size) != s.doubtful_value
        finding_at(s.findings, s.doubtful - 1).value |= changed
        s.doubtful = 0


@symbol(6, types.int64)
def access(kind, site, size, data, count, where):
    """Check an access before it happens.

    Args:
        kind: READ ...
        site: its number, and that of the call of the device function that it stands in.
        size: bytes of the element; 0 if an index names a part of an array, which is not accessed yet.
        data: the address of the array.
        count: of indices.
        where: the address of (size, stride, index, bits of its dtype) of each, and of a word that becomes 0 if the
            element must not be accessed.

    Returns:
        the address of the element, or of zeros if it must not be accessed; 0 if the thread must stop.
    """
    s = state()
    settle_doubt(s)
    dims = words_at(where, 4 * count + 1)
    address, outside, wraps = data, False, False
    for k in range(count):
        i = dims[4 * k + 2]
        if i < 0:
            wraps = True
            i += dims[4 * k]
        outside |= i < 0 or i >= dims[4 * k]
        address += i * dims[4 * k + 1]
    if s.spare <= data < s.spare + SPARE:  # part of an array that does not exist, which was reported
        dims[4 * count] = 0
        return zeros(s, size)
    number = stretch_of(s, data if outside or size == 0 else address)
    if outside or (number < 0 and size > 0):
        report_access(s, OUTSIDE, site, number, data, kind, count, dims, NOBODY, NOTHING)
        dims[4 * count] = 0
        return zeros(s, size)
    if wraps:
        report_access(s, NEGATIVE, site, number, data, kind, count, dims, NOBODY, NOTHING)
    if size == 0:
        return address
    stretch = stretch_at(s.stretches, number)
    if kind != READ and stretch.constant:
        report_access(s, CONSTANT, site, number, address, kind, count, dims, NOBODY, NOTHING)
        return zeros(s, size)
    stretch.read |= kind != WRITE
    stretch.written |= kind != READ
    note_cells(s, stretch, number, address, size, kind, site, count, dims)
    if s.requests and (stretch.space == GLOBAL or stretch.space == SHARED):
        offset = address - stretch.start
        log_access(s, number, READ if kind == UPDATE else min(kind, ATOMIC), site, size, offset)
        if kind == UPDATE:
            log_access(s, number, WRITE, site, size, offset)
    who = (s.block * s.threads + s.thread) ^ (address << 10)
    s.spins, s.last = s.spins + 1 if who == s.last else 0, who
    if s.spins > s.spin_limit:  # the thread came to this address, and no other
        report_access(s, SPINNING, site, number, address, kind, count, dims, NOBODY, NOTHING)
        return 0
    return address


@symbol(3)
def declare(number, start, size):
    """Where an array of the kernel's lies; it is filled with ones, which are NaN."""
    stretch = stretch_at(state().stretches, number)
    stretch.start, stretch.end = start, start + size
    words_at(start, size // 8)[:] = -1
