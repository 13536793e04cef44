"""Every element that a kernel reads or writes in the checked executor is looked up here first.

    read(x, (i, j), site)[0]                x[i, j]
    read(x, (i, None), site)[0, 1:3]        x[i, 1:3]
    write(x, i, site)[0] = v                x[i] = v
    update(x, i, site)[0] += v              x[i] += v
    write_all(x[1:3], site)[:] = v          x[1:3] = v
    atomic_add(atomic(x, i, site), 0, v)
    read(r, "mass", site).mass              r.mass, where r is a record

Each of the first three gives an array of one element (or of one part of x): that which was asked for, or zeros if it
lies out of bounds, which is noted. What the kernel then does with the element is numba's business, so that numbers are
those of the compiled mode.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic, overload
from numba.np.arrayobj import populate_array

from miniflow.hostcuda.shadow import ATOMIC, COMPARE, EXCHANGE, READ, UPDATE, WRITE, advance, declare, path

__all__ = [
    "read", "write", "update", "atomic", "exchange", "compare", "read_all", "write_all", "update_all", "declare",
    "path", "advance", "back",
]  # fmt: skip
WORD = ir.IntType(64)


class KernelStop(Exception):
    """A thread seems to wait for ever; that is among the findings."""


@njit
def back(outer, value):
    """A device function has returned a value, perhaps from within a loop."""
    advance(outer, 0)
    return value


def _access(builder: Any, *args: Any) -> Any:
    function = ir.FunctionType(WORD, [WORD] * 6)
    return builder.call(cgutils.get_or_insert_function(builder.module, function, "miniflow_hostcuda_access"), args)


def element(kind: np.int64) -> Callable:
    """The function that checks one kind of access."""

    @intrinsic(prefer_literal=True)
    def check(typingctx: Any, x: Any, index: Any, site: Any) -> Any:
        if isinstance(index, types.StringLiteral):
            return _of_record(kind, x, index)
        if isinstance(x, types.Array):
            return _of_array(kind, x, types.unliteral(index))
        return _of_sequence(typingctx, x, index)

    return check


def _of_array(kind: np.int64, x: Any, index: Any) -> Any:
    kinds = [types.unliteral(k) for k in (index.types if isinstance(index, types.BaseTuple) else (index,))]
    kept = [k for k in range(x.ndim) if k >= len(kinds) or kinds[k] == types.none]
    if len(kinds) > x.ndim or not all(isinstance(k, types.Integer | types.Boolean | types.NoneType) for k in kinds):
        return None
    fields = isinstance(x.dtype, types.Record) and kind in (READ, UPDATE)  # noted when one of them is used
    contiguous = x.layout == "C" and all(k >= len(kinds) for k in kept) or not kept
    result = types.Array(x.dtype, len(kept) + 1, "C" if contiguous else "A", aligned=x.aligned)
    asked = types.Tuple(kinds) if isinstance(index, types.BaseTuple) else index
    sweep = {WRITE: write_all, UPDATE: update_all}.get(kind) if kept else None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = cgutils.unpack_tuple(builder, args[1]) if isinstance(asked, types.BaseTuple) else [args[1]]
        array = context.make_array(x)(context, builder, args[0])
        shape, strides = cgutils.unpack_tuple(builder, array.shape), cgutils.unpack_tuple(builder, array.strides)
        words = []
        for dim, (value, its) in enumerate(zip(values, kinds, strict=True)):
            if its != types.none:
                bits = WORD(getattr(its, "bitwidth", 64))
                words += [shape[dim], strides[dim], context.cast(builder, value, its, types.int64), bits]
        where = cgutils.alloca_once(builder, WORD, size=len(words) + 1)
        for k, word in enumerate([*words, WORD(1)]):
            place = builder.gep(where, [ir.Constant(ir.IntType(32), k)])
            builder.store(word, place)
        size = WORD(0) if kept or fields else array.itemsize
        data, count = builder.ptrtoint(array.data, WORD), WORD(len(words) // 4)
        address = _access(builder, WORD(int(kind)), args[2], size, data, count, builder.ptrtoint(where, WORD))
        if not kept:
            with builder.if_then(builder.icmp_unsigned("==", address, WORD(0)), likely=False):
                context.call_conv.return_user_exc(builder, KernelStop, ())
        exists, made = builder.load(place), context.make_array(result)(context, builder)
        sizes, steps = [WORD(1), *(shape[k] for k in kept)], [builder.mul(strides[k], exists) for k in kept]
        pointer = builder.inttoptr(address, array.data.type)
        populate_array(made, pointer, sizes, [array.itemsize, *steps], array.itemsize, meminfo=None)
        found = made._getvalue()
        if sweep is not None:
            wanted = result(result, types.int64)
            return context.compile_internal(builder, lambda x, site: sweep(x, site), wanted, [found, args[2]])
        return found

    return result(x, asked, types.int64), codegen


def _of_record(kind: np.int64, owner: Any, name: Any) -> Any:
    """A field of a record; what else has names is not looked at."""
    member = name.literal_value
    noted = isinstance(owner, types.Record) and member in owner.fields
    noted = noted and not isinstance(owner.typeof(member), types.NestedArray | types.Record)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if noted:
            size = context.get_abi_sizeof(context.get_data_type(owner.typeof(member)))
            place = builder.add(builder.ptrtoint(args[0], WORD), WORD(owner.offset(member)))
            where = cgutils.alloca_once(builder, WORD)
            _access(builder, WORD(int(kind)), args[2], WORD(size), place, WORD(0), builder.ptrtoint(where, WORD))
        return impl_ret_borrowed(context, builder, owner, args[0])

    return owner(owner, name, types.int64), codegen


def _of_sequence(typingctx: Any, x: Any, index: Any) -> Any:
    """An element of a tuple or a range."""
    if isinstance(index, types.IntegerLiteral) and isinstance(x, types.BaseTuple):
        member, wanted = x.types[index.literal_value], None
    else:
        wanted = typingctx.resolve_function_type(operator.getitem, (x, types.intp), {})
        member = wanted.return_type

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if wanted is None:
            found = cgutils.unpack_tuple(builder, args[0])[index.literal_value]
        else:
            position = context.cast(builder, args[1], signature.args[1], types.intp)
            found = context.get_function(operator.getitem, wanted)(builder, [args[0], position])
        made = context.make_tuple(builder, signature.return_type, [found])
        return impl_ret_borrowed(context, builder, signature.return_type, made)

    return types.Tuple([member])(x, index, types.int64), codegen


read, write, update, atomic, exchange, compare = map(element, (READ, WRITE, UPDATE, ATOMIC, EXCHANGE, COMPARE))


def whole(check: Callable) -> Callable:
    """The function that checks an access to all elements of an array, and gives the array; or anything else."""

    def all_of(x, site):
        raise NotImplementedError

    @overload(all_of)
    def of_array(x, site):
        if not isinstance(x, types.Array):
            return lambda x, site: x

        def implementation(x, site):
            for index in np.ndindex(x.shape):
                check(x, index, site)
            return x

        return implementation

    return all_of


read_all, write_all, update_all = map(whole, (read, write, update))
