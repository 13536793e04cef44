"""Which signature an operator uses for given operands: the one whose boxing moves the fewest bytes.

An operator states its signatures for a placement of one dimension (`Op.sbp`). For several dimensions every combination
of them is one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from miniflow.dispatch.dispatcher import Op
from miniflow.errors import PlacementError
from miniflow.parallel import boxing
from miniflow.parallel.global_array import GlobalArray
from miniflow.sbp import B, NdSbp, P, Signature


class Candidate(NamedTuple):
    """A signature and what it costs.

    Attributes:
        operands: for each of them all SBP; None for numbers and absent ones.
        results: for each of them all SBP.
        bytes: what all ranks together send to bring the operands there.
    """

    operands: tuple[NdSbp | None, ...]
    results: tuple[NdSbp, ...]
    bytes: int


def signatures_of(op: type[Op], ranks: int, operands: Sequence[Any], attrs: dict[str, Any]) -> list[Signature]:
    """The signatures of an operator for one dimension of a placement; the last one is "everything broadcast"."""
    stated = op.sbp(*operands, ranks=ranks, **attrs)
    return [*stated, ((B,) * len(operands), (B,) * len(op.outputs))]


def refuse_without_rule(op: type[Op]) -> None:
    """Raise PlacementError for an operator that has no rule, or whose result's shape depends on values."""
    if op.shape_depends_on_values:
        raise PlacementError(
            f"{op.function_name}: operator `{op.function_name}` does not support global mode because the shape of its "
            "output depends on values; use x.to_local(), or a mask"
        )
    if op.sbp is None:
        raise PlacementError(f"{op.function_name}: no SBP signature is stated for it; use x.to_local()")


def candidates(op: type[Op], operands: Sequence[Any], attrs: dict[str, Any]) -> list[Candidate]:
    """All signatures that can be used, the best first: by bytes, then by how many operands stay as they are."""
    arrays = [x if isinstance(x, GlobalArray) else None for x in operands]
    where = next(x.placement for x in arrays if x is not None)
    per_dimension = [signatures_of(op, len(where.flat), operands, attrs)] * len(where.shape)
    ranked, seen = [], set()
    for choice in itertools.product(*per_dimension):
        layouts = tuple([None if x is None else tuple([ins[i] for ins, _ in choice]) for i, x in enumerate(arrays)])
        results = tuple([tuple(nd_sbp) for nd_sbp in zip(*[outs for _, outs in choice], strict=True)])
        fits = all(
            [x is None or op.view and x.sbp == sbp or can_become(x, sbp, where.shape)
             for x, sbp in zip(arrays, layouts, strict=True)]
        )  # fmt: skip
        if (layouts, results) in seen or not fits:
            continue
        seen.add((layouts, results))
        boxed = [(x, sbp) for x, sbp in zip(arrays, layouts, strict=True) if x is not None and x.sbp != sbp]
        price, sent = (
            sum([boxing.cost(x.shape, where, x.sbp, f(x.sbp, sbp)) * x.itemsize for x, sbp in boxed])
            for f in (without_padding, lambda _, sbp: sbp)
        )
        ranked.append((price, len(boxed), Candidate(layouts, results, sent)))
    return [candidate for *_, candidate in sorted(ranked, key=lambda row: row[:2])]


def can_become(x: GlobalArray, sbp: NdSbp, mesh: tuple[int, ...]) -> bool:
    """Whether an operand may be boxed so: no dim is split among more ranks than it has elements, since kernels need not
    compute with nothing."""
    splits: dict[int, int] = {}
    for entry, n in zip(sbp, mesh, strict=True):
        if entry.dim is not None:
            splits[entry.dim] = splits.get(entry.dim, 1) * n
    return all(x.shape[dim] >= n or x.shape[dim] == 0 for dim, n in splits.items())


def without_padding(before: NdSbp, after: NdSbp) -> NdSbp:
    """The SBP after a change for which it is priced: S to P counts as S to B. It sends nothing itself, but the result
    has to be summed later."""
    return tuple([B if to is P and of.dim is not None else to for of, to in zip(before, after, strict=True)])
