"""Graphs as folders: they run in a process without their code, and training goes on."""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import safetensors.numpy
from compare import assert_close, count_comparison
from folders import GRAPH, Predict, Train, assert_equal, batch, network, same_steps, trained
from programs import assert_same_results, random_program
from twins import MODULES
from twins import OPTIMIZERS as RULES

import miniflow as flow
from miniflow import nn
from miniflow.dispatch.dispatcher import Op
from miniflow.errors import ArgumentError, ArgumentTypeError, CheckpointError, DTypeError, GraphError, ShapeError
from miniflow.graph.config import GraphConfig
from miniflow.graph.passes import PIPELINE, arguments
from miniflow.graph.saved.graph_file import CONFIG, GraphFile
from miniflow.graph.saved.values import Refused, name_of

ROOT = Path(__file__).parents[2]


class Point(NamedTuple):
    x: object
    y: object


# what works


OPTIMIZERS = {
    "sgd": lambda p: flow.optim.SGD(p, 0.1, momentum=0.9, dampening=0.5),
    "adam": lambda p: flow.optim.Adam(p, 0.01, amsgrad=True),
    "rmsprop": lambda p: flow.optim.RMSprop(p, momentum=0.1, centered=True),
    "adagrad": lambda p: flow.optim.Adagrad(p, lr_decay=0.1),
    "clipped": lambda p: flow.optim.SGD([{"params": list(p), "clip_grad_max_norm": 0.1}], 0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_as_if_nothing_had_happened(name, tmp_path):
    graph = trained(tmp_path / "g", OPTIMIZERS[name])
    loaded = flow.load(tmp_path / "g")
    before = {key: value.clone() for key, value in loaded.state_dict().items()}
    same_steps(graph, loaded)
    state = loaded.state_dict()
    for key, value in graph.model.to(nn.Module).state_dict().items():
        assert_equal(state[f"model.{key}"], value.detach())
        assert "weight" not in key or (before[f"model.{key}"] != value).any(), key
    assert int(state["model.1.num_batches_tracked"]) == 5


def test_scaler_skips_and_backs_off(tmp_path):
    graph = trained(tmp_path / "g", scaler=flow.amp.GradScaler(init_scale=2.0**10, growth_interval=3))
    loaded = flow.load(tmp_path / "g")
    same_steps(graph, loaded)
    x, y = batch()
    for one in (graph, loaded):
        before = one.state_dict()["model.6.weight" if one is loaded else "model"]
        before = (before if one is loaded else before["6.weight"]).clone()
        one(x * float("inf"), y)
        after = one.state_dict()["model.6.weight" if one is loaded else "model"]
        assert_equal(before, (after if one is loaded else after["6.weight"]).clone())
    assert loaded._parts.skipper.state_dict() == graph._grad_scaler.state_dict()
    assert loaded._parts.skipper.get_scale() == 2.0**10  # doubled after 3 finite steps, halved after the infinite one


def test_a_schedule_of_functions_is_not_lost_without_a_word(tmp_path):
    def graph(state=None):
        model = network()
        optimizer = flow.optim.SGD(model.parameters(), 0.1)
        train = Train(model, optimizer, lr_sch=flow.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 0.5**t))
        if state is not None:
            train.load_state_dict(flow.load(state))
        train(*batch())
        return train

    train = graph()
    with pytest.raises(CheckpointError, match="LambdaLR calls a function, lr_lambda.*graph.state_dict.*set_lr"):
        flow.save(train, tmp_path / "g")
    assert not (tmp_path / "g").exists()
    flow.save(train.state_dict(), tmp_path / "state")
    train(*batch())
    again = graph(tmp_path / "state")
    assert train._optimizers[0].param_groups[0]["lr"] == again._optimizers[0].param_groups[0]["lr"] == 0.1 * 0.5**2


def test_learning_rate_can_be_set(tmp_path):
    trained(tmp_path / "g")
    loaded = flow.load(tmp_path / "g")
    before = {key: value.clone() for key, value in loaded.state_dict().items()}
    loaded.set_lr(0.0)
    loaded(*batch())
    assert_equal(loaded.state_dict()["model.6.weight"].detach(), before["model.6.weight"].detach())
    loaded.set_lr(0.1)
    loaded(*batch())
    assert (loaded.state_dict()["model.6.weight"] != before["model.6.weight"]).any()
    with pytest.raises(ArgumentError, match="set_lr: got -1 for 1 rates; expected a number"):
        loaded.set_lr(-1)


def test_learning_rates_are_named_by_optimizer_and_group(tmp_path):
    class Two(Train):
        def __init__(self, model):
            first, second = ([*layer.parameters()] for layer in (model[0], model[6]))
            groups = [{"params": [first[0]]}, {"params": [first[1]], "lr": 0.2, "clip_grad_max_norm": 1.0}]
            super().__init__(model, flow.optim.SGD(groups, 0.1))
            self.add_optimizer(flow.optim.Adam([{"params": second, "clip_grad_max_norm": 1.0}], 0.3))

    graph = Two(network())
    graph(*batch())
    flow.save(graph, tmp_path / "g")
    numbers = flow.load(tmp_path / "g").numbers
    rates = {name: value for name, value in numbers.items() if name.endswith("lr")}
    assert rates == {"optimizer.0.0.lr": 0.1, "optimizer.0.1.lr": 0.2, "optimizer.1.0.lr": 0.3}
    assert {"optimizer.1.0.steps.0", "optimizer.1.0.steps.1"} < numbers.keys()


def test_what_was_loaded_can_be_saved_again(tmp_path):
    graph = trained(tmp_path / "g", OPTIMIZERS["adam"])
    first = nn.Graph.load(tmp_path / "g")
    same_steps(graph, first)
    flow.save(first, tmp_path / "h")
    same_steps(first, flow.load(tmp_path / "h"))


def test_a_process_without_the_models_code(tmp_path):
    model = network().eval()
    graph = Predict(model)
    x, _ = batch()
    expected = graph(x)
    flow.save(graph, tmp_path / "g")
    np.save(tmp_path / "x.npy", x.numpy())
    code = (
        "import miniflow as flow, numpy as np, sys; graph = flow.load(sys.argv[1]); "
        "y = graph(flow.from_numpy(np.load(sys.argv[2]))); np.save(sys.argv[3], y.numpy()); print(graph)"
    )
    files = [tmp_path / "g", tmp_path / "x.npy", tmp_path / "y.npy"]
    command = [sys.executable, "-c", code, *map(str, files)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert np.load(tmp_path / "y.npy").tobytes() == expected.numpy().tobytes()
    assert "LoadedGraph(Predict_" in result.stdout and "(tensor,), {} -> tensor" in result.stdout


def test_nested_arguments_and_results(tmp_path):
    class Nested(nn.Graph):
        def build(self, points, *, extra):
            (p, q), scale = points, extra["scale"]
            return [Point(p.x + q.x, p.y * scale), {"extra": extra["more"][0], 3: None}]

    x, y = flow.tensor([1.0]), flow.tensor([2.0])
    arguments = ((Point(x, y), Point(y, y)),), {"extra": {"scale": x, "more": [y]}}
    graph = Nested()
    expected = graph(*arguments[0], **arguments[1])
    flow.save(graph, tmp_path / "g")
    loaded = flow.load(tmp_path / "g")
    result = loaded(*arguments[0], **arguments[1])
    assert type(result) is list and type(result[0]).__name__ == "Point" and result[0]._fields == ("x", "y")
    assert list(result[1]) == ["extra", 3] and result[1][3] is None
    assert_equal(result[0].x, expected[0].x)
    assert_equal(result[0].y, expected[0].y)
    with pytest.raises(ArgumentTypeError, match=r"called with \(tensor,\), \{\}; expected \(\(Point\(x=tensor, y="):
        loaded(x)


def test_generators_go_on(tmp_path):
    own = flow.Generator().manual_seed(11)

    class Noise(nn.Graph):
        def build(self, x):
            return flow.rand(3, generator=own) + x, flow.rand(3)

    graph = Noise()
    graph(flow.zeros(3))
    flow.save(graph, tmp_path / "g")
    loaded = flow.load(tmp_path / "g")
    results = []
    for one in (graph, loaded):
        flow.manual_seed(1)
        results.append([one(flow.zeros(3)) for _ in range(2)])
    for a, b in zip(*results, strict=True):
        assert_equal(a[0], b[0])
        assert_equal(a[1], b[1])
    assert (results[0][0][0] != results[0][1][0]).all()


def test_on_another_device(tmp_path):
    graph, x = Predict(nn.Sequential(nn.LayerNorm(8), nn.Tanh())), flow.randn(3, 8)
    expected = graph(x)
    flow.save(graph, tmp_path / "g")
    loaded = flow.load(tmp_path / "g", map_location="cuda")
    assert_close(loaded(x.to("cuda")).to("cpu").numpy(), expected.numpy())
    assert loaded(x.to("cuda")).device.type == "cuda"


def test_accumulation_and_checkpointing_are_kept(tmp_path):
    model = network()
    graph = Train(model, flow.optim.SGD(model.parameters(), 0.1))
    graph.config.set_gradient_accumulation_steps(5)
    graph.model.config.activation_checkpointing = True
    graph.config.disable_pass("elementwise_fusion")
    graph(*batch())
    flow.save(graph, tmp_path / "g")
    loaded = flow.load(tmp_path / "g")
    assert loaded.config.accumulation_steps == 5 and loaded.config.checkpoint_scopes == {"model"}
    same_steps(graph, loaded, count=2)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_mixed_precision_is_kept(kind, tmp_path):
    model = network()
    graph = Train(model, flow.optim.Adam(model.parameters()), flow.amp.StaticGradScaler(128.0))
    graph.config.enable_amp(True, dtype=getattr(flow, kind))
    graph.config.disable_pass("elementwise_fusion")
    graph(*batch())
    flow.save(graph, tmp_path / "g")
    loaded = flow.load(tmp_path / "g")
    assert kind in str(loaded.config) and f"dtype={kind}" in str(loaded.program)
    assert loaded.numbers["grad_scaler.scale"] == 128.0
    same_steps(graph, loaded)


def test_sparse_updates_are_kept(tmp_path):
    class Words(nn.Graph):
        def __init__(self, table):
            super().__init__()
            self.table = table
            self.add_optimizer(flow.optim.Adam(table.parameters(), lr=0.1), is_sparse=True)

        def build(self, words):
            loss = (self.table(words) ** 2).sum()
            loss.backward()
            return {"loss": loss}

    graph, words = Words(nn.Embedding(1000, 4)), flow.tensor([3, 5, 3])
    graph(words)
    flow.save(graph, tmp_path / "g")
    loaded = flow.load(tmp_path / "g")
    assert "sparse_adam_update" in str(loaded.program)
    for _ in range(3):
        assert_equal(loaded(words)["loss"], graph(words)["loss"])
    assert_equal(loaded.state_dict()["table.weight"].detach(), graph.table.weight.detach())


def test_wrong_inputs(tmp_path):
    trained(tmp_path / "g")
    loaded = flow.load(tmp_path / "g")
    x, y = batch()
    with pytest.raises(ShapeError, match=r"input 0 has shape \(2, 1, 8, 8\); expected \(5, 1, 8, 8\)"):
        loaded(x[:2], y)
    with pytest.raises(DTypeError, match=r"input 1 has miniflow.float32; expected miniflow.int64: use x.to"):
        loaded(x, y.float())


# saving


def test_every_option_that_passes_read_is_saved():
    config, read = GraphConfig(), set()
    for name in PIPELINE:
        read |= arguments(import_module(f"miniflow.graph.passes.{name}").run, config).keys()
    count_comparison()
    assert "config" not in read and read <= {
        *CONFIG,
        "zero",
        "pipeline_schedule",
    }  # of global tensors: these are not saved


def test_before_the_first_call(tmp_path):
    with pytest.raises(GraphError, match=r"graph must be compiled first\."):
        flow.save(Predict(network()), tmp_path / "g")
    assert not (tmp_path / "g").exists()


def test_operations_of_others_are_refused():
    with pytest.raises(Refused, match="not one of miniflow's own operations"):
        name_of(type("Strange", (Op,), {}))


def test_constants_that_are_not_json_are_refused(tmp_path):
    class Strange(nn.Graph):
        def build(self, x, what):
            return x + 1

    graph = Strange()
    with pytest.warns(UserWarning):
        graph(flow.ones(2), frozenset())
    with pytest.raises(CheckpointError, match="arguments.children.*: got a builtins.frozenset; expected tensors"):
        flow.save(graph, tmp_path / "g")
    assert not (tmp_path / "g").exists()


def test_states_in_one_memory_are_refused(tmp_path):
    class Counting(nn.Graph):
        def build(self, x):
            y = memory[:1] + part
            memory.add_(x)
            return y

    memory = flow.zeros(3)
    part = memory[:2]
    graph = Counting()
    graph(flow.ones(3))
    with pytest.raises(CheckpointError, match=r"captured.\d and captured.\d share memory.*\.clone\(\)"):
        flow.save(graph, tmp_path / "g")
    assert not (tmp_path / "g").exists()


def test_an_interrupted_save_leaves_the_older_graph(tmp_path, monkeypatch):
    graph = trained(tmp_path / "g")
    old = flow.load(tmp_path / "g").state_dict()["model.6.weight"].numpy()
    graph(*batch())
    new = graph.model.to(nn.Module).state_dict()["6.weight"].numpy().copy()

    def replace(source, target):
        raise KeyboardInterrupt  # nothing is tidied up after a crash

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(Path, "unlink", lambda *args, **kwargs: None)
    with pytest.raises(KeyboardInterrupt):
        flow.save(graph, tmp_path / "g")
    monkeypatch.undo()
    assert flow.load(tmp_path / "g").state_dict()["model.6.weight"].numpy().tobytes() == old.tobytes() != new.tobytes()
    flow.save(graph, tmp_path / "g")
    assert flow.load(tmp_path / "g").state_dict()["model.6.weight"].numpy().tobytes() == new.tobytes()


def test_a_failed_save_leaves_no_traces(tmp_path, monkeypatch):
    graph = trained(tmp_path / "g")
    before = {path.name: path.read_bytes() for path in (tmp_path / "g").iterdir()}
    assert set(before) == {GRAPH}

    def fail(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(safetensors.numpy, "save_file", fail)
    for name in ("g", "new"):
        with pytest.raises(CheckpointError, match="save: cannot write .*no space left"):
            flow.save(graph, tmp_path / name)
    assert {path.name: path.read_bytes() for path in (tmp_path / "g").iterdir()} == before
    assert not (tmp_path / "new").exists()


def test_the_weights_are_a_file_of_tensors_for_every_reader(tmp_path):
    graph = trained(tmp_path / "g")
    expected = graph.model.to(nn.Module).state_dict()
    arrays = safetensors.numpy.load_file(tmp_path / "g" / GRAPH)
    tensors = flow.load(tmp_path / "g" / GRAPH)
    for name, value in expected.items():
        np.testing.assert_array_equal(arrays[f"model.{name}"], value.numpy())
        assert_equal(tensors[f"model.{name}"], value.detach())


def test_a_file_is_not_a_folder(tmp_path):
    graph = trained(tmp_path / "g")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match="file is a file; expected the name of a folder"):
        flow.save(graph, tmp_path / "file")


# everything that can be recorded


@pytest.mark.parametrize("name", MODULES)
def test_every_module(name, tmp_path):
    """A training graph of each example of `twins`, by another optimizer each, goes on as the one that was saved."""
    for number, (make, arrays) in enumerate(MODULES[name]):
        flow.manual_seed(5)
        model = make()
        options = [(rule, options) for rule, all_options in RULES.items() for options in all_options]
        rule, options = options[(len(name) + number) % len(options)]
        graph = Squares(model, getattr(flow.optim, rule)(model.parameters(), **{"lr": 0.01, **options}))
        graph.config.disable_pass("elementwise_fusion")
        inputs = [flow.tensor(array) for array in arrays]
        graph(*inputs)
        flow.save(graph, tmp_path / "g")
        loaded = flow.load(tmp_path / "g")
        for _ in range(2):
            flow.manual_seed(7)
            expected = graph(*inputs)
            flow.manual_seed(7)
            assert_equal(loaded(*inputs), expected)


class Squares(nn.Graph):
    def __init__(self, model, optimizer):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)

    def build(self, *inputs):
        y = self.model(*inputs)
        (y * y).mean().backward()
        return y


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(20))
def test_random_programs(seed):
    before = random_program(seed)
    file = GraphFile()
    document = file.write(before)
    after = GraphFile(file.arrays).read(json.loads(json.dumps(document, allow_nan=False)))
    after.tensors = {slot: flow.from_numpy(stored.values) for slot, stored in after.tensors.items()}
    after.constants = {slot: stored.values for slot, stored in after.constants.items()}
    assert str(after) == str(before)
    assert_same_results(before, after)
