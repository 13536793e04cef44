"""The source and the signature of every layer say what it takes and computes: a constructor and a `forward`."""

import inspect
import re

import pytest

from miniflow import nn

LAYERS = {
    name: layer
    for where in (nn, nn.image, nn.parallel)
    for name, layer in vars(where).items()
    if isinstance(layer, type) and issubclass(layer, nn.Module) and not name.startswith("_") and layer is not nn.Module
}
LISTS = {"ModuleList", "ModuleDict", "ParameterList", "ParameterDict"}  # which are not called
ANY_ARGUMENTS = {"Identity", "Sequential"}
ANY_INPUTS = {"Identity", "DistributedDataParallel", "TransformerDecoder"}  # which are passed on


def parameters(function, any_names):
    """The parameters of a function; it says all of them by name."""
    found = list(inspect.signature(function).parameters.values())
    assert any_names or not any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found), function
    return found


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_layer(name):
    layer = LAYERS[name]
    assert f"class {name}(" in inspect.getsource(layer) and inspect.getdoc(layer)
    arguments = parameters(layer, name in ANY_ARGUMENTS)
    text = inspect.getsource(layer.__init__)
    assert re.match(r"\s*def __init__\(\s*self", text)
    assert all(re.search(rf"\b{p.name}: ", text) for p in arguments), text
    if name not in LISTS:
        inputs = parameters(layer.forward, name in ANY_INPUTS)[1:]
        text = inspect.getsource(layer.forward)
        assert "def forward(" in text and all(re.search(rf"\b{p.name}\b", text) for p in inputs)


def test_there_are_layers():
    assert len(LAYERS) > 145
