"""`cuda.atomic` on the CPU: one locked read-modify-write of an array element, which returns the old value.

Where LLVM has an instruction for it (`atomicrmw`, `cmpxchg`), that is used. The others are a loop: read, compute,
and store if nobody has stored in between (`cmpxchg` of the bits).
"""

from __future__ import annotations

import math

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

DIRECT = {  # operation -> LLVM's name for signed integers, unsigned integers, floats
    "add": ("add", "add", "fadd"),
    "sub": ("sub", "sub", "fsub"),
    "max": ("max", "umax", None),
    "min": ("min", "umin", None),
    "nanmax": ("max", "umax", None),
    "nanmin": ("min", "umin", None),
    "and": ("and", "and", None),
    "or": ("or", "or", None),
    "xor": ("xor", "xor", None),
    "exch": ("xchg", "xchg", "xchg"),
}


def _maximum(old, value):
    return value if value > old or math.isnan(value) else old


def _minimum(old, value):
    return value if value < old or math.isnan(value) else old


def _nan_maximum(old, value):
    return value if value > old or math.isnan(old) else old


def _nan_minimum(old, value):
    return value if value < old or math.isnan(old) else old


def _increment(old, value):
    return type(old)(0) if old >= value else old + type(old)(1)


def _decrement(old, value):
    return value if old == 0 or old > value else old - type(old)(1)


def _sum(old, value):
    return old + value


def _difference(old, value):
    return old - value


LOOPS = {
    "max": _maximum,
    "min": _minimum,
    "nanmax": _nan_maximum,
    "nanmin": _nan_minimum,
    "inc": _increment,
    "dec": _decrement,
}


def _pointer(context, builder, array_type, array, index_type, index):
    """The address of array[index]."""
    struct = context.make_array(array_type)(context, builder, array)
    kinds = index_type.types if isinstance(index_type, types.BaseTuple) else (index_type,)
    values = cgutils.unpack_tuple(builder, index) if isinstance(index_type, types.BaseTuple) else [index]
    words = [context.cast(builder, v, k, types.intp) for v, k in zip(values, kinds, strict=True)]
    return cgutils.get_item_pointer(context, builder, array_type, struct, words, wraparound=True)


def _bits(builder, value):
    """A float as an integer of its size, an integer as it is."""
    if isinstance(value.type, ir.FloatType | ir.DoubleType):
        return builder.bitcast(value, ir.IntType(32 if isinstance(value.type, ir.FloatType) else 64))
    return value


def _exchange_loop(context, builder, pointer, kind, value, update):
    """old = *p; while not cmpxchg(p, old, update(old, value)): old = *p"""
    llvm = value.type
    word = ir.IntType(kind.bitwidth)
    cell = builder.bitcast(pointer, word.as_pointer())
    before = builder.append_basic_block("before")
    loop, end = builder.append_basic_block("atomic.loop"), builder.append_basic_block("atomic.end")
    builder.branch(before)
    builder.position_at_end(before)
    start = builder.load_atomic(cell, "monotonic", kind.bitwidth // 8)
    builder.branch(loop)
    builder.position_at_end(loop)
    seen = builder.phi(word)
    seen.add_incoming(start, before)
    old = builder.bitcast(seen, llvm) if llvm != word else seen
    new = context.compile_internal(builder, update, kind(kind, kind), [old, value])
    answer = builder.cmpxchg(cell, seen, _bits(builder, new), "seq_cst", "monotonic")
    seen.add_incoming(builder.extract_value(answer, 0), builder.block)
    builder.cbranch(builder.extract_value(answer, 1), end, loop)
    builder.position_at_end(end)
    return old


def _check(array, index):
    """Whether `index` names one element of the array, of a type that atomics work on."""
    if not isinstance(array, types.Array) or not isinstance(array.dtype, types.Integer | types.Float):
        return False
    kinds = index.types if isinstance(index, types.BaseTuple) else (index,)
    return len(kinds) == array.ndim and all(isinstance(k, types.Integer) for k in kinds)


PLAIN = {"add": _sum, "sub": _difference, **{k: v for k, v in LOOPS.items() if k not in ("inc", "dec")}}


def _read_modify_write(operation, alone=False):
    """The operation as a function; `alone` if no other thread of the processor can reach the array."""

    @intrinsic
    def compute(typingctx, array, index, value):
        if not _check(array, index):
            return None
        kind = array.dtype
        flavour = 2 if isinstance(kind, types.Float) else 0 if kind.signed else 1
        instruction = DIRECT.get(operation, (None,) * 3)[flavour]
        if instruction is None and operation not in LOOPS:
            return None

        def codegen(context, builder, signature, args):
            pointer = _pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1])
            if alone:
                old = builder.load(pointer)
                new = context.compile_internal(builder, PLAIN[operation], kind(kind, kind), [old, args[2]])
                builder.store(new, pointer)
                return old
            if instruction is None:
                return _exchange_loop(context, builder, pointer, kind, args[2], LOOPS[operation])
            return builder.atomic_rmw(instruction, pointer, args[2], "seq_cst")

        return kind(array, index, kind), codegen

    return compute


atomic_add = _read_modify_write("add")
atomic_sub = _read_modify_write("sub")
atomic_max = _read_modify_write("max")
atomic_min = _read_modify_write("min")
atomic_nanmax = _read_modify_write("nanmax")
atomic_nanmin = _read_modify_write("nanmin")
atomic_and = _read_modify_write("and")
atomic_or = _read_modify_write("or")
atomic_xor = _read_modify_write("xor")
own_add = _read_modify_write("add", alone=True)
own_sub = _read_modify_write("sub", alone=True)
own_max = _read_modify_write("max", alone=True)
own_min = _read_modify_write("min", alone=True)
atomic_inc = _read_modify_write("inc")
atomic_dec = _read_modify_write("dec")
atomic_exch = _read_modify_write("exch")


def _swap(context, builder, pointer, kind, expected, value):
    cell = builder.bitcast(pointer, ir.IntType(kind.bitwidth).as_pointer())
    answer = builder.cmpxchg(cell, _bits(builder, expected), _bits(builder, value), "seq_cst", "monotonic")
    old = builder.extract_value(answer, 0)
    return builder.bitcast(old, value.type) if old.type != value.type else old


@intrinsic
def atomic_cas(typingctx, array, index, expected, value):
    """Store `value` if the element equals `expected`."""
    if not _check(array, index):
        return None
    kind = array.dtype

    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1])
        return _swap(context, builder, pointer, kind, args[2], args[3])

    return kind(array, index, kind, kind), codegen


@intrinsic
def atomic_compare_and_swap(typingctx, array, expected, value):
    """`atomic_cas` on the first element of a one-dimensional array."""
    if not isinstance(array, types.Array) or array.ndim != 1 or not _check(array, types.intp):
        return None
    kind = array.dtype

    def codegen(context, builder, signature, args):
        zero = context.get_constant(types.intp, 0)
        pointer = _pointer(context, builder, signature.args[0], args[0], types.intp, zero)
        return _swap(context, builder, pointer, kind, args[1], args[2])

    return kind(array, kind, kind), codegen
