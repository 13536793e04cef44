"""Automatic mixed precision: matrix products in half precision, and their neighbours with them.

Which ops may be in half precision is said by the lists of `amp`. Which are, in four steps:

1. black: black ops, and the gray and clear ops from which one leads to a black op through gray and clear ops only;
2. half: white ops, and the gray and clear ops between two white ones that are not black. Outside of training, where no
   backward follows, an output of the program counts as a white op below;
3. clear ops that touch half ones join them, up and down, unless they are black. Those above join only if nobody else
   reads their results, and not if they make large inputs small: then casting their result is cheaper;
4. casts are put where the border is crossed, one for each value: a parameter is cast once however often it is read.
   They come right before the first reader, but a gradient for an update is cast right where it is made: there
   gradient accumulation finds it in float32.

A gray or clear op that combines values, as a sum or a concatenation does, joins only if they all are made in half
precision. Another is promoted, as in eager mode: a float32 mask of -1e9 would be -inf in float16.

Inputs, states and outputs of the program keep their dtypes: parameters are float32, and so are their gradients and
their updates. Float64 values are left alone. An op with a Python number, x * 0.1, computes in float32 although it
lies in the half: so the number is not rounded first, as in eager mode.

    %2:f32[8, 4] = linear(%0, %1, None)       %2:f16[8, 16] = cast(%0, dtype=float16)
    %3:f32[8, 4] = relu(%2)                   %3:f16[4, 16] = cast(%1, dtype=float16)
    return %3                                 %4:f16[8, 4] = linear(%2, %3, None)
                                              %5:f16[8, 4] = relu(%4)
                                              %6:f32[8, 4] = cast(%5, dtype=float32)
                                              return %6

Last, the identities by which losses name themselves black are dropped; that happens without mixed precision too.

Pays: a GPT of 2 layers of 128 features plans 9.7 MB instead of 14.2 MB; on a GPU its products take tensor cores.

Source: OneFlow's AutoMixedPrecision pass, which follows TensorFlow's `auto_mixed_precision`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from miniflow.graph.ir import BACKWARD, UPDATE, Instruction, Program, Slot, replaced
from miniflow.graph.uses import Uses
from miniflow.ops.loss_scale import AmpBlackIdentity
from miniflow.ops.pointwise import Pointwise
from miniflow.ops.promotion import Cast

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def run(program: Program, amp_dtype: np.dtype | None) -> Program:
    """The program in mixed precision.

    Args:
        program: in float32, forward and backward.
        amp_dtype: float16 or bfloat16; None to leave everything in float32.
    """
    if amp_dtype is not None:
        half = Choice(program).half
        if half:
            program = Casting(program, half, np.dtype(amp_dtype)).run()
    return without_identities(program)


class Choice:
    """Which instructions of a program are to be in half precision: `half`."""

    def __init__(self, program: Program):
        self.program = program
        self.readers: dict[Slot, list[Instruction]] = {}
        for instruction in program.instructions:
            for slot in floats(instruction.inputs):
                self.readers.setdefault(slot, []).append(instruction)
        self.made_by = Uses(program).made
        self.results = set(program.results)
        self.black = self.find_black()
        self.half = self.between_white()
        self.spread_through_clear()

    def above(self, instruction: Instruction) -> Iterable[Instruction]:
        """The instructions whose float32 results it reads."""
        return [self.made_by[slot] for slot in floats(instruction.inputs) if slot in self.made_by]

    def below(self, instruction: Instruction) -> Iterable[Instruction]:
        """The instructions that read its float32 results."""
        return [reader for slot in floats(instruction.outputs) for reader in self.readers.get(slot, ())]

    def find_black(self) -> set[Instruction]:
        """Black ops, and what leads to them from the last op that is neither gray nor clear."""
        black: set[Instruction] = set()
        for instruction in reversed(self.program.instructions):
            leads = instruction.op.amp in ("gray", "clear") and any(
                reader in black for reader in self.below(instruction)
            )
            if leads or instruction.op.amp == "black":
                black.add(instruction)
        return black

    def between_white(self) -> set[Instruction]:
        """White ops, and gray and clear ones with a white op above and one below."""
        ends = set() if any(i.phase == BACKWARD for i in self.program.instructions) else set(self.program.outputs)
        leading: set[Instruction] = set()  # to a white op
        for instruction in reversed(self.program.instructions):
            if self.is_white(instruction):
                leading.add(instruction)
            elif self.may_follow(instruction, "gray", "clear"):
                is_end = any(slot in ends for slot in instruction.outputs)
                if is_end or any(reader in leading for reader in self.below(instruction)):
                    leading.add(instruction)
        half: set[Instruction] = set()
        for instruction in self.program.instructions:
            if self.is_white(instruction):
                half.add(instruction)
            elif instruction in leading and any(source in half for source in self.above(instruction)):
                if not self.is_promoted(instruction, half):
                    half.add(instruction)
        return half

    def is_promoted(self, instruction: Instruction, half: set[Instruction]) -> bool:
        """Whether eager mode would compute it in float32, since one of the values that it combines is float32."""
        combined = instruction.inputs if instruction.op.promotes else []
        if instruction.op.computes_in_first:
            combined = instruction.inputs[:1]
        slots = floats(combined)
        if any(slot.ndim for slot in slots):
            slots = [slot for slot in slots if slot.ndim]  # a tensor of no dims does not promote others
        return any(self.made_by.get(slot) not in half for slot in slots)

    def is_read_in_half_only(self, instruction: Instruction) -> bool:
        """Whether all its float32 results are read by the half alone."""
        returned = any(slot in self.results for slot in floats(instruction.outputs))
        return not returned and all(reader in self.half for reader in self.below(instruction))

    def spread_through_clear(self) -> None:
        """Let clear ops join those in the half that they touch."""
        before = -1
        while before != len(self.half):
            before = len(self.half)
            self._join(self.program.instructions, self.above, lambda i: not self.is_promoted(i, self.half))
            self._join(
                reversed(self.program.instructions),
                self.below,
                lambda i: self.is_read_in_half_only(i) and not shrinks(i),
            )

    def _join(self, instructions: Iterable[Instruction], near: Callable, wanted: Callable) -> None:
        for instruction in instructions:
            touches = instruction not in self.half and any(other in self.half for other in near(instruction))
            if touches and self.may_follow(instruction, "clear") and wanted(instruction):
                self.half.add(instruction)

    def is_white(self, instruction: Instruction) -> bool:
        """Whether it is in half precision whatever its neighbours are."""
        return instruction.op.amp == "white" and is_float32(instruction)

    def may_follow(self, instruction: Instruction, *classes: str) -> bool:
        """Whether it may be in half precision, being of one of these classes."""
        return instruction.op.amp in classes and instruction not in self.black and is_float32(instruction)


def floats(slots: Iterable) -> list[Slot]:
    """The float32 slots among inputs or outputs."""
    return [x for x in slots if isinstance(x, Slot) and x.dtype == FLOAT32]


def is_float32(instruction: Instruction) -> bool:
    """Whether it computes float32 from float32; normalizations have statistics in float64 besides."""
    if any(isinstance(x, Slot) and x.dtype == FLOAT64 for x in instruction.inputs) and not instruction.op.keeps_float32:
        return False
    return bool(floats(instruction.inputs)) and instruction.outputs[0].dtype == FLOAT32


def shrinks(instruction: Instruction) -> bool:
    """Whether it reads more float32 elements than it writes, as a look-up in a table does."""
    return sum(x.size for x in floats(instruction.inputs)) > sum(y.size for y in floats(instruction.outputs))


class Casting:
    """The program with the instructions of `half` in half precision, and casts at the borders.

    Attributes:
        halves: float32 slot -> the slot that holds it in half precision.
        missing: float32 slots that so far exist in half precision only, and where they were made.
        updating: what updates read.
    """

    def __init__(self, program: Program, half: set[Instruction], dtype: np.dtype):
        self.program = program
        self.half = half
        self.dtype = dtype
        self.instructions: list[Instruction] = []
        self.halves: dict[Slot, Slot] = {}
        self.missing: dict[Slot, Instruction] = {}
        updates = [i for i in program.instructions if i.phase == UPDATE]
        self.updating = {slot for update in updates for slot in update.reads}

    def run(self) -> Program:
        """The new program."""
        for instruction in self.program.instructions:
            if instruction in self.half and not has_number(instruction):
                self.add_in_half(instruction)
            else:
                self.add_as_it_is(instruction)
        for slot in self.program.results:
            self.in_float32(slot, self.missing.get(slot))
        return self.program.with_(instructions=self.instructions)

    def add_as_it_is(self, instruction: Instruction) -> None:
        """An instruction that reads float32."""
        for slot in instruction.reads:
            self.in_float32(slot, instruction)
        self.instructions.append(instruction)

    def add_in_half(self, instruction: Instruction) -> None:
        """An instruction in half precision: its float32 inputs and outputs become half-precision ones."""
        kept = instruction.op.keeps_float32
        inputs = []
        for position, x in enumerate(instruction.inputs):
            if isinstance(x, Slot):
                x = self.in_half(x, instruction) if x.dtype == FLOAT32 and position not in kept else x
                self.in_float32(x, instruction)
            inputs.append(x)
        outputs = [y.like(dtype=self.dtype) if y.dtype == FLOAT32 else y for y in instruction.outputs]
        for old, new in zip(instruction.outputs, outputs, strict=True):
            if new is not old:
                self.halves[old] = new
                self.missing[old] = instruction
        self.instructions.append(instruction.with_(inputs=inputs, outputs=outputs))
        for slot in self.updating.intersection(instruction.outputs):
            self.in_float32(slot, instruction)

    def in_half(self, slot: Slot, reader: Instruction) -> Slot:
        """The slot that holds a float32 value in half precision."""
        if slot not in self.halves:
            self.halves[slot] = slot.like(dtype=self.dtype)
            self.cast(slot, self.halves[slot], reader)
        return self.halves[slot]

    def in_float32(self, slot: Slot, reader: Instruction | None) -> None:
        """See to it that a float32 slot is computed."""
        if self.missing.pop(slot, None) is not None:
            self.cast(self.halves[slot], slot, reader)

    def cast(self, source: Slot, target: Slot, reader: Instruction) -> None:
        """Append a cast, at the place of the instruction for which it is made."""
        place = {name: getattr(reader, name) for name in ("scope", "location", "phase")}
        self.instructions.append(Instruction(Cast, [source], [target], {"dtype": target.dtype}, **place))


def has_number(instruction: Instruction) -> bool:
    """Whether it is arithmetic with a Python number."""
    return issubclass(instruction.op, Pointwise) and not all(isinstance(x, Slot) for x in instruction.inputs)


def without_identities(program: Program) -> Program:
    """The program without the marks of losses."""
    marks = [instruction for instruction in program.instructions if instruction.op is AmpBlackIdentity]
    if not marks:
        return program
    rest = [instruction for instruction in program.instructions if instruction.op is not AmpBlackIdentity]
    return replaced(program, {mark.output: mark.inputs[0] for mark in marks}, rest)
