"""Every element that a kernel reads or writes in the checked executor is looked up here first.

    read(x, (i, j), site)[0]                x[i, j]
    write(x, i, site)[0] = v                x[i] = v
    update(x, i, site)[0] += v              x[i] += v
    read(x, (i, None), site)[0, 1:3]        x[i, 1:3]
    write(x[1:3], (), site)[0] = v          x[1:3] = v
    atomic_add(atomic(x, i, site), 0, v)

Each of them gives an array of one element (or of one part of x): that which was asked for, or zeros if it lies out of
bounds, which is noted. What the kernel then does with the element is numba's business, so that numbers are those of the
compiled mode. A field of a record, `x[i]["field"]`, is an element of `x["field"]`; fields of a record that has a name
of its own, and those that are read as `x[i].field`, are not looked at.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from miniflow.hostcuda.shadow import ATOMIC, COMPARE, EXCHANGE, READ, ROUNDS, UPDATE, WRITE, declare, state

__all__ = [
    "read", "write", "update", "atomic", "exchange", "compare", "elements", "declare", "state",
    "start_thread", "restore_path",
]  # fmt: skip
WORD = ir.IntType(64)
INDICES = types.Integer | types.Boolean | types.NoneType


class KernelStop(Exception):
    """A thread seems to wait for ever; that is among the findings."""


@njit
def start_thread(thread):
    """From here on, this thread of the block runs."""
    state().thread, state().path = thread, 0


@njit
def restore_path(outer, value):
    """A device function has returned a value, perhaps from within a loop."""
    state().path = outer
    return value


def element(access_kind: np.int64) -> Callable:
    """The function that checks one kind of access."""

    @intrinsic(prefer_literal=True)
    def check(typingctx: Any, x: Any, index: Any, site: Any) -> Any:
        if isinstance(x, types.Array):
            return _of_array(access_kind, check_each, x, types.unliteral(index))
        return _of_sequence(typingctx, x, index)

    def check_each(x, site):
        outer = state().path
        for number, index in enumerate(np.ndindex(x.shape)):
            state().path = outer * ROUNDS + number
            check(x, index, site)
        state().path = outer
        return x

    return check


def _of_array(access_kind: np.int64, check_each: Callable, x: Any, index: Any) -> Any:
    index_types = [types.unliteral(k) for k in (index.types if isinstance(index, types.BaseTuple) else (index,))]
    kept = [k for k in range(x.ndim) if k >= len(index_types) or index_types[k] == types.none]
    if len(index_types) > x.ndim or not all(isinstance(k, INDICES) for k in index_types):
        return None
    fields = isinstance(x.dtype, types.Record) and access_kind == READ
    contiguous = x.layout == "C" and all(k >= len(index_types) for k in kept) or not kept
    result = types.Array(x.dtype, len(kept) + 1, "C" if contiguous else "A", aligned=x.aligned)
    asked = types.Tuple(index_types) if isinstance(index, types.BaseTuple) else index
    whole = kept and (access_kind != READ or not index_types)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = cgutils.unpack_tuple(builder, args[1]) if isinstance(asked, types.BaseTuple) else [args[1]]
        array = context.make_array(x)(context, builder, args[0])
        shape, strides = cgutils.unpack_tuple(builder, array.shape), cgutils.unpack_tuple(builder, array.strides)
        words = []
        for dim, (value, index_type) in enumerate(zip(values, index_types, strict=True)):
            if index_type != types.none:
                bits = WORD(getattr(index_type, "bitwidth", 64))
                words += [shape[dim], strides[dim], context.cast(builder, value, index_type, types.int64), bits]
        where = cgutils.alloca_once(builder, WORD, size=len(words) + 1)
        for k, word in enumerate([*words, WORD(1)]):
            exists_word = builder.gep(where, [ir.Constant(ir.IntType(32), k)])
            builder.store(word, exists_word)
        size = WORD(0) if kept or fields else array.itemsize
        data, count = builder.ptrtoint(array.data, WORD), WORD(len(words) // 4)
        function = ir.FunctionType(WORD, [WORD] * 6)
        function = cgutils.get_or_insert_function(builder.module, function, "miniflow_hostcuda_access")
        call_arguments = WORD(int(access_kind)), args[2], size, data, count, builder.ptrtoint(where, WORD)
        address = builder.call(function, call_arguments)
        if not kept:
            with builder.if_then(builder.icmp_unsigned("==", address, WORD(0)), likely=False):
                context.call_conv.return_user_exc(builder, KernelStop, ())
        exists, struct = builder.load(exists_word), context.make_array(result)(context, builder)
        sizes, steps = [WORD(1), *(shape[k] for k in kept)], [builder.mul(strides[k], exists) for k in kept]
        pointer = builder.inttoptr(address, array.data.type)
        populate_array(struct, pointer, sizes, [array.itemsize, *steps], array.itemsize, meminfo=None)
        element_array = struct._getvalue()
        if whole:
            return context.compile_internal(builder, check_each, result(result, types.int64), [element_array, args[2]])
        return element_array

    return result(x, asked, types.int64), codegen


def _of_sequence(typingctx: Any, x: Any, index: Any) -> Any:
    """An element of a tuple or a range; with the index (), the value itself."""
    getitem = None
    if index == types.Tuple(()):
        member = x
    elif isinstance(index, types.IntegerLiteral) and isinstance(x, types.BaseTuple):
        member = x.types[index.literal_value]
    else:
        getitem = typingctx.resolve_function_type(operator.getitem, (x, types.intp), {})
        member = getitem.return_type

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if getitem is not None:
            position = context.cast(builder, args[1], signature.args[1], types.intp)
            member_value = context.get_function(operator.getitem, getitem)(builder, [args[0], position])
        else:
            member_value = args[0] if member is x else cgutils.unpack_tuple(builder, args[0])[index.literal_value]
        one = context.make_tuple(builder, signature.return_type, [member_value])
        return impl_ret_borrowed(context, builder, signature.return_type, one)

    return types.Tuple([member])(x, index, types.int64), codegen


read, write, update, atomic, exchange, compare = map(element, (READ, WRITE, UPDATE, ATOMIC, EXCHANGE, COMPARE))


@njit
def elements(x: Any, site: int) -> Iterator:
    """The elements that a loop runs over, one by one."""
    for position in range(len(x)):
        yield read(x, position, site)[0]
