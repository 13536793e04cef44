"""Reshapes and transposes that undo each other, or that what follows can do on the way.

    permute(permute(x)), view(view(x)), expand(expand(x))   -> one of them, or x
    contiguous(x), clone(x) of a row-major x                -> x
    x.mT @ y                                                -> matmul(x, y, transpose_x)
    relu(x.view(a)).view(b)                                 -> relu(x).view(b), or relu(x) where b is its shape
    cat(q.mT.contiguous().view(a), k ...)                   -> cat(q.mT, k ...).view(a)

The fourth moves views and permutations behind elementwise ops and layer norm; there they often meet their inverse.
`linear` on (N, T, C) takes (N * T, C) and returns three dims, so that what stands between two layers stands between
two views: without these it can be fused with its neighbours. Views cost no copy, but copies of transposed data do, and
so do views that keep fusions apart.

Source: "transpose and reshape sinking" of TensorFlow's Grappler (layout and remapper optimizers).
"""

from __future__ import annotations

from math import prod
from typing import Any

from miniflow.graph.ir import Instruction, Program, Slot, follow, replaced
from miniflow.graph.readers import Readers
from miniflow.graph.strides import Strides
from miniflow.ops.dropout import Dropout
from miniflow.ops.joining import Cat
from miniflow.ops.matmul import Matmul
from miniflow.ops.normalization import LayerNorm, LayerNormGrad
from miniflow.ops.permute import Permute, Transpose
from miniflow.ops.pointwise import Pointwise
from miniflow.ops.promotion import Cast, ToInteger
from miniflow.ops.shape import Clone, Expand, View
from miniflow.ops.views import Slice, wrap_dim, wrap_dims

ELEMENTWISE = (Pointwise, Cast, ToInteger)
ROW_OPS = {LayerNorm: 1, LayerNormGrad: 2}  # on the last dims of so many inputs; the first result is like them
ROUNDS = 8  # at most


def run(program: Program) -> Program:
    """The program with fewer views and copies."""
    for _ in range(ROUNDS):
        simpler = cancelled(program)
        further = behind_others(simpler)
        if further is program:
            return program
        program = further
    return program


def cancelled(program: Program) -> Program:
    """One walk: each instruction takes in the views before it."""
    strides = Strides(program)
    new: dict[Slot, Slot] = {}
    kept = []
    for instruction in program.instructions:
        if any(slot in new for slot in instruction.reads):
            inputs = [follow(new, x) if isinstance(x, Slot) else x for x in instruction.inputs]
            instruction = instruction.with_(inputs=inputs)
        merged = merge(instruction, strides)
        if isinstance(merged, Slot):
            new[instruction.output] = merged
        else:
            kept.append(merged)
            strides.add(merged)
    changed = new or any(a is not b for a, b in zip(kept, program.instructions, strict=True))
    return replaced(program, new, kept) if changed else program


def merge(instruction: Instruction, strides: Strides) -> Instruction | Slot:
    """The instruction with the view before it taken in; a slot if nothing is left to be done."""
    rule = RULES.get(instruction.op)
    changed = instruction if rule is None else rule(instruction, strides) or instruction
    if (changed.op.view or changed.op is Clone) and changed.after is None:
        source = changed.inputs[0]
        if strides.same(source, instruction.output) and is_whole(changed):
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


def source_of(x: Any, strides: Strides, *ops: type) -> Instruction | None:
    """The instruction that made x, if it is of one of these ops."""
    made = strides.made.get(x)
    return made if made is not None and made.op in ops else None


def merge_permutes(instruction: Instruction, strides: Strides) -> Instruction | None:
    first = source_of(instruction.inputs[0], strides, Permute, Transpose)
    if first is None:
        return None
    inner, outer = order_of(first), order_of(instruction)
    dims = tuple(inner[d] for d in outer)
    return instruction.with_(op=Permute, inputs=[first.inputs[0]], attrs={"dims": dims})


def merge_views(instruction: Instruction, strides: Strides) -> Instruction | None:
    first = source_of(instruction.inputs[0], strides, View)
    if first is None:
        return None
    try:
        strides.of(first.inputs[0]).reshape(instruction.output.shape, copy=False)
    except ValueError:
        return None
    return instruction.with_(inputs=[first.inputs[0]], attrs={"shape": instruction.output.shape})


