"""Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""

from collections import OrderedDict

import pytest
from checks import assert_same

import miniflow as flow
from miniflow import nn
from miniflow.errors import IndexRangeError

pytestmark = pytest.mark.cpu_only("no test here looks at the device")


def layers(n):
    return [nn.Linear(i + 1, i + 2) for i in range(n)]


def test_sequential_runs_in_order():
    a, b, c = layers(3)
    network = nn.Sequential(a, b, c)
    x = flow.randn(5, 1)
    assert_same(network(x).detach(), c(b(a(x))).detach().cpu().numpy())
    assert len(network) == 3 and list(network) == [a, b, c] and network[-1] is c
    assert nn.Sequential()(x) is x


@pytest.mark.parametrize("container", [lambda m: nn.Sequential(*m), nn.ModuleList])
def test_sequences_are_edited_like_lists(container):
    a, b, c, d = layers(4)
    modules = container([a, b, c])
    part = modules[1:]
    assert type(part) is type(modules) and list(part) == [b, c]
    assert modules.append(d) is modules and list(modules) == [a, b, c, d]
    modules.insert(1, d)
    assert list(modules) == [a, d, b, c, d] and list(modules._modules) == ["0", "1", "2", "3", "4"]
    modules.insert(-1, a)
    assert list(modules) == [a, d, b, c, a, d]
    del modules[4]
    del modules[1:3]
    assert list(modules) == [a, c, d] and list(modules._modules) == ["0", "1", "2"]
    modules[-1] = b
    assert list(modules) == [a, c, b]
    assert modules.pop() is b and modules.pop(0) is a and list(modules) == [c]
    modules += [a, b]
    assert list(modules.extend([d])) == [c, a, b, d]
    assert list(modules + container([a])) == [c, a, b, d, a]
    for bad in (4, -5):
        with pytest.raises(IndexRangeError, match=f"index {bad} is out of range for 4 entries"):
            modules[bad]
    with pytest.raises(TypeError, match="expected a Module"):
        modules.append(3)
    assert len(list(modules.parameters())) == 8


def test_extending_a_list_by_itself_ends():
    modules = nn.ModuleList(layers(2))
    modules.extend(modules)
    assert len(modules) == 4


def test_sequential_with_names():
    a, b = layers(2)
    network = nn.Sequential(OrderedDict(first=a, second=b))
    assert network.first is a and list(network[1:]._modules) == ["second"]
    assert [n for n, _ in network.named_parameters()][0] == "first.weight"


def test_module_list_counts_equal_neighbours():
    modules = nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Tanh(), nn.ReLU()])
    assert repr(modules) == "ModuleList(\n  (0-1): 2 x ReLU()\n  (2): Tanh()\n  (3): ReLU()\n)"
    assert repr(nn.ModuleList()) == "ModuleList()"
    with pytest.raises(NotImplementedError, match="ModuleList has no forward"):
        modules(flow.ones(1))


def test_module_dict():
    a, b, c = layers(3)
    modules = nn.ModuleDict({"a": a, "b": b})
    modules["c"] = c
    assert list(modules) == list(modules.keys()) == ["a", "b", "c"]
    assert list(modules.values()) == [a, b, c] and dict(modules.items())["b"] is b
    assert "a" in modules and "z" not in modules and len(modules) == 3
    assert modules.pop("a") is a and list(modules) == ["b", "c"]
    modules.update([("b", a)])
    del modules["c"]
    assert modules["b"] is a and len(modules) == 1
    modules.clear()
    assert len(modules) == 0
    with pytest.raises(KeyError):
        modules["b"]
    with pytest.raises(TypeError, match="expected a Module"):
        modules["x"] = flow.zeros(1)


def test_parameter_list():
    p, q = nn.Parameter(flow.zeros(2, 3)), nn.Parameter(flow.ones(1))
    params = nn.ParameterList([p])
    assert params.append(q) is params and list(params) == [p, q] and params[-1] is q
    params += [flow.full((2,), 7.0)]
    assert isinstance(params[2], nn.Parameter) and params[2].tolist() == [7.0, 7.0]
    assert list(params[:2]) == [p, q] and isinstance(params[:2], nn.ParameterList)
    params[0] = q
    assert params[0] is q and len(params) == 3
    assert [n for n, _ in params.named_parameters()] == ["0", "2"]
    assert repr(nn.ParameterList([p, q])) == (
        "ParameterList(\n"
        "    (0): Parameter containing: [miniflow.float32 of size 2x3]\n"
        "    (1): Parameter containing: [miniflow.float32 of size 1]\n)"
    )
    with pytest.raises(IndexRangeError, match="out of range for 3"):
        params[3]
    with pytest.raises(TypeError, match="expected a Parameter"):
        params.append("text")


def test_parameter_dict():
    p = nn.Parameter(flow.zeros(2))
    params = nn.ParameterDict({"p": p})
    assert params.setdefault("q", flow.zeros(2)) is params["q"] and params.setdefault("p", flow.zeros(1)) is p
    del params["q"]
    params["q"] = flow.ones(3)
    assert isinstance(params["q"], nn.Parameter) and list(params) == ["p", "q"] and "p" in params and len(params) == 2
    assert params.get("p") is p and params.get("none", 5) == 5
    assert [tuple(v.shape) for v in params.values()] == [(2,), (3,)] and list(params.keys()) == ["p", "q"]
    assert params.pop("p") is p and dict(params.items()).keys() == {"q"}
    assert "(q): Parameter containing: [miniflow.float32 of size 3]" in repr(params)
    del params["q"]
    params.update({"r": p})
    assert params["r"] is p
    params.clear()
    assert len(params) == 0
