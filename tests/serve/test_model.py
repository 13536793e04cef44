"""Requests are joined to one batch, answered as by the graph, and refused one by one."""

import pytest
from compare import assert_close

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentError, GraphError, IndexRangeError
from miniflow.serve import REFUSALS, ServedModel


class Step(nn.Graph):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def build(self, x):
        return self.module(x)


ROWS = 6


def model_of(folder, module, x, **options):
    """A model of a repository, and the graph that it was saved from."""
    graph = Step(module)
    graph(x)
    graph.save(folder / "model", serve=True, **options)
    return ServedModel(folder / "model"), graph


@pytest.fixture
def linear(tmp_path):
    return model_of(tmp_path, nn.Linear(3, 2), flow.randn(ROWS, 3))


def test_requests_are_joined(linear):
    model, graph = linear
    x = flow.randn(ROWS, 3)
    found = model.answer([{"INPUT_0": x[:1]}, {"INPUT_0": x[1:4]}, {"INPUT_0": x[4:]}])
    assert [y["OUTPUT_0"].shape for y in found] == [(1, 2), (3, 2), (2, 2)]
    assert (flow.cat([y["OUTPUT_0"] for y in found]) == graph(x)).all()


def test_answers_live_on(linear):
    model, graph = linear
    batches = [flow.randn(ROWS, 3) for _ in range(6)]
    found = [model.answer([{"INPUT_0": x}])[0]["OUTPUT_0"] for x in batches]
    assert all((y == graph(x)).all() for x, y in zip(batches, found, strict=True))


WRONG = [
    ({}, "{}"),
    ({"x": flow.ones(1, 3)}, "{'x': 'FP32 [1, 3]'}"),
    ({"INPUT_0": flow.ones(1, 3), "x": flow.ones(1, 3)}, "{'INPUT_0': 'FP32 [1, 3]', 'x': 'FP32 [1, 3]'}"),
    ({"INPUT_0": flow.ones(1, 3).double()}, "{'INPUT_0': 'FP64 [1, 3]'}"),
    ({"INPUT_0": flow.ones(1, 4)}, "{'INPUT_0': 'FP32 [1, 4]'}"),
    ({"INPUT_0": flow.ones(1, 1, 3)}, "{'INPUT_0': 'FP32 [1, 1, 3]'}"),
    ({"INPUT_0": flow.ones(3)}, "{'INPUT_0': 'FP32 [3]'}"),
    ({"INPUT_0": flow.tensor(1.0)}, "{'INPUT_0': 'FP32 []'}"),
    ({"INPUT_0": flow.ones(0, 3)}, "{'INPUT_0': 'FP32 [0, 3]'}"),
    ({"INPUT_0": flow.ones(9, 3)}, "{'INPUT_0': 'FP32 [9, 3]'}"),
]


@pytest.mark.parametrize(("request_", "got"), WRONG)
def test_what_does_not_fit_is_refused_alone(linear, request_, got):
    model, graph = linear
    x = flow.randn(1, 3)
    good, bad, again = model.answer([{"INPUT_0": x}, request_, {"INPUT_0": x}])
    assert type(bad) is ArgumentError and isinstance(bad, REFUSALS)
    assert str(bad) == f"model: got the inputs {got}; expected {{'INPUT_0': 'FP32 [-1, 3]'}}, -1 for 1 to 8 rows"
    assert (good["OUTPUT_0"] == again["OUTPUT_0"]).all()


def test_batches_of_several_inputs_are_of_one_size(tmp_path):
    class Add(nn.Graph):
        def build(self, x, y):
            return x + y

    graph = Add()
    graph(flow.ones(4, 3), flow.ones(4, 3))
    graph.save(tmp_path / "add", serve=True)
    (found,) = ServedModel(tmp_path / "add").answer([{"INPUT_0": flow.ones(1, 3), "INPUT_1": flow.ones(2, 3)}])
    assert str(found).startswith("add: got the inputs {'INPUT_0': 'FP32 [1, 3]', 'INPUT_1': 'FP32 [2, 3]'}; expected ")
    assert type(found) is ArgumentError


def test_an_index_out_of_range_is_refused_alone(tmp_path):
    model, graph = model_of(tmp_path, nn.Embedding(5, 2), flow.tensor([[0], [4], [1]]))
    x = flow.tensor([[3]])
    good, bad = model.answer([{"INPUT_0": x}, {"INPUT_0": x + 7}])
    assert type(bad) is IndexRangeError and str(bad).startswith("model: embedding: index 10 is out of range")
    assert (good["OUTPUT_0"] == graph(x)).all()


