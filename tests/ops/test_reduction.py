"""Reductions: sums and products, extrema, moments and norms."""

from math import inf, nan

import numpy as np
import pytest
from checks import as_array, assert_close, assert_same, check_op, on_device

import miniflow as flow
from miniflow.errors import DimError, DTypeError, ShapeError

RNG = np.random.default_rng(4)
A = RNG.permutation(np.linspace(0.4, 2.0, 60)).reshape(3, 4, 5)  # no two elements are close, so no extremum has a kink
SIGNED = A * RNG.choice([-1.0, 1.0], A.shape)
HALVES = ("float32", "float64", "float16", "bfloat16")


def test_norm_and_std_have_gradient_zero_where_they_are_zero():
    for function in (flow.norm, flow.std, lambda x: flow.norm(x, 3.0)):
        x = flow.zeros(3).requires_grad_()
        function(x).backward()
        assert x.grad.tolist() == [0.0, 0.0, 0.0]


def test_products_with_zeros_have_exact_gradients():
    for zeros in ([1], [1, 3], [0, 1, 2, 3, 4]):
        x = A[0, 0].copy()
        x[zeros] = 0.0
        check_op(lambda x: x.prod(), [x], np.prod, grad=len(zeros) == 1, gradient="sparse", layouts=())
        check_op(lambda x: (x * 1.0 + flow.tensor(A[1]).prod(0)).prod(1).sum(), [A[2] - 1.0], grad=True)
    t = flow.tensor([0.0, 0.0, 3.0], dtype=flow.float64, requires_grad=True)
    (first,) = flow.autograd.grad(t.prod(), t, create_graph=True)
    assert first.tolist() == [0.0, 0.0, 0.0]
    (second,) = flow.autograd.grad(first[0], t, create_graph=True)
    assert second.tolist() == [0.0, 3.0, 0.0]
    (third,) = flow.autograd.grad(second[1], t)
    assert third.tolist() == [0.0, 0.0, 1.0]


