"""What generated code calls: the device functions of CUDA as numba functions for the CPU.

Atomics are those of the processor (`atomics`). Lanes of a warp are neighbours in arrays of one entry a thread, so that
a shuffle is an index, and a vote a loop over them.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from miniflow.hostcuda import atomics, scalars, transcendental
from miniflow.hostcuda.atomics import *  # noqa: F403
from miniflow.hostcuda.errors import KernelTimeoutError  # noqa: F401
from miniflow.hostcuda.floats import half_of  # noqa: F401
from miniflow.hostcuda.intrinsic import NAMES, VECTORS
from miniflow.hostcuda.scalars import *  # noqa: F403
from miniflow.hostcuda.transcendental import *  # noqa: F403

COORDINATE_OF = {
    f"{d}.{axis}": f"{d}_{axis}" for d in ("threadIdx", "blockIdx", "blockDim", "gridDim") for axis in "xyz"
}
FUNCTIONS = {name: name for name in (*"popc clz ffs brev fma cbrt selp rsqrt".split(), *VECTORS)}
FUNCTIONS |= {name: name.replace(".", "_").rstrip("_") for name in NAMES if name.startswith("atomic.")}
"""The name in `cuda` -> the name here."""

__all__ = [
    *atomics.__all__, *scalars.__all__, *transcendental.__all__, "half_of", "selected", "unsigned", "inside", "stack",
    "note_raise",
    "arrive", "count", "all_of", "any_of", "ballot", "same", "match_any", "match_all",
    "lane_at", "lane_xor", "KernelTimeoutError",
]  # fmt: skip
RESERVED = {
    *__all__, "np", "math", "types", "njit", "carray", "range", "bool", "slice", "blocks", "OPTIONS", "SITES",
    "thread", "threads", "lanes", "lane", "warp_x", "warp", "warp_first", "warp_end", "block", "first", "last",
    "lane_up", "lane_down", "missed", "arrived_of", "entry", "dynamic", "dynamic_bytes", "error", "caller",
    *(f"{end}_{axis}" for end in ("begin", "end") for axis in ("x", "y", "z", "lane")),
    "read", "write", "update", "atomic", "exchange", "compare", "elements", "declare", "state",
    "start_thread", "restore_path",
    "begin_block", "end_blocks", "reach_barrier", "leave", "fence", "complete_barrier", "shuffled_from",
}  # fmt: skip

INTEGER = types.Integer | types.Boolean


def unsigned(index):
    """An index that is known not to be negative, in a type that says so: numba then omits its wrap-around test."""


@overload(unsigned)
def _unsigned(index):
    return (lambda index: np.uint64(index)) if isinstance(index, INTEGER) else lambda index: index


@intrinsic
def inside(typingctx, array, index, site, block, thread, error):
    """An index, or a tuple of them, whose integers are checked; negative ones count from the end.

    Where one is outside, the kernel ends with an IndexError, and `error` holds which, where and in which thread.
    """
    several = isinstance(index, types.BaseTuple)
    index_types = list(index.types) if several else [index]
    if not isinstance(array, types.Array) or len(index_types) > array.ndim:
        return index(array, index, site, block, thread, error), lambda context, builder, signature, args: args[1]
    result_types = [types.uintp if isinstance(kind, INTEGER) else kind for kind in index_types]
    result = types.BaseTuple.from_types(result_types) if several else result_types[0]

    def codegen(context, builder, signature, args):
        sizes = cgutils.unpack_tuple(builder, context.make_array(array)(context, builder, args[0]).shape)
        values = cgutils.unpack_tuple(builder, args[1]) if several else [args[1]]
        numbers = zip(args[2:5], signature.args[2:5], strict=True)
        location = [context.cast(builder, number, kind, types.int64) for number, kind in numbers]
        fields = context.make_array(error)(context, builder, args[5]).data

        def checked(dim, kind, value):
            if not isinstance(kind, INTEGER):
                return value
            position = value = context.cast(builder, value, kind, types.int64)
            if not isinstance(kind, types.Integer) or kind.signed:
                negative = builder.icmp_signed("<", value, value.type(0))
                position = builder.select(negative, builder.add(value, sizes[dim]), value)
            with builder.if_then(builder.icmp_unsigned(">=", position, sizes[dim]), likely=False):
                for field, content in enumerate([value.type(1), location[0], value, sizes[dim], *location[1:]]):
                    builder.store(content, builder.gep(fields, [value.type(field)]))
                context.call_conv.return_user_exc(builder, IndexError, ("an index is outside of its array",))
            return position

        positions = list(map(checked, range(len(index_types)), index_types, values))
        return context.make_tuple(builder, result, positions) if several else positions[0]

    return result(array, index, site, block, thread, error), codegen


@njit
def note_raise(line, block, thread, error):
    """Note where an exception is raised, which the launch will say."""
    error[0], error[1], error[4], error[5] = 2, line, block, thread


@intrinsic(prefer_literal=True)
def stack(typingctx, shape, dtype):
    """An array in the function's own memory.

    LLVM knows that nothing else points there, and so vectorizes loops over several such arrays without first asking
    whether they overlap.
    """
    element = dtype.dtype if isinstance(dtype, types.DType) else dtype.instance_type
    sizes = [size.literal_value for size in shape.types]
    result = types.Array(element, len(sizes), "C")

    def codegen(context, builder, signature, args):
        from numba.np.arrayobj import populate_array  # not needed by kernels that come from the cache

        element_type = context.get_data_type(element)
        with builder.goto_entry_block():
            pointer = builder.alloca(ir.ArrayType(element_type, math.prod(sizes)))
            pointer.align = 64
        itemsize = context.get_abi_sizeof(element_type)
        strides = [itemsize * math.prod(sizes[dim + 1 :]) for dim in range(len(sizes))]
        words = [[context.get_constant(types.intp, n) for n in numbers] for numbers in (sizes, strides, [itemsize])]
        array = context.make_array(result)(context, builder)
        populate_array(array, builder.bitcast(pointer, element_type.as_pointer()), *words[:2], *words[2], None)
        return array._getvalue()

    return result(shape, dtype), codegen


selected = njit(lambda number, chosen, x, y: x if number == chosen else y)
"""One of two arrays."""


# barriers and votes: loops over the threads first <= t < last


@njit
def arrive(arrived, mask, first, last):
    """Count the threads that reach a barrier; whether one of them has missed an earlier barrier."""
    barriers, wrong = np.max(arrived[first:last]), False
    for t in range(first, last):
        if mask is None or mask[t]:
            wrong |= arrived[t] != barriers
            arrived[t] = barriers + 1
    return wrong


def _vote(nobody, joined):
    @njit
    def vote(votes, first, last):
        result = nobody
        for t in range(first, last):
            result = joined(result, votes[t])
        return result

    return vote


count = _vote(np.int32(0), njit(lambda total, yes: np.int32(total + yes)))
all_of = _vote(True, njit(lambda result, yes: result & yes))
any_of = _vote(False, njit(lambda result, yes: result | yes))


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
    """Bit i is set if lane i takes part and has the value of this thread."""
    bits = np.uint32(0)
    for t in range(first, last):
        if here[t] and values[t] == values[thread]:
            bits |= np.uint32(1) << np.uint32(t - first)
    return np.int32(bits)


@njit
def match_all(values, here, thread, first, last):
    """(mask of all lanes that take part, True) if they have one value, else (0, False)."""
    equal, everyone = match_any(values, here, thread, first, last), np.int32(ballot(here, first, last))
    return (everyone, True) if equal == everyone else (np.int32(0), False)


# the lane that a shuffle reads; its own where there is none


lane_at = njit(lambda thread, lane, first, last: first + (lane & 31) if first + (lane & 31) < last else thread)


@njit
def lane_xor(thread, mask, first, last):
    """The lane whose number differs in the bits of `mask`."""
    source = first + ((thread - first) ^ mask)
    return source if source < last else thread
