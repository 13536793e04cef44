"""state_dict and load_state_dict: all or nothing."""

from collections import OrderedDict

import numpy as np
import pytest
from checks import assert_same

import miniflow as flow
from miniflow import nn, vision
from miniflow.errors import CheckpointError

pytestmark = pytest.mark.cpu_only("no test here looks at the device")


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2, bias=False)))


KEYS = [
    "0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked",
    "2.1.weight",
]  # fmt: skip


def values(module):
    return {name: tensor.cpu().numpy().copy() for name, tensor in module.state_dict().items()}


def test_keys_and_shared_memory():
    module = network()
    state = module.state_dict()
    assert type(state) is OrderedDict and list(state) == KEYS
    assert not any(t.requires_grad for t in state.values())
    state["0.bias"].fill_(7)
    assert module[0].bias.tolist() == [7.0] * 4
    assert module.state_dict(keep_vars=True)["0.bias"] is module[0].bias
    target = OrderedDict(other=1)
    assert module.state_dict(destination=target, prefix="net.") is target
    assert list(target)[:2] == ["other", "net.0.weight"]


def test_round_trip():
    source, target = network(), network()
    source(flow.randn(5, 3))
    result = target.load_state_dict(source.state_dict())
    assert result.missing_keys == [] and result.unexpected_keys == []
    assert repr(result) == "<All keys matched successfully>"
    for name, value in values(source).items():
        assert_same(target.state_dict()[name], value, what=name)
    assert target[1].num_batches_tracked.item() == 1
    assert target[0].weight.requires_grad and target[0].weight.is_leaf


def test_shared_parameters_stand_under_each_name():
    module = nn.ModuleList([nn.Linear(2, 2)])
    module.append(module[0])
    assert len(module.state_dict()) == 4 and len(list(module.parameters())) == 2


def test_loading_casts_and_copies():
    module = network()
    state = {name: t.double() if t.is_floating_point() else t for name, t in module.state_dict().items()}
    state["0.bias"] = flow.tensor([1.0, 2.0, 3.0, 4.0], dtype=flow.float64)
    state["1.bias"] = np.arange(4)
    parameter = module[0].bias
    module.load_state_dict(state)
    assert module[0].bias is parameter and parameter.dtype is flow.float32
    state["0.bias"].fill_(0)
    assert module[1].bias.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert parameter.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_all_differences_in_one_error_and_nothing_changed():
    module = network()
    before = values(module)
    state = OrderedDict((k, v.clone() + 1) for k, v in module.state_dict().items())
    del state["0.weight"]
    state["0.bias"] = flow.zeros(5)
    state["1.bias"] = [0.0] * 4
    state["9.weight"] = flow.zeros(2, 2)
    with pytest.raises(CheckpointError) as caught:
        module.load_state_dict(state)
    message = str(caught.value)
    for words in (
        "Sequential.load_state_dict: nothing was loaded",
        "0.weight is missing; expected of shape (4, 3)",
        "9.weight is unexpected: of shape (2, 2)",
        "size mismatch for 0.bias: of shape (5,); expected of shape (4,)",
        "size mismatch for 1.bias: a list, not a Tensor; expected of shape (4,)",
        "strict=False",
    ):
        assert words in message
    for name, value in values(module).items():
        assert_same(value, before[name], what=name)


def test_not_strict_loads_what_is_there():
    module = network()
    before = values(module)
    result = module.load_state_dict({"0.bias": flow.ones(4), "strange": flow.zeros(1)}, strict=False)
    assert result.unexpected_keys == ["strange"] and result.missing_keys == [k for k in KEYS if k != "0.bias"]
    assert "strange" in repr(result)
    assert module[0].bias.tolist() == [1.0] * 4
    assert_same(module[0].weight.detach(), before["0.weight"])
    with pytest.raises(CheckpointError, match=r"size mismatch for 0.bias: of shape \(3,\)"):
        module.load_state_dict({"0.bias": flow.ones(3)}, strict=False)


def test_not_a_dict():
    with pytest.raises(CheckpointError, match="got a list; expected a dict"):
        network().load_state_dict([1, 2])


def test_buffers_that_are_not_persistent_are_left_out():
    module = nn.Module()
    module.register_buffer("kept", flow.zeros(1))
    module.register_buffer("scratch", flow.zeros(1), persistent=False)
    module.register_buffer("absent", None)
    assert list(module.state_dict()) == ["kept"]
    module.register_buffer("scratch", flow.zeros(1))
    assert list(module.state_dict()) == ["kept", "scratch"]


