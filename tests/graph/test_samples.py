"""The rows of the sample table in nn.Graph: what fused loops and planned memory compute is what eager mode computes.

Many rows are recorded in one graph, so that one fused loop has them all. `checks.check_op` records each row alone.
"""

import numpy as np
import pytest
from checks import as_tuple, assert_close
from samples import POINTWISE, REDUCTIONS, Row, Sample

import miniflow as flow
from miniflow import nn
from miniflow.graph.codegen import expressions

Call = tuple[Row, Sample]


def calls(rows: list[Row], operands: int) -> list[Call]:
    """One call for each row of so many operands, and for each set of keywords."""
    found = {
        (row.name, str(sample.kwargs)): (row, sample)
        for row in rows
        for sample in row.samples()
        if row.graph and not sample.brief and sum(isinstance(x, np.ndarray) for x in sample.args) == operands
    }
    return list(found.values())


GROUPS = {
    "unary": calls(POINTWISE, 1),
    "binary": calls(POINTWISE, 2),
    "three operands": calls(POINTWISE, 3),
    "reductions": calls(REDUCTIONS, 1),
}


def results(group: list[Call], tensors: list[list[flow.Tensor]]) -> list[flow.Tensor]:
    """The values of all calls, and the gradients of the floating ones; the operands are results of operators."""
    found = []
    for (row, sample), arguments in zip(group, tensors, strict=True):
        arguments = [x * 1.0 if x.dtype.is_floating_point else x for x in arguments]
        leaves = [x.requires_grad_() for i, x in enumerate(arguments) if row.has_gradient(sample, i)]
        numbers = sample.args[len(arguments) :]
        for y in as_tuple(row.function(*arguments, *numbers, **sample.kwargs)):
            found.append(y * 0.5 if y.dtype.is_floating_point else y)
            if leaves and y.requires_grad:
                found += flow.autograd.grad(found[-1], leaves, flow.full_like(y, 0.3), retain_graph=True)
    return found


class Everything(nn.Graph):
    """A graph of a group."""

    def __init__(self, group: list[Call]):
        super().__init__()
        self.group = group

    def build(self, *tensors):
        remaining = iter(tensors)
        shaped = [[next(remaining) for x in sample.args if isinstance(x, np.ndarray)] for _, sample in self.group]
        return tuple(results(self.group, shaped))


@pytest.mark.parametrize(
    ("name", "device"),
    [
        pytest.param("unary", "cpu", marks=pytest.mark.slow),
        pytest.param("binary", "cpu", marks=pytest.mark.slow),
        ("three operands", "cpu"),
        ("reductions", "cpu"),
        pytest.param("three operands", "cuda", marks=pytest.mark.slow),  # test_expressions.py has all of them
    ],
)
def test_a_graph_of_all_rows(monkeypatch, name, device):
    monkeypatch.setitem(expressions.SMALLEST, device, 0)
    flow.set_default_device(device)
    group = GROUPS[name]
    tensors = [
        [
            flow.tensor(x.astype(np.float32) if x.dtype.kind == "f" else x)
            for x in sample.args
            if isinstance(x, np.ndarray)
        ]
        for _, sample in group
    ]
    want = results(group, tensors)
    graph = Everything(group)
    for call in range(2):
        got = graph(*[x for arguments in tensors for x in arguments])
        assert len(got) == len(want)
        for i, (a, b) in enumerate(zip(got, want, strict=True)):
            assert_close(a, b.detach(), rtol=1e-4, atol=1e-5, what=f"result {i} of call {call}")
