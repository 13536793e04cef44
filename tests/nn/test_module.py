"""The tree of a module: attributes, names, modes, conversions, copies, printing."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
from miniflow import nn
from miniflow.errors import (
    ArgumentError,
    ArgumentTypeError,
    AutogradError,
    CheckpointError,
    DeviceError,
    DTypeError,
    PickleError,
)

pytestmark = pytest.mark.cpu_only("no test here looks at the device")


class Frozen(nn.Module):
    """Keeps its normalisation in evaluation, and writes only a part of its state."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(x)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def state_dict(self, *args, **kwargs):
        return {name: value for name, value in super().state_dict(*args, **kwargs).items() if "running" in name}


def test_children_may_override_train():
    model = nn.Sequential(Frozen(), nn.Linear(3, 3)).train()
    assert model[0].training and not model[0].norm.training
    model(flow.ones(4, 3))
    assert model[0].norm.num_batches_tracked.item() == 0


def test_what_must_be_loaded_does_not_depend_on_what_is_written():
    with pytest.raises(CheckpointError, match="norm.weight is missing"):
        Frozen().load_state_dict(Frozen().state_dict())
    assert Frozen().load_state_dict(Frozen().state_dict(), strict=False).missing_keys[0] == "norm.weight"


def test_a_copy_has_no_gradients():
    layer = nn.Linear(2, 2)
    layer(flow.ones(1, 2)).sum().backward()
    assert copy.deepcopy(layer).weight.grad is None and layer.weight.grad is not None


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.scale = nn.Parameter(flow.tensor([2.0, 3.0]))
        self.register_buffer("count", flow.tensor(0))
        self.register_buffer("scratch", flow.zeros(2), persistent=False)

    def forward(self, x):
        return self.scale * self.linear(x)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Block()
        self.second = Block()
        self.second.linear = self.first.linear  # shared

    def forward(self, x):
        return self.first(x) + self.second(x)


def test_names_in_the_order_of_registration_shared_members_once():
    network = Network()
    assert [n for n, _ in network.named_parameters()] == [
        "first.scale",
        "first.linear.weight",
        "first.linear.bias",
        "second.scale",
    ]
    every = [n for n, _ in network.named_parameters(remove_duplicate=False)]
    assert every[-3:] == ["second.scale", "second.linear.weight", "second.linear.bias"] and len(every) == 6
    assert sum(p.numel() for p in network.parameters()) == 2 + 6 + 2 + 2
    assert [n for n, _ in network.named_modules()] == ["", "first", "first.linear", "second"]
    assert [n for n, _ in network.named_modules(prefix="net", remove_duplicate=False)][-1] == "net.second.linear"
    assert [n for n, _ in network.named_buffers()] == [
        "first.count",
        "first.scratch",
        "second.count",
        "second.scratch",
    ]
    assert [n for n, _ in network.named_children()] == ["first", "second"]
    assert list(network.first.parameters(recurse=False)) == [network.first.scale]
    assert [n for n, _ in network.named_parameters(prefix="net")][0] == "net.first.scale"


def test_a_module_that_contains_itself_is_walked_once():
    module = Block()
    module.linear.parent = module
    assert len(list(module.modules())) == 2
    twin = copy.deepcopy(module)
    assert twin.linear.parent is twin


def test_forward_and_gradients_reach_every_parameter():
    network = Network()
    network(flow.ones(4, 3)).sum().backward()
    assert all(p.grad is not None for p in network.parameters())
    weight, bias = (p.detach().cpu().numpy() for p in (network.first.linear.weight, network.first.linear.bias))
    assert_close(network.first.scale.grad, 4 * (weight.sum(1) + bias), rtol=1e-5)
    network.zero_grad(set_to_none=False)
    assert_same(network.first.scale.grad, np.zeros(2, np.float32))
    network.zero_grad()
    assert all(p.grad is None for p in network.parameters())


def test_lookup_by_dotted_name():
    network = Network()
    assert network.get_submodule("first.linear") is network.first.linear
    assert network.get_submodule("") is network
    assert network.get_parameter("second.linear.bias") is network.first.linear.bias
    assert network.get_buffer("first.count") is network.first.count
    with pytest.raises(AttributeError, match="not a Module"):
        network.get_submodule("first.scale")
    with pytest.raises(AttributeError, match="no parameter 'first.scael'"):
        network.get_parameter("first.scael")


def test_unknown_attribute_names_what_is_near():
    with pytest.raises(AttributeError, match=r"Block has no attribute 'lniear'"):
        _ = Block().lniear
    with pytest.raises(AttributeError, match="no attribute 'entirely_different'$"):
        _ = Block().entirely_different


