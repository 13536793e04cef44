"""Gradient accumulation: one update from several micro-batches.

The recorded program is a step on one micro-batch. The result takes a batch that is k times as large, cuts it along dim
0, runs forward and backward once for each part, and updates the parameters once, with the mean of the gradients:

    x0, x1 = slice(x, 0:n), slice(x, n:2n)
    g0 = backward(forward(x0))        # the activations of one micro-step are gone before the next begins
    g1 = backward(forward(x1))
    w' = update(w, (g0 + g1) / 2)

It does what eager code does that calls `backward` on each micro-batch, divides the gradients by k and steps once:
every micro-step draws random numbers of its own, and sees the buffers (running statistics) as the one before it has
left them. What does not depend on the micro-batch, such as the cast of a weight, is computed once.

Of what `build` returns, scalars are stacked to shape (k,) and other tensors joined along dim 0; what does not depend on
the micro-batch, and what the update computes, is returned as it is.

Pays: a GPT of 6 layers of 128 features plans 24 MB for 8 x 128 tokens in 4 micro-batches, 73 MB in one.

Source: OneFlow's GradientAccumulationRewritePass (unpack, repeat, acc, pack); Huang et al. 2019, "GPipe", section 2.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from miniflow.errors import GraphError
from miniflow.graph.ir import (
    BACKWARD,
    FORWARD,
    INPUT,
    UPDATE,
    Instruction,
    Program,
    Scalar,
    Slot,
    substitute,
    with_numbers,
)
from miniflow.ops.arithmetic import Add, Div
from miniflow.ops.joining import Cat, Stack
from miniflow.ops.loss_scale import AnyNonFinite, UnscaleGradient
from miniflow.ops.views import Slice


def run(program: Program, accumulation_steps: int) -> Program:
    """The program of a step over `accumulation_steps` micro-batches; a program without an update is left as it is.

    Args:
        program: recorded with inputs of the size of a micro-batch; inputs of no dims are given to every micro-step.
        accumulation_steps: how many micro-batches make a batch.
    """
    if accumulation_steps == 1 or not update_part(program) and program.stages == 1:
        return program
    return Accumulation(program, accumulation_steps).run()


class Accumulation:
    """The making of one such program.

    Attributes:
        copies: for each micro-step, what replaces each slot that it recomputes.
        sums: gradient -> the sum of its copies so far, later their mean.
        carried: state -> the slot with the value that a micro-step leaves in it for the next one.
    """

    def __init__(self, program: Program, steps: int):
        self.program, self.steps = program, steps
        self.updates = update_part(program)
        check_updates(program, self.updates, steps)
        self.carried = carried(program)
        self.body = [i for i in program.instructions if i not in self.updates]
        self.varying = varying([*program.inputs, *self.carried], self.body)
        self.results_of_backward = {slot for i in self.body if i.phase == BACKWARD for slot in i.outputs}
        self.gradients = self._find_gradients()
        self.inputs = {slot: whole(slot, steps) for slot in program.inputs}
        self.draws = program.draws.repeated(steps)
        self.instructions: list[Instruction] = []
        self.copies: list[dict[Slot, Slot]] = []
        self.sums: dict[Slot, Slot] = {}
        self.micro_batch: int | None = None

    def run(self) -> Program:
        """The program of all micro-steps and one update."""
        self.instructions += [i for i in self.body if i.outputs[0] not in self.varying]
        body = [i for i in self.body if i.outputs[0] in self.varying]
        for step in range(self.steps):
            self._micro_step(step, body)
        self.micro_batch = None
        for slot, total in self.sums.items():
            self.sums[slot] = self._emit(Div, [total, float(self.steps)], slot.like(), BACKWARD)
        outputs = [self._joined(slot) for slot in self.program.outputs]
        return self.program.with_(
            inputs=list(self.inputs.values()),
            instructions=self.instructions + substitute(self.updates, self._for_update()),
            outputs=outputs,
            writes={s: self._latest(slot) if s in self.carried else slot for s, slot in self.program.writes.items()},
            draws=self.draws,
        )

    def _find_gradients(self) -> dict[Slot, None]:
        """What updates read of the rest of the program and what therefore is averaged."""
        read = dict.fromkeys(slot for i in self.updates for slot in i.reads)
        averaged = (self.varying | self.results_of_backward) - {*self.carried, *self.carried.values()}
        return {slot: None for slot in read if slot in averaged and slot.dtype.kind not in "biu"}

    # the parts of the program

    def _micro_step(self, step: int, body: list[Instruction]) -> None:
        """Append forward and backward on one micro-batch, each gradient being added to its sum at once."""
        self.micro_batch = step
        copy = {state: self._latest(slot) for state, slot in self.carried.items()} if step else {}
        self.copies.append(copy)
        copy |= {slot: self._part(slot, step) for slot in self.inputs}
        draws = self._draws(step)
        for instruction in body:
            outputs = [slot.like() for slot in instruction.outputs]
            attrs = {name: with_numbers(value, draws) for name, value in instruction.attrs.items()}
            self.instructions.append(instruction.reading(copy, outputs=outputs, attrs=attrs, micro_batch=step))
            copy.update(zip(instruction.outputs, outputs, strict=True))
            self._add_to_sums(instruction.outputs, instruction)
        results = {slot for instruction in body for slot in instruction.outputs}
        self._add_to_sums([slot for slot in self.gradients if slot not in results])

    def _part(self, slot: Slot, step: int) -> Slot:
        """The micro-batch of an input."""
        if slot.ndim == 0:
            return self.inputs[slot]
        reader, blocks = next((i for i in self.body if slot in i.reads), None), self._blocks(slot)
        size, first = slot.shape[0] // blocks, len(self.instructions)
        parts = [self._rows(self.inputs[slot], (i * self.steps + step) * size, size) for i in range(blocks)]
        part = self._together(parts)
        for instruction in self.instructions[first:]:
            instruction.stage = reader.stage if reader else 0
        return part

    def _blocks(self, slot: Slot) -> int:
        """How many parts of the batch a slot holds.

        Raises:
            GraphError: if it has parts that are not equally large.
        """
        blocks = self.program.blocks.get(slot, 1)
        if not blocks:
            raise GraphError(
                f"set_gradient_accumulation_steps({self.steps}): {slot.name or 'an output'} has no equal part of a "
                "micro-batch on each rank, as tensors of the layout S(0) have; expected rows that can be split so, or "
                "another layout: to_global(sbp=flow.sbp.broadcast)"
            )
        return blocks

    def _rows(self, slot: Slot, start: int, size: int) -> Slot:
        shape = (size, *slot.shape[1:])
        index = (slice(start, start + size), ...)
        return self._emit(Slice, [slot], Slot(shape, slot.dtype, slot.device), FORWARD, index=index)

    def _together(self, parts: list[Slot]) -> Slot:
        """One slot after the other, along dim 0."""
        sizes = tuple([slot.shape[0] for slot in parts])
        shape = (sum(sizes), *parts[0].shape[1:])
        joined = parts[0].like(shape=shape)
        return parts[0] if len(parts) == 1 else self._emit(Cat, parts, joined, FORWARD, dim=0, sizes=sizes)

    def _draws(self, step: int) -> dict[str, Scalar]:
        """What replaces the scalars of draws in a micro-step, by name: its draws follow those of the step before."""
        each = len(self.program.draws.generators)
        pairs = [(self.program.draws.scalars(n), self.draws.scalars(n + step * each)) for n in range(each)]
        return {before.name: now for pair in pairs for before, now in zip(*pair, strict=True)}

    def _add_to_sums(self, slots: Iterable[Slot], place: Instruction | None = None) -> None:
        copy = self.copies[-1]
        for slot in slots:
            if slot in self.gradients:
                term, total = copy.get(slot, slot), self.sums.get(slot)
                self.sums[slot] = (
                    term if total is None else self._emit(Add, [total, term], slot.like(), BACKWARD, place)
                )

    def _for_update(self) -> dict[Slot, Slot]:
        """What updates read in place of the slots of a micro-step."""
        return {**{slot: new for slot, new in self.copies[-1].items() if slot not in self.carried}, **self.sums}

    def _latest(self, slot: Slot) -> Slot:
        return self.copies[-1].get(slot, slot)

    def _joined(self, slot: Slot) -> Slot:
        """An output made of those of the micro-steps."""
        if slot in self.sums and slot in self.results_of_backward:
            return self.sums[slot]
        if slot in self.inputs or slot not in (self.program.blocks or self.varying):
            return self.inputs.get(slot, slot)
        parts = [copy.get(slot, slot) for copy in self.copies]  # the first micro-step reads states as they are
        if slot.ndim == 0:
            return self._emit(Stack, parts, slot.like(shape=(self.steps,)), FORWARD, dim=0)
        blocks = self._blocks(slot)
        size = slot.shape[0] // blocks
        if blocks > 1:
            parts = [self._rows(part, i * size, size) for i in range(blocks) for part in parts]
        return self._together(parts)

    def _emit(
        self, op: Any, inputs: list[Any], output: Slot, phase: str, place: Instruction | None = None, **attrs: Any
    ) -> Slot:
        where = {name: getattr(place, name) for name in ("scope", "location", "stage")} if place else {}
        new = Instruction(op, inputs, [output], attrs, phase=phase, micro_batch=self.micro_batch, **where)
        self.instructions.append(new)
        return output


def update_part(program: Program) -> dict[Instruction, None]:
    """What is done once with the mean gradients: unscaling and the search for infinities, clipping, updates."""
    part: dict[Instruction, None] = {}
    results: set[Slot] = set()
    for instruction in program.instructions:
        with_gradients = instruction.phase == UPDATE or instruction.op in (AnyNonFinite, UnscaleGradient)
        if with_gradients or any(slot in results for slot in instruction.reads):
            part[instruction] = None
            results.update(instruction.outputs)
    return part


def carried(program: Program) -> dict[Slot, Slot]:
    """The states that forward and backward write, with the slots of their new values: micro-steps go on from them."""
    updated = {slot for i in update_part(program) for slot in i.outputs}
    return {state: slot for state, slot in program.writes.items() if slot not in updated}


def check_updates(program: Program, updates: dict[Instruction, None], steps: int) -> None:
    """See to it that optimizers change the values that states had before the call.

    Raises:
        GraphError: if `build` writes to what an optimizer updates: each micro-step would write again.
    """
    updated_by = {slot: update for update in updates for slot in update.outputs}
    for state, slot in program.writes.items():
        update = updated_by.get(slot)
        if update is not None and update.mutates:
            before = update.inputs[update.mutates[update.outputs.index(slot)]]
            if before is not state:
                raise GraphError(
                    f"set_gradient_accumulation_steps({steps}): build writes to {state.name}, which an optimizer "
                    "updates; expected parameters that only their optimizer changes: write to it after the call"
                )


def varying(slots: Iterable[Slot], instructions: Iterable[Instruction]) -> set[Slot]:
    """The slots whose values differ between micro-steps: `slots`, what depends on them, and random numbers."""
    differing = set(slots)
    for instruction in instructions:
        is_new = instruction.is_random or instruction.attrs.get("varies")  # what another rank sends
        if is_new or any(slot in differing for slot in instruction.waits_for):
            differing.update(instruction.outputs)
    return differing


def whole(slot: Slot, steps: int) -> Slot:
    """A slot for `steps` arrays of `slot`, one after the other."""
    shape = (steps * slot.shape[0], *slot.shape[1:]) if slot.ndim else ()
    return slot.like(shape=shape, **({"kind": INPUT, "name": slot.name} if slot.kind == INPUT else {}))
