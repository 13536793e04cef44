"""Cast and scale as one: a change of dtype and a multiplication by one number, next to each other, are one loop.

    %2 = cast(%0, dtype=float32)         %3 = fused_elementwise(%0, %1, body={v0 = cast(x0); v1 = mul(v0, x1) -> v1})
    %3 = mul(%2, %1)

Gradients in half precision are unscaled like this, each once a step: if some are large enough to be worth a compiled
loop, all of them share it, whatever their size. `elementwise_fusion` takes the pair into larger regions.

Source: OneFlow, FuseCastScalePass (`fused_cast_scale`).
"""

from __future__ import annotations

from miniflow.graph.codegen.expressions import is_fusible
from miniflow.graph.codegen.regions import Contraction
from miniflow.graph.ir import Instruction, Program, Slot

SMALLEST = {"cpu": 1024, "cuda": 0}  # elements: see `elementwise_fusion`


def run(program: Program) -> Program:
    """The program with pairs of cast and scale as single instructions."""
    contraction = Contraction(program)
    largest: dict[str, int] = {}  # device -> elements
    made = {slot: i for i, instruction in enumerate(program.instructions) for slot in instruction.outputs}
    for i, second in enumerate(program.instructions):
        j = made.get(second.inputs[0]) if second.inputs and isinstance(second.inputs[0], Slot) else None
        if j is not None and are_pair(program.instructions[j], second) and len(contraction.group[j]) == 1:
            contraction.merge(j, i)
            kind = second.output.device.type
            largest[kind] = max(largest.get(kind, 0), second.output.size)
    worth_it = any(size >= SMALLEST[kind] for kind, size in largest.items())
    return contraction.fused() if worth_it else program


def are_pair(first: Instruction, second: Instruction) -> bool:
    """Whether one is a cast and the other a scale, to be done at the same time."""
    if not ((is_cast(first) and is_scale(second)) or (is_scale(first) and is_cast(second))):
        return False
    if not (is_fusible(first) and is_fusible(second)):
        return False
    same = first.outputs[0].shape == second.outputs[0].shape and first.outputs[0].device == second.outputs[0].device
    return same and (first.phase, first.after) == (second.phase, second.after)


def is_cast(instruction: Instruction) -> bool:
    """Whether it changes the floating dtype."""
    return instruction.op.__name__ == "Cast"


def is_scale(instruction: Instruction) -> bool:
    """Whether it multiplies or divides its first input by one number."""
    if instruction.op.__name__ not in ("Mul", "Div"):
        return False
    x, scale = instruction.inputs
    return isinstance(x, Slot) and (not isinstance(scale, Slot) or scale.shape == ())
