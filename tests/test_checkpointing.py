"""Activation checkpointing gives the same gradients as the plain call."""

import weakref

import checks
import pytest

import miniflow as flow
from miniflow import nn
from miniflow.utils.checkpoint import checkpoint, checkpoint_sequential


def gradients(run, *tensors):
    for x in tensors:
        x.grad = None
    flow.manual_seed(5)
    loss = run()
    loss.backward()
    return [loss.detach(), *[x.grad for x in tensors]]


@pytest.mark.parametrize("dtype", [None, flow.bfloat16])
def test_gradients_are_those_of_the_plain_call(dtype):
    flow.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 4))
    x, scale = flow.randn(5, 6, requires_grad=True), flow.ones(1, requires_grad=True)

    def run(call):
        # without the cache each use of a parameter has a cast, and a gradient in float32, of its own
        with flow.autocast("cpu", dtype or flow.bfloat16, enabled=dtype is not None, cache_enabled=False):
            first, second = call(lambda x, n, factor: (model(x) * factor, n), x, None, factor=scale)
            assert second is None
            return (first * first).sum() + model(x).sum()

    plain = gradients(lambda: run(lambda f, *args, **kwargs: f(*args, **kwargs)), x, *model.parameters())
    again = gradients(lambda: run(checkpoint), x, *model.parameters())
    for a, b in zip(again, plain, strict=True):
        checks.assert_close(a, b)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_backward_after_the_region_of_autocast_has_ended(before, inside):
    """Casts of parameters are kept within a region: the function may find one in forward, or leave one for backward."""
    flow.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6)), flow.randn(5, 6, requires_grad=True)

    def function(x):
        with flow.autocast("cpu", flow.bfloat16, enabled=inside or flow.is_autocast_enabled("cpu")):
            return model(model(x))

    def run(call):
        with flow.autocast("cpu", flow.bfloat16, enabled=not inside):
            first = model(x).detach() if before else x
            y = call(function, first + x)
        return y.float().square().sum()

    plain = gradients(lambda: run(lambda f, *args: f(*args)), x, *model.parameters())
    again = gradients(lambda: run(checkpoint), x, *model.parameters())
    for a, b in zip(again, plain, strict=True):
        checks.assert_close(a, b)


def test_parameters_get_gradients_where_no_input_needs_one():
    model = nn.Linear(3, 2)
    x = flow.ones(4, 3)
    checkpoint(model, x).sum().backward()
    assert model.weight.grad.tolist() == [[4.0] * 3] * 2 and x.grad is None


def test_it_computes_twice_and_saves_only_the_inputs():
    calls = []

    def function(x):
        calls.append(x.requires_grad)
        return x.exp().sin()

    x = flow.ones(3, requires_grad=True)
    y = checkpoint(function, x)
    assert calls == [True] or calls == [False]
    y.sum().backward()
    assert len(calls) == 2 and calls[1]
    with flow.no_grad():
        assert not checkpoint(function, x).requires_grad and len(calls) == 3


def test_sequential():
    flow.manual_seed(1)
    layers = [nn.Linear(4, 4) for _ in range(5)]
    x = flow.randn(2, 4, requires_grad=True)
    plain = gradients(lambda: nn.Sequential(*layers)(x).square().sum(), x, layers[0].weight)
    parts = gradients(
        lambda: checkpoint_sequential(layers, 2, x, use_reentrant=False).square().sum(), x, layers[0].weight
    )
    for a, b in zip(parts, plain, strict=True):
        checks.assert_close(a, b)


def nested(call, x):
    a, rest = call(lambda x: (x * 2, {"b": [x.exp()], "c": x.sin()}), x)
    return (a * rest["b"][0] + rest["c"]).sum()


def cross(call, x):
    context = x.exp()  # reaches the function by its closure, twice
    for _ in range(2):
        x = call(lambda x: (x * context).tanh(), x)
    return x.sum()


def within(call, x):
    return call(lambda x: (call(lambda y: (y.sin() * y).tanh(), x.exp()) * x).cos(), x).sum()


def penalty(call, x):
    y = call(lambda x: (x.exp() * x).sin(), x).sum()
    (slope,) = flow.autograd.grad(y, x, create_graph=True)
    return y + slope.square().sum()


def through_an_output(call, x):
    u, w = call(lambda x: ((y := x.exp()), y * y * y), x)
    (slope,) = flow.autograd.grad(w.sum(), u, create_graph=True)
    return flow.autograd.grad(slope.sum(), u, create_graph=True)[0].sum()


@pytest.mark.parametrize("run", [nested, cross, within, penalty, through_an_output])
def test_gradients_of_programs(run):
    x = flow.tensor([0.3, -0.7, 1.1], requires_grad=True)
    plain = gradients(lambda: run(lambda f, *args: f(*args), x), x)
    for a, b in zip(gradients(lambda: run(checkpoint, x), x), plain, strict=True):
        checks.assert_close(a, b)


def test_grad_leaves_parameters_alone_and_frozen_functions_are_not_recorded():
    model = nn.Linear(3, 1)
    x = flow.ones(3, requires_grad=True)
    by_x, by_weight = flow.autograd.grad(checkpoint(model, x).sum(), [x, model.weight])
    checks.assert_close(by_x, model.weight[0])
    assert by_weight.tolist() == [[1.0] * 3] and model.weight.grad is None
    assert not checkpoint(model.requires_grad_(False), flow.ones(3)).requires_grad


def test_what_does_not_repeat_is_refused():
    calls = []
    x = flow.ones(3, requires_grad=True)
    y = checkpoint(lambda x: x.sin() if calls.append(x) or len(calls) == 1 else x.exp(), x)
    with pytest.raises(flow.errors.AutogradError, match="other operators"):
        y.sum().backward()
    z = flow.ones(3)
    y = checkpoint(lambda z: z * x * z, z)
    z.add_(1)
    with pytest.raises(flow.errors.AutogradError, match="changed in place"):
        y.sum().backward()


def test_a_result_that_is_dropped_frees_its_memory_at_once():
    x = flow.ones(3, requires_grad=True)
    y = checkpoint(lambda x: x.exp().sin(), x)
    node = weakref.ref(y.grad_fn)
    del y
    assert node() is None


def test_in_a_graph_it_is_the_plain_call():
    flow.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.0))

        def build(self, x):
            y = checkpoint(self.model, x).sum()
            y.backward()
            return y

    x = flow.ones(2, 3)
    checks.assert_close(Train()(x).detach(), model(x).sum().detach())