def test_through_a_file(tmp_path):
    source, target = network(), network()
    flow.save(source.state_dict(), tmp_path / "model.safetensors")
    target.load_state_dict(flow.load(tmp_path / "model.safetensors"))
    for name, value in values(source).items():
        assert_same(target.state_dict()[name], value, what=name)


def test_older_states_of_batch_norm_do_not_count_batches():
    """They load strictly, as in PyTorch, and the count stays."""
    module = network()
    module(flow.randn(5, 3))
    state = {name: t.clone() for name, t in network().state_dict().items() if "num_batches" not in name}
    assert module.load_state_dict(state).missing_keys == []
    assert module[1].num_batches_tracked.item() == 1 and module[1].running_mean.tolist() == [0.0] * 4
    del state["1.running_mean"]
    with pytest.raises(CheckpointError, match=r"1.running_mean is missing.*\n.*1.num_batches_tracked is missing"):
        module.load_state_dict(state)


def test_assigned_tensors_are_those_of_the_state():
    module, frozen = network(), nn.Parameter(flow.ones(2, 4), requires_grad=False)
    module[0].weight.requires_grad_(False)
    state = {name: t.double() if t.is_floating_point() else t for name, t in network().state_dict().items()}
    state |= {"2.1.weight": frozen, "0.bias": np.arange(4.0)}
    names = [name for name, _ in module.named_parameters()]
    assert module.load_state_dict(state, assign=True).missing_keys == []
    assert [name for name, _ in module.named_parameters()] == names and module[2][1].weight is frozen
    assert module[0].weight.dtype is flow.float64 and type(module[0].weight) is nn.Parameter
    assert all(p.requires_grad == (p is not module[0].weight) for p in module.parameters())  # as it was
    module.load_state_dict({"0.weight": nn.Parameter(flow.ones(4, 3))}, strict=False, assign=True)
    assert not module[0].weight.requires_grad
    module.load_state_dict(state, assign=True)
    assert module[1].running_mean is state["1.running_mean"] and module[0].bias.tolist() == [0, 1, 2, 3]
    state["0.weight"].fill_(7)
    assert module[0].weight.tolist() == [[7.0] * 3] * 4
    with pytest.raises(CheckpointError, match="size mismatch for 0.bias"):
        module.load_state_dict({**state, "0.bias": flow.zeros(3)}, assign=True)
    module.load_state_dict({"0.bias": flow.zeros(4)}, strict=False, assign=True)
    assert module[0].bias.tolist() == [0.0] * 4 and module[2][1].weight is frozen


@pytest.mark.parametrize("norm", ["weight_norm", "spectral_norm"])
def test_either_kind_of_norm_reads_the_names_of_the_other(norm):
    names = {
        "weight_norm": ("weight_g weight_v", "original0 original1"),
        "spectral_norm": ("weight_orig weight_u weight_v", "original 0._u 0._v"),
    }[norm]
    layers = [getattr(functions, norm)(nn.Linear(3, 4)) for functions in (nn.utils, nn.utils.parametrizations)]
    own = [names[0].split(), [f"parametrizations.weight.{name}" for name in names[1].split()]]
    assert [list(layer.state_dict()) for layer in layers] == [["bias", *keys] for keys in own]
    for i, j in (0, 1), (1, 0):
        state = {name: flow.randn(*t.shape) for name, t in layers[i].state_dict().items()}
        layers[j].load_state_dict(state)
        for name, other in zip(own[i], own[j], strict=True):
            assert_same(layers[j].state_dict()[other], state[name].numpy())
    with pytest.raises(CheckpointError, match="is missing"):
        layers[0].load_state_dict(nn.Linear(3, 4).state_dict())


class Scaled(nn.Module):
    """With a state that is no tensor, as PyTorch's modules may have."""

    def __init__(self):
        super().__init__()
        self.layer, self.history = nn.Linear(2, 1), []

    def forward(self, x):
        return self.layer(x) * len(self.history)

    def get_extra_state(self):
        return {"history": self.history}

    def set_extra_state(self, state):
        self.history = list(state["history"])


