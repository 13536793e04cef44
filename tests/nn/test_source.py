"""The source and the signature of every layer, optimizer and schedule say what it takes and computes."""

import inspect
import re

import pytest

from miniflow import nn, optim
from miniflow.utils.data import DataLoader

pytestmark = pytest.mark.cpu_only("the source is the same for all devices")


def classes(base, *places):
    """The public classes of modules that derive from one, but for it."""
    return {
        name: cls
        for place in places
        for name, cls in vars(place).items()
        if isinstance(cls, type) and issubclass(cls, base) and cls is not base and not name.startswith("_")
    }


LAYERS = classes(nn.Module, nn, nn.image, nn.parallel)
OPTIMIZERS = classes(optim.Optimizer, optim)
SCHEDULES = classes(optim.lr_scheduler.LRScheduler, optim.lr_scheduler, optim.swa_utils)
OTHERS = {"ReduceLROnPlateau": optim.lr_scheduler.ReduceLROnPlateau, "DataLoader": DataLoader}
CONSTRUCTED = LAYERS | OPTIMIZERS | SCHEDULES | OTHERS
LISTS = {"ModuleList", "ModuleDict", "ParameterList", "ParameterDict"}  # which are not called
ANY_ARGUMENTS = {"Identity", "Sequential"}
ANY_INPUTS = {"Identity", "DistributedDataParallel", "TransformerDecoder"}  # which are passed on


def parameters(function, any_names):
    """The parameters of a function, which has all of them by name."""
    found = list(inspect.signature(function).parameters.values())
    assert any_names or not any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found), function
    return found


@pytest.mark.parametrize("name", sorted(CONSTRUCTED))
def test_constructor(name):
    cls = CONSTRUCTED[name]
    assert f"class {cls.__name__}(" in inspect.getsource(cls) and inspect.getdoc(cls)
    text = inspect.getsource(cls.__init__)
    assert re.match(r"\s*def __init__\(\s*self", text)
    assert all(re.search(rf"\b{p.name}: ", text) for p in parameters(cls, name in ANY_ARGUMENTS)), text


@pytest.mark.parametrize("name", sorted(LAYERS.keys() - LISTS))
def test_forward(name):
    text = inspect.getsource(LAYERS[name].forward)
    inputs = parameters(LAYERS[name].forward, name in ANY_INPUTS)
    assert "def forward(" in text and all(re.search(rf"\b{p.name}\b", text) for p in inputs)


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_schedule(name):
    one, all_of_them, combined = (
        getattr(SCHEDULES[name], method) is not getattr(optim.lr_scheduler.LRScheduler, method)
        for method in ("get_lr", "get_lrs", "_set")
    )
    assert one or all_of_them or combined


def test_counts():
    assert len(LAYERS) > 145 and len(OPTIMIZERS) > 14 and len(SCHEDULES) > 14
