"""The kernel of every operator on global arrays: choose a signature, box the operands, run the local kernel on each
shard that this process owns, wrap the results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from miniflow.dispatch.dispatcher import Op, Shard
from miniflow.parallel.boxing import box, reduce_along
from miniflow.parallel.partition import GlobalMeta, Region, region, shape_of
from miniflow.parallel.signature import best, refuse_without_rule, results_of
from miniflow.sbp import NdSbp, P

listeners: list[Callable] = []  # called with each operator, its operands and attributes, before it runs


class Plan(NamedTuple):
    """How an operator is computed on operands of given layouts.

    Attributes:
        boxed: the positions of operands that are boxed, with their new SBP.
        results: the layouts of the results.
        reductions: of which result, along which dimension of the placement, by what: see `signature.Candidate`.
        parts: rank -> what it holds of the first result and of the operands, for the ranks of this process.
        copies: whether the result does not share the memory of the operand, also if the operator makes a view.
    """

    boxed: list[tuple[int, NdSbp]]
    results: list[GlobalMeta]
    reductions: tuple[tuple[int, int, str], ...]
    parts: dict[int, tuple[Region, tuple[Region | None, ...]]]
    copies: bool


MOST_PLANS = 10_000  # of an operator: slices that move on make a plan each
DRAWN = ("seed", "offset")  # attributes that change with each call, and no plan depends on


def hashable(value: Any) -> Any:
    """A key for a value that has no hash of its own."""
    if isinstance(value, slice):
        return slice, value.start, value.stop, value.step
    if isinstance(value, list | tuple):
        return type(value), *map(hashable, value)
    if isinstance(value, dict):
        return dict, *map(hashable, value.items())
    return (value.dtype, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value


def kernel_for(op: type[Op], cls: type) -> Callable[..., Any]:
    """What dispatch calls for an operator on global arrays, which have that class."""
    plans: dict[tuple, Plan] = {}

    def run(*arrays: Any, **attrs: Any) -> Any:
        for listen in listeners:
            listen(op, arrays, attrs)
        key = (
            *[x.meta if x.__class__ is cls else x.__class__ for x in arrays],
            *([value for name, value in attrs.items() if name not in DRAWN] if "seed" in attrs else attrs.values()),
        )
        try:
            plan = plans.get(key)
        except TypeError:  # a slice, a list or an array among the attributes
            key = tuple(map(hashable, key))
            plan = plans.get(key)
        if plan is None:
            if len(plans) > MOST_PLANS:
                plans.clear()
            plan = plans[key] = make_plan(op, arrays, attrs)
        return compute(op, plan, arrays, attrs, cls)

    run.__name__ = op.function_name
    return run


def make_plan(op: type[Op], arrays: tuple, attrs: dict[str, Any]) -> Plan:
    """The plan for operands of these layouts."""
    refuse_without_rule(op)
    metas = results_of(op, arrays, attrs)
    signature = best(op, arrays, attrs)
    where = next(x.placement for x in arrays if hasattr(x, "sbp"))
    boxed = [(i, sbp) for i, sbp in enumerate(signature.operands) if sbp is not None and sbp != arrays[i].sbp]
    results = [GlobalMeta.of(where, sbp, *meta) for sbp, meta in zip(signature.results, metas, strict=True)]
    parts = {
        r: (
            region(metas[0][0], where, signature.results[0], r),
            tuple([None if sbp is None else region(x.shape, where, sbp, r)
                   for x, sbp in zip(arrays, signature.operands, strict=True)]),
        )
        for r in where.owned
    }  # fmt: skip
    ins, outs = signature.operands[0], signature.results[0]
    copies = bool(boxed) or op.view and any([b is P and a is not P for a, b in zip(ins, outs, strict=True)])
    return Plan(boxed, results, signature.reductions, parts, copies)


def compute(op: type[Op], plan: Plan, arrays: tuple, attrs: dict[str, Any], cls: type) -> Any:
    """The results: a global array, or a tuple of them."""
    operands = arrays
    if plan.boxed:
        boxed = list(arrays)
        for i, sbp in plan.boxed:
            boxed[i] = box(arrays[i], arrays[i].placement, sbp)
        arrays = boxed
    shards: list[dict[int, Any]] = [{} for _ in plan.results]
    for rank, (result, parts) in plan.parts.items():
        local = [x.shards[rank] if x.__class__ is cls else x for x in arrays]
        local_attrs = attrs | {"shape": shape_of(result)} if "shape" in attrs else attrs
        output = op.on_shard(op, local, local_attrs, Shard(result, plan.results[0].shape, parts, arrays))
        if op.single:
            shards[0][rank] = output
        else:
            for result, array in zip(shards, output, strict=True):
                result[rank] = array
    for i, k, by in plan.reductions:
        shards[i] = reduce_along(plan.results[i].placement, (k,), shards[i], by)
    results = [cls(layout, rank_shards) for layout, rank_shards in zip(plan.results, shards, strict=True)]
    if op.view:
        (source,) = operands
        meta, steps = source.view_of
        results[0].view_of = meta, (*steps, (op, attrs))
        if plan.copies or source.source is not None:
            results[0].source = source, op, attrs, source.writes[0]
        if not plan.copies:
            results[0].writes = source.writes
    return results[0] if op.single else tuple(results)
