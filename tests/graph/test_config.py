"""The options of graphs and of their modules: what they set, what they refuse, and what they say they cannot do."""

import copy
import pickle
import warnings

import ml_dtypes
import numpy as np
import pytest

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentError, ArgumentTypeError, DTypeError, PickleError
from miniflow.graph.config import MEMORY_PLANNING, PASSES, GraphConfig
from miniflow.graph.onnxruntime import PROVIDERS
from miniflow.graph.passes import PIPELINE

# every name of OneFlow's, those of 0.6 too
ONEFLOW = (
    "enable_amp enable_zero set_gradient_accumulation_steps set_outputs_buffer_size allow_fuse_model_update_ops "
    "allow_fuse_add_to_output allow_fuse_cast_scale enable_fused_model_update_cast enable_multi_tensor_update "
    "enable_cudnn_conv_heuristic_search_algo enable_straighten_algorithm enable_compress_memory enable_auto_parallel "
    "enable_auto_parallel_ignore_user_sbp_config set_auto_parallel_computation_cost_ratio set_auto_parallel_wait_time "
    "enable_auto_parallel_trunk_algo enable_auto_parallel_sbp_collector enable_auto_memory enable_xla_jit "
    "enable_tensorrt enable_openvino set_zero_redundancy_optimizer_mode "
    "set_zero_redundancy_optimizer_min_size_after_split"
).split()


class Twice(nn.Graph):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())

    def build(self, x):
        return self.model(x)


def test_every_method_of_oneflow_is_there():
    config = GraphConfig()
    assert all(callable(getattr(config, name)) for name in ONEFLOW)
    assert len(ONEFLOW) == len(set(ONEFLOW)) == 24


def test_what_it_is_at_first():
    config = GraphConfig()
    assert (config.training, config.amp_dtype, config.accumulation_steps) == (False, None, 1)
    assert (config.checkpoint_scopes, config.disabled_passes, config.outputs_buffer_size) == (frozenset(), set(), 2)
    assert repr(config) == "(CONFIG:config:GraphConfig(training=False, ))"


def test_what_is_set():
    config = GraphConfig()
    config.enable_amp(True, dtype=flow.bfloat16)
    assert config.amp_dtype == np.dtype(ml_dtypes.bfloat16)
    config.enable_amp()
    assert config.amp_dtype == np.float16
    config.set_gradient_accumulation_steps(4)
    config.set_outputs_buffer_size(3)
    config.enable_cuda_graph()
    config.static_shapes()
    config.disable_pass("cse")
    assert repr(config) == (
        "(CONFIG:config:GraphConfig(training=False, enable_amp=miniflow.float16, gradient_accumulation_steps=4, "
        "outputs_buffer_size=3, cuda_graph=True, static_shapes=True, disabled_passes=['cse'], ))"
    )
    config.enable_amp(False)
    config.static_shapes(False)
    assert config.amp_dtype is None and not config.is_static


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("allow_fuse_model_update_ops", "fused_update"),
        ("allow_fuse_add_to_output", "add_to_output"),
        ("allow_fuse_cast_scale", "cast_scale"),
        ("enable_fused_model_update_cast", "fused_update"),
        ("enable_multi_tensor_update", "multi_tensor_update"),
        ("enable_compress_memory", MEMORY_PLANNING),
        ("enable_choose_best_memory_allocation", MEMORY_PLANNING),
    ],
)
def test_fusions_are_passes_that_are_on(option, name):
    config = GraphConfig()
    getattr(config, option)()
    assert config.disabled_passes == set()
    getattr(config, option)(False)
    assert config.disabled_passes == {name}
    getattr(config, option)(True)
    assert config.disabled_passes == set()
    with pytest.raises(ArgumentTypeError, match=f"{option}: got 'yes'; expected True or False"):
        getattr(config, option)("yes")


def test_every_pass_can_be_switched_off():
    config = GraphConfig()
    config.disable_pass(*PASSES)
    assert config.disabled_passes == {*PIPELINE, MEMORY_PLANNING}
    config.enable_pass(*PASSES)
    assert config.disabled_passes == set()
    for method in (config.disable_pass, config.enable_pass):
        with pytest.raises(ArgumentError, match=r"got \['no_pass'\]; expected names among .*dead_code"):
            method("no_pass")


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (lambda c: c.enable_straighten_algorithm("MemoryFirst"), "instructions run in the order in which build"),
        (lambda c: c.enable_auto_parallel(), "place parameters and inputs yourself"),
        (lambda c: c.enable_auto_parallel_ignore_user_sbp_config(), "no search for SBP signatures"),
        (lambda c: c.enable_auto_parallel_trunk_algo(), "no search for SBP signatures"),
        (lambda c: c.enable_auto_parallel_sbp_collector(), "no search for SBP signatures"),
        (lambda c: c.set_auto_parallel_computation_cost_ratio(0.1), "no search for SBP signatures"),
        (lambda c: c.set_auto_parallel_wait_time(1.0), "no search for SBP signatures"),
        (lambda c: c.enable_auto_memory(), "module.config.activation_checkpointing = True"),
    ],
)
def test_options_without_meaning_say_what_to_use(call, instead):
    config = GraphConfig()
    with pytest.warns(UserWarning, match=instead) as caught:
        call(config)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert repr(config) == "(CONFIG:config:GraphConfig(training=False, ))"