def merge_expands(instruction: Instruction, strides: Strides) -> Instruction | None:
    first = source_of(instruction.inputs[0], strides, Expand)
    return None if first is None else instruction.with_(inputs=[first.inputs[0]])


def turn_operands(instruction: Instruction, strides: Strides) -> Instruction | None:
    """Let the product read transposed operands; the kernel sees the same memory in the same order."""
    inputs, attrs = list(instruction.inputs), dict(instruction.attrs)
    for position, name in enumerate(("transpose_x", "transpose_y")):
        source = source_of(inputs[position], strides, Permute, Transpose)
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


# views behind the ops that do not mind them


def behind_others(program: Program) -> Program:
    """One walk: each op on views that would do the same to what they are views of does that, and its result is viewed.

    These are elementwise ops, layer norm, and `cat`.
    """
    strides = Strides(program)
    readers = Readers(program)
    kept: list[Instruction] = []
    for instruction in program.instructions:
        some = joined_before(instruction, strides) if instruction.op is Cat else moved(instruction, strides, readers)
        kept += some or [instruction]
        for one in some:
            strides.add(one)
    return program.with_(instructions=kept) if len(kept) != len(program.instructions) else program


def moved(instruction: Instruction, strides: Strides, readers: Readers) -> list[Instruction]:
    """The instruction on the sources of the views that it reads, and views of its results; nothing if it stays."""
    positions = places_of(instruction)
    found = {k: source_of(instruction.inputs[k], strides, View, Permute, Transpose) for k in positions}
    views = [view for view in found.values() if view is not None]
    if not views or not all(alike(views[0], view) for view in views) or not fits(instruction, views[0]):
        return []
    others = [k for k in positions if found[k] is None]
    if others and not all(can_join(instruction, instruction.inputs[k], views[0], strides) for k in others):
        return []
    if not pays(instruction, views[0], readers):
        return []
    if instruction.op is LayerNormGrad:  # it reads mean and rstd as the layer norm made them of rows
        sources = [source_of(x, strides, View) for x in instruction.inputs[3:]]
        read = [x if s is None else s.inputs[0] for s, x in zip(sources, instruction.inputs[3:], strict=True)]
        instruction = instruction.with_(inputs=[*instruction.inputs[:3], *read])
    return rewritten(instruction, views[0], {k: view for k, view in found.items() if view is not None}, others)


def rewritten(
    instruction: Instruction, view: Instruction, views: dict[int, Instruction], others: list[int]
) -> list[Instruction]:
    """The same on arrays of the shape before `view`: the sources of `views`, and the inputs at `others`, viewed so."""
    before = view.inputs[0].shape
    inputs, first = list(instruction.inputs), []
    for k, source in views.items():
        inputs[k] = source.inputs[0]
    for k in others:
        slot = instruction.inputs[k].like(shape=before)
        first.append(instruction.with_(op=View, inputs=[inputs[k]], outputs=[slot], attrs={"shape": before}))
        inputs[k] = slot
    shapes = [before] * (1 if instruction.op in ROW_OPS else len(instruction.outputs))
    if instruction.op is LayerNorm:
        shapes += [before[: len(before) - instruction.attrs["dims"]]] * 2  # mean and rstd of each row
    inner = [slot.like(shape=shape) for slot, shape in zip(instruction.outputs, shapes, strict=False)]
    changed = instruction.with_(inputs=inputs, outputs=[*inner, *instruction.outputs[len(inner) :]])
    last = [
        instruction.with_(
            op=view.op, inputs=[x], outputs=[y], attrs={"shape": y.shape} if view.op is View else view.attrs
        )
        for x, y in zip(inner, instruction.outputs, strict=False)
    ]
    return [*first, changed, *last]


def places_of(instruction: Instruction) -> list[int]:
    """The positions of inputs that are as large as the result; none for ops that views cannot be moved behind."""
    if instruction.op in ROW_OPS:
        return list(range(ROW_OPS[instruction.op]))
    if not issubclass(instruction.op, ELEMENTWISE) and instruction.op is not Dropout:
        return []
    shape = instruction.outputs[0].shape
    return [k for k, x in enumerate(instruction.inputs) if isinstance(x, Slot) and x.shape == shape]


