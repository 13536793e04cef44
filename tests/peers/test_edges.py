"""Operators at the edge of what they take, beside PyTorch; see `edges`."""

import numpy as np
import pytest
from checks import assert_close, assert_same
from compare import as_array
from edges import EDGES, REFUSED

import miniflow as flow

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")


def called(module, function, inputs):
    tensors = [module.from_numpy(x.copy()) for x in inputs]
    leaves = [x.requires_grad_() for x in tensors if x.is_floating_point()]
    results = function(module, *tensors)
    results = list(results) if isinstance(results, tuple | list) else [results]
    recorded = [y for y in results if y.requires_grad]
    cotangents = [module.arange(1.0, 1 + y.numel(), dtype=y.dtype).reshape(y.shape) for y in recorded]
    return results, module.autograd.grad(recorded, leaves, cotangents) if recorded else ()


@pytest.mark.parametrize("edge", EDGES, ids=lambda e: e.name)
def test_edge(edge):
    results, gradients = called(torch, edge.function, edge.inputs)
    for written, found in ((edge.results, results), (edge.gradients, gradients)):
        for got, want in zip(found if written is None else written, found, strict=True):
            assert_same(np.asarray(as_array(got)), as_array(want.detach()))
    ours, slopes = called(flow, edge.function, edge.inputs)
    for got, want in zip([*ours, *slopes], [*results, *gradients], strict=True):
        assert_close(got, as_array(want.detach()), rtol=1e-12, atol=0)


@pytest.mark.parametrize("edge", REFUSED, ids=lambda e: e.name)
def test_refused(edge):
    with pytest.raises((RuntimeError, IndexError, ValueError)):
        called(torch, edge.function, edge.inputs)
