"""Options that are misspelt, assigned instead of called, or shared: each is refused or named, none is ignored."""

import copy
import warnings

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
import miniflow.typing as tp
from miniflow import nn
from miniflow.errors import ArgumentError, DTypeError, GraphError
from miniflow.graph.config import AUTO_MEMORY, GraphConfig

X = flow.tensor(np.arange(12, dtype=np.float32).reshape(4, 3) / 10)


class Predict(nn.Graph):
    def __init__(self, model, prepare=lambda config: None):
        super().__init__()
        self.model = model
        prepare(self.config)

    def build(self, x):
        return self.model(x)


class Train(Predict):
    def __init__(self, model, steps=1, lr=0.1):
        super().__init__(model)
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=lr, momentum=0.9))
        self.config.set_gradient_accumulation_steps(steps)

    def build(self, x):
        loss = (self.model(x) ** 2).mean()
        loss.backward()
        return loss


def model():
    flow.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))


# names and values


def test_the_dtype_of_variables_is_an_option_of_jobs_alone():
    with pytest.raises(AttributeError, match="GraphConfig.variable_dtype: got an assignment; expected the name of an"):
        GraphConfig().variable_dtype = flow.float64
    config = flow.function_config()
    config.variable_dtype = "float64"
    assert config.variable_dtype is flow.float64


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("enable_amp", True, r"call config.enable_amp\(True\)"),
        ("gradient_accumulation_steps", 4, r"use config.set_gradient_accumulation_steps\(4\)"),
        ("activation_checkpointing", True, "use graph.model.config.activation_checkpointing = True"),
        ("training", True, "use add_optimizer"),
        ("accumulation_step", 4, "did you mean accumulation_steps"),
        ("zzz", 1, "it has .*enable_amp"),
    ],
)
def test_an_assignment_to_what_is_not_an_option(name, value, remedy):
    config = GraphConfig()
    with pytest.raises(AttributeError, match=f"GraphConfig.{name}: got an assignment; .*{remedy}"):
        setattr(config, name, value)
    assert repr(config) == "(CONFIG:config:GraphConfig(training=False, ))"


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [("accumulation_steps", "a", ArgumentError), ("amp_dtype", flow.float32, DTypeError), ("is_static", 1, TypeError)],
)
def test_an_option_refuses_values_that_it_cannot_have(name, value, error):
    with pytest.raises(error, match=name):
        setattr(GraphConfig(), name, value)


def test_an_option_may_be_assigned():
    config = GraphConfig()
    config.amp_dtype, config.accumulation_steps, config.disabled_passes = flow.float16, 3, ["cse"]
    assert config.amp_dtype == np.float16 and config.accumulation_steps == 3 and config.disabled_passes == {"cse"}


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("activation_checkpoint", "did you mean activation_checkpointing"), ("stage", "config.stage_id")],
)
def test_an_assignment_to_what_is_not_an_option_of_a_module(name, remedy):
    with pytest.raises(AttributeError, match=f"GraphModule.{name}: got an assignment; .*{remedy}"):
        setattr(Predict(model()).model.config, name, True)


def test_modes_of_auto_memory():
    with pytest.raises(ArgumentError, match="enable_auto_memory: got mode='nonsense'; expected one of"):
        GraphConfig().enable_auto_memory("nonsense")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GraphConfig().enable_auto_memory("Disable")
    for mode in AUTO_MEMORY[1:]:
        with pytest.warns(UserWarning, match="enable_auto_memory has no effect"):
            GraphConfig().enable_auto_memory(mode)


def test_stages_have_no_effect_and_say_so_once():
    graph = Predict(model())
    graph.model[0].config.stage_id = 0
    graph.model[2].config.set_stage(1)
    with pytest.warns(UserWarning, match="set_stage has no effect: tensors of the graph are local") as caught:
        graph(flow.ones(2, 3))
        graph(flow.ones(3, 3))
    assert len(caught) == 1 and caught[0].filename == __file__


def test_a_cuda_graph_on_the_cpu_has_no_effect():
    graph = Predict(model(), lambda config: config.enable_cuda_graph())
    with pytest.warns(UserWarning, match="enable_cuda_graph has no effect: the graph works on the CPU") as caught:
        graph(X.cpu())
        graph(X.cpu()[:2])
    assert len(caught) == 1 and caught[0].filename == __file__


def test_a_pass_that_there_is_not_cannot_be_shown(monkeypatch):
    monkeypatch.setenv("MINIFLOW_DEBUG_PASS", "csee")
    with pytest.warns(UserWarning, match="MINIFLOW_DEBUG_PASS='csee' shows nothing; expected ALL or .*cse") as caught:
        Predict(model())(X)
    assert caught[0].filename == __file__


# modules


def test_a_slice_is_not_a_module_of_the_graph():
    graph = Predict(model())
    with pytest.raises(GraphError, match="options of a Sequential that is not a module of the graph; .*one by one"):
        graph.model[0:2].config.activation_checkpointing = True
    with pytest.raises(GraphError, match="not a module of the graph"):
        graph.model[0:2].to(nn.graph.GraphModule)


