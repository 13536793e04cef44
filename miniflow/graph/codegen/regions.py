"""Several instructions as one loop: the instruction that stands for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from miniflow.graph.codegen.expressions import Region
from miniflow.graph.codegen.fused import FusedElementwise
from miniflow.graph.ir import Instruction, Slot


def fuse(members: Sequence[Instruction], outputs: list[Slot]) -> Instruction:
    """One instruction for several, which are in order; it returns these of their outputs."""
    region = Region()
    for instruction in members:
        region.add(instruction)
    return members[0].with_(
        op=FusedElementwise,
        inputs=list(region.inputs),
        outputs=outputs,
        attrs={"body": region.body(outputs)},
        scope=common_scope(m.scope for m in members),
        callers=[],
    )


def common_scope(scopes: Iterable[str]) -> str:
    """The innermost module that holds all of these.

    >>> common_scope(["model.0.fc", "model.0.act"])
    'model.0'
    """
    first, *rest = [scope.split(".") if scope else [] for scope in scopes]
    for other in rest:
        while other[: len(first)] != first:
            first = first[:-1]
    return ".".join(first)
