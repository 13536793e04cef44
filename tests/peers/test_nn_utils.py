"""Parameters as vectors, and parametrizations, beside PyTorch's."""

import numpy as np
import pytest
from checks import assert_close

import miniflow as flow

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

pytestmark = pytest.mark.cpu_only("compositions of operators that are compared on every device")


def draw(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).normal(size=shape)


def pair(make):
    ours, theirs = make(flow.nn).double(), make(torch.nn).double()
    ours.load_state_dict({k: flow.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    return ours, theirs


def trained(layers, shape, steps=4):
    """Results, parameters and buffers after some steps of both."""
    for framework, layer in zip((flow, torch), layers, strict=True):
        optimizer = framework.optim.SGD(layer.parameters(), lr=0.1)
        for step in range(steps):
            optimizer.zero_grad()
            y = layer(framework.tensor(draw(*shape, seed=step)))
            (y * framework.tensor(draw(*y.shape, seed=step + 9))).sum().backward()
            optimizer.step()
    ours, theirs = (x.state_dict() for x in layers)
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        assert_close(ours[name], value, rtol=1e-8, atol=1e-9, what=name)


LAYERS = {
    "linear": (lambda nn: nn.Linear(4, 3), (5, 4)),
    "conv": (lambda nn: nn.Conv2d(2, 3, 3), (2, 2, 5, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(name, dim):
    make, shape = LAYERS[name]
    if dim is None and name == "conv":
        dim = -1
    layers = pair(lambda nn: nn.utils.parametrizations.weight_norm(make(nn), dim=dim))
    trained(layers, shape)
    weight = layers[0].weight.detach().numpy()
    plain = flow.nn.utils.remove_weight_norm(layers[0])
    assert sorted(plain.state_dict()) == ["bias", "weight"] and type(plain) is type(make(flow.nn))
    assert_close(plain.weight.detach(), weight)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("count", [1, 3])
def test_spectral_norm(name, count):
    make, shape = LAYERS[name]
    layers = pair(lambda nn: nn.utils.parametrizations.spectral_norm(make(nn), n_power_iterations=count))
    trained(layers, shape)
    x = draw(*shape)
    assert_close(layers[0].eval()(flow.tensor(x)).detach(), layers[1].eval()(torch.tensor(x)).detach(), rtol=1e-9)
    weight = flow.nn.utils.remove_spectral_norm(layers[0]).weight
    assert_close(weight.detach(), layers[1].weight.detach(), rtol=1e-9)


def test_parametrizations_of_ones_own():
    def make(nn):
        layer = nn.Linear(3, 3)
        nn.utils.parametrize.register_parametrization(layer, "weight", nn.Softplus())
        nn.utils.parametrize.register_parametrization(layer, "weight", nn.Tanh())
        return nn.utils.parametrize.register_parametrization(layer, "bias", nn.Sigmoid())

    layers = pair(make)
    trained(layers, (4, 3))
    ours, theirs = layers
    parametrize = flow.nn.utils.parametrize
    with parametrize.cached():
        assert ours.weight is ours.weight
    assert ours.weight is not ours.weight and parametrize.is_parametrized(ours, "weight")
    parametrize.remove_parametrizations(ours, "weight", leave_parametrized=False)
    torch.nn.utils.parametrize.remove_parametrizations(theirs, "weight", leave_parametrized=False)
    assert_close(ours.weight.detach(), theirs.weight.detach(), rtol=1e-9)
    assert parametrize.is_parametrized(ours) and not parametrize.is_parametrized(ours, "weight")


def test_vectors():
    ours, theirs = pair(LAYERS["linear"][0])
    vector = flow.nn.utils.parameters_to_vector(ours.parameters())
    assert_close(vector.detach(), torch.nn.utils.parameters_to_vector(theirs.parameters()).detach())
    flow.nn.utils.vector_to_parameters(vector * 2, ours.parameters())
    assert_close(ours.weight.detach(), 2 * theirs.weight.detach())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda u: u.vector_to_parameters(flow.zeros(3), [flow.zeros(2)]), r"expected \(2,\)"),
        (lambda u: u.weight_norm(flow.nn.Linear(2, 2), "weights"), "got 'weights'"),
        (lambda u: u.remove_weight_norm(flow.nn.Linear(2, 2)), "no such norm"),
        (lambda u: u.spectral_norm(flow.nn.Linear(2, 2), n_power_iterations=0), "at least 1"),
        (lambda u: u.parametrize.remove_parametrizations(flow.nn.Linear(2, 2), "bias"), "is not parametrized"),
        (
            lambda u: u.parametrize.register_parametrization(flow.nn.Linear(2, 2), "weight", flow.nn.Flatten(0)),
            r"weight became \(4,\)",
        ),
    ],
)
def test_errors(call, words):
    with pytest.raises(ValueError, match=words):
        call(flow.nn.utils)
