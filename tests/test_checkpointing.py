"""Activation checkpointing gives the same gradients as the plain call."""

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