def test_what_is_switched_off_is_not_a_warning():
    config = GraphConfig()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in (*[f"enable_{engine}" for engine in PROVIDERS], "enable_auto_parallel", "enable_zero"):
            getattr(config, name)(False)
        config.enable_straighten_algorithm("Disable")
        config.disable_straighten_algorithm()
    assert repr(config) == "(CONFIG:config:GraphConfig(training=False, ))"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda c: c.enable_amp(dtype=flow.float64), DTypeError, "got dtype=miniflow.float64; expected flow.float16"),
        (lambda c: c.enable_amp(1), ArgumentTypeError, "enable_amp: got 1; expected True or False"),
        (lambda c: c.set_gradient_accumulation_steps(0), ArgumentError, "got 0; expected an integer of at least 1"),
        (lambda c: c.set_gradient_accumulation_steps(2.0), ArgumentError, "got 2.0; expected an integer"),
        (lambda c: c.set_outputs_buffer_size(True), ArgumentError, "got True; expected an integer of at least 1"),
        (
            lambda c: c.enable_straighten_algorithm("Fast"),
            ArgumentError,
            "got mode='Fast'; expected one of .*'Disable'",
        ),
        (lambda c: c.enable_zero(stage=4), ArgumentError, "got stage=4; expected 1, 2 or 3"),
        (lambda c: c.set_zero_redundancy_optimizer_mode("all"), ArgumentError, "got 'all'; expected one of"),
    ],
)
def test_what_is_refused(call, error, message):
    config = GraphConfig()
    with pytest.raises(error, match=message):
        call(config)
    assert repr(config) == "(CONFIG:config:GraphConfig(training=False, ))"


def test_an_option_that_changes_compiles_again(capsys):
    graph = Twice()
    x = flow.ones(2, 4)
    before = graph(x).numpy().copy()
    graph.debug(0)
    graph.config.disable_pass("cse")
    np.testing.assert_array_equal(graph(x).numpy(), before)
    assert "compiles again, since something has changed: an option of its config." in capsys.readouterr().out
    graph.config.disable_pass("cse")  # nothing new
    graph(x)
    assert capsys.readouterr().out == ""
    graph.model.config.activation_checkpointing = True
    graph(x)
    assert "an option of its config" in capsys.readouterr().out


def test_without_memory_planning_nothing_is_shared():
    class Deep(nn.Graph):
        def build(self, x):
            for _ in range(4):
                x = (x @ x).softmax(-1)
            return x

    x, planned, plain = flow.ones(64, 64) * 0.1, Deep(), Deep()
    plain.config.enable_compress_memory(False)
    np.testing.assert_array_equal(planned(x).numpy(), plain(x).numpy())
    np.testing.assert_array_equal(planned(x).numpy(), plain(x).numpy())
    assert planned.memory().before == plain.memory().before
    assert 0 < 2 * planned.memory().arena < plain.memory().arena


# modules


def test_options_of_modules_in_all_spellings():
    graph = Twice()
    assert not graph.model.config.activation_checkpointing
    graph.model.config.activation_checkpointing = True
    assert graph._full_config().checkpoint_scopes == {"model"}
    graph.model[0].to(nn.graph.GraphModule).activation_checkpointing = True
    assert graph._full_config().checkpoint_scopes == {"model", "model.0"}
    graph.model.to(nn.graph.GraphModule).activation_checkpointing = False
    assert graph._full_config().checkpoint_scopes == {"model.0"} and not graph.model.config.activation_checkpointing
    graph.model[0].config.stage_id = 0
    graph.model[1].config.set_stage(1, "cpu")
    options = graph.model[1].to(nn.graph.GraphModule)
    assert (graph.model[0].config.stage_id, options.stage_id, options.stage_placement) == (0, 1, "cpu")
    assert repr(options) == "(CONFIG:config:GraphModule(stage_id=1, placement=cpu, ))"
    with pytest.raises(ArgumentTypeError, match="activation_checkpointing: got 1; expected True or False"):
        graph.model.config.activation_checkpointing = 1
    for stage in (-1, 1.5, True):
        with pytest.raises(ArgumentError, match=f"set_stage: got stage_id={stage}; expected an integer of at least 0"):
            graph.model.config.stage_id = stage