def alike(a: Instruction, b: Instruction) -> bool:
    """Whether two instructions view equally shaped arrays in the same way."""
    if a.inputs[0].shape != b.inputs[0].shape or (a.op is View) != (b.op is View):
        return False
    return a.op is View or order_of(a) == order_of(b)


def fits(instruction: Instruction, view: Instruction) -> bool:
    """Whether the op means the same before the view: rows stay rows, and what is broadcast is along the same dims."""
    before, behind = view.inputs[0].shape, view.output.shape
    if instruction.op in ROW_OPS:
        weight = instruction.inputs[ROW_OPS[instruction.op]]
        dims = max(instruction.attrs["dims"], 0 if weight is None else weight.ndim)
        return view.op is View and dims < len(before) and before[-dims:] == behind[-dims:]
    small = [x for x in instruction.inputs if isinstance(x, Slot) and x.ndim and x.shape != behind]
    if view.op is not View:
        return not small
    return all(x.ndim <= min(len(before), len(behind)) and before[-x.ndim :] == behind[-x.ndim :] for x in small)


def can_join(instruction: Instruction, x: Slot, view: Instruction, strides: Strides) -> bool:
    """Whether an operand that is not a view can be made one at no cost, and without tearing it from the elementwise op
    that it comes from: as the residual that is added to what a linear layer gave."""
    made = strides.made.get(x)
    if view.op is not View or view.inputs[0].ndim >= view.output.ndim:  # only one way, from (N, T, C) to (N * T, C)
        return False
    if not issubclass(instruction.op, Pointwise) or not strides.row_major(x):
        return False
    return made is None or not issubclass(made.op, ELEMENTWISE) and made.op is not Dropout


def pays(instruction: Instruction, view: Instruction, readers: Readers) -> bool:
    """A reshape may be moved at any time. A permutation is only moved to where it is undone: else several readers
    might have to read transposed memory in place of this one op."""
    if view.op is View:
        return True
    if instruction.op is Dropout or not readers.results.isdisjoint(instruction.outputs):
        return False  # draws follow the order of memory
    others = [reader for slot in instruction.outputs for reader in readers.consumers.get(slot, [])]
    return bool(others) and all(other.op in (Permute, Transpose) and undo(view, other) for other in others)


def undo(first: Instruction, second: Instruction) -> bool:
    """Whether two permutations after each other leave the order as it was."""
    inner = order_of(first)
    return [inner[d] for d in order_of(second)] == list(range(len(inner)))


def joined_before(cat: Instruction, strides: Strides) -> list[Instruction]:
    """`cat` on the sources of views that merge its dim with the dims behind it, and the view of its result: heads of
    attention are joined before they become one row, from wherever they lie, without contiguous copies."""
    views = [source_of(x, strides, View) for x in cat.inputs]
    if None in views:
        return []
    dim, wide = cat.attrs["dim"], [view.inputs[0].shape for view in views]
    inner = len(wide[0]) - cat.output.ndim  # how many more dims the sources have
    rest = {(shape[:dim], shape[dim + 1 :]) for shape in wide}
    if inner < 1 or len(rest) != 1:
        return []
    ((before, behind),) = rest
    factor = prod(behind[:inner])
    ends = before == cat.output.shape[:dim] and behind[inner:] == cat.output.shape[dim + 1 :]
    if not ends or [shape[dim] * factor for shape in wide] != list(cat.attrs["sizes"]):
        return []
    sizes = tuple(shape[dim] for shape in wide)
    whole = cat.output.like(shape=(*before, sum(sizes), *behind))
    inputs = [uncopied(view.inputs[0], strides) for view in views]
    return [
        cat.with_(inputs=inputs, outputs=[whole], attrs={"dim": dim, "sizes": sizes}),
        cat.with_(op=View, inputs=[whole], attrs={"shape": cat.output.shape}),
    ]


def uncopied(x: Slot, strides: Strides) -> Slot:
    """What x is a contiguous copy of: its reader copies anyway."""
    copy = source_of(x, strides, Clone)
    return x if copy is None else copy.inputs[0]
