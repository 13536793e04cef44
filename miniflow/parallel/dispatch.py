"""The kernel of every operator on global arrays: choose a signature, box the operands, run the local kernel on each
shard that this process owns, wrap the results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from miniflow.dispatch import Op
from miniflow.parallel.boxing import box
from miniflow.parallel.global_array import GlobalArray, Layout
from miniflow.parallel.partition import Region, region, shape_of
from miniflow.parallel.placement import placement
from miniflow.parallel.signature import candidates
from miniflow.sbp import NdSbp


listeners: list[Callable] = []  # called with each operator, its operands and attributes, before it runs


class Plan(NamedTuple):
    """How an operator is computed on operands of given layouts.

    Attributes:
        boxed: the positions of operands that are boxed, with their new SBP.
        results: the layouts of the results.
        regions: rank -> what it holds of the first result, for the ranks of this process.
        attrs: rank -> the attributes for its shard; None if they are the same for all.
    """

    boxed: list[tuple[int, NdSbp]]
    results: list[Layout]
    regions: dict[int, Region]
    attrs: dict[int, dict[str, Any]] | None


def kernel_for(op: type[Op]) -> Callable[..., Any]:
    """What dispatch calls for an operator on global arrays."""
    plans: dict[tuple, Plan] = {}

    def run(*arrays: Any, **attrs: Any) -> Any:
        for listen in listeners:
            listen(op, arrays, attrs)
        key = (*[x.layout if x.__class__ is GlobalArray else x.__class__ for x in arrays], *attrs.values())
        try:
            plan = plans.get(key)
        except TypeError:  # a list or an array among the attributes
            return compute(op, make_plan(op, arrays, attrs), arrays, attrs)
        if plan is None:
            plan = plans[key] = make_plan(op, arrays, attrs)
        return compute(op, plan, arrays, attrs)

    run.__name__ = op.function_name
    return run


def make_plan(op: type[Op], arrays: tuple, attrs: dict[str, Any]) -> Plan:
    """The plan for operands of these layouts."""
    kinds = op.infer(*arrays, **attrs)
    kinds = [(tuple(shape), np.dtype(dtype)) for shape, dtype in ([kinds] if op.single else kinds)]
    signature = candidates(op, arrays, attrs)[0]
    where = placement_of(arrays)
    boxed = [(i, sbp) for i, sbp in enumerate(signature.operands) if sbp is not None and sbp != arrays[i].sbp]
    results = [Layout.of(where, sbp, *kind) for sbp, kind in zip(signature.results, kinds, strict=True)]
    regions = {r: region(kinds[0][0], where, signature.results[0], r) for r in where.owned}
    own = {r: attrs | {"shape": shape_of(bounds)} for r, bounds in regions.items()} if "shape" in attrs else None
    return Plan(boxed, results, regions, own)


def placement_of(arrays: tuple) -> placement:
    """The placement of the operands, which dispatch has found to be one."""
    return next(x.placement for x in arrays if x.__class__ is GlobalArray)


def compute(op: type[Op], plan: Plan, arrays: tuple, attrs: dict[str, Any]) -> Any:
    """The results: a GlobalArray, or a tuple of them."""
    if plan.boxed:
        boxed = list(arrays)
        for i, sbp in plan.boxed:
            boxed[i] = box(arrays[i], arrays[i].placement, sbp)
        arrays = boxed
    shards: list[dict[int, Any]] = [{} for _ in plan.results]
    for rank, bounds in plan.regions.items():
        local = [x.shards[rank] if x.__class__ is GlobalArray else x for x in arrays]
        found = op.on_shard(op, local, attrs if plan.attrs is None else plan.attrs[rank], bounds, arrays)
        if op.single:
            shards[0][rank] = found
        else:
            for result, array in zip(shards, found, strict=True):
                result[rank] = array
    results = [GlobalArray(layout, one) for layout, one in zip(plan.results, shards, strict=True)]
    if op.view and plan.boxed:
        results[0].copied = True  # writes to it would not reach the operand
    return results[0] if op.single else tuple(results)


GlobalArray.kernel_for = staticmethod(kernel_for)
