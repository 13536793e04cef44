"""Operators at the edge of what they take, beside results that are written down; see `edges`."""

import numpy as np
import pytest
from checks import assert_same, on_device
from edges import EDGES, REFUSED
from graph_twin import check_twin

import miniflow as flow


def cotangents_of(results):
    return [on_device(np.arange(1.0, 1 + y.numel()).reshape(tuple(y.shape))).to(y.dtype) for y in results]


def as_list(results):
    return list(results) if isinstance(results, tuple | list) else [results]


def called(function, inputs):
    tensors = [on_device(x.copy()) for x in inputs]
    leaves = [x.requires_grad_() for x in tensors if x.is_floating_point()]
    results = as_list(function(flow, *tensors))
    recorded = [y for y in results if y.requires_grad]
    return results, flow.autograd.grad(recorded, leaves, cotangents_of(recorded)) if recorded else None


@pytest.mark.parametrize("edge", [e for e in EDGES if e.results is not None], ids=lambda e: e.name)
def test_results(edge):
    results, gradients = called(edge.function, edge.inputs)
    for got, want in zip(results, edge.results, strict=True):
        assert_same(got, np.asarray(want))
    assert (gradients is None) == (edge.gradients is None)
    for got, want in zip(gradients or (), edge.gradients or (), strict=True):
        assert_same(got, np.asarray(want), what="gradient")


@pytest.mark.few(len(EDGES) // 3)
@pytest.mark.parametrize("edge", EDGES, ids=lambda e: e.name)
def test_in_a_graph(edge):
    leaves = [i for i, x in enumerate(edge.inputs) if x.dtype.kind == "f"]
    check_twin(lambda *tensors: edge.function(flow, *tensors), edge.inputs, leaves, cotangents_of)


@pytest.mark.parametrize("edge", REFUSED, ids=lambda e: e.name)
def test_refused(edge):
    with pytest.raises(edge.error, match=edge.words):
        called(edge.function, edge.inputs)


@pytest.mark.parametrize("op", ["index_select", "index_add", "index_copy"])
def test_a_graph_refuses_indices_from_the_end(op):
    """The index is known at the call only."""

    class Picks(flow.nn.Graph):
        def build(self, x, i):
            return getattr(flow, op)(x, 0, i, *([x[:1]] if op != "index_select" else []))

    graph, x = Picks(), flow.arange(6.0).reshape(3, 2)
    graph(x, flow.tensor([2]))
    with pytest.raises(flow.errors.IndexRangeError):
        graph(x, flow.tensor([-1]))
