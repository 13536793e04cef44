"""`flow.autocast`: which op computes in which dtype, how regions nest, where gradients arrive."""

import threading

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
from miniflow import nn
from miniflow.dispatch.tape import modes
from miniflow.errors import ArgumentError, ArgumentTypeError, DTypeError

F = nn.functional
X = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(6, 6)).astype(np.float32)


@pytest.fixture
def here():
    return flow.get_default_device().type


@pytest.fixture(params=["float16", "bfloat16"])
def half(request):
    return getattr(flow, request.param)


def rounded(array, half):
    """The values of a float32 array in half precision, in float32."""
    return array.astype(half.numpy).astype(np.float32)


# dtypes


MATRIX_PRODUCTS = {
    "matmul": lambda x, w: flow.matmul(x, w),
    "operator": lambda x, w: x @ w,
    "bmm": lambda x, w: flow.bmm(x.view(1, 4, 6), w.view(1, 6, 6)),
    "vector": lambda x, w: flow.dot(x[0], w[0]),
    "rows": lambda x, w: flow.matmul(x.view(2, 2, 6), w),
    "linear": lambda x, w: F.linear(x, w, w[0]),
    "linear of rows": lambda x, w: F.linear(x.view(2, 2, 6), w),
    "conv2d": lambda x, w: F.conv2d(x.view(1, 1, 4, 6), w.view(1, 1, 6, 6), padding=2),
}
IN_FLOAT32 = {
    "exp": flow.exp,
    "log": lambda x: flow.log(x * x),
    "mean": flow.mean,
    "var": lambda x: flow.var(x, 1),
    "prod": flow.prod,
    "norm": lambda x: flow.norm(x),
    "logsumexp": lambda x: flow.logsumexp(x, 1),
    "rsqrt": lambda x: flow.rsqrt(flow.abs(x) + 1.0),
    "pow": lambda x: flow.pow(flow.abs(x), flow.abs(x)),
    "erf": flow.erf,
    "softplus": flow.softplus,
    "mse_loss": lambda x: F.mse_loss(x, x * 0.5),
    "l1_loss": lambda x: F.l1_loss(x, x * 0.5),
    "cross_entropy": lambda x: F.cross_entropy(x, flow.tensor([0, 1, 2, 3])),
    "soft cross_entropy": lambda x: F.cross_entropy(x, flow.softmax(x, 1)),
    "nll_loss": lambda x: F.nll_loss(x, flow.tensor([0, 1, 2, 3])),
    "binary_cross_entropy": lambda x: F.binary_cross_entropy(flow.sigmoid(x), flow.sigmoid(x)),
    "binary_cross_entropy_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, flow.sigmoid(x)),
}
AS_GIVEN = {
    "add": lambda x: x + x,
    "add of a number": lambda x: x + 1.5,
    "mul": lambda x: x * x,
    "div": lambda x: x / 3,
    "square": flow.square,
    "neg": flow.neg,
    "sum": flow.sum,
    "softmax": lambda x: flow.softmax(x, 1),
    "log_softmax": lambda x: flow.log_softmax(x, 1),
    "gelu": flow.gelu,
    "relu": flow.relu,
    "tanh": flow.tanh,
    "dropout": lambda x: F.dropout(x, 0.5),
    "layer_norm": lambda x: F.layer_norm(x, 6),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "reshape": lambda x: x.reshape(3, 8),
    "transpose": lambda x: x.T,
    "cat": lambda x: flow.cat([x, x]),
    "slice": lambda x: x[1:, ::2],
    "clamp": lambda x: flow.clamp(x, -0.5, 0.3),
    "max_pool2d": lambda x: F.max_pool2d(x.view(1, 1, 4, 6), 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x.view(1, 1, 4, 6), 2),
    "embedding": lambda x: F.embedding(flow.tensor([0, 2]), x),
}