def test_extra_states(tmp_path):
    module, other = nn.Sequential(nn.ReLU(), Scaled()), nn.Sequential(nn.ReLU(), Scaled())
    module[1].history = [0.5, "two"]
    state = module.state_dict()
    assert list(state) == ["1._extra_state", "1.layer.weight", "1.layer.bias"]
    flow.save(state, tmp_path / "state")
    other.load_state_dict(flow.load(tmp_path / "state"))
    assert other[1].history == [0.5, "two"] and other[1].history is not module[1].history
    assert_same(other[1].layer.weight, module[1].layer.weight)
    del state["1._extra_state"]
    with pytest.raises(CheckpointError, match="1._extra_state is missing; expected an extra state"):
        other.load_state_dict(state)
    assert other.load_state_dict(state, strict=False).missing_keys == ["1._extra_state"]
    with pytest.raises(CheckpointError, match="_extra_state is unexpected: a int, not a Tensor"):
        nn.Linear(2, 1).load_state_dict({**nn.Linear(2, 1).state_dict(), "_extra_state": 3})


def test_extra_states_of_a_graph():
    class Predict(nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def build(self, x):
            return self.model(x)

    graph, other = Predict(Scaled()), Predict(Scaled())
    graph.model.history.append(3)
    other.load_state_dict(graph.state_dict())
    assert other.model.history == [3]
    assert_same(other(flow.ones(1, 2)), graph(flow.ones(1, 2)))


class Versioned(nn.Linear):
    """As modules of PyTorch read what older versions have written, and write more than tensors."""

    _version = 2

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "version"] = flow.tensor(2)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, *lists):
        self.version_read = local_metadata.get("version")
        if prefix + "kernel" in state_dict:
            state_dict[prefix + "weight"] = state_dict.pop(prefix + "kernel")
        if state_dict.pop(prefix + "version", flow.tensor(1)).item() > 2:
            lists[-1].append("version 3 is not known")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *lists)


def test_methods_that_pytorch_calls_for_each_module():
    module = nn.Sequential(Versioned(2, 1))
    state = module.state_dict()
    assert list(state) == ["0.weight", "0.bias", "0.version"]
    state["0.kernel"] = state.pop("0.weight") * 0 + 7
    module.load_state_dict(state)
    assert module[0].weight.tolist() == [[7, 7]] and "0.kernel" in state
    assert module[0].version_read is None
    module.load_state_dict(module.state_dict())
    assert module[0].version_read == 2
    state["0.version"], state["0.bias"] = flow.tensor(3), flow.ones(1) * 5
    with pytest.raises(CheckpointError, match="Sequential.load_state_dict: version 3 is not known"):
        module.load_state_dict(state)
    assert module[0].bias.item() != 5


def test_a_module_loads_its_own_entries_as_libraries_ask_it_to():
    source, module = Versioned(2, 3), Versioned(2, 3)
    state = {f"layer.{name}": value + 1 for name, value in source.state_dict().items() if name != "version"}
    state["layer.kernel"] = state.pop("layer.weight")
    missing, unexpected, errors = [], [], []
    module._load_from_state_dict(state, "layer.", {}, True, missing, unexpected, errors)
    assert_same(module.weight, source.weight.detach() + 1)
    assert_same(module.bias, source.bias.detach() + 1)
    assert not missing and not errors

    module._load_from_state_dict({"layer.bias": flow.ones(4)}, "layer.", {}, True, missing, unexpected, errors)
    assert missing == ["layer.weight"] and len(errors) == 1 and "size mismatch for layer.bias" in errors[0]
    given = flow.ones(3)
    module._load_from_state_dict({"bias": given}, "", {"assign_to_params_buffers": True}, False, [], [], [])
    assert module.bias.data_ptr() == given.data_ptr() and module.bias.requires_grad


class Counting(nn.BatchNorm1d):
    """A layer with a state that is no tensor."""

    calls = 0

    def get_extra_state(self):
        return self.calls

    def set_extra_state(self, state):
        self.calls = state


LAYERS = [Counting, nn.BatchNorm2d, vision.layers.FrozenBatchNorm2d, nn.LayerNorm]


@pytest.mark.parametrize("make", LAYERS, ids=lambda cls: cls.__name__)
def test_layers_with_a_way_of_their_own_load_their_entries_too(make):
    source, module = make(3), make(3)
    source.calls = 7
    state = {f"layer.{name}": value + 1 for name, value in source.state_dict().items()}
    missing, errors = [], []
    module._load_from_state_dict(state, "layer.", {}, True, missing, [], errors)
    assert not missing and not errors
    for name, value in module.state_dict().items():
        assert value == 8 if name == "_extra_state" else value.tolist() == (source.state_dict()[name] + 1).tolist()
    older = {name: value for name, value in state.items() if "num_batches" not in name}
    module._load_from_state_dict(older, "layer.", {}, True, missing, [], errors)
    assert not missing and not errors
