"""Cast and scale as one: a change of dtype and a multiplication by one number, next to each other, are one loop.

    %2 = cast(%0, dtype=float32)         %3 = fused_elementwise(%0, %1, body={v0 = cast(x0); v1 = mul(v0, x1) -> v1})
    %3 = mul(%2, %1)

`elementwise_fusion` does the same, and takes the pair into larger regions; this is for programs without it.

Pays: nothing on a CPU, beside `elementwise_fusion` nothing anywhere. It is here for its name.

Source: OneFlow, FuseCastScalePass (`fused_cast_scale`).
"""

from __future__ import annotations

from miniflow.graph.ir import Instruction, Program, Slot
from miniflow.graph.passes.elementwise_fusion import fused
from miniflow.ops.arithmetic import Div, Mul
from miniflow.ops.promotion import Cast


def run(program: Program) -> Program:
    """The program with pairs of cast and scale as single instructions."""
    return fused(program, is_pair) if any(i.op is Cast for i in program.instructions) else program


def is_pair(members: list[Instruction]) -> bool:
    """Whether these are a cast and a scale."""
    first, last = members[0], members[-1]
    return len(members) == 2 and (first.op is Cast and is_scale(last) or is_scale(first) and last.op is Cast)


def is_scale(instruction: Instruction) -> bool:
    """Whether it multiplies or divides its first input by one number."""
    if instruction.op not in (Mul, Div):
        return False
    x, scale = instruction.inputs
    return isinstance(x, Slot) and (not isinstance(scale, Slot) or scale.shape == ())