@pytest.mark.parametrize("name", MATRIX_PRODUCTS)
def test_matrix_products_are_in_half_precision(name, here, half):
    function = MATRIX_PRODUCTS[name]
    with flow.autocast(here, dtype=half):
        y = function(flow.tensor(X), flow.tensor(W))
        mixed = function(flow.tensor(X).to(half), flow.tensor(W))
    want = function(flow.tensor(X).to(half), flow.tensor(W).to(half))
    assert y.dtype is want.dtype is half
    assert_same(y, want)
    assert_same(mixed, want)


@pytest.mark.parametrize("name", IN_FLOAT32)
def test_is_in_float32(name, here, half):
    function = IN_FLOAT32[name]
    x = flow.tensor(X).to(half)
    with flow.autocast(here, dtype=half):
        y = function(x)
    assert y.dtype is flow.float32
    if "log" not in name.split("_"):  # whose argument, x * x, is in half precision
        assert_close(y, function(flow.tensor(rounded(X, half))), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", AS_GIVEN)
def test_computes_in_what_it_is_given(name, here, half):
    function = AS_GIVEN[name]
    for kind in (half, flow.float32, flow.float64):
        x = flow.tensor(X).to(kind)
        with flow.autocast(here, dtype=half):
            y = function(x)
        assert y.dtype is kind
        if name != "dropout":
            assert_same(y, function(x))


def test_operands_of_different_dtypes_are_promoted(here):
    x, y = flow.ones(3, dtype=flow.float16), flow.ones(3)
    with flow.autocast(here, dtype=flow.float16):
        assert (x + y).dtype is flow.float32
        assert flow.cat([x, y]).dtype is flow.float32
        assert flow.where(x > 0, x, y).dtype is flow.float32


def test_casts_and_results_that_are_not_floats_stay(here):
    x = flow.tensor(X)
    with flow.autocast(here, dtype=flow.float16):
        y = x @ x.T
        assert y.float().dtype is flow.float32 and y.double().dtype is flow.float64
        assert x.half().dtype is flow.float16 and x.to(flow.bfloat16).dtype is flow.bfloat16
        assert (y > 0).dtype is flow.bool and y.argmax(1).dtype is flow.int64 and y.long().dtype is flow.int64
        assert flow.isfinite(y).dtype is flow.bool
        assert (flow.tensor([[1, 2]]) @ flow.tensor([[3], [4]])).dtype is flow.int64


def test_float64_is_left_alone(here):
    x = flow.tensor(X).double()
    with flow.autocast(here):
        y = x @ x.T
    assert_same(y, x @ x.T)
    assert y.dtype is flow.float64


def test_in_place_operations_keep_the_dtype(here):
    x = flow.tensor(X).half()
    with flow.autocast(here, dtype=flow.float16):
        x.exp_()
        x.add_(1.0)
    assert_same(x, (np.exp(X.astype(np.float16).astype(np.float32)).astype(np.float16) + np.float16(1)), what="exp + 1")


# gradients


def test_gradients_arrive_in_float32(here, half):
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
    with flow.autocast(here, dtype=half):
        y = model(flow.tensor(X))
        loss = F.cross_entropy(y, flow.tensor([0, 1, 2, 0]))
    assert y.dtype is half and loss.dtype is flow.float32
    loss.backward()
    for p in model.parameters():
        assert p.dtype is p.grad.dtype is flow.float32


def test_gradients_are_those_of_casts_written_by_hand(here, half):
    x, w, v = flow.tensor(X), flow.tensor(W, requires_grad=True), flow.tensor(W, requires_grad=True)
    with flow.autocast(here, dtype=half):
        y = flow.relu(x @ w)
        loss = flow.mean((y @ w) * 3.0)
    loss.backward()
    low = v.to(half)
    flow.mean(((flow.relu(x.to(half) @ low) @ low) * 3.0).float()).backward()
    assert_same(w.grad, v.grad)


def test_results_are_close_to_float32(here, half):
    """Two layers: each rounds its inputs and its result, with errors of 2^-11 and 2^-8 of the terms' size."""
    model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))
    want = model(flow.tensor(X))
    with flow.autocast(here, dtype=half):
        got = model(flow.tensor(X)).float()
    assert_close(got, want, rtol=0, atol=8 * (2**-11 if half is flow.float16 else 2**-8))


