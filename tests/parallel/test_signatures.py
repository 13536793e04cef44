"""Every stated SBP signature of every operator: what the ranks compute by themselves makes up the result of one device.

The operators and their operands are those that the sample table runs, forward and backward.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from compare import assert_close, count_comparison
from samples import ROWS

import miniflow as flow
from miniflow import dispatch
from miniflow.dispatch import Op
from miniflow.parallel import partition, world
from miniflow.parallel.placement import placement
from miniflow.sbp import B, P, show

Case = tuple[type[Op], tuple, dict]


@pytest.fixture(autouse=True)
def four_ranks():
    world.simulate(4)
    yield
    world.simulate(1)


def calls_of(row: Any, monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    """The operators that the samples of a row run in float64, with arrays and attributes; each geometry once."""
    found: dict[str, Case] = {}
    find = dispatch.find_kernel

    def watch(op, arrays):
        kernel = find(op, arrays)
        op.kernels.clear()  # to be asked again

        def run(*arrays, **attrs):
            kinds = [(x.shape, x.dtype) if isinstance(x, np.ndarray) else x for x in arrays]
            found[f"{op.__name__} {kinds} {attrs}"] = op, arrays, attrs
            result = kernel(*arrays, **attrs)
            return result if op.single else tuple(result)

        return run

    for op in Op.by_name.values():
        monkeypatch.setattr(op, "kernels", {})
    monkeypatch.setattr(dispatch, "find_kernel", watch)
    for sample in [s for s in row.samples() if not s.brief][:3]:
        tensors = [flow.tensor(x) if isinstance(x, np.ndarray) else x for x in sample.args]
        leaves = [x.requires_grad_() for x in tensors if isinstance(x, flow.Tensor) and x.is_floating_point()]
        y = sample.bound_to(row.function)(*tensors)
        y = y[0] if isinstance(y, tuple) else y
        if leaves and y.requires_grad:
            flow.autograd.grad(y, leaves, flow.ones_like(y) * 0.7, allow_unused=True)
    monkeypatch.undo()
    return list(found.values())


def parts(x: np.ndarray, sbp: Any, where: placement, random: np.random.Generator) -> dict[int, np.ndarray]:
    """The shards of an array; a partial sum has random terms."""
    if sbp is P:
        terms = [np.asarray(random.normal(size=x.shape)).astype(x.dtype) for _ in where.flat[1:]]
        return dict(zip(where.flat, [np.asarray(x - sum(terms)), *terms], strict=True))
    regions = {r: partition.region(x.shape, where, (sbp,), r) for r in where.flat}
    return {r: np.array(x[tuple(slice(*b) for b in region)]) for r, region in regions.items()}


def assembled(shards: dict[int, np.ndarray], sbp: Any, shape: tuple, dtype: np.dtype, where: placement) -> np.ndarray:
    """The array that shards make up, whose shapes are checked."""
    for r, x in shards.items():
        assert x.shape == partition.local_shape(shape, where, (sbp,), r) and x.dtype == dtype
    values = [shards[r] for r in where.flat]
    return sum(values) if sbp is P else values[0] if sbp is B else np.concatenate(values, sbp.dim)


def check(case: Case, where: placement) -> Iterator[str]:
    """Compute by each signature; yield its text."""
    op, arrays, attrs = case
    random = np.random.default_rng(0)
    want = dispatch.run_kernel(op, arrays, attrs)
    want = [want] if op.single else want
    for given, results in op.sbp(*arrays, ranks=len(where.flat), **attrs):
        shards = [
            parts(x, s, where, random) if isinstance(x, np.ndarray) else x for x, s in zip(arrays, given, strict=True)
        ]
        computed = [{} for _ in want]
        for rank in where.flat:
            bounds = partition.region(want[0].shape, where, results[:1], rank)
            local = [x[rank] if isinstance(x, dict) else x for x in shards]
            own = attrs | {"shape": partition.shape_of(bounds)} if "shape" in attrs else attrs
            got = op.on_shard(op, local, own, bounds, arrays)
            for one, array in zip(computed, [got] if op.single else got, strict=True):
                one[rank] = array
        for one, sbp, expected in zip(computed, results, want, strict=True):
            what = f"{op.__name__} {attrs}: {show(given)} -> {show(results)}"
            got = assembled(one, sbp, expected.shape, expected.dtype, where)
            assert_close(got, expected, rtol=1e-6, atol=1e-7, what=what)
        yield what


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_signature_of_what_the_samples_run(row, monkeypatch):
    for op, arrays, attrs in calls_of(row, monkeypatch):
        if op.sbp is not None and not op.shape_depends_on_values:
            for ranks in (2, 3):
                for _ in check((op, arrays, attrs), placement("cpu", range(ranks))):
                    pass
    count_comparison()