def test_a_failing_property_is_named():
    class WithProperty(nn.Module):
        @property
        def width(self):
            return self.no_such_thing

    with pytest.raises(AttributeError, match="property 'width' of WithProperty failed"):
        _ = WithProperty().width


@pytest.mark.parametrize("value", [nn.Parameter(flow.zeros(1)), nn.ReLU()])
def test_assignment_before_init_names_the_remedy(value):
    class Forgetful(nn.Module):
        def __init__(self):
            self.part = value

    with pytest.raises(AttributeError, match=r"call super\(\).__init__\(\) first in Forgetful.__init__"):
        Forgetful()


def test_use_before_init_names_the_remedy():
    class Forgetful(nn.Module):
        def __init__(self):
            self.size = 3

    with pytest.raises(AttributeError, match=r"call super\(\).__init__\(\) first"):
        _ = Forgetful().linear


def test_no_forward():
    class Empty(nn.Module):
        pass

    with pytest.raises(NotImplementedError, match="Empty has no forward: define forward"):
        Empty()(1)


def test_reassignment_moves_a_name_between_the_tables():
    module = Block()
    module.scale = None
    assert module.scale is None and "scale" not in dict(module.named_parameters())
    module.scale = nn.Parameter(flow.ones(2))
    assert list(module._parameters) == ["scale"]
    module.linear = nn.ReLU()
    assert isinstance(module.linear, nn.ReLU)
    module.count = flow.tensor(5)
    assert module.count.item() == 5 and "count" in module.state_dict()
    module.extra = 3
    module.extra = nn.Parameter(flow.ones(1))
    assert "extra" not in vars(module) and module.extra.requires_grad
    del module.extra
    assert not hasattr(module, "extra")
    del module.scratch
    assert "scratch" not in dict(module.named_buffers())
    with pytest.raises(AttributeError):
        del module.nothing


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("scale", flow.zeros(2), "cannot assign a Tensor as parameter 'scale' of Block; expected a Parameter or None"),
        ("linear", 3, "cannot assign a int as module 'linear' of Block; expected a Module or None"),
        ("count", 3, "cannot assign a int as buffer 'count' of Block; expected a Tensor or None"),
    ],
)
def test_assignment_of_the_wrong_kind(name, value, words):
    module = Block()
    before = getattr(module, name)
    with pytest.raises(TypeError, match=words):
        setattr(module, name, value)
    assert getattr(module, name) is before


def test_registration_checks_names_and_kinds():
    module = Block()
    for register, value in [
        (module.register_parameter, nn.Parameter(flow.zeros(1))),
        (module.register_buffer, flow.zeros(1)),
        (module.add_module, nn.ReLU()),
    ]:
        with pytest.raises(ArgumentError, match="without dots"):
            register("a.b", value)
        with pytest.raises(ArgumentError, match="without dots"):
            register("", value)
        with pytest.raises(TypeError, match="expected a str"):
            register(3, value)
        with pytest.raises(ArgumentError, match="'forward' exists already"):
            register("forward", value)
        with pytest.raises(TypeError, match="cannot assign a str"):
            register("fresh", "text")
    with pytest.raises(ArgumentError, match="'scale' exists already"):
        module.register_buffer("scale", flow.zeros(1))


def test_apply_visits_children_first():
    seen = []
    network = Network()
    assert network.apply(seen.append) is network
    assert seen == [network.first.linear, network.first, network.first.linear, network.second, network]


def test_train_and_eval_reach_all_modules():
    network = Network()
    assert all(m.training for m in network.modules())
    assert network.eval() is network and not any(m.training for m in network.modules())
    network.first.train()
    assert network.first.linear.training and not network.second.training
    with pytest.raises(ArgumentError, match="mode='yes'"):
        network.train("yes")


def test_requires_grad_freezes():
    network = Network().requires_grad_(False)
    assert not any(p.requires_grad for p in network.parameters())
    assert all(p.requires_grad for p in network.requires_grad_().parameters())


def test_conversion_keeps_the_objects_and_integer_buffers():
    network = Network()
    network(flow.ones(1, 3)).sum().backward()
    members = [*network.parameters(), *network.buffers()]
    weight = network.first.linear.weight
    values, grad = weight.detach().cpu().numpy().copy(), weight.grad.cpu().numpy().copy()
    assert network.double() is network
    assert all(a is b for a, b in zip(members, [*network.parameters(), *network.buffers()], strict=True))
    assert network.second.linear.weight is weight and weight.requires_grad and weight.is_leaf
    assert_same(weight, values.astype(np.float64))
    assert_same(weight.grad, grad.astype(np.float64))
    assert network.first.count.dtype is flow.int64 and network.first.scratch.dtype is flow.float64
    network(flow.ones(1, 3, dtype=flow.float64)).sum().backward()
    assert_close(weight.grad, 2 * grad.astype(np.float64), rtol=1e-6)
    assert network.to(flow.float16).first.scale.dtype is flow.float16
    assert network.float().first.scale.dtype is flow.float32
    assert network.half().first.scale.dtype is flow.float16
    assert network.bfloat16().first.scale.dtype is flow.bfloat16
    assert network.to(flow.zeros(1, dtype=flow.float64)).first.scale.dtype is flow.float64
    assert network.to("cpu", flow.float32).first.scale.dtype is flow.float32
    assert network.cpu().first.scale.device == flow.device("cpu")


