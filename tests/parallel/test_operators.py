"""Operators on global tensors in any layout: results and gradients are those of one device."""

import numpy as np
import pytest
from compare import assert_close, count_comparison
from samples import ROWS

import miniflow as flow
from miniflow.errors import PlacementError

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
MESHES = {"2": [0, 1], "3": [2, 0, 1], "2x2": [[0, 3], [1, 2]], "2x3": [[0, 1, 2], [3, 4, 5]]}


@pytest.fixture(autouse=True)
def six_ranks():
    flow.parallel.simulate(6)
    yield
    flow.parallel.simulate(1)


def random_layout(random: np.random.Generator, x: np.ndarray, dims: int) -> tuple:
    """An SBP for each dimension of a placement; partial sums of floats only."""
    choices = [B, *[S(d) for d in range(x.ndim)], *([P] if x.dtype.kind == "f" else [])]
    return tuple([choices[i] for i in random.integers(len(choices), size=dims)])


def computed(row, sample, tensors: list) -> list:
    """The results and the gradients of their weighted sum, as local arrays."""
    args = iter(tensors)
    args = [next(args) if isinstance(x, np.ndarray) else x for x in sample.args]
    leaves = [x.requires_grad_() for i, x in enumerate(args) if row.has_gradient(sample, i)]
    results = sample.bound_to(row.function)(*args)
    results = list(results) if isinstance(results, tuple) else [results]
    if leaves and results[0].requires_grad:
        weights = flow.ones_like(results[0]) * 0.7
        results += flow.autograd.grad((results[0] * weights).sum(), leaves)
    return [y.detach() for y in results]


@pytest.mark.few(60)
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_any_layout(row, mesh):
    random = np.random.default_rng(len(row.name))
    where = flow.placement("cpu", MESHES[mesh])
    for sample in [s for s in row.samples() if not s.brief][:3]:
        arrays = [x for x in sample.args if isinstance(x, np.ndarray)]
        want = computed(row, sample, [flow.tensor(x) for x in arrays])
        for _ in range(3):
            layouts = [random_layout(random, x, len(where.shape)) for x in arrays]
            tensors = [flow.tensor(x, placement=where, sbp=s) for x, s in zip(arrays, layouts, strict=True)]
            try:
                got = computed(row, sample, tensors)
            except PlacementError as error:
                assert "shape of its output depends on values" in str(error)
                count_comparison()
                break
            for k, (a, b) in enumerate(zip(got, want, strict=True)):
                assert a.dtype is b.dtype
                assert_close(a.numpy(), b.numpy(), rtol=1e-6, atol=1e-7, what=f"{sample} {layouts}: result {k}")
