"""What happens to global tensors and what it costs, in words: signatures, and paths of boxing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from miniflow.dispatch.tape import no_grad
from miniflow.errors import PlacementError
from miniflow.parallel import boxing, dispatch
from miniflow.parallel.partition import volume
from miniflow.parallel.placement import placement
from miniflow.parallel.signature import candidates
from miniflow.sbp import NdSbp, as_nd_sbp, show
from miniflow.tensor import Tensor


@no_grad
def explain_signatures(function: Callable[..., Any], *tensors: Any, **options: Any) -> str:
    """The signatures that each operator of a call can use, with the bytes that boxing its operands sends, and those
    that are owed: someone has to reduce the partial sums among its results.

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
        what it prints, to other ranks also who sends; `flow.show.boxing` draws the shards before and after.

    >>> import miniflow as flow
    >>> flow.parallel.simulate(4)
    >>> mesh = flow.placement("cpu", [[0, 1], [2, 3]])
    >>> x = flow.ones(4, 4, placement=mesh, sbp=(flow.sbp.split(0), flow.sbp.partial_sum))
    >>> text = flow.boxing.explain(x, (flow.sbp.broadcast, flow.sbp.broadcast))
    (S(0), P) to (B, B): 256 bytes
    1. all-reduce along dimension 1: (S(0), P) to (S(0), B), 128 bytes
    2. all-gather along dimension 0: (S(0), B) to (B, B), 128 bytes
    >>> y = flow.ones(4, 4, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.partial_sum)
    >>> text = flow.boxing.explain(y, flow.sbp.broadcast, flow.placement("cpu", [1, 2]))
    P on miniflow.placement(type="cpu", ranks=[0, 1]) to B on miniflow.placement(type="cpu", ranks=[1, 2]): 160 bytes
    1. reduce-scatter: P to S(0), 64 bytes
    2. send and receive: S(0) to B, 96 bytes
       each rank gets its regions from their holders:
       rank 0 sends 32 bytes to 1, 32 bytes to 2
       rank 1 sends 32 bytes to 2
    >>> flow.parallel.simulate(1)
    """
    if not src.is_global:
        raise PlacementError("boxing.explain: expected a global tensor")
    where, sbp = target(src, dst, placement)
    x = src._array
    steps = boxing.route(x.shape, x.placement, x.sbp, where, sbp, x.itemsize)
    before, after = show(x.sbp), show(sbp)
    if not boxing.same_ranks(x.placement, where):
        before, after = f"{before} on {x.placement}", f"{after} on {where}"
    lines = [f"{before} to {after}: {sum(step.cost for step in steps):,} bytes"]
    for i, step in enumerate(steps, 1):
        dims = f" along dimension{'s' * (len(step.dims) > 1)} {' and '.join(map(str, step.dims))}"
        along = dims if len(step.before) > 1 and step.dims else ""
        lines.append(f"{i}. {step.name}{along}: {show(step.before)} to {show(step.after)}, {step.cost:,} bytes")
    if not boxing.same_ranks(x.placement, where):
        lines.append("   each rank gets its regions from their holders:")
        plan = boxing.messages(x.shape, steps[-1])
        for sender in x.placement.flat:
            sent = {r: volume(common) * x.itemsize for (s, r), common in plan.items() if s == sender != r}
            to = ", ".join(f"{n:,} bytes to {receiver}" for receiver, n in sent.items())
            lines.append(f"   rank {sender} sends {to or 'nothing'}")
    text = "\n".join(lines)
    print(text)
    return text


def target(src: Tensor, dst: Any, placement: placement | None) -> tuple[Any, NdSbp]:
    """The placement and the SBP that `dst` names."""
    if isinstance(dst, Tensor):
        return (dst.placement if placement is None else placement), dst.sbp
    where = src.placement if placement is None else placement
    return where, as_nd_sbp(dst, len(where.shape), "boxing.explain")
