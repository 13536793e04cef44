"""Which signature an operator uses for given operands.

An operator states its signatures for a placement of one dimension (`Op.sbp`). For several dimensions a combination of
them is one. A signature that the operands fit as they are is used at once, as in OneFlow; otherwise that of the least
cost: the bytes that bring the operands into their layouts, and those that the partial sums among the results owe, which
someone has to reduce later. Of equal ones that with fewer partial sums is used, then that which changes less, and then
the one stated first.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from miniflow.dispatch.dispatcher import Op
from miniflow.errors import PlacementError
from miniflow.parallel import boxing
from miniflow.sbp import B, NdSbp, P, Signature

if TYPE_CHECKING:
    from miniflow.parallel.placement import placement


class Candidate(NamedTuple):
    """A signature and what it costs.

    Attributes:
        operands: for each of them all SBP; None for numbers and absent ones.
        results: for each of them all SBP.
        reductions: what has to be made of the results of the ranks: of which, along which dimension, and by what.
        changes: how many entries of the operands' layouts differ; those of a dimension of one rank do not count.
        bytes: what all ranks together send to bring them there, and for these reductions.
        owed: what they would send to reduce the results that are partial sums, at the least.
    """

    operands: tuple[NdSbp | None, ...]
    results: tuple[NdSbp, ...]
    reductions: tuple[tuple[int, int, str], ...]
    changes: int
    bytes: int
    owed: int

    @property
    def sort_key(self) -> tuple[bool, int, int, int]:
        """The smaller, the better."""
        partial_sums = sum([entry is P for sbp in self.results for entry in sbp])
        return self.changes > 0, self.bytes + self.owed, partial_sums, self.changes


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


def combinations(
    op: type[Op], operands: Sequence[Any], attrs: dict[str, Any], mesh: tuple[int, ...], as_they_are: bool = False
) -> Iterator[tuple[Signature, ...]]:
    """The combinations of signatures for the dimensions of a placement; only those that the operands fit, if asked.

    Dimensions that carry the same signature divide the same dims of the tensors, one after the other: it has to hold
    for the product of their sizes.
    """
    stated = functools.cache(lambda ranks: dict.fromkeys(signatures_of(op, ranks, operands, attrs)))
    layouts = [getattr(x, "sbp", None) for x in operands]

    def fits(k: int, signature: Signature) -> bool:
        return mesh[k] == 1 or all([sbp is None or sbp[k] == s for sbp, s in zip(layouts, signature[0], strict=True)])

    choices = [[one for one in stated(n) if not as_they_are or fits(k, one)] for k, n in enumerate(mesh)]
    for combination in itertools.product(*choices):
        sizes: dict[Signature, int] = {}
        for signature, n in zip(combination, mesh, strict=True):
            sizes[signature] = sizes.get(signature, 1) * n
        if all([signature in stated(ranks) for signature, ranks in sizes.items()]):
            yield combination


def best(op: type[Op], operands: Sequence[Any], attrs: dict[str, Any]) -> Candidate:
    """The signature to use: the others are not looked at where the operands fit one as they are."""
    return (candidates(op, operands, attrs, as_they_are=True) or candidates(op, operands, attrs))[0]


def candidates(
    op: type[Op], operands: Sequence[Any], attrs: dict[str, Any], as_they_are: bool = False
) -> list[Candidate]:
    """All signatures that can be used, the best first; only those that the operands fit, if asked."""
    metas = results_of(op, operands, attrs)
    arrays = [x if hasattr(x, "sbp") else None for x in operands]
    where = next(x.placement for x in arrays if x is not None)
    found: dict[tuple, Candidate] = {}
    for combination in combinations(op, operands, attrs, where.shape, as_they_are):
        layouts = tuple([None if x is None else tuple([ins[i] for ins, _ in combination])
                         for i, x in enumerate(arrays)])  # fmt: skip
        stated = [nd_sbp for nd_sbp in zip(*[outs for _, outs in combination], strict=True)]
        outs = tuple([tuple([B if isinstance(entry, str) else entry for entry in nd_sbp]) for nd_sbp in stated])
        reductions = tuple(
            [(i, k, by) for i, nd_sbp in enumerate(stated) for k, by in enumerate(nd_sbp) if isinstance(by, str)]
        )
        pairs = [(x, sbp) for x, sbp in zip(arrays, layouts, strict=True) if x is not None]
        if (layouts, outs, reductions) in found or not all(
            [op.view and x.sbp == sbp or can_carry(x.shape, sbp, where.shape) for x, sbp in pairs]
            + [op.view or can_carry(shape, sbp, where.shape) for (shape, _), sbp in zip(metas, outs, strict=True)]
        ):
            continue
        boxed = [(x, sbp) for x, sbp in pairs if x.sbp != sbp]
        sent = sum([boxing.cost(x.shape, where, x.sbp, sbp) * x.itemsize for x, sbp in boxed])
        owed = sum([debt(shape, where, sbp) * dtype.itemsize for (shape, dtype), sbp in zip(metas, outs, strict=True)])
        changes = sum([a != b and n > 1 for x, sbp in boxed for a, b, n in zip(x.sbp, sbp, where.shape, strict=True)])
        for i, k, _ in reductions:
            (shape, dtype), unreduced = metas[i], (*outs[i][:k], P, *outs[i][k + 1 :])
            sent += boxing.cost(shape, where, unreduced, outs[i]) * dtype.itemsize
        found[layouts, outs, reductions] = Candidate(layouts, outs, reductions, changes, sent, owed)
    return sorted(found.values(), key=lambda candidate: candidate.sort_key)


def results_of(op: type[Op], operands: Sequence[Any], attrs: dict[str, Any]) -> list[tuple[tuple[int, ...], np.dtype]]:
    """Shape and dtype of each result."""
    metas = op.infer(*operands, **attrs)
    return [(tuple(shape), np.dtype(dtype)) for shape, dtype in ([metas] if op.single else metas)]


@functools.lru_cache(100_000)
def debt(shape: tuple[int, ...], where: placement, sbp: NdSbp) -> int:
    """Elements that all ranks together send to reduce the partial sums of a layout, the cheapest way."""
    return 0 if P not in sbp else boxing.cost(shape, where, sbp, boxing.without_partial(shape, where, sbp))


def can_carry(shape: tuple[int, ...], sbp: NdSbp, mesh: tuple[int, ...]) -> bool:
    """Whether an operator may have an operand or a result so: no dim is split among more ranks than it has elements,
    since kernels need not compute with nothing."""
    splits: dict[int, int] = {}
    for entry, n in zip(sbp, mesh, strict=True):
        if entry.dim is not None:
            splits[entry.dim] = splits.get(entry.dim, 1) * n
    return all(shape[dim] >= n or shape[dim] == 0 for dim, n in splits.items())
