"""What happens to global tensors and what it costs, in words: signatures, and paths of boxing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from miniflow.dispatch.tape import no_grad
from miniflow.errors import PlacementError
from miniflow.parallel import boxing, dispatch
from miniflow.parallel.placement import placement
from miniflow.parallel.signature import candidates
from miniflow.sbp import NdSbp, as_nd_sbp, show
from miniflow.tensor import Tensor


@no_grad
def explain_signatures(function: Callable[..., Any], *tensors: Any, **options: Any) -> str:
    """The signatures that each operator of a call can use, with the bytes that the boxing of its operands moves.

    `flow.sbp.explain(flow.matmul, a, b)` calls `flow.matmul(a, b)` and prints a table for each operator in it; the
    arrow points to the signature that is used.

    Args:
        function: of tensors.
        tensors, options: its arguments.

    Returns:
        what it prints.

    Raises:
        PlacementError: if no operator got a global tensor.

    >>> import miniflow as flow
    >>> flow.parallel.simulate(2)
    >>> everyone = flow.placement.all("cpu")
    >>> x = flow.ones(4, 4, placement=everyone, sbp=flow.sbp.split(1))
    >>> text = flow.sbp.explain(flow.relu, x)
    relu: S(1)
    -> S(1) => S(1): 0 bytes
       S(0) => S(0): 32 bytes
       B => B: 64 bytes
    >>> flow.parallel.simulate(1)
    """
    tables: list[str] = []
    dispatch.listeners.append(lambda op, arrays, attrs: tables.append(signature_table(op, arrays, attrs)))
    try:
        function(*tensors, **options)
    finally:
        dispatch.listeners.pop()
    if not tables:
        raise PlacementError("explain: got no global tensor: x.to_global(placement, sbp)")
    text = "\n\n".join(tables)
    print(text)
    return text


def signature_table(op: Any, arrays: tuple, attrs: dict[str, Any]) -> str:
    """The signatures of one operator for operands, the best one first."""
    layouts = ", ".join("-" if not hasattr(x, "sbp") else show(x.sbp) for x in arrays)
    lines = [f"{op.function_name}: {layouts}"]
    for i, candidate in enumerate(candidates(op, arrays, attrs)):
        operands = ", ".join("-" if x is None else show(x) for x in candidate.operands)
        arrow = "->" if i == 0 else "  "
        owed = f", {candidate.owed:,} owed" if candidate.owed else ""
        lines.append(
            f"{arrow} {operands} => {', '.join(map(show, candidate.results))}: {candidate.bytes:,} bytes{owed}"
        )
    return "\n".join(lines)


def explain_boxing(src: Tensor, dst: Any, placement: placement | None = None) -> str:
    """The collectives that bring a global tensor into another layout, with the bytes that all ranks together send.

    Args:
        src: a global tensor.
        dst: an SBP, or one for each dimension of the placement; or a global tensor, whose layout is meant.
        placement: the new one; None for that of `src`, or of `dst` if that is a tensor.

    Returns:
        what it prints; `flow.show.boxing` draws the shards before and after.

    >>> import miniflow as flow
    >>> flow.parallel.simulate(4)
    >>> mesh = flow.placement("cpu", [[0, 1], [2, 3]])
    >>> x = flow.ones(4, 4, placement=mesh, sbp=(flow.sbp.split(0), flow.sbp.partial_sum))
    >>> text = flow.boxing.explain(x, (flow.sbp.broadcast, flow.sbp.broadcast))
    (S(0), P) to (B, B): 256 bytes
    1. all-reduce along dimension 1: (S(0), P) to (S(0), B), 128 bytes
    2. all-gather along dimension 0: (S(0), B) to (B, B), 128 bytes
    >>> flow.parallel.simulate(1)
    """
    if not src.is_global:
        raise PlacementError("boxing.explain: expected a global tensor")
    where, sbp = target(src, dst, placement)
    x = src._array
    if where != x.placement:
        text = (
            f"{show(x.sbp)} on {x.placement} to {show(sbp)} on {where}: each rank gets its regions from their holders"
        )
    else:
        steps = boxing.path(x.shape, where, x.sbp, sbp)
        total = sum(step.cost for step in steps) * x.itemsize
        lines = [f"{show(x.sbp)} to {show(sbp)}: {total:,} bytes"]
        for i, step in enumerate(steps, 1):
            name = boxing.NAMES[step.before[step.dim].kind + step.after[step.dim].kind]
            along = f" along dimension {step.dim}" if len(sbp) > 1 else ""
            cost = step.cost * x.itemsize
            lines.append(f"{i}. {name}{along}: {show(step.before)} to {show(step.after)}, {cost:,} bytes")
        text = "\n".join(lines)
    print(text)
    return text


def target(src: Tensor, dst: Any, placement: placement | None) -> tuple[Any, NdSbp]:
    """The placement and the SBP that `dst` names."""
    if isinstance(dst, Tensor):
        return (dst.placement if placement is None else placement), dst.sbp
    where = src.placement if placement is None else placement
    return where, as_nd_sbp(dst, len(where.shape), "boxing.explain")
