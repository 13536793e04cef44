"""Additions of arrays that are mostly zeros: write where they are not.

    slice_into_zeros(a, part 0) + slice_into_zeros(b, part 1) ...   -> cat(a, b, ...), or stack, if the parts are all
    slice_into_zeros(x, index) + total                              -> slice_add(total, x, index)
    embedding_grad(dy, indices) + total                             -> embedding_add(total, dy, indices)

These sums are the gradients of what was taken apart, as q, k and v from one projection, and of a table that is used
twice, as embedding and as output layer of a language model. Each saves an array of zeros of full size, its addition
(two reads and a write), and mostly a copy, since the sum stays in the memory of `total`. Rows that are looked up
several times are summed before they are added, as in the array of zeros; no kernel for cuda devices does that, so there
the third rule is left out. Only zeros may change sign: -0 + 0 is 0. Sums into matrix products stay as they are: NumPy's
BLAS cannot add to a result.

Source: OneFlow's FuseAddToOutput pass, which lets kernels accumulate into an existing output.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from miniflow.backends.registry import kernel_of
from miniflow.dispatch.dispatcher import Op
from miniflow.dtype import HALF
from miniflow.graph.ir import Instruction, Program, Slot
from miniflow.graph.readers import Readers
from miniflow.ops.accumulate import EmbeddingAdd, SliceAdd
from miniflow.ops.arithmetic import Add
from miniflow.ops.embedding import EmbeddingGrad
from miniflow.ops.joining import Cat, Stack
from miniflow.ops.views import SliceIntoZeros


def run(program: Program) -> Program:
    """The program with sums of parts joined, and other sparse terms added in place."""
    return accumulated(joined(program))


# parts that make up the whole


def joined(program: Program) -> Program:
    """The first rule, also with one other term in the sum: with more, the order of additions would matter."""
    readers = Readers(program)
    new: dict[Instruction, list[Instruction]] = {}
    for root in reversed(program.instructions):  # from the last addition of a sum to the first
        if root.op is not Add or root in new:
            continue
        additions, terms = terms_of(root, readers)
        parts = [t for t in terms if isinstance(t, Slot) and made_for(t, readers, SliceIntoZeros)]
        others = [t for t in terms if t not in parts]
        whole = join([readers.made[t] for t in parts], root) if len(others) <= 1 < len(parts) else None
        if whole is not None:
            new.update(dict.fromkeys([*additions, *(readers.made[t] for t in parts)], []))
            new[root] = [whole] if not others else with_another(whole, root, others[0])
    if not new:
        return program
    return program.with_(instructions=[x for i in program.instructions for x in new.get(i, [i])])


def terms_of(root: Instruction, readers: Readers) -> tuple[list[Instruction], list[Any]]:
    """The additions that lead to `root` and are read by the next alone, and the terms that they add up."""
    additions, terms, waiting = [], [], [root]
    while waiting:
        addition = waiting.pop()
        additions.append(addition)
        for x in addition.inputs:
            inner = made_for(x, readers, Add) if isinstance(x, Slot) and x.shape == root.output.shape else None
            if inner is None or inner.after is not root.after:
                terms.append(x)
            else:
                waiting.append(inner)
    return additions, terms


def made_for(x: Slot, readers: Readers, *ops: type[Op]) -> Instruction | None:
    """The instruction of one of these ops that made x for a single reader."""
    made = readers.made.get(x)
    return made if made is not None and made.op in ops and readers.only_reader(x) is not None else None


def join(makers: list[Instruction], root: Instruction) -> Instruction | None:
    """The instruction that puts the parts together, if they make up the whole, each element once."""
    shape = root.output.shape
    places = [place_of(m.attrs["index"], shape) for m in makers]
    if None in places or any(m.attrs["shape"] != shape or m.output.dtype != root.output.dtype for m in makers):
        return None
    order = sorted(range(len(makers)), key=lambda k: places[k].start)
    dim, first, last = places[0].dim, places[order[0]], places[order[-1]]
    if {(p.dim, p.is_one) for p in places} != {(dim, first.is_one)} or first.start != 0 or last.stop != shape[dim]:
        return None
    if any(places[a].stop != places[b].start for a, b in pairwise(order)):
        return None
    inputs = [makers[k].inputs[0] for k in order]
    if first.is_one:
        return root.with_(op=Stack, inputs=inputs, attrs={"dim": dim})
    sizes = tuple(places[k].stop - places[k].start for k in order)
    return root.with_(op=Cat, inputs=inputs, attrs={"dim": dim, "sizes": sizes})


class Place(NamedTuple):
    """Elements start to stop of one dim; `is_one` if the part has lost the dim."""

    dim: int
    start: int
    stop: int
    is_one: bool


def place_of(index: tuple, shape: tuple[int, ...]) -> Place | None:
    """The place that an index names, if it cuts one dim only, without steps."""
    if None in index:
        return None
    at = index.index(...)
    every = (*index[:at], *[slice(None)] * (len(shape) + 1 - len(index)), *index[at + 1 :])
    cuts = [(dim, part) for dim, part in enumerate(every) if part != slice(None)]
    if len(cuts) != 1:
        return None
    ((dim, part),) = cuts
    if not isinstance(part, slice):
        return Place(dim, part % shape[dim], part % shape[dim] + 1, True)
    start, stop, step = part.indices(shape[dim])
    return Place(dim, start, max(start, stop), False) if step == 1 else None


def with_another(whole: Instruction, root: Instruction, other: Any) -> list[Instruction]:
    """The parts put together, and then one more term added."""
    inner = root.output.like()
    return [whole.with_(outputs=[inner]), root.with_(inputs=[inner, other])]


# sparse terms


def accumulated(program: Program) -> Program:
    """The second and the third rule."""
    readers = Readers(program)
    new: dict[Instruction, Instruction | None] = {}
    for instruction in program.instructions:
        if instruction.op is Add:
            for term, total in (instruction.inputs, instruction.inputs[::-1]):
                sparse = sparse_term(term, total, instruction, readers)
                if sparse is not None and sparse not in new:
                    new[sparse], new[instruction] = None, in_place(instruction, total, sparse)
                    break
    if not new:
        return program
    return program.with_(instructions=[x for i in program.instructions if (x := new.get(i, i)) is not None])


def sparse_term(term: Any, total: Any, addition: Instruction, readers: Readers) -> Instruction | None:
    """What made `term`, if it is mostly zeros and `total` an array like it."""
    alike = all(isinstance(x, Slot) and same_kind(x, addition.output) for x in (term, total))
    made = made_for(term, readers, SliceIntoZeros, EmbeddingGrad) if alike and term is not total else None
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