def test_models_without_batches_are_run_one_by_one(tmp_path):
    model, graph = model_of(tmp_path, nn.Linear(3, 2), flow.ones(2, 3), max_batch_size=0)
    x = flow.randn(4, 3)
    first, wrong, second = model.answer([{"INPUT_0": x[:2]}, {"INPUT_0": x[:1]}, {"INPUT_0": x[2:]}])
    assert (first["OUTPUT_0"] == graph(x[:2])).all() and (second["OUTPUT_0"] == graph(x[2:])).all()
    assert str(wrong) == "model: got the inputs {'INPUT_0': 'FP32 [1, 3]'}; expected {'INPUT_0': 'FP32 [2, 3]'}"


def test_more_rows_than_config_allows(tmp_path):
    with pytest.raises(ArgumentError, match="max_batch_size"):
        model_of(tmp_path, nn.Linear(3, 2), flow.ones(2, 3), max_batch_size=-3)


def test_a_batch_that_no_memory_holds_is_only_computed_if_it_comes(tmp_path):
    model, graph = model_of(tmp_path, nn.Linear(3, 2), flow.ones(2, 3), max_batch_size=2**31 - 1)
    x = flow.randn(100, 3)
    assert (model.answer([{"INPUT_0": x}])[0]["OUTPUT_0"] == graph(x)).all()


# batches of other sizes than the graph was saved with


def test_the_answers_are_those_of_the_graph_for_the_joined_batch(tmp_path):
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)).eval()
    model, graph = model_of(tmp_path, module, flow.randn(2, 1, 8, 8))
    assert model.config.max_batch_size == 8
    for sizes in ([1], [2], [3], [1, 1, 1], [5, 3]):
        x = flow.randn(sum(sizes), 1, 8, 8)
        found = model.answer([{"INPUT_0": part} for part in flow.split(x, sizes)])
        assert (flow.cat([y["OUTPUT_0"] for y in found]) == graph(x)).all()


def test_graphs_of_the_last_sizes_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("miniflow.serve.saved.KEPT", 3)
    model, graph = model_of(tmp_path, nn.Linear(3, 2), flow.randn(2, 3), max_batch_size=9)
    for rows in (*range(1, 10), 1, 2):
        x = flow.randn(rows, 3)
        assert (model.answer([{"INPUT_0": x}])[0]["OUTPUT_0"] == graph(x)).all()
        assert model.saved._of_rows.cache_info().currsize <= 3


class ScaledByBatch(nn.Module):
    def forward(self, x):
        return x / flow.arange(1, x.shape[0] + 1).reshape(-1, 1)


class Squeezed(nn.Module):
    """With one row, softmax goes over the columns; with several, over the rows."""

    def forward(self, x):
        return flow.softmax(x.squeeze(0), 0).reshape(x.shape)


@pytest.mark.parametrize(("module", "rows"), [(ScaledByBatch(), 4), (Squeezed(), 1)])
def test_graphs_of_one_size_pad_smaller_batches(module, rows, tmp_path):
    model, graph = model_of(tmp_path, module, flow.randn(rows, 3))
    assert model.config.max_batch_size == rows and not model.saved.can_resize
    x = flow.randn(rows, 3)
    for count in range(1, rows + 1):
        (found,) = model.answer([{"INPUT_0": x[:count]}])
        assert (found["OUTPUT_0"] == graph(x)[:count]).all()
    with pytest.raises(
        ArgumentError, match=f"expected 0 to {rows}, the rows with which the graph was saved: it cannot"
    ):
        model_of(tmp_path / "other", module, flow.randn(rows, 3), max_batch_size=rows + 1)


# engines


def test_onnxruntime_answers_as_the_graph(tmp_path):
    module = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4), nn.Softmax(dim=-1))
    graph = Step(module)
    graph(flow.randn(2, 3))
    graph.save(tmp_path / "model", serve=True, engines={"model": "xla_jit"})
    model = ServedModel(tmp_path / "model")
    assert type(model.saved.graph._replay).__name__ == "OnnxReplay"
    for rows in (1, 2, 5):
        x = flow.randn(rows, 3)
        (found,) = model.answer([{"INPUT_0": x}])
        assert_close(found["OUTPUT_0"], graph(x))


@pytest.mark.parametrize(
    ("engine", "error", "why"),
    [
        (
            "openvino",
            GraphError,
            "openvino cannot run the graph: the installed onnxruntime has no OpenVINOExecutionProvider",
        ),
        ("other", ArgumentError, "engine: got 'other'; expected None or one of xla_jit, tensorrt, openvino"),
    ],
)
def test_engines_that_are_not_there(tmp_path, monkeypatch, engine, error, why):
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(error, match=why):
        model_of(tmp_path, nn.Linear(3, 2), flow.ones(2, 3), engines={"model": engine})
