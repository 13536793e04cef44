"""Sparse updates: of an embedding table, only the rows that were looked up are updated.

    %7 = embedding_grad(%6, %0, rows=10000000)          %7, %8 = group_rows(%6, %0)
    %8 = div(%7, 4.0)                            ->     %9 = div(%8, 4.0)
    %9 = adam_update(%1, %8, %2, %3, None)              %10 = sparse_adam_update(%1, %9, %2, %3, None, %7)

Neither the gradient of the whole table nor a pass over it remains. Whatever is between the lookup and the update
has to treat rows of zeros as nothing: sums of several lookups, scaling, casts, clipping, the search for infinities. See
`optim.sparse` for what the rules do to rows that were not looked up.

Pays: `python -m benchmarks sparse` has a step with it and without it, of embeddings of up to ten million rows.

Source: OneFlow's IndexedSlicesOptimizerRewritePass.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any

from miniflow.backends.runtime_defaults import user_level
from miniflow.graph.ir import UPDATE, Instruction, Program, Scalar, Slot, substitute
from miniflow.graph.uses import Uses
from miniflow.nn.utils.clip_grad import ClipGradNorm, ClipGradValue, TotalNorm
from miniflow.ops.arithmetic import Add, Div, Mul
from miniflow.ops.embedding import NO_PADDING, EmbeddingGrad
from miniflow.ops.joining import Cat
from miniflow.ops.loss_scale import AnyNonFinite, UnscaleGradient
from miniflow.ops.promotion import Cast
from miniflow.ops.shape import Clone
from miniflow.optim.sgd import SgdUpdate
from miniflow.optim.sparse import SPARSE_RULES, GroupRows

# zero rows stay zero, if the other inputs are plain numbers
ROW_BY_ROW = (Mul, Div, Cast, Clone, UnscaleGradient, ClipGradNorm, ClipGradValue)
BLIND_TO_ZEROS = (AnyNonFinite, TotalNorm)


class NotSparse(Exception):
    """Why a parameter is updated as a whole."""


def run(program: Program, sparse_parameters: Collection[str]) -> Program:
    """The program with sparse updates of those parameters that `sparse_parameters` names and that allow it.

    Warns:
        UserWarning: naming those that do not, and why; and those whose update is lazy though the rule has momentum.
    """
    notes = []
    for parameter in program.states:
        if parameter.name in sparse_parameters:
            try:
                program, note = rewrite(program, parameter)
            except NotSparse as reason:
                note = f"{parameter.name} is updated as a whole: {reason}"
            notes += [note] if note else []
    if notes:
        warnings.warn(f"{program.name}: is_sparse=True: " + "; ".join(notes), stacklevel=user_level())
    return program


def rewrite(program: Program, parameter: Slot) -> tuple[Program, str]:
    """The program with a sparse update of one parameter, and what its user should know.

    Raises:
        NotSparse: if the update needs the whole gradient.
    """
    update = next((i for i in program.instructions if i.op.mutates and i.inputs[0] is parameter), None)
    if update is None:  # it has no gradient here
        return program, ""
    check_rule(update)
    gradient = update.inputs[1]
    images = Images(program)
    rows, values = images.of(gradient)
    images.check_readers(update)
    images.replacements[update] = [
        update.with_(op=SPARSE_RULES[update.op], inputs=[parameter, values, *update.inputs[2:], rows])
    ]
    dense = {slot: values for slot, (_, values) in images.sparse.items()}
    instructions = []
    for instruction in program.instructions:
        fresh = images.replacements.get(instruction)
        instructions += substitute([instruction], dense) if fresh is None else fresh
    return program.with_(instructions=instructions), lazy_note(update)


def check_rule(update: Instruction) -> None:
    """Raise NotSparse for a rule that changes rows whose gradient is zero, other than by momentum."""
    if update.op not in SPARSE_RULES or len(update.inputs) != update.op.groups or update.phase != UPDATE:
        raise NotSparse(f"{update.op.function_name} has no sparse form; use SGD, Adam or Adagrad")
    if (decay := now(update.attrs["weight_decay"])) != 0:
        raise NotSparse(f"weight_decay={decay} changes every row; put it into a parameter group with weight_decay=0")


def lazy_note(update: Instruction) -> str:
    """A word on momentum: users of SGD expect it to move rows on; those of Adam know the lazy form."""
    if update.op is SgdUpdate and now(update.attrs["momentum"]) != 0:
        return f"{update.inputs[0].name}: momentum moves a row only in steps that look it up"
    return ""


def now(number: Any) -> float:
    """A number of an update as it is now: the graph is compiled again when it becomes 0, or is 0 no longer."""
    return number.source() if isinstance(number, Scalar) else number


class Images:
    """For dense gradients of a table, their rows and values, and the instructions that make these.

    Attributes:
        sparse: dense slot -> the slots of its rows and of its values.
        replacements: instruction -> what takes its place.
    """

    def __init__(self, program: Program):
        self.program = program
        uses = Uses(program)
        self.producers, self.readers = uses.producers, uses.readers
        self.sparse: dict[Slot, tuple[Slot, Slot]] = {}
        self.replacements: dict[Instruction, list[Instruction]] = {}

    def of(self, slot: Slot) -> tuple[Slot, Slot]:
        """Rows and values of a dense gradient.

        Raises:
            NotSparse: if it is not a sum of gradients of lookups.
        """
        if slot in self.sparse:
            return self.sparse[slot]
        source = self.producers.get(slot)
        if source is None or source.op not in (EmbeddingGrad, Add, *ROW_BY_ROW):
            name = source.op.function_name if source else slot.name
            raise NotSparse(f"its gradient comes from {name}, not only from looking up rows")
        if source.op is EmbeddingGrad:
            image = self._grouped(source, *source.inputs, **source.attrs)
        elif source.op is Add:
            image = self._sum(source)
        else:
            image = self._row_by_row(source)
        self.sparse[slot] = image
        return image

    def _grouped(
        self, source: Instruction, dy: Slot, indices: Slot, *before: Instruction, padding_idx: int, rows: int | None
    ) -> tuple[Slot, Slot]:
        """Replace `source` by a `GroupRows` and what it needs."""
        kinds = GroupRows.infer(dy, indices, padding_idx=padding_idx, rows=None)
        outputs = [dy.like(shape=shape, dtype=dtype) for shape, dtype in kinds]
        attrs = {"padding_idx": padding_idx, "rows": rows}
        grouped = source.with_(op=GroupRows, inputs=[dy, indices], outputs=outputs, attrs=attrs)
        self.replacements[source] = [*before, grouped]
        return outputs[0], outputs[1]

    def _sum(self, source: Instruction) -> tuple[Slot, Slot]:
        """All terms are grouped once more: the sums are those of the dense terms from left to right, bit for bit."""
        inner: list[Slot] = []
        terms = [self.of(x) for x in self._terms(source, inner)]
        joined, before = [], []
        for parts in zip(*terms, strict=True):  # first rows, then values
            sizes = tuple(part.shape[0] for part in parts)
            joined.append(parts[0].like(shape=(sum(sizes), *parts[0].shape[1:])))
            attrs = {"dim": 0, "sizes": sizes}
            before.append(source.with_(op=Cat, inputs=list(parts), outputs=[joined[-1]], attrs=attrs))
        image = self._grouped(source, joined[1], joined[0], *before, padding_idx=NO_PADDING, rows=None)
        self.sparse.update(dict.fromkeys(inner, image))
        return image

    def _terms(self, source: Instruction, inner: list[Slot]) -> list[Slot]:
        """The terms of (a + b) + c, as gradient accumulation adds them; `inner` gets a + b, which nobody else reads."""
        if not all(isinstance(x, Slot) and x.shape == source.output.shape for x in source.inputs):
            raise NotSparse("a number is added to its gradient")
        left, right = source.inputs
        sum_before = self.producers.get(left)
        if sum_before is None or sum_before.op is not Add or self.readers[left] != [source]:
            return [left, right]
        inner.append(left)
        self.replacements[sum_before] = []
        return [*self._terms(sum_before, inner), right]

    def _row_by_row(self, source: Instruction) -> tuple[Slot, Slot]:
        dense, *others = sorted(source.inputs, key=lambda x: not isinstance(x, Slot) or x.ndim == 0)
        rows, values = self.of(dense)
        plain = all(not isinstance(x, Slot) or x.ndim == 0 for x in others)
        if not plain or (source.op is Div and source.inputs[0] is not dense):
            raise NotSparse(f"{source.op.function_name} makes every row of its gradient different")
        result = values.like(dtype=source.output.dtype)
        inputs = [values if x is dense else x for x in source.inputs]
        self.replacements[source] = [source.with_(inputs=inputs, outputs=[result])]
        return rows, result

    def check_readers(self, update: Instruction) -> None:
        """Raise NotSparse if anything else needs one of the dense gradients."""
        results = set(self.program.results)
        for slot in self.sparse:
            if slot in results:
                raise NotSparse("its gradient is returned, or kept")
            for reader in self.readers[slot]:
                if reader not in self.replacements and reader is not update and reader.op not in BLIND_TO_ZEROS:
                    raise NotSparse(f"{reader.op.function_name} reads its whole gradient")
