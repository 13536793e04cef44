"""`cuda.atomic` on the CPU: one locked read-modify-write of an array element, which returns the old value.

Where LLVM has an instruction for it (`atomicrmw`, `cmpxchg`), that is used. The others are a loop: read, compute,
and store if nobody has stored in between (`cmpxchg` of the bits).
"""

from __future__ import annotations

import math

from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

INSTRUCTIONS = {  # operation -> LLVM's name for signed integers, unsigned integers, floats
    "add": ("add", "add", "fadd"), "sub": ("sub", "sub", "fsub"), "exch": ("xchg", "xchg", "xchg"),
    "max": ("max", "umax", None), "nanmax": ("max", "umax", None),
    "min": ("min", "umin", None), "nanmin": ("min", "umin", None),
    "and": ("and", "and", None), "or": ("or", "or", None), "xor": ("xor", "xor", None),
}  # fmt: skip
UPDATES = {  # operation -> the new value
    "add": lambda old, value: old + value,
    "sub": lambda old, value: old - value,
    "max": lambda old, value: value if value > old else old,
    "min": lambda old, value: value if value < old else old,
    "nanmax": lambda old, value: value if value > old or math.isnan(old) else old,
    "nanmin": lambda old, value: value if value < old or math.isnan(old) else old,
    "inc": lambda old, value: type(old)(0) if old >= value else old + type(old)(1),
    "dec": lambda old, value: value if old == 0 or old > value else old - type(old)(1),
}
OWN = {f"atomic_{name}": f"own_{name}" for name in ("add", "sub", "max", "min")}
"""Atomic operations on a block's own memory: one thread of the processor runs the whole block, so they need no lock."""


def _pointer(context, builder, array_type, array, index_type, index):
    """The address of array[index]."""
    struct = context.make_array(array_type)(context, builder, array)
    several = isinstance(index_type, types.BaseTuple)
    kinds, values = (index_type.types, cgutils.unpack_tuple(builder, index)) if several else ([index_type], [index])
    words = [context.cast(builder, v, k, types.intp) for v, k in zip(values, kinds, strict=True)]
    return cgutils.get_item_pointer(context, builder, array_type, struct, words, wraparound=True)


def _bits(builder, value):
    """A float as an integer of its size, an integer as it is."""
    width = {ir.HalfType(): 16, ir.FloatType(): 32, ir.DoubleType(): 64}.get(value.type)
    return builder.bitcast(value, ir.IntType(width)) if width else value


def _exchange_loop(context, builder, pointer, kind, value, update):
    """old = *p; while not cmpxchg(p, old, update(old, value)): old = *p"""
    word = ir.IntType(kind.bitwidth)
    cell = builder.bitcast(pointer, word.as_pointer())
    before, loop, end = (builder.append_basic_block(f"atomic.{name}") for name in ("before", "loop", "end"))
    builder.branch(before)
    builder.position_at_end(before)
    start = builder.load_atomic(cell, "monotonic", kind.bitwidth // 8)
    builder.branch(loop)
    builder.position_at_end(loop)
    seen = builder.phi(word)
    seen.add_incoming(start, before)
    old = builder.bitcast(seen, value.type) if value.type != word else seen
    new = context.compile_internal(builder, update, kind(kind, kind), [old, value])
    answer = builder.cmpxchg(cell, seen, _bits(builder, new), "seq_cst", "monotonic")
    seen.add_incoming(builder.extract_value(answer, 0), builder.block)
    builder.cbranch(builder.extract_value(answer, 1), end, loop)
    builder.position_at_end(end)
    return old


def _is_element(array, index):
    """Whether `index` names one element of the array, of a type that atomics work on."""
    if not isinstance(array, types.Array) or not isinstance(array.dtype, types.Integer | types.Float):
        return False
    kinds = index.types if isinstance(index, types.BaseTuple) else (index,)
    return len(kinds) == array.ndim and all(isinstance(k, types.Integer) for k in kinds)


def _read_modify_write(operation, alone=False):
    """The operation as a function; `alone` if no other thread of the processor can reach the array."""

    @intrinsic
    def compute(typingctx, array, index, value):
        if not _is_element(array, index):
            return None
        kind = array.dtype
        flavour = 2 if isinstance(kind, types.Float) else 0 if kind.signed else 1
        instruction = INSTRUCTIONS.get(operation, (None,) * 3)[flavour]
        if instruction is None and operation not in UPDATES:
            return None

        def codegen(context, builder, signature, args):
            pointer = _pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1])
            if alone:
                old = builder.load(pointer)
                builder.store(
                    context.compile_internal(builder, UPDATES[operation], kind(kind, kind), [old, args[2]]), pointer
                )
                return old
            if instruction is None:
                return _exchange_loop(context, builder, pointer, kind, args[2], UPDATES[operation])
            return builder.atomic_rmw(instruction, pointer, args[2], "seq_cst")

        return kind(array, index, kind), codegen

    return compute


@intrinsic
def atomic_cas(typingctx, array, index, expected, value):
    """Store `value` if the element equals `expected`."""
    if not _is_element(array, index):
        return None
    kind = array.dtype

    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1])
        expected, value = (_bits(builder, arg) for arg in args[2:])
        cell = builder.bitcast(pointer, value.type.as_pointer())
        old = builder.extract_value(builder.cmpxchg(cell, expected, value, "seq_cst", "monotonic"), 0)
        return builder.bitcast(old, args[3].type) if old.type != args[3].type else old

    return kind(array, index, kind, kind), codegen


@njit
def atomic_compare_and_swap(array, expected, value):
    """`atomic_cas` on the first element of a one-dimensional array."""
    return atomic_cas(array, 0, expected, value)


OPERATIONS = {f"atomic_{name}": _read_modify_write(name) for name in {**INSTRUCTIONS, **UPDATES}}
OPERATIONS |= {own: _read_modify_write(name.removeprefix("atomic_"), alone=True) for name, own in OWN.items()}
globals().update(OPERATIONS)
__all__ = ["OWN", "atomic_cas", "atomic_compare_and_swap", *OPERATIONS]