def test_equal_extrema_share_the_gradient_and_max_over_a_dim_gives_it_to_the_first():
    x = flow.tensor([[3.0, 3.0, 1.0], [0.0, 2.0, 2.0]], requires_grad=True)
    for function, expected in (
        (lambda x: x.amax(1), [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]),
        (lambda x: x.max(), [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]),
        (lambda x: x.max(1).values, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
        (lambda x: x.min(0)[0], [[0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]),
    ):
        x.grad = None
        function(x).sum().backward()
        assert x.grad.tolist() == expected


def test_max_of_two_tensors():
    a, b = flow.tensor([1, 5]), flow.tensor([3, 2])
    assert flow.max(a, b).tolist() == [3, 5] and flow.min(a, b).tolist() == [1, 2]


def test_integers_and_bool_are_added_in_int64():
    for kind in (flow.uint8, flow.int8, flow.int32, flow.int64, flow.bool):
        x = flow.ones(300, dtype=kind)
        assert x.sum().dtype is flow.int64 and x.sum().item() == 300
        assert x.prod(0).dtype is flow.int64 and x.prod().item() == 1
    assert flow.ones(3, dtype=flow.int8).sum(dtype=flow.float64).dtype is flow.float64
    assert flow.full((3,), 2, dtype=flow.int8).prod(dtype=flow.float32).item() == 8.0
    assert flow.tensor([1, 2]).mean(dtype=flow.float32).item() == 1.5
    assert flow.tensor([3, 1]).amax().dtype is flow.int64


def test_nan_wins():
    x = flow.tensor([[1.0, nan, 3.0], [1.0, 2.0, 3.0]])
    for function in (flow.sum, flow.amax, flow.amin, flow.mean):
        assert_same(np.isnan(as_array(function(x, 1))), np.array([True, False]))
    for function in (flow.max, flow.min):
        values, indices = function(x, 1)
        assert np.isnan(values.tolist()[0]) and indices.tolist()[0] == 1
    assert x.argmax().item() == 1 and np.isnan(x.max().item())


@pytest.mark.parametrize("kind", ["int8", "uint8", "bool", "int32", "int64", "float32"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool", "int32", "int64", "float16", "float64"])
def test_sums_and_products_in_a_dtype(kind, dtype):
    x = on_device(np.array([[100, 3, 100], [2, 100, 7]]).astype(kind))
    for function, want in ((flow.sum, np.add), (flow.prod, np.multiply)):
        terms = as_array(x).astype(dtype)
        for dim in (None, 1):
            with np.errstate(over="ignore"):
                expected = want.reduce(terms, dim, dtype=dtype)
            assert_same(function(x, dim, dtype=getattr(flow, dtype)), np.asarray(expected))


@pytest.mark.parametrize("function", [flow.max, flow.min])
def test_gradients_of_nan(function):
    """In full the NaNs share it, along a dim the first one gets it; `amax` spreads NaN: all as in torch 2.13."""
    for values, shares in (([nan, 1, nan], [0.5, 0, 0.5]), ([1, nan, 2], [0, 1, 0]), ([inf, inf, inf], [1 / 3] * 3)):
        x = on_device(np.array(values, np.float32)).requires_grad_()
        assert_close(flow.autograd.grad(function(x), x)[0], np.float32(shares))
        first = np.eye(3, dtype=np.float32)[int(np.argmax(shares))]
        assert_same(flow.autograd.grad(function(x, 0).values, x)[0], first)
    for along in (flow.amax, flow.amin):
        x = on_device(np.array([nan, 1], np.float32)).requires_grad_()
        assert np.isnan(as_array(flow.autograd.grad(along(x), x)[0])).all()


def test_gradient_of_the_number_of_elements_that_are_not_zero():
    x = on_device(np.array([[0.0, nan, -2.0], [0.0, 0.0, 1e-30]], np.float32)).requires_grad_()
    assert_same(x.norm(0, 1), np.float32([2, 1]))
    assert_same(flow.autograd.grad(x.norm(0), x)[0], np.zeros((2, 3), np.float32))


def test_nothing_to_reduce():
    x = flow.zeros(0, 3)
    assert x.sum().item() == 0.0 and x.sum(0).tolist() == [0.0, 0.0, 0.0] and x.prod().item() == 1.0
    assert np.isnan(x.mean().item()) and np.isnan(as_array(x.mean(0))).all() and x.mean(1).shape == (0,)
    assert np.isnan(x.var().item()) and np.isnan(flow.ones(1).std().item())
    assert x.logsumexp(0).tolist() == [-inf] * 3 and x.norm().item() == 0.0
    assert x.any().item() is False and x.all().item() is True
    assert x.amax(1).shape == (0,) and x.max(1).indices.shape == (0,)
    for reduce in (flow.sum, flow.prod):
        y = on_device(np.zeros((0, 3))).requires_grad_()
        reduce(y, 0).sum().backward()
        assert y.grad.shape == (0, 3)


def test_zero_dim_tensors():
    x = flow.tensor(3.0)
    for dim in (None, 0, -1):
        for function in (flow.sum, flow.mean, flow.prod, flow.amax, flow.amin, flow.norm if dim is None else flow.sum):
            check_op(lambda x, f=function, d=dim: f(x, d), [np.array(1.5)], lambda x: x, second=False, layouts=())
        assert x.argmax(dim).item() == 0 and x.any(dim).item() is True
    assert [y.tolist() for y in x.max(0)] == [3.0, 0]
    with pytest.raises(DimError, match="sum: got dim=1 for a tensor of 0 dims"):
        x.sum(1)


def test_logsumexp_of_large_and_infinite_values():
    x = flow.tensor([[1000.0, 1000.0], [-inf, -inf], [inf, 0.0], [-1000.0, -inf]])
    assert_close(x.logsumexp(1), np.array([1000.0 + np.log(2.0), -inf, inf, -1000.0], np.float32))


def test_var_arguments():
    x = on_device(A)
    for ours, expected in (
        (x.var(False), A.var()),
        (x.var(0, False), A.var(0)),
        (x.var(1, correction=2), A.var(1, ddof=2)),
        (flow.std(x, unbiased=False), A.std()),
        (x.std([0, 1], keepdim=True), A.std((0, 1), ddof=1, keepdims=True)),
        (flow.var_mean(x, 0, correction=0)[0], A.var(0)),
        (flow.var_mean(x, 0, keepdim=True)[1], A.mean(0, keepdims=True)),
    ):
        assert_close(ours, np.asarray(expected))


@pytest.mark.parametrize(
    ("shape", "dim"),
    [
        ((1_000_003,), None),
        ((250_000, 4), 0),
        ((4, 250_000), 1),
        ((2049, 500), (0, 1)),
        ((64, 5, 31, 33), (0, 2, 3)),
        ((3, 70_000, 5), 1),
        ((3, 2, 1025, 5), (0, 2)),
        ((1025, 7, 11), -1),
    ],
)
def test_large_float32_sums_are_accurate(shape, dim):
    x = np.random.default_rng(5).uniform(0.0, 1.0, shape).astype(np.float32)
    want = x.astype(np.float64).sum(dim)
    for layout in (x, np.asfortranarray(x), np.stack([x, x], -1)[..., 0]):
        assert_close(as_array(on_device(layout).sum(dim)).astype(np.float64), want, rtol=2e-6)
    assert_close(as_array(on_device(x).mean(dim, keepdim=True)).astype(np.float64), want.reshape(
        x.mean(dim, keepdims=True).shape) * want.size / x.size, rtol=2e-6)  # fmt: skip


def test_large_sums_of_one_repeated_value():
    x = flow.full((1,), 0.1).expand(1_000_000, 3)
    assert_close(as_array(x.sum(0)).astype(np.float64), np.full(3, 1e6 * np.float64(np.float32(0.1))), rtol=2e-6)


X = flow.zeros(2, 3)
ERRORS = [
    (lambda: X.sum(2), DimError, "sum: got dim=2 for a tensor of 2 dims; expected a dim from -2 to 1"),
    (lambda: X.sum((0, 0)), DimError, "sum: .* comes twice"),
    (lambda: X.sum((0, -2)), DimError, "sum: .* comes twice"),
    (lambda: X.sum(1.5), DTypeError, "sum: got dim=1.5; expected an integer dim"),
    (lambda: X.mean(-3), DimError, "mean: got dim=-3"),
    (lambda: X.mean((0, 2)), DimError, "mean: got dim=2"),
    (lambda: flow.ones(2, dtype=flow.int64).mean(), DTypeError, "mean: got int64; expected a floating dtype"),
    (lambda: flow.ones(2, dtype=flow.bool).mean(0), DTypeError, "mean: got bool"),
    (lambda: X.prod(2), DimError, "prod: got dim=2"),
    (lambda: X.prod((0, 1)), DTypeError, r"prod: got dim=\(0, 1\); expected an integer dim"),
    (lambda: flow.zeros(0, 3).amax(), ShapeError, "amax: .* no elements to reduce"),
    (lambda: flow.zeros(0, 3).amin(0), ShapeError, r"amin: got shape \(0, 3\) and dim=0"),
    (lambda: flow.zeros(0, 3).max(0), ShapeError, "max: .* no elements"),
    (lambda: flow.zeros(0).min(), ShapeError, "min: .* no elements"),
    (lambda: flow.zeros(0).argmax(), ShapeError, "argmax: .* no elements"),
    (lambda: X.amax(2), DimError, "amax: got dim=2"),
    (lambda: X.max(2), DimError, "max: got dim=2"),
    (lambda: X.max((0, 1)), DTypeError, "max: got dim="),
    (lambda: X.argmin(2), DimError, "argmin: got dim=2"),
    (lambda: X.any(2), DimError, "any: got dim=2"),
    (lambda: X.all((1, 1)), DimError, "all: .* comes twice"),
    (lambda: X.var(2), DimError, "var: got dim=2"),
    (lambda: flow.tensor([1]).std(), DTypeError, "std: got int64"),
    (lambda: X.var(0, True, correction=1), DTypeError, "unbiased=True and correction=1; expected one"),
    (lambda: X.logsumexp(2), DimError, "logsumexp: got dim=2"),
    (lambda: X.norm(2, 2), DimError, "norm: got dim=2"),
    (lambda: flow.tensor([1]).norm(), DTypeError, "norm: got int64"),
    (lambda: X.norm("nuc"), DTypeError, "norm: got p='nuc'"),
]


@pytest.mark.cpu_only("shapes and dtypes are checked before a kernel is chosen")
def test_errors():
    for call, error, message in ERRORS:
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("keepdim", [np.bool_(True), 2, 1.0])
def test_what_is_true_keeps_dims(keepdim):
    x = flow.ones(2, 3)
    for reduce in (flow.sum, flow.mean, flow.argmax):
        assert reduce(x, 1, keepdim).shape == (2, 1)
        assert reduce(x, 1, not keepdim).shape == (2,)
