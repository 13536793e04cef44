"""A recorded program for batches of another size: the same instructions, whose shape rules are asked again.

The size of a batch stands in two kinds of attributes: the shapes of `view` and of `expand`. Which of their dims has the
batch follows from the dims of the operand that have changed. A program that has the size anywhere else, in a constant
or an index, is refused by a shape rule, or returns another number of rows. Whether rows depend on each other, as where
a dim of size 1 was squeezed, is not noticed here: compare the results with those of the program itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from miniflow.backends.geometry import layout_of
from miniflow.backends.registry import kernel_of
from miniflow.errors import GraphError
from miniflow.graph.ir import Instruction, Program, Slot
from miniflow.ops.shape import Clone, Expand, View, can_view

Shape = Sequence[int]


def resized(program: Program, rows: int) -> Program:
    """The program for inputs of so many rows, that is, of this size in their first dim.

    Args:
        program: as recorded, of a step without updates and writes; all inputs have the same number of rows.

    Raises:
        GraphError: if the outputs have another number of rows then.
        ShapeError, DimError, IndexRangeError: by a shape rule that refuses another size.
    """
    old = program.inputs[0].shape[0]
    slots = {slot: slot for slot in (*program.states, *program.constants)}
    slots |= {slot: sized(slot, (rows, *slot.shape[1:])) for slot in program.inputs}
    layouts = {new: layout_of(new.shape, new.dtype) for new in slots.values()}
    before: dict[Slot, int] = {}  # in a dim that has the batch and others, the product of those in front of the batch
    instructions: list[Instruction] = []
    for i in program.instructions:
        inputs, attrs = [slots[x] if isinstance(x, Slot) else x for x in i.inputs], dict(i.attrs)
        inner = next((before[x] for x in i.reads if x in before), 1)
        if i.op is View:
            attrs["shape"], inner = viewed(i.inputs[0], inputs[0], i.output.shape, inner, old, rows)
        elif i.op is Expand:
            attrs["shape"] = expanded(i.inputs[0].shape, inputs[0].shape, i.output.shape, old, rows)
        if i.op is View and not can_view(layouts[inputs[0]], attrs["shape"]):
            copy = inputs[0].like()
            instructions.append(i.with_(op=Clone, inputs=inputs, outputs=[copy], attrs={}))
            inputs, layouts[copy] = [copy], layout_of(copy.shape, copy.dtype)
        results = i.op.infer(*inputs, **attrs)
        shapes = [shape for shape, _ in ([results] if i.op.single else results)]
        outputs = [sized(slot, shape) for slot, shape in zip(i.outputs, shapes, strict=True)]
        for slot, new in zip(i.outputs, outputs, strict=True):
            slots[slot], layouts[new], before[slot] = new, layout_of(new.shape, new.dtype), inner
        if i.op.view:
            layouts[outputs[0]] = kernel_of("cpu", i.op.__name__).run(layouts[inputs[0]], **attrs)
        instructions.append(i.with_(inputs=inputs, outputs=outputs, attrs=attrs))
    outputs = [slots[slot] for slot in program.outputs]
    if any(new.shape != (rows, *slot.shape[1:]) for slot, new in zip(program.outputs, outputs, strict=True)):
        raise GraphError(f"{program.name}: for a batch of {rows} rows the results are {outputs}")
    return program.with_(inputs=[slots[slot] for slot in program.inputs], instructions=instructions, outputs=outputs)


def sized(slot: Slot, shape: Shape) -> Slot:
    """A slot like another one, of this shape."""
    return Slot(tuple(int(n) for n in shape), slot.dtype, slot.device, slot.kind, slot.name)


def viewed(before: Slot, after: Slot, shape: Shape, inner: int, old: int, rows: int) -> tuple[tuple[int, ...], int]:
    """The shape of a view, and what stands in front of the batch in the dim that has it.

    Views keep the row-major order: the batch begins behind as many elements of the dims in front as before. Of several
    dims of the view that begin there, the batch is the one that has its size.

    Args:
        before, after: the operand, and the one of another size.
        shape: of the view of `before`.
        inner: what stands in front of the batch in the dim of the operand that has it.
        old, rows: the sizes of the batch.
    """
    changed = [d for d, (m, n) in enumerate(zip(before.shape, after.shape, strict=True)) if m != n]
    if not changed:
        return tuple(shape), 1
    start, ends = prefixes(before.shape)[changed[0]] * inner, prefixes(shape)
    dims = [d for d, n in enumerate(shape) if ends[d] <= start < max(ends[d + 1], ends[d] + 1) and n % old == 0]
    dims.sort(key=lambda d: (ends[d] != start, shape[d] != old))
    if len(changed) > 1 or not dims or start % ends[dims[0]]:
        raise GraphError(f"view: the batch is not in one dim of {before.shape} or of {tuple(shape)}")
    return tuple(n // old * rows if d == dims[0] else n for d, n in enumerate(shape)), start // ends[dims[0]]


def expanded(before: Shape, after: Shape, shape: Shape, old: int, rows: int) -> tuple[int, ...]:
    """The shape to which an operand is expanded: its own sizes, and `rows` where the first dim is a new batch."""
    lead = len(shape) - len(before)
    sizes = [new if old_size != new else n for old_size, new, n in zip(before, after, shape[lead:], strict=True)]
    sizes = [*shape[:lead], *sizes]
    is_new = lead > 0 or before[:1] == after[:1] == (1,)
    return (rows, *sizes[1:]) if is_new and shape[0] == old else tuple(sizes)


def prefixes(shape: Shape) -> list[int]:
    """The products of the first 0, 1, 2 ... sizes."""
    return list(accumulate(shape, mul, initial=1))
