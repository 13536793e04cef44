"""The transpose of a matrix of float32, by blocks of 16x16 that stay in registers.

Element by element either the loads or the stores jump from row to row, and that costs some 1 ns each. Here 16 vectors
are loaded, exchanged in four rounds (after round d row i holds, where column and row differ in bit d, what row i ^ d
held) and stored: about 0.15 ns for each element that lies in the cache. LLVM does not find the exchange in a loop, so
it is written in LLVM's own language.

Eklundh 1972, "A fast computer method for matrix transposing".
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from miniflow.backends.cpu.threads import compiled, unlocked

BLOCK = 16  # float32 in a vector of 512 bits; with shorter vectors LLVM takes several


def transpose_into(source: np.ndarray, target: np.ndarray) -> None:
    """source (R, C) -> target (C, R), of any type and in any order"""
    if source.dtype == np.float32 == target.dtype and source.flags.c_contiguous and target.flags.c_contiguous:
        _transpose(source, target)
    else:
        np.copyto(target, source.T)


@unlocked()
def _transpose(source, target):
    transpose(source, target)


@compiled
def transpose(source, target):
    """source (R, C) -> target (C, R); the elements of a row lie side by side, in both"""
    rows, columns = source.shape
    whole_rows, whole_columns = rows // BLOCK * BLOCK, columns // BLOCK * BLOCK
    for r in range(0, whole_rows, BLOCK):
        for c in range(0, whole_columns, BLOCK):
            _transpose_block(source[r:, c:], target[c:, r:])
    for r in range(rows):
        for c in range(whole_columns if r < whole_rows else 0, columns):
            target[c, r] = source[r, c]


@intrinsic
def _transpose_block(typing_context: Any, source: types.Array, target: types.Array) -> tuple:
    """The first 16x16 elements."""
    if not all(array.dtype == types.float32 and array.ndim == 2 for array in (source, target)):
        raise TypingError("transpose: expected two matrices of float32")

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: tuple) -> Any:
        vector = ir.VectorType(ir.FloatType(), BLOCK)
        pointers = []
        for kind, argument in zip(signature.args, arguments, strict=True):
            array = context.make_array(kind)(context, builder, argument)
            start, step = (
                builder.bitcast(array.data, ir.IntType(8).as_pointer()),
                builder.extract_value(array.strides, 0),
            )
            rows = [builder.gep(start, [builder.mul(step, step.type(i))]) for i in range(BLOCK)]
            pointers.append([builder.bitcast(row, vector.as_pointer()) for row in rows])
        lines = [builder.load(pointer, align=4) for pointer in pointers[0]]
        for distance in (1, 2, 4, 8):
            lines = _exchanged(builder, lines, distance)
        for line, pointer in zip(lines, pointers[1], strict=True):
            builder.store(line, pointer, align=4)
        return context.get_dummy_value()

    return types.void(source, target), generate


def _exchanged(builder: ir.IRBuilder, lines: list, distance: int) -> list:
    """Swap the elements in which the numbers of line and column differ in this bit."""
    columns = range(BLOCK)
    low = [k - distance + BLOCK if k & distance else k for k in columns]  # BLOCK and above: of the second line
    high = [k + BLOCK if k & distance else k + distance for k in columns]
    result = list(lines)
    for i in columns:
        if not i & distance:
            pair = lines[i], lines[i + distance]
            for line, mask in ((i, low), (i + distance, high)):
                result[line] = builder.shuffle_vector(*pair, ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), mask))
    return result