def test_conversion_keeps_tensor_hooks_and_is_seen_by_the_tape():
    module = nn.Linear(2, 2)
    seen = []
    module.weight.register_hook(lambda g: seen.append(g.dtype))
    module.double()
    module(flow.ones(1, 2, dtype=flow.float64)).sum().backward()
    assert seen == [flow.float64]
    y = module(flow.ones(1, 2, dtype=flow.float64, requires_grad=True)).sum()
    module.float()
    with pytest.raises(AutogradError, match="changed by an in-place operation"):
        y.backward()


def test_impossible_conversions():
    with pytest.raises(DTypeError, match="expected a floating dtype"):
        Block().to(flow.int64)
    with pytest.raises(DeviceError, match="cuda:99"):
        Block().cuda(99)


def test_deepcopy_is_independent_and_keeps_sharing():
    network = Network().eval()
    network.register_forward_hook(lambda module, args, y: y * 2)
    twin = copy.deepcopy(network)
    assert twin.second.linear is twin.first.linear and twin.first.linear is not network.first.linear
    assert not twin.training and isinstance(twin.first.scale, nn.Parameter) and twin.first.scale.requires_grad
    x = flow.ones(1, 3)
    assert_same(twin(x).detach(), network(x).detach())
    with flow.no_grad():
        twin.first.scale.fill_(0)
    assert network.first.scale.tolist() == [2.0, 3.0]
    parameter = copy.deepcopy(network.first.scale)
    assert isinstance(parameter, nn.Parameter) and parameter.tolist() == [2.0, 3.0]


def test_copy_shares_parameters_but_not_tables():
    module = Block()
    twin = copy.copy(module)
    assert twin.scale is module.scale
    twin.scale = nn.Parameter(flow.zeros(2))
    assert module.scale.tolist() == [2.0, 3.0]


def test_pickling_is_refused():
    with pytest.raises(PickleError, match=r"flow.save\(module.state_dict\(\), path\)"):
        pickle.dumps(Block())
    with pytest.raises(PickleError, match="flow.save"):
        pickle.dumps(nn.Parameter(flow.zeros(1)))


def test_parameter():
    source = flow.zeros(2)
    p = nn.Parameter(source)
    assert p.requires_grad and p.is_leaf and not nn.Parameter(source, requires_grad=False).requires_grad
    with flow.no_grad():
        p.add_(1)
    assert source.tolist() == [1.0, 1.0]
    assert repr(p).startswith("Parameter containing:\ntensor([1., 1.]") and "requires_grad=True" in repr(p)
    assert nn.Parameter().shape == (0,)
    made = nn.Parameter(flow.ones(2, requires_grad=True) * 3)
    assert made.is_leaf and type(p * 2) is flow.Tensor
    with pytest.raises(TypeError, match="expected a Tensor"):
        nn.Parameter([1.0])
    with pytest.raises(AutogradError, match="floating"):
        nn.Parameter(flow.tensor([1]))


def test_repr_of_nested_modules():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block()

        def extra_repr(self):
            return "width=3"

    assert repr(Outer()) == (
        "Outer(\n  width=3\n  (block): Block(\n    (linear): Linear(in_features=3, out_features=2, bias=True)\n  )\n)"
    )
    assert repr(Block().linear) == "Linear(in_features=3, out_features=2, bias=True)"
    assert "linear" in dir(Block()) and "scale" in dir(Block())


@pytest.mark.parametrize(
    "make",
    [lambda: nn.Linear(2, 2), lambda: nn.Conv2d(1, 1, 1), lambda: nn.LayerNorm(2), lambda: nn.MaxPool2d(1),
     lambda: nn.Embedding(3, 2), lambda: nn.BatchNorm1d(2), lambda: nn.ReLU(), lambda: nn.Sequential(nn.Flatten())],
)  # fmt: skip
@pytest.mark.parametrize("value", [[[1.0, 2.0]], None, "text"], ids=lambda value: type(value).__name__)
def test_what_is_not_a_tensor_is_refused(make, value):
    with pytest.raises(TypeError, match=type(value).__name__):
        make()(value)


