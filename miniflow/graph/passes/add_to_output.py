"""Additions of arrays that are mostly zeros: write where they are not.

    slice_into_zeros(x, index) + total              -> slice_add(total, x, index)
    embedding_grad(dy, indices) + total             -> embedding_add(total, dy, indices)

These sums are the gradients of what was taken apart, as q, k and v from one projection, and of a table that is used
twice, as embedding and as output layer of a language model. Each saves an array of zeros of full size and its addition,
two reads and a write, since the sum stays in the memory of `total`. Rows that are looked up several times are summed
before they are added, as in the array of zeros; no kernel for cuda devices does that, so there the second rule is left
out. Only zeros may change sign: -0 + 0 is 0. Sums into matrix products stay as they are: NumPy's BLAS cannot add to a
result.

Source: OneFlow's FuseAddToOutput pass, which lets kernels accumulate into an existing output.
"""

from __future__ import annotations

from typing import Any

from miniflow.backends.registry import kernel_of
from miniflow.dtype import HALF
from miniflow.graph.ir import Instruction, Program, Slot
from miniflow.graph.rewrite import replace
from miniflow.graph.uses import Uses
from miniflow.ops.accumulate import EmbeddingAdd, SliceAdd
from miniflow.ops.arithmetic import Add
from miniflow.ops.embedding import EmbeddingGrad
from miniflow.ops.views import SliceIntoZeros


def run(program: Program) -> Program:
    """The program with sparse terms added in place."""
    uses = Uses(program)
    new: dict[Instruction, list[Instruction]] = {}
    for addition in program.instructions:
        if addition.op is Add:
            for term, total in (addition.inputs, addition.inputs[::-1]):
                sparse = sparse_term(term, total, addition, uses)
                if sparse is not None:
                    new[sparse], new[addition] = [], [in_place(addition, total, sparse)]
                    break
    return replace(program, new)


def sparse_term(term: Any, total: Any, addition: Instruction, uses: Uses) -> Instruction | None:
    """What made `term`, if it is mostly zeros and `total` an array like it."""
    alike = all(isinstance(x, Slot) and same_kind(x, addition.output) for x in (term, total))
    made = uses.made_for(term, SliceIntoZeros, EmbeddingGrad) if alike and term is not total else None
    if made is None or made.inputs[0].dtype != addition.output.dtype or made.after is not addition.after:
        return None
    op = SliceAdd if made.op is SliceIntoZeros else EmbeddingAdd
    if op is EmbeddingAdd and made.output.dtype in HALF:
        return None  # the sums of rows would not be rounded before they are added
    return None if kernel_of(addition.output.device.type, op.__name__) is None else made


def same_kind(x: Slot, y: Slot) -> bool:
    """Whether two slots have the same shape, dtype and device."""
    return (x.shape, x.dtype, x.device) == (y.shape, y.dtype, y.device)


def in_place(addition: Instruction, total: Slot, sparse: Instruction) -> Instruction:
    """The addition of a sparse term to `total`."""
    if sparse.op is SliceIntoZeros:
        attrs = {"index": sparse.attrs["index"]}
        return addition.with_(op=SliceAdd, inputs=[total, sparse.inputs[0]], attrs=attrs)
    attrs = {"padding_idx": sparse.attrs["padding_idx"]}
    return addition.with_(op=EmbeddingAdd, inputs=[total, *sparse.inputs], attrs=attrs)
