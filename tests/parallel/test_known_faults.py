"""What users of sharded tensors found wrong elsewhere; the numbers are those of pytorch/pytorch."""

import numpy as np
import pytest
from checks import assert_same
from compare import assert_close

import miniflow as flow
from miniflow.dispatch.dispatcher import Op
from miniflow.errors import PlacementError
from miniflow.nn import functional as F

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
X = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)


def partial(values, where):
    """A partial sum whose terms have other signs and sizes than the sum."""
    x = flow.tensor(values, placement=where, sbp=P)
    for rank, shard in x.shards.items():
        weight = (-3.0, 5.0, 2.0, -3.0)[rank]
        shard.copy_(flow.tensor(values * weight))
    return x


@pytest.mark.parametrize("name", ["amax", "amin", "norm", "argmax", "exp", "relu", "isnan", "prod"])
def test_165962_what_is_not_linear_takes_whole_sums(name, four_ranks):
    function = getattr(flow, name)
    assert_close(function(partial(X, four_ranks)).numpy(), function(flow.tensor(X)).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["maximum", "minimum", "mul", "eq"])
def test_170632_two_partial_operands(name, four_ranks):
    function, y = getattr(flow, name), X[::-1].copy()
    found = function(partial(X, four_ranks), partial(y, four_ranks)).numpy()
    assert_close(found, function(flow.tensor(X), flow.tensor(y)).numpy(), rtol=1e-5, atol=1e-5)


def test_183363_a_cast_of_a_partial_sum(four_ranks):
    x = partial(X, four_ranks)
    before = flow.parallel.stats()
    assert x.double().sbp == x.bfloat16().sbp == (P,) and flow.parallel.stats() == before
    assert_same(x.int().numpy(), x.numpy().astype(np.int32))
    assert x.int().sbp != (P,)  # the parts are cut off one by one, the sum is not the sum of that


@pytest.mark.parametrize(("a", "b"), [((S(1), B), (B, S(0))), ((S(1), S(1)), (S(0), S(0))), ((B, S(1)), (S(0), B))])
def test_166598_a_sum_over_what_two_mesh_dims_divide(a, b, four_ranks):
    mesh = flow.placement("cpu", [[0, 1], [2, 3]])
    x, w = flow.tensor(X, placement=mesh, sbp=a), flow.tensor(X.T.copy(), placement=mesh, sbp=b)
    assert_close((x @ w).numpy(), X @ X.T, rtol=1e-5, atol=1e-5)


def test_191926_the_gradient_of_a_convolution_split_on_width(four_ranks):
    images = np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype(np.float32)
    weight = np.random.default_rng(2).normal(size=(4, 3, 3, 3)).astype(np.float32)
    local = flow.tensor(images, requires_grad=True)
    F.conv2d(local, flow.tensor(weight), padding=1).square().sum().backward()
    x = flow.tensor(images, placement=four_ranks, sbp=S(3), requires_grad=True)
    F.conv2d(x, flow.tensor(weight, placement=four_ranks, sbp=B), padding=1).square().sum().backward()
    assert x.grad.sbp == (S(3),)
    assert_close(x.grad.numpy(), local.grad.numpy(), rtol=1e-4, atol=1e-4)


def test_149447_a_slice_of_a_split_dim_is_not_gathered(four_ranks):
    x = flow.tensor(X, placement=four_ranks, sbp=S(0))
    before = sum(flow.parallel.stats().values())
    y = x[2:6]
    assert sum(flow.parallel.stats().values()) - before < 3 * X.nbytes and y.sbp != (B,)
    assert_same(y.numpy(), X[2:6])


@pytest.mark.parametrize("values", [S(0), S(1), B, P])
def test_172350_values_of_any_layout_are_written_to_places(values, four_ranks):
    x, want = flow.tensor(X, placement=four_ranks, sbp=S(0)), X.copy()
    new = np.arange(12, dtype=np.float32).reshape(2, 6)
    x[flow.tensor([1, 5], placement=four_ranks, sbp=B)] = flow.tensor(new, placement=four_ranks, sbp=values)
    want[[1, 5]] = new
    assert_close(x.numpy(), want, rtol=1e-6, atol=1e-5)
    assert x.sbp == (S(0),)


def test_124990_an_operator_without_a_rule_says_so_before_anything_runs(four_ranks, monkeypatch):
    x = flow.tensor(X, placement=four_ranks, sbp=S(0))
    before = flow.parallel.stats()
    with pytest.raises(PlacementError, match="does not support global mode"):
        flow.unique(x)
    monkeypatch.setattr(Op.by_name["Flip"], "sbp", None)
    with pytest.raises(PlacementError, match="flip: no SBP signature is stated"):
        x.flip([1])
    assert flow.parallel.stats().get("all_gather", 0) == before.get("all_gather", 0)


def test_slicing_the_only_dim_gathers_nothing(four_ranks):
    x = flow.arange(32, placement=four_ranks, sbp=flow.sbp.split(0))
    before = sum(flow.parallel.stats().values())
    y = x[2:11]
    assert y.sbp == (flow.sbp.partial_sum,) and sum(flow.parallel.stats().values()) == before
    assert y.tolist() == list(range(2, 11))
