"""What generated code calls: the device functions of CUDA as numba functions for the CPU.

Atomics are those of the processor (`atomics`). Lanes of a warp are neighbours in arrays of one entry a thread, so that
a shuffle is an index, and a vote a loop over them.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

from miniflow.hostcuda.atomics import (  # noqa: F401  (generated code imports them from here)
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_compare_and_swap,
    atomic_dec,
    atomic_exch,
    atomic_inc,
    atomic_max,
    atomic_min,
    atomic_nanmax,
    atomic_nanmin,
    atomic_or,
    atomic_sub,
    atomic_xor,
    own_add,
    own_max,
    own_min,
    own_sub,
)

COORDINATE_OF = {
    f"{d}.{axis}": f"{d}_{axis}" for d in ("threadIdx", "blockIdx", "blockDim", "gridDim") for axis in "xyz"
}

FUNCTIONS = {
    "popc": "popc",
    "clz": "clz",
    "ffs": "ffs",
    "brev": "brev",
    "fma": "fma",
    "cbrt": "cbrt",
    "selp": "selp",
    "rsqrt": "rsqrt",
    "atomic.add": "atomic_add",
    "atomic.sub": "atomic_sub",
    "atomic.max": "atomic_max",
    "atomic.min": "atomic_min",
    "atomic.nanmax": "atomic_nanmax",
    "atomic.nanmin": "atomic_nanmin",
    "atomic.and_": "atomic_and",
    "atomic.or_": "atomic_or",
    "atomic.xor": "atomic_xor",
    "atomic.inc": "atomic_inc",
    "atomic.dec": "atomic_dec",
    "atomic.exch": "atomic_exch",
    "atomic.cas": "atomic_cas",
    "atomic.compare_and_swap": "atomic_compare_and_swap",
}
"""The name in `cuda` -> the name here."""

OWN = {"atomic_add": "own_add", "atomic_sub": "own_sub", "atomic_max": "own_max", "atomic_min": "own_min"}
"""Atomic operations on a block's own memory: one thread of the processor runs the whole block, so they need no lock."""

EXPORTED = (
    *FUNCTIONS.values(),
    *OWN.values(),
    "fmod", "modf", "remainder",
    "unsigned", "stack", "agree", "count", "all_of", "any_of", "ballot", "same", "match_any", "match_all",
    "lane_at", "lane_up", "lane_down", "lane_xor",
)  # fmt: skip
RESERVED = {
    *EXPORTED, "np", "math", "types", "thread", "threads", "row_of_threads", "warp", "warps", "warp_first", "warp_end",
    "block", "first", "last", "carray", "dynamic_bytes", "lane", "grid_first",
}  # fmt: skip
__all__ = list(EXPORTED)  # generated code imports them all


@intrinsic
def unsigned(typingctx, index):
    """An index that is known not to be negative, in a type that says so: numba then omits its wrap-around test."""
    if isinstance(index, types.Integer):

        def codegen(context, builder, signature, args):
            (value,) = args
            kind = signature.args[0]
            width = ir.IntType(64)
            if kind.bitwidth == 64:
                return value
            return builder.sext(value, width) if kind.signed else builder.zext(value, width)

        return types.uintp(index), codegen
    if isinstance(index, types.Boolean | types.BaseTuple | types.SliceType | types.EllipsisType):
        return index(index), lambda context, builder, signature, args: args[0]
    return None


@intrinsic(prefer_literal=True)
def stack(typingctx, count, dtype):
    """A pointer to memory for `count` elements on the stack of the function.

    LLVM knows that nothing else points there, and so vectorizes loops over several such arrays without first asking
    whether they overlap.
    """
    element = dtype.dtype if isinstance(dtype, types.DType) else dtype.instance_type

    def codegen(context, builder, signature, args):
        kind = context.get_data_type(element)
        with builder.goto_entry_block():
            pointer = builder.alloca(ir.ArrayType(kind, count.literal_value))
            pointer.align = 64
        return builder.bitcast(pointer, kind.as_pointer())

    return types.CPointer(element)(count, dtype), codegen


# bits


def popc(x):
    """The number of one bits."""
    raise NotImplementedError


def clz(x):
    """The number of zero bits before the first one bit."""
    raise NotImplementedError


def ffs(x):
    """The position of the least significant one bit, counted from 1; 0 for 0."""
    raise NotImplementedError


def brev(x):
    """The bits in reverse order."""
    raise NotImplementedError


def _bit_intrinsic(name, result_of):
    @intrinsic
    def compute(typingctx, x):
        if not isinstance(x, types.Integer):
            return None
        result = result_of(x)

        def codegen(context, builder, signature, args):
            (value,) = args
            width = value.type
            if name == "ffs":  # the width less the zeros before the lowest one bit
                value = builder.and_(value, builder.neg(value))
            llvm_name = "ctlz" if name == "ffs" else name
            flag = [ir.Constant(ir.IntType(1), 0)] if llvm_name == "ctlz" else []  # zero is a defined input
            kind = ir.FunctionType(width, [width, *[f.type for f in flag]])
            function = builder.module.declare_intrinsic(f"llvm.{llvm_name}", [width], kind)
            found = builder.call(function, [value, *flag])
            if name == "ffs":
                found = builder.sub(ir.Constant(width, width.width), found)
            return context.cast(builder, found, _unsigned_like(x), result)

        return result(x), codegen

    return compute


