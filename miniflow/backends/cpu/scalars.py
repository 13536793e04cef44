"""What generated loops for the CPU call: reading and writing elements by address, and functions of one element.

The functions are those of `scalar` for which numba has none, or only a call of the C library for each element.
"""

from __future__ import annotations

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy import ceil, floor, rint, trunc

from miniflow.gamma import digamma, zeta
from miniflow.hostcuda.transcendental import erf, exp, log, tanh

__all__ = [
    "ceil", "data_of", "digamma", "erf", "exp", "expm1", "floor", "load", "log", "log1p", "njit", "rint",
    "round_bfloat16", "round_float16", "row_of", "store", "tanh", "trunc", "where", "zeta",
]  # fmt: skip

HEAD = object.__basicsize__  # in CPython an array's `char *data` follows the head that all objects have
KINDS = {
    "float32": types.float32, "float64": types.float64, "float16": types.float32, "bfloat16": types.float32,
    "bool": types.boolean, "uint8": types.uint8, "int8": types.int8, "int16": types.int16, "int32": types.int32,
    "int64": types.int64,
}  # fmt: skip
I16, I32, I64, HALF = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.HalfType()

exactly = njit(error_model="numpy")


# memory


def scopes(module: ir.Module, names: list[str]) -> ir.MDValue:
    """The alias scopes of these names (https://llvm.org/docs/LangRef.html#noalias-and-alias-scope-metadata)."""
    domain = module.add_metadata(["miniflow"])
    return module.add_metadata([module.add_metadata([f"miniflow.{name}", domain]) for name in names])


@intrinsic
def data_of(typingctx, identity):
    """The address of the first element of the array whose `id` is given."""

    def codegen(context, builder, signature, args):
        address = builder.add(args[0], ir.Constant(args[0].type, HEAD))
        return builder.load(builder.inttoptr(address, args[0].type.as_pointer()))

    return types.int64(types.int64), codegen


def entry_of(builder, table, position: int):
    """Entry `position` of the int64 table at an address."""
    return builder.load(builder.gep(builder.inttoptr(table, I64.as_pointer()), [I64(position)]))


@intrinsic(prefer_literal=True)
def row_of(typingctx, array, row, table, position):
    """The address of row (i0, i1, i2) of the array at an address; see `rows` and the table of `pointwise`.

    One intrinsic in place of twenty operations in the loop halves the time that it takes to compile it.

    Args:
        row: (i0 n1 + i1) n2 + i2.
        table: begins with n1, n2.
        position: of the array's three steps in the table.
    """

    def codegen(context, builder, signature, args):
        address, row, table, _ = args
        n1, n2 = entry_of(builder, table, 0), entry_of(builder, table, 1)
        rest, i2 = builder.udiv(row, n2), builder.urem(row, n2)
        for k, i in enumerate((builder.udiv(rest, n1), builder.urem(rest, n1), i2)):
            address = builder.add(address, builder.mul(i, entry_of(builder, table, position.literal_value + k)))
        return address

    return types.int64(types.int64, types.int64, types.int64, position), codegen


@intrinsic(prefer_literal=True)
def load(typingctx, address, index, dtype, scope):
    """Element `index` of the memory at `address`; half precision is widened to float32.

    Args:
        dtype: its name.
        scope: the name of the array, for `store`.
    """
    kind = dtype.literal_value

    def codegen(context, builder, signature, args):
        stored = I16 if kind in ("float16", "bfloat16") else context.get_data_type(KINDS[kind])
        place = builder.gep(builder.inttoptr(args[0], stored.as_pointer()), [args[1]])
        value = builder.load(place)
        value.set_metadata("alias.scope", scopes(builder.module, [scope.literal_value]))
        return widened(context, builder, value, kind)

    return KINDS[kind](types.int64, types.int64, dtype, scope), codegen


def widened(context, builder, value, kind):
    """A value in memory as it is computed with."""
    if kind == "float16":
        return builder.fpext(builder.bitcast(value, HALF), ir.FloatType())
    if kind == "bfloat16":
        return builder.bitcast(builder.shl(builder.zext(value, I32), ir.Constant(I32, 16)), ir.FloatType())
    if kind == "bool":
        return builder.icmp_unsigned("!=", value, ir.Constant(value.type, 0))
    return value


@intrinsic(prefer_literal=True)
def store(typingctx, address, index, value, dtype, scope, apart):
    """Write element `index` of the memory at `address`.

    Args:
        value: of half precision if rounded to it already.
        dtype: its name.
        scope: the name of the array.
        apart: the names of all other arrays, with commas between them: this write changes nothing in them that the loop
            has yet to read. An input from whose element the value was computed has been read when it is replaced.
    """
    kind = dtype.literal_value

    def codegen(context, builder, signature, args):
        number = narrowed(context, builder, args[2], kind)
        place = builder.gep(builder.inttoptr(args[0], number.type.as_pointer()), [args[1]])
        written = builder.store(number, place)
        written.set_metadata("alias.scope", scopes(builder.module, [scope.literal_value]))
        others = [name for name in apart.literal_value.split(",") if name]
        if others:
            written.set_metadata("noalias", scopes(builder.module, others))
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, KINDS[kind], dtype, scope, apart), codegen


def narrowed(context, builder, value, kind):
    """A value as it lies in memory."""
    if kind == "float16":
        return builder.bitcast(builder.fptrunc(value, HALF), I16)
    if kind == "bfloat16":
        return builder.trunc(builder.lshr(builder.bitcast(value, I32), ir.Constant(I32, 16)), I16)
    if kind == "bool":
        return builder.zext(value, ir.IntType(8))
    return value


# half precision


@intrinsic
def round_float16(typingctx, x):
    """The float16 nearest to a float32, as a float32."""

    def codegen(context, builder, signature, args):
        return builder.fpext(builder.fptrunc(args[0], HALF), ir.FloatType())

    return types.float32(types.float32), codegen


@intrinsic
def round_bfloat16(typingctx, x):
    """The bfloat16 nearest to a float32, halves to even, as a float32: the upper half of its bits. NaN stays NaN."""

    def codegen(context, builder, signature, args):
        (x,) = args
        word = builder.bitcast(x, I32)
        last = builder.and_(builder.lshr(word, I32(16)), I32(1))
        rounded = builder.add(word, builder.add(last, I32(0x7FFF)))
        quiet = builder.or_(word, I32(0x00400000))
        kept = builder.select(builder.fcmp_unordered("uno", x, x), quiet, rounded)
        return builder.bitcast(builder.and_(kept, I32(0xFFFF0000)), ir.FloatType())

    return types.float32(types.float32), codegen


# functions


@exactly
def where(condition, x, y):
    return x if condition else y


@exactly
def log1p(x):
    """log(1 + x) by W. Kahan's correction: what 1 + x rounds away is made good by the quotient."""
    one = type(x)(1)
    w = one + x
    d = w - one
    y = log(w) * (x / d)
    return x if (d == type(x)(0)) | ((w > one) & (w == w + w)) else y


@exactly
def expm1(x):
    """e^x - 1, by W. Kahan's correction."""
    one = type(x)(1)
    w = exp(x)
    d = w - one
    y = d * (x / log(w))
    return x if w == one else d if (d == -one) | ((w > one) & (w == w + w)) else y