@pytest.mark.parametrize(
    "modules_of",
    [
        lambda m: [x for x in m.modules() if len(list(x.children())) == 0],
        lambda m: list(m.children()),
        lambda m: [x for _, x in m.named_children()],
        lambda m: [x for name, x in m.named_modules() if name],
        lambda m: [m.get_submodule(name) for name in "abc"],
        lambda m: list(m.values()),
        lambda m: [x for _, x in m.items()],
    ],
)
def test_every_way_to_a_module_gives_its_options(modules_of):
    parts = dict(zip("abc", model(), strict=True))
    graph = Predict(nn.ModuleDict(parts))
    found = modules_of(graph.model)
    assert [type(x) for x in found] == [nn.graph.ProxyModule] * 3 and found == list(parts.values())
    for x in found:
        x.config.activation_checkpointing = True
    assert graph._full_config().checkpoint_scopes == {"model.a", "model.b", "model.c"}


def test_apply_gives_the_options_of_modules():
    graph = Predict(model())
    result = graph.model.apply(lambda m: setattr(m.config, "activation_checkpointing", isinstance(m, nn.Linear)))
    assert graph._full_config().checkpoint_scopes == {"model.0", "model.2"} and result.config.options() == {}


# configs that are exchanged or shared


def test_a_config_that_is_assigned_after_the_optimizer():
    ours, theirs = model(), model()
    graph, other = Train(ours), Train(theirs, steps=2)
    graph.model[0].config.activation_checkpointing = True
    config = GraphConfig()
    config.set_gradient_accumulation_steps(2)
    graph.config = config
    assert graph.training and config.training and graph._full_config().checkpoint_scopes == {"model.0"}
    for _ in range(2):
        assert_same(graph(X), other(X))
    assert_same(ours[0].weight.detach(), theirs[0].weight.detach())
    assert "System-Train-TrainStep" in graph.state_dict()


def test_another_config_with_as_many_changes_compiles_again():
    graph, plain = Train(model()), Train(model())
    first, second = GraphConfig(), GraphConfig()
    first.set_outputs_buffer_size(3)
    second.set_gradient_accumulation_steps(2)
    graph.config = first
    assert graph(X).shape == plain(X).shape == ()
    graph.config = second
    assert graph(X).shape == (2,)


def test_a_shared_config_cuts_no_batch_of_a_graph_that_predicts():
    shared = model()
    train, predict = Train(shared, steps=2), Predict(shared)
    predict.config = train.config
    assert train.training and not predict.training
    train(X)
    assert_close(predict(X), shared(X), rtol=1e-6)
    assert "System-Train-TrainStep" not in predict.state_dict() and train(X).shape == (2,)


def test_jobs_of_one_config():
    flow.clear_default_session()
    config = flow.function_config()
    config.set_gradient_accumulation_steps(2)

    @flow.global_function(type="train", function_config=config)
    def train(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        w = flow.get_variable("w", (3,), initializer=flow.ones_initializer())
        loss = (x * w).sum(1).square().mean()
        flow.optimizer.SGD(0.1).minimize(loss)
        return loss

    @flow.global_function(type="predict", function_config=config)
    def predict(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        return flow.softmax(x * flow.get_variable("w", (3,)), 1)

    x = X.cpu().numpy()
    assert train(x).shape == (2,)
    w = flow.get_all_variables()["w"].detach()
    assert_close(predict(x), flow.softmax(flow.tensor(x) * w, 1), rtol=1e-6)
    assert not predict.graph.training
    flow.clear_default_session()


def test_a_copy_of_a_config_is_independent():
    config = GraphConfig()
    config.enable_amp()
    other = copy.copy(config)
    other.disable_pass("cse")
    assert other.amp_dtype == np.float16 and config.disabled_passes == frozenset()


def test_graphs_that_share_a_config_have_their_own_checkpointed_modules():
    graphs = [Train(model()) for _ in range(3)]
    for graph in graphs[1:]:
        graph.config = graphs[0].config
    for graph, flagged in zip(graphs, ([0], [0, 2], []), strict=True):
        for i in flagged:
            graph.model[i].config.activation_checkpointing = True
    assert [sorted(graph._full_config().checkpoint_scopes) for graph in graphs] == [
        ["model.0"],
        ["model.0", "model.2"],
        [],
    ]
    for _ in range(3):
        for graph in graphs:
            graph(X)
    assert [sum(graph._compilations.values()) for graph in graphs] == [1, 1, 1]
    graphs[2].model[2].config.activation_checkpointing = True
    for graph in graphs:
        graph(X)
    assert [sum(graph._compilations.values()) for graph in graphs] == [1, 1, 2]
    graphs[0].config.disable_pass("cse")
    for graph in graphs:
        graph(X)
    assert [sum(graph._compilations.values()) for graph in graphs] == [2, 2, 3]


class TrainWords(nn.Graph):
    def __init__(self, words, is_sparse):
        super().__init__()
        self.words = words
        self.add_optimizer(flow.optim.Adam(words.parameters(), lr=0.1), is_sparse=is_sparse)

    def build(self, x):
        loss = self.words(x).square().sum()
        loss.backward()
        return loss


def test_graphs_that_share_a_config_have_their_own_sparse_parameters():
    flow.manual_seed(0)
    words = nn.Embedding(5, 2)
    found = []
    for shared in (False, True):
        tables = copy.deepcopy(words), copy.deepcopy(words)
        sparse, dense = TrainWords(tables[0], True), TrainWords(tables[1], False)
        if shared:
            dense.config = sparse.config
        for ids in ([1, 2], [3], [1]):
            sparse(flow.tensor(ids)), dense(flow.tensor(ids))
        found.append([table.weight.detach().numpy() for table in tables])
    for own, shared in zip(*found, strict=True):
        assert (own == shared).all()
    assert (found[0][0] != found[0][1]).any()