class Rectified(nn.Module):
    def forward(self, x):
        return x.relu()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.Linear(2, 2), "linear: got input of type list; expected a Tensor: use flow.tensor"),
        (Rectified(), "Rectified: got a list; expected a Tensor: wrap the values with flow.tensor"),
    ],
)
def test_a_layer_says_that_it_wants_a_tensor(layer, message, compiled):
    layer = nn.Graph.trace(layer) if compiled else layer
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a graph warns that the numbers become constants
        with pytest.raises(ArgumentTypeError, match=message):
            layer([[1.0, 2.0]])


def test_other_attribute_errors_stay_as_they_are():
    class Wrong(nn.Module):
        def forward(self, x):
            return x.nonsense

    with pytest.raises(AttributeError, match="nonsense"):
        Wrong()([1.0])
    with pytest.raises(AttributeError, match="nonsense"):
        Wrong()(flow.ones(1))


COMPUTED = {
    "weight norm": (nn.utils.weight_norm, nn.utils.remove_weight_norm),
    "spectral norm": (nn.utils.spectral_norm, nn.utils.remove_spectral_norm),
    "pruning": (
        lambda m: nn.utils.prune.l1_unstructured(m, "weight", 0.5), lambda m: nn.utils.prune.remove(m, "weight"),
    ),
    "parametrization": (
        lambda m: nn.utils.parametrize.register_parametrization(m, "weight", nn.Tanh()),
        lambda m: nn.utils.parametrize.remove_parametrizations(m, "weight"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", COMPUTED)
def test_a_computed_weight_belongs_to_its_layer_alone(how):
    begin, end = COMPUTED[how]
    layer, other = nn.Linear(3, 2), nn.Linear(3, 2)
    begin(layer)
    twin = copy.deepcopy(layer)
    assert type(layer) is type(twin) is nn.Linear and isinstance(other.weight, nn.Parameter)
    assert "weight" in dir(layer) and "weight" not in dict(layer.named_parameters())
    before = layer.weight.detach().clone()
    with pytest.raises(AttributeError, match="'weight' of Linear is computed from other tensors"):
        layer.weight = flow.zeros(2, 3)
    with pytest.raises(ArgumentError, match="the attribute 'weight' exists already"):
        layer.weight = nn.Parameter(flow.zeros(2, 3))
    with flow.no_grad():
        for p in twin.parameters():
            p.fill_(1.0)
    assert_same(layer.weight.detach(), before.numpy())
    assert not (twin.weight == before).any() or how == "pruning" and not (twin.weight == before).all()
    value = layer.weight.detach().clone()
    end(layer)
    assert isinstance(layer.weight, nn.Parameter)
    assert_close(layer.weight.detach(), value.numpy())
    layer.weight = nn.Parameter(flow.zeros(2, 3))


def test_only_what_is_pruned_is_made_plain_again():
    layer = nn.utils.spectral_norm(nn.Linear(3, 2))
    with pytest.raises(ArgumentError, match="prune.remove: got the name 'weight'; expected a pruned parameter"):
        nn.utils.prune.remove(layer, "weight")
    assert layer(flow.ones(1, 3)).shape == (1, 2)


def test_a_subclass_may_convert_what_it_has_besides():
    class Cached(nn.Linear):
        def _apply(self, fn, recurse=True):
            self.cache = fn(self.cache)
            return super()._apply(fn, recurse)

    layer = Cached(2, 2)
    layer.cache, table = flow.ones(3), nn.Parameter(flow.ones(1))
    model = nn.Sequential(layer, nn.BatchNorm1d(2))
    model.table, layer.table = table, table  # shared
    assert model.double() is model and layer.cache.dtype is flow.float64
    assert {x.dtype for x in model.parameters()} == {flow.float64} and model.table is table
    assert model[1].num_batches_tracked.dtype is flow.int64 and model[1].running_mean.dtype is flow.float64


def test_names_of_a_program_do_not_collide_with_those_of_the_framework():
    class Metric(nn.Module):
        def __init__(self):
            super().__init__()
            self._computed = None
            self._not_saved = 3
            self.layer = nn.Linear(2, 1)
            self.register_buffer("total", flow.zeros(1))

        def _add(self, value):
            self.total += value

        def _store(self):
            raise AssertionError("called by the framework")

        _register = _own_state = _store

    metric = Metric()
    metric._add(2.0)
    assert metric.total.item() == 2 and metric._computed is None and list(metric.state_dict())[-1] == "layer.bias"
    assert str(metric.load_state_dict(metric.state_dict())) == "<All keys matched successfully>"
