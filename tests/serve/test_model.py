"""Requests are joined to one batch, answered as by the graph, and refused one by one."""

import pytest

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
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
    ({}, ArgumentError, r"model: got the inputs \[\]; expected \['INPUT_0'\]"),
    ({"x": flow.ones(1, 3)}, ArgumentError, r"model: got the inputs \['x'\]; expected \['INPUT_0'\]"),
    ({"INPUT_0": flow.ones(1, 3).double()}, DTypeError, "model: INPUT_0 has FP64; expected FP32"),
    ({"INPUT_0": flow.ones(1, 4)}, ShapeError, r"INPUT_0 has shape \[1, 4\]; expected \[3\] behind the size of the b"),
    ({"INPUT_0": flow.ones(3)}, ShapeError, r"INPUT_0 has shape \[3\]; expected \[3\] behind the size of the batch"),
    ({"INPUT_0": flow.tensor(1.0)}, ShapeError, r"INPUT_0 has shape \[\]; expected \[3\] behind the size of the batch"),
    ({"INPUT_0": flow.ones(0, 3)}, ShapeError, r"model: got batches of \[0\] rows; expected 1 to \d+"),
    ({"INPUT_0": flow.ones(99, 3)}, ShapeError, r"model: got batches of \[99\] rows; expected 1 to \d+"),
]


@pytest.mark.parametrize(("request_", "error", "why"), WRONG)
def test_what_does_not_fit_is_refused_alone(linear, request_, error, why):
    model, graph = linear
    x = flow.randn(1, 3)
    good, bad, again = model.answer([{"INPUT_0": x}, request_, {"INPUT_0": x}])
    assert type(bad) is error and isinstance(bad, REFUSALS)
    with pytest.raises(error, match=why):
        raise bad
    assert (good["OUTPUT_0"] == again["OUTPUT_0"]).all()


def test_batches_of_several_inputs_are_of_one_size(tmp_path):
    class Add(nn.Graph):
        def build(self, x, y):
            return x + y

    graph = Add()
    graph(flow.ones(4, 3), flow.ones(4, 3))
    graph.save(tmp_path / "add", serve=True)
    (found,) = ServedModel(tmp_path / "add").answer([{"INPUT_0": flow.ones(1, 3), "INPUT_1": flow.ones(2, 3)}])
    with pytest.raises(ShapeError, match=r"add: got batches of \[1, 2\] rows; expected 1 to \d+, the same of all inpu"):
        raise found


def test_an_index_out_of_range_is_refused_alone(tmp_path):
    model, graph = model_of(tmp_path, nn.Embedding(5, 2), flow.tensor([[0], [4], [1]]))
    x = flow.tensor([[3]])
    good, bad = model.answer([{"INPUT_0": x}, {"INPUT_0": x + 7}])
    assert type(bad) is IndexRangeError and (good["OUTPUT_0"] == graph(x)).all()


def test_models_without_batches_are_run_one_by_one(tmp_path):
    model, graph = model_of(tmp_path, nn.Linear(3, 2), flow.ones(2, 3), max_batch_size=0)
    x = flow.randn(4, 3)
    first, wrong, second = model.answer([{"INPUT_0": x[:2]}, {"INPUT_0": x[:1]}, {"INPUT_0": x[2:]}])
    assert (first["OUTPUT_0"] == graph(x[:2])).all() and (second["OUTPUT_0"] == graph(x[2:])).all()
    with pytest.raises(ShapeError, match=r"INPUT_0 has shape \[1, 3\]; expected \[2, 3\]"):
        raise wrong


def test_more_rows_than_config_allows(tmp_path):
    with pytest.raises(ArgumentError, match="max_batch_size"):
        model_of(tmp_path, nn.Linear(3, 2), flow.ones(2, 3), max_batch_size=-3)
