"""Which instructions become steps of a fused loop, and what the loop then is.

An instruction is fused if its operator is pointwise, and its operands are floats of one dtype, or bools. Left out are
operators on integers (their overflow and division are subtle), those for which compiled loops are slower than NumPy's,
those on few elements, and those whose attributes vary from call to call, or that refuse some values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.backends.body import CAST, CASTABLE, Body, Step, computed
from miniflow.formulas.scalar import FLOATS, HALVES, expression, is_number, key_of
from miniflow.graph.ir import Instruction, Slot, scalars_in
from miniflow.ops.pointwise import Pointwise

SMALLEST = {"cpu": 1024, "cuda": 0}  # elements: less work is not worth the compilation


class Region:
    """Collects instructions into a body.

    Attributes:
        inputs: the slots that the region reads.
    """

    def __init__(self) -> None:
        self.inputs: list[Slot] = []
        self.names: dict[Slot, str] = {}
        self.numbers: list[tuple[float, str]] = []
        self.steps: list[Step] = []

    def add(self, instruction: Instruction) -> None:
        """Append the steps of an instruction."""
        if "body" in instruction.attrs:
            self._inline(instruction)
        elif issubclass(instruction.op, Pointwise):
            self.names[instruction.output] = self._pointwise(instruction)
        else:
            self.names[instruction.output] = SPECIAL[instruction.op.__name__][1](self, instruction)

    def body(self, outputs: list[Slot]) -> Body:
        """The body that computes these."""
        kinds = [slot.dtype.name for slot in self.inputs]
        return Body(kinds, self.numbers, self.steps, [self.names[slot] for slot in outputs])

    def operand(self, x: Slot | float, kind: str) -> str:
        """The name of an input of an instruction; a number is taken in the dtype `kind`."""
        if not isinstance(x, Slot):
            return self.number(x, kind)
        if x not in self.names:
            self.names[x] = f"x{len(self.inputs)}"
            self.inputs.append(x)
        return self.names[x]

    def number(self, value: float, kind: str) -> str:
        """The name of a number, rounded to the dtype `kind`."""
        with np.errstate(over="ignore"):
            entry = (float(np.dtype(kind).type(value)), computed(kind))
        keys = [(v.hex(), k) for v, k in self.numbers]
        if (entry[0].hex(), entry[1]) not in keys:
            self.numbers.append(entry)
            return f"n{len(keys)}"
        return f"n{keys.index((entry[0].hex(), entry[1]))}"

    def step(self, function: str, *operands: str, dtype: str) -> str:
        """Append a step; the name of its result."""
        self.steps.append(Step(function, operands, dtype))
        return f"v{len(self.steps) - 1}"

    def _pointwise(self, instruction: Instruction) -> str:
        key, free = parts_of(instruction)
        kind = computed(kind_of(instruction))
        operands = [self.operand(x, kind) for x in free]
        return self.step(key, *operands, dtype=instruction.output.dtype.name)

    def _inline(self, instruction: Instruction) -> None:
        body: Body = instruction.attrs["body"]
        names = {f"x{i}": self.operand(slot, "") for i, slot in enumerate(instruction.inputs)}
        names |= {f"n{i}": self.number(value, kind) for i, (value, kind) in enumerate(body.numbers)}
        for i, step in enumerate(body.steps):
            names[f"v{i}"] = self.step(step.function, *[names[n] for n in step.operands], dtype=step.dtype)
        self.names.update(zip(instruction.outputs, [names[n] for n in body.outputs], strict=True))


def parts_of(instruction: Instruction) -> tuple[str, list[Slot | float]]:
    """The key of a pointwise instruction's formula, and what stands for the formula's free parameters."""
    formula = instruction.op.formula
    arguments = dict(zip(formula.operands, instruction.inputs, strict=True)) | instruction.attrs
    fixed = {name: x for name, x in arguments.items() if not isinstance(x, Slot) and not is_number(x)}
    return key_of(formula.name, fixed), [x for name, x in arguments.items() if name not in fixed]


def kind_of(instruction: Instruction) -> str:
    """The dtype of the operands of a pointwise instruction, masks left aside."""
    formula = instruction.op.formula
    pairs = zip(formula.operands, instruction.inputs, strict=True)
    kinds = [x.dtype.name for name, x in pairs if isinstance(x, Slot) and name not in formula.bools]
    return kinds[0] if kinds else instruction.output.dtype.name


def is_fusible(instruction: Instruction) -> bool:
    """Whether an instruction can be part of a region."""
    op, name = instruction.op, instruction.op.__name__
    if instruction.unless is not None or instruction.mutates or op.checks_values == "infer":
        return False
    if any(True for _ in scalars_in([*instruction.attrs.values()])):
        return False
    if "body" in instruction.attrs:
        return True
    slots = [x for x in instruction.inputs if isinstance(x, Slot)]
    if not op.single or not slots or instruction.output.size < SMALLEST[instruction.output.device.type]:
        return False
    if issubclass(op, Pointwise):
        return is_float_or_bool(instruction) and not is_slow(instruction)
    return name in SPECIAL and SPECIAL[name][0](instruction, {x.dtype.name for x in slots})


def is_float_or_bool(instruction: Instruction) -> bool:
    """Whether the operands are floats of one dtype, or all bools; a number beside bools is left alone."""
    formula = instruction.op.formula
    pairs = list(zip(formula.operands, instruction.inputs, strict=True))
    kinds = {x.dtype.name for name, x in pairs if isinstance(x, Slot) and name not in formula.bools}
    masks = {x.dtype.name for name, x in pairs if isinstance(x, Slot) and name in formula.bools}
    if not masks <= {"bool"} or len(kinds) > 1:
        return False
    return kinds <= FLOATS or kinds == {"bool"} and not instruction.attrs and all(isinstance(x, Slot) for _, x in pairs)


def is_slow(instruction: Instruction) -> bool:
    """Whether NumPy's loop is faster than a compiled one."""
    on_cpu = instruction.outputs[0].device.type == "cpu"
    return on_cpu and kind_of(instruction) in expression(parts_of(instruction)[0]).slow


# casts, and ops of other modules that are pointwise: whether they fit, and their steps


def can_cast(instruction: Instruction, kinds: set[str]) -> bool:
    (source,), target = kinds, instruction.output.dtype.name
    if target in HALVES:
        return source in HALVES or source in ("float32", "bool")
    return source in CASTABLE and target in FLOATS


def cast(region: Region, instruction: Instruction) -> str:
    x = region.operand(instruction.inputs[0], "")
    return region.step(CAST, x, dtype=instruction.output.dtype.name)


def is_truth(instruction: Instruction, kinds: set[str]) -> bool:
    return len(kinds) == 1 and kinds <= FLOATS and instruction.output.dtype == np.bool_


SPECIAL: dict[str, tuple[Callable[[Instruction, set], bool], Callable[[Region, Instruction], Any]]] = {
    "Cast": (can_cast, cast),
    "ToInteger": (is_truth, cast),
}
