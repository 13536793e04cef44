"""Cast and scale as one: a change of dtype and a multiplication by one number, next to each other, are one loop.

    %2 = cast(%0, dtype=float32)         %3 = fused_elementwise(%0, %1, body={v0 = cast(x0); v1 = mul(v0, x1) -> v1})
    %3 = mul(%2, %1)

`elementwise_fusion` does the same, and takes the pair into larger regions; this is for programs without it.

Pays: nothing on a CPU, beside `elementwise_fusion` nothing anywhere. It is here for its name.

Source: OneFlow, FuseCastScalePass (`fused_cast_scale`).
"""

from __future__ import annotations

from miniflow.graph.codegen.expressions import is_fusible
from miniflow.graph.codegen.regions import fuse
from miniflow.graph.ir import Instruction, Program, Slot
from miniflow.graph.rewrite import Groups
from miniflow.graph.uses import Uses
from miniflow.ops.arithmetic import Div, Mul
from miniflow.ops.promotion import Cast


def run(program: Program) -> Program:
    """The program with pairs of cast and scale as single instructions."""
    uses, groups = Uses(program), Groups(program)
    for second in program.instructions:
        first = uses.producers.get(second.inputs[0]) if second.inputs and isinstance(second.inputs[0], Slot) else None
        if first is not None and are_pair(first, second) and len(groups.of[first]) == 1:
            groups.merge(first, second)
    return groups.replaced(fuse)


def are_pair(first: Instruction, second: Instruction) -> bool:
    """Whether one is a cast and the other a scale, to be done at the same time."""
    if not (first.op is Cast and is_scale(second) or is_scale(first) and second.op is Cast):
        return False
    same = first.output.shape == second.output.shape and first.output.device == second.output.device
    return (
        same and (first.phase, first.after) == (second.phase, second.after) and is_fusible(first) & is_fusible(second)
    )


def is_scale(instruction: Instruction) -> bool:
    """Whether it multiplies or divides its first input by one number."""
    if instruction.op not in (Mul, Div):
        return False
    x, scale = instruction.inputs
    return isinstance(x, Slot) and (not isinstance(scale, Slot) or scale.shape == ())