def test_backward_within_the_region_is_not_cast(here):
    w = flow.tensor(W, requires_grad=True)
    with flow.autocast(here, dtype=flow.float16):
        (flow.tensor(X) @ w).sum().backward()
        inside, w.grad = w.grad, None
        assert modes.autocast is not None
        y = (flow.tensor(X) @ w).sum()
    y.backward()
    assert_same(inside, w.grad)


# regions


def test_regions_nest_and_end(here):
    x = flow.tensor(X)

    def kind():
        return (x @ x.T).dtype

    with flow.autocast(here, dtype=flow.float16):
        with flow.autocast(here, dtype=flow.bfloat16):
            assert kind() is flow.bfloat16
            with flow.autocast(here, enabled=False):
                assert kind() is flow.float32 and not flow.is_autocast_enabled(here)
            assert kind() is flow.bfloat16
        assert kind() is flow.float16 and flow.is_autocast_enabled(here)
    assert kind() is flow.float32 and modes.autocast is None


def test_a_region_ends_with_an_exception(here):
    with pytest.raises(ZeroDivisionError), flow.autocast(here):
        1 / 0  # noqa: B018
    assert modes.autocast is None


def test_one_object_may_be_entered_again(here):
    region = flow.autocast(here, dtype=flow.float16)
    with region, region:
        assert flow.is_autocast_enabled(here)
    assert modes.autocast is None
    with region:
        assert flow.get_autocast_dtype(here) is flow.float16
    assert modes.autocast is None


def test_only_ops_on_the_device_are_cast(here):
    other = {"cpu": "cuda", "cuda": "cpu"}[here]
    x = flow.tensor(X)
    with flow.autocast(other):
        assert (x @ x.T).dtype is flow.float32
        with pytest.raises(DTypeError, match="expected one: cast"):
            F.linear(x.half(), x)
        assert (x.half() @ x.T).dtype is flow.float32
        with flow.autocast(here, dtype=flow.bfloat16):
            assert (x @ x.T).dtype is flow.bfloat16


def test_decorator(here):
    @flow.autocast(here, dtype=flow.bfloat16)
    def product(x, n):
        """The product."""
        return (x @ x.T).dtype if n == 0 else product(x, n - 1)

    assert product(flow.tensor(X), 2) is flow.bfloat16
    assert modes.autocast is None and product.__name__ == "product" and product.__doc__ == "The product."


def test_decorated_function_in_two_threads(here):
    inside, leave = threading.Event(), threading.Event()
    seen = []

    @flow.autocast(here, dtype=flow.bfloat16)
    def wait(first):
        if first:
            inside.set()
            leave.wait(10)

    def first():
        wait(True)
        seen.append(modes.autocast)

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait(10)
    assert modes.autocast is None  # a region belongs to its thread
    wait(False)
    assert modes.autocast is None
    leave.set()
    thread.join()
    assert seen == [None]


def test_defaults():
    assert flow.autocast("cuda").dtype is flow.float16 is flow.get_autocast_dtype("cuda")
    assert flow.autocast("cpu").dtype is flow.bfloat16 is flow.get_autocast_dtype("cpu")
    assert flow.autocast("cpu", dtype=np.dtype(np.float16)).dtype is flow.float16
    assert flow.amp.autocast is flow.autocast


def test_errors():
    with pytest.raises(ArgumentError, match="device_type='tpu'; expected 'cuda' or 'cpu'"):
        flow.autocast("tpu")
    with pytest.raises(ArgumentTypeError, match="expected 'cuda' or 'cpu'"):
        flow.autocast(flow.float16)
    with pytest.raises(ArgumentError, match="expected flow.float16 or flow.bfloat16"):
        flow.autocast("cpu", dtype=flow.float32)
