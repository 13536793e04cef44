"""Reshapes and transposes that undo each other, or that what follows can do on the way.

    permute(permute(x)), view(view(x)), expand(expand(x))   -> one of them, or x
    contiguous(x), clone(x) of a row-major x                -> x
    x.mT @ y                                                -> matmul(x, y, transpose_x)

Views cost no copy, but copies of transposed data do.

Source: "transpose and reshape sinking" of TensorFlow's Grappler (layout and remapper optimizers).
"""

from __future__ import annotations

from typing import Any

from miniflow.graph.ir import Instruction, Program, Slot, follow, replaced
from miniflow.graph.uses import Uses
from miniflow.ops.matmul import Matmul
from miniflow.ops.permute import Permute, Transpose
from miniflow.ops.shape import Clone, Expand, View
from miniflow.ops.views import Slice, wrap_dim, wrap_dims


def run(program: Program) -> Program:
    """The program with fewer views and copies: each instruction takes in the views before it."""
    uses = Uses(program)
    new: dict[Slot, Slot] = {}
    kept = []
    for instruction in program.instructions:
        if any(slot in new for slot in instruction.reads):
            inputs = [follow(new, x) if isinstance(x, Slot) else x for x in instruction.inputs]
            instruction = instruction.with_(inputs=inputs)
        merged = merge(instruction, uses)
        if isinstance(merged, Slot):
            new[instruction.output] = merged
        else:
            kept.append(merged)
            uses.add(merged)
    changed = new or any(a is not b for a, b in zip(kept, program.instructions, strict=True))
    return replaced(program, new, kept) if changed else program


def merge(instruction: Instruction, uses: Uses) -> Instruction | Slot:
    """The instruction with the view before it taken in; a slot if nothing is left to be done."""
    rule = RULES.get(instruction.op)
    changed = instruction if rule is None else rule(instruction, uses) or instruction
    if (changed.op.view or changed.op is Clone) and changed.after is None:
        source = changed.inputs[0]
        if uses.same_layout(source, instruction.output) and is_whole(changed):
            return source
    return changed


def is_whole(instruction: Instruction) -> bool:
    """Whether a result that lies as its source does also has its elements in the same places."""
    if instruction.op in (Permute, Transpose):
        return order_of(instruction) == tuple(range(instruction.inputs[0].ndim))
    return instruction.op in (View, Expand, Clone) or instruction.op is Slice and is_all(instruction)


def is_all(instruction: Instruction) -> bool:
    """Whether a slice names everything."""
    return all(part is Ellipsis or part == slice(None) for part in instruction.attrs["index"])


def order_of(instruction: Instruction) -> tuple[int, ...]:
    """The `dims` of a permutation or transposition, counted from the front."""
    ndim = instruction.inputs[0].ndim
    if instruction.op is Permute:
        return wrap_dims("permute", instruction.attrs["dims"], ndim)
    order = list(range(ndim))
    if ndim:
        a, b = (wrap_dim("transpose", instruction.attrs[name], ndim) for name in ("dim0", "dim1"))
        order[a], order[b] = b, a
    return tuple(order)


def source_of(x: Any, uses: Uses, *ops: type) -> Instruction | None:
    """The instruction that made x, if it is of one of these ops."""
    made = uses.made.get(x)
    return made if made is not None and made.op in ops else None


def merge_permutes(instruction: Instruction, uses: Uses) -> Instruction | None:
    first = source_of(instruction.inputs[0], uses, Permute, Transpose)
    if first is None:
        return None
    inner, outer = order_of(first), order_of(instruction)
    dims = tuple(inner[d] for d in outer)
    return instruction.with_(op=Permute, inputs=[first.inputs[0]], attrs={"dims": dims})


def merge_views(instruction: Instruction, uses: Uses) -> Instruction | None:
    first = source_of(instruction.inputs[0], uses, View)
    if first is None:
        return None
    try:
        uses.layout(first.inputs[0]).reshape(instruction.output.shape, copy=False)
    except ValueError:
        return None
    return instruction.with_(inputs=[first.inputs[0]], attrs={"shape": instruction.output.shape})


def merge_expands(instruction: Instruction, uses: Uses) -> Instruction | None:
    first = source_of(instruction.inputs[0], uses, Expand)
    return None if first is None else instruction.with_(inputs=[first.inputs[0]])


def turn_operands(instruction: Instruction, uses: Uses) -> Instruction | None:
    """Let the product read transposed operands; the kernel sees the same memory in the same order."""
    inputs, attrs = list(instruction.inputs), dict(instruction.attrs)
    for position, name in enumerate(("transpose_x", "transpose_y")):
        source = source_of(inputs[position], uses, Permute, Transpose)
        ndim = inputs[position].ndim
        if source is not None and order_of(source) == (*range(ndim - 2), ndim - 1, ndim - 2):
            inputs[position], attrs[name] = source.inputs[0], not attrs[name]
    return instruction.with_(inputs=inputs, attrs=attrs) if inputs != instruction.inputs else None


RULES = {
    Permute: merge_permutes,
    Transpose: merge_permutes,
    View: merge_views,
    Expand: merge_expands,
    Matmul: turn_operands,
}
