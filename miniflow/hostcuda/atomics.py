"""`cuda.atomic` on the CPU: one locked read-modify-write of an array element, which returns the old value.

Where LLVM has an instruction for it (`atomicrmw`, `cmpxchg`), that is used. The others are a loop: read, compute,
and store if nobody has stored in between (`cmpxchg` of the bits).
"""

from __future__ import annotations

import math

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, register_jitable

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
UPDATES = {name: register_jitable(update) for name, update in UPDATES.items()}
UNLOCKED = {f"atomic_{name}": f"own_{name}" for name in ("add", "sub", "max", "min")}
"""Atomic operations on a block's own memory: one thread of the processor runs the whole block, so they need no lock."""


def _pointer(context, builder, signature, args):
    """The address of array[index], which are the first two arguments."""
    array, index = signature.args[:2]
    several = isinstance(index, types.BaseTuple)
    index_types, values = (index.types, cgutils.unpack_tuple(builder, args[1])) if several else ([index], [args[1]])
    words = [context.cast(builder, v, k, types.intp) for v, k in zip(values, index_types, strict=True)]
    struct = context.make_array(array)(context, builder, args[0])
    return cgutils.get_item_pointer(context, builder, array, struct, words, wraparound=True)


def _is_element(array, index):
    """Whether `index` names one element of the array, of a type that atomics work on."""
    if not isinstance(array, types.Array) or not isinstance(array.dtype, types.Integer | types.Float):
        return False
    index_types = index.types if isinstance(index, types.BaseTuple) else (index,)
    return len(index_types) == array.ndim and all(isinstance(k, types.Integer) for k in index_types)


@intrinsic
def _exchange(typingctx, array, index, expected, value):
    """Store `value` if the element has the bits of `expected`: (what it was, whether that was so)."""
    if not _is_element(array, index):
        return None
    element, word = array.dtype, ir.IntType(array.dtype.bitwidth)

    def codegen(context, builder, signature, args):
        cell = builder.bitcast(_pointer(context, builder, signature, args), word.as_pointer())
        answer = builder.cmpxchg(cell, *(builder.bitcast(arg, word) for arg in args[2:]), "seq_cst", "monotonic")
        old = builder.bitcast(builder.extract_value(answer, 0), args[3].type)
        return context.make_tuple(builder, signature.return_type, [old, builder.extract_value(answer, 1)])

    return types.Tuple([element, types.boolean])(array, index, element, element), codegen


def _in_a_loop(update):
    def changed(array, index, value):
        old, done = array[index], False
        while not done:
            seen = old
            old, done = _exchange(array, index, seen, update(seen, value))
        return old

    return changed


def _alone(update):
    def changed(array, index, value):
        old = array[index]
        array[index] = update(old, value)
        return old

    return changed


def _read_modify_write(operation, alone=False):
    """The operation as a function; `alone` if no other thread of the processor can reach the array."""

    @intrinsic
    def compute(typingctx, array, index, value):
        if not _is_element(array, index) or not isinstance(value, types.Number | types.Boolean):
            return None
        element = array.dtype
        flavour = 2 if isinstance(element, types.Float) else 0 if element.signed else 1
        instruction = INSTRUCTIONS.get(operation, (None,) * 3)[flavour]
        if instruction is None and operation not in UPDATES:
            return None

        def codegen(context, builder, signature, args):
            if alone or instruction is None:
                function = (_alone if alone else _in_a_loop)(UPDATES[operation])
                return context.compile_internal(builder, function, signature, args)
            return builder.atomic_rmw(instruction, _pointer(context, builder, signature, args), args[2], "seq_cst")

        return element(array, index, element), codegen

    return compute


@register_jitable
def atomic_cas(array, index, expected, value):
    """Store `value` if the element equals `expected`."""
    return _exchange(array, index, expected, value)[0]


@register_jitable
def atomic_compare_and_swap(array, expected, value):
    """`atomic_cas` on the first element of a one-dimensional array."""
    return atomic_cas(array, 0, expected, value)


OPERATIONS = {f"atomic_{name}": _read_modify_write(name) for name in {**INSTRUCTIONS, **UPDATES}}
OPERATIONS |= {own: _read_modify_write(name.removeprefix("atomic_"), alone=True) for name, own in UNLOCKED.items()}
globals().update(OPERATIONS)
__all__ = ["UNLOCKED", "atomic_cas", "atomic_compare_and_swap", *OPERATIONS]