def _unsigned_like(kind):
    return types.Integer.from_bitwidth(kind.bitwidth, signed=False)


_popc = _bit_intrinsic("ctpop", lambda x: x)
_brev = _bit_intrinsic("bitreverse", lambda x: x)
_clz = _bit_intrinsic("ctlz", lambda x: x)
_ffs = _bit_intrinsic("ffs", lambda x: types.uint32)

for _public, _private in ((popc, _popc), (brev, _brev), (clz, _clz), (ffs, _ffs)):
    overload(_public)(eval("lambda x: (lambda x: f(x))", {"f": _private}))


# scalars


@njit
def selp(condition, x, y):
    """x where the condition holds, else y, without a branch."""
    return x if condition else y


@njit
def rsqrt(x):
    """1 / sqrt(x) in the type of x."""
    return type(x)(1.0) / math.sqrt(x)


@njit
def cbrt(x):
    """The cube root."""
    return np.cbrt(x)


@intrinsic
def fma(typingctx, x, y, z):
    """x * y + z, rounded once."""
    kind = types.float32 if {x, y, z} == {types.float32} else types.float64

    def codegen(context, builder, signature, args):
        number = args[0].type
        function = builder.module.declare_intrinsic("llvm.fma", [number], ir.FunctionType(number, [number] * 3))
        return builder.call(function, args)

    return kind(kind, kind, kind), codegen


@njit
def fmod(x, y):
    """The remainder of x / y with the sign of x."""
    return np.fmod(x, y)


@njit
def modf(x):
    """(fraction, whole part), both with the sign of x."""
    whole = np.trunc(x)
    return (math.copysign(0.0, x) if math.isinf(x) else math.copysign(x - whole, x)), whole


@njit
def remainder(x, y):
    """x - n * y for the whole n nearest to x / y, even in a tie."""
    rest = np.fmod(x, y)
    half = abs(y) / 2
    if abs(rest) > half or (abs(rest) == half and math.floor(abs(x / y)) % 2 == 1):
        rest -= math.copysign(abs(y), rest)
    return rest


# agreement of a block, and votes of a warp: loops over the threads first <= t < last


@njit
def agree(said, exited, first, last):
    """What the threads say that have not returned yet: 0 or 1 if they agree (0 if there are none), else -1."""
    yes, no = False, False
    for t in range(first, last):
        if exited is None or not exited[t]:
            if said[t]:
                yes = True
            else:
                no = True
    return -1 if yes and no else 1 if yes else 0


@njit
def count(votes, first, last):
    """How many voted yes, as an int32."""
    total = np.int32(0)
    for t in range(first, last):
        total += np.int32(votes[t])
    return np.int32(total)


@njit
def all_of(votes, first, last):
    """Whether all voted yes."""
    result = True
    for t in range(first, last):
        result &= votes[t]
    return result


@njit
def any_of(votes, first, last):
    """Whether anyone voted yes."""
    result = False
    for t in range(first, last):
        result |= votes[t]
    return result


@njit
def ballot(votes, first, last):
    """Bit i is the vote of lane i, as a uint32."""
    bits = np.uint32(0)
    for t in range(first, last):
        if votes[t]:
            bits |= np.uint32(1) << np.uint32(t - first)
    return np.uint32(bits)


@njit
def same(votes, first, last):
    """Whether all votes are equal; 2 stands for a lane that does not take part."""
    yes, no = False, False
    for t in range(first, last):
        yes |= votes[t] == 1
        no |= votes[t] == 0
    return not (yes and no)


@njit
def match_any(values, here, thread, first, last):
    """Bit i tells whether lane i takes part and has the value of this thread."""
    bits = np.uint32(0)
    for t in range(first, last):
        if here[t] and values[t] == values[thread]:
            bits |= np.uint32(1) << np.uint32(t - first)
    return np.int32(bits)


@njit
def match_all(values, here, thread, first, last):
    """(mask of all lanes that take part, True) if they have one value, else (0, False)."""
    bits = np.uint32(0)
    for t in range(first, last):
        if here[t]:
            if values[t] != values[thread]:
                return np.int32(0), False
            bits |= np.uint32(1) << np.uint32(t - first)
    return np.int32(bits), True


# the lane that a shuffle reads; its own where there is none


@njit
def lane_at(thread, lane, first, last):
    """Lane number `lane`."""
    source = first + (lane & 31)
    return source if source < last else thread


@njit
def lane_up(thread, delta, first, last):
    """`delta` lanes before."""
    return thread - delta if thread - delta >= first else thread


@njit
def lane_down(thread, delta, first, last):
    """`delta` lanes behind."""
    return thread + delta if thread + delta < last else thread


@njit
def lane_xor(thread, mask, first, last):
    """The lane whose number differs in the bits of `mask`."""
    source = first + ((thread - first) ^ mask)
    return source if source < last else thread