def test_a_proxy_acts_as_its_module():
    graph = Twice()
    proxy, module = graph.model, graph.model.to(nn.Module)
    assert isinstance(proxy, nn.Sequential) and type(proxy) is nn.graph.ProxyModule and type(module) is nn.Sequential
    assert proxy == module and hash(proxy) == hash(module) and len(proxy) == 2 and bool(proxy)
    assert [type(child) for child in proxy] == [nn.graph.ProxyModule] * 2
    assert proxy[0].weight is module[0].weight and module[0] in list(proxy)
    assert list(proxy.parameters())[0] is module[0].weight and "0.weight" in proxy.state_dict()
    proxy[1] = nn.Tanh()
    assert type(module[1]) is nn.Tanh
    proxy.flag = 3
    assert module.flag == 3 and proxy.flag == 3
    del proxy.flag
    assert not hasattr(module, "flag") and "config" in dir(proxy) and "append" in dir(proxy)
    assert proxy.to(flow.float64) is proxy and module[0].weight.dtype is flow.float64
    x = flow.ones(1, 4).double()
    np.testing.assert_array_equal(proxy(x).detach().numpy(), module(x).detach().numpy())
    copied = copy.deepcopy(proxy)
    assert type(copied) is nn.Sequential and copied[0].weight is not module[0].weight
    assert type(copy.copy(proxy)) is nn.Sequential and copy.copy(proxy)[0] is module[0]
    with pytest.raises(PickleError, match="Sequential: modules are not pickled"):
        pickle.dumps(proxy)
    del proxy[1]
    assert len(module) == 1
    graph.other = proxy[0]
    assert graph._blocks["other"] is module[0]


def test_an_attribute_called_config_belongs_to_the_module():
    class Configured(nn.Module):
        def __init__(self):
            super().__init__()
            self.config = {"size": 3}

        def forward(self, x):
            return x

    graph = Twice()
    graph.model = Configured()
    assert graph.model.config == {"size": 3}
    graph.model.to(nn.graph.GraphModule).activation_checkpointing = True
    assert graph._full_config().checkpoint_scopes == {"model"}


def test_containers_as_attributes():
    class Containers(nn.Graph):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
            self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 3)})
            self.scales = nn.ParameterList([flow.ones(4), flow.ones(4) * 2])
            self.shifts = nn.ParameterDict({"a": flow.ones(2)})
            everything = [self.layers, self.heads, self.scales, self.shifts]
            self.add_optimizer(flow.optim.SGD([p for part in everything for p in part.parameters()], lr=0.1))

        def build(self, x):
            for layer, scale in zip(self.layers, self.scales, strict=True):
                x = layer(x) * scale
            a, b = self.heads["a"](x) + self.shifts["a"], self.heads["b"](x)
            (a.sum() + b.sum()).backward()
            return a, b

    def values(graph):
        parts = {name: part for name, part in graph.state_dict().items() if isinstance(part, dict)}
        return {f"{name}.{key}": value.tolist() for name, part in parts.items() for key, value in part.items()}

    graph = Containers()
    before = values(graph)
    a, b = graph(flow.ones(2, 4))
    assert a.shape == (2, 2) and b.shape == (2, 3)
    after = values(graph)
    assert len(before) == 11 and before.keys() == after.keys() and all(before[name] != after[name] for name in before)
    assert [slot.name for slot in graph.recorded.states[:5]] == [
        "layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias", "heads.a.weight",
    ]  # fmt: skip
    assert {"scales.0", "scales.1", "shifts.a"} <= {slot.name for slot in graph.recorded.states}
    assert {"layers.1", "heads.b"} <= {i.scope for i in graph.recorded.instructions}


@pytest.mark.parametrize("name", ["MINIFLOW_ENABLE_NHWC", "ONEFLOW_ENABLE_NHWC"])
def test_channels_last_changes_nothing_and_says_so_once(name, monkeypatch):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(2)).eval()
    graph, x = nn.Graph.trace(model), flow.randn(2, 3, 8, 9)
    expected = model(x).numpy()
    monkeypatch.setenv(name, "1")
    with pytest.warns(UserWarning, match=f"{name} has no effect: images stay channels first") as caught:
        for y in (graph(x), graph(x), graph(flow.cat([x, x]))[:2], model.to(memory_format="channels_last")(x)):
            assert y.is_contiguous()
            np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert len(caught) == 1
    monkeypatch.setenv(name, "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.Graph.trace(model)(x)
