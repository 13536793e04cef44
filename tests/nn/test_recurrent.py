"""The operator of recurrent layers beside single time steps; the tests of the peers compare the layers with PyTorch."""

import numpy as np
import pytest
from checks import assert_close

import miniflow as flow
from miniflow.nn.modules.rnn import TimeSteps
from miniflow.ops.recurrent import CELLS, scan

ON_EVERY_DEVICE = True
HIDDEN = 5
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@pytest.mark.parametrize("used", ["all", "y alone", "last h alone"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_results_and_gradients_are_those_of_single_steps(cell, reverse, bias, used):
    sizes, columns, draw = (4, 3, 3, 1), GATES[cell] * HIDDEN, np.random.default_rng(0)
    shapes = [(sum(sizes), columns), (4, HIDDEN), (4, HIDDEN), (columns, HIDDEN), (columns,)]
    arrays = [draw.normal(size=shape) for shape in shapes]
    cotangents = [draw.normal(size=shape) for shape in [(sum(sizes), HIDDEN), (4, HIDDEN), (4, HIDDEN)]]
    found = []
    for fused in (True, False):
        x, h, c, weight, b = given = [flow.tensor(a, requires_grad=True) for a in arrays]
        b = b if bias else None
        if fused:
            outputs = TimeSteps.apply(x, h, c if cell == "lstm" else None, weight, b, cell, sizes, reverse)
        else:
            y, state = scan(CELLS[cell], x, (h, c) if cell == "lstm" else (h,), weight, b, sizes, reverse)
            outputs = (y, *state)
        part = slice(None) if used == "all" else slice(0, 1) if used == "y alone" else slice(1, 2)
        seeds = [flow.tensor(a) for a in cotangents]
        flow.autograd.backward(outputs[part], seeds[: len(outputs)][part])
        found.append([*outputs, *(t.grad for t in given if t.grad is not None)])
    assert len(found[0]) == len(found[1])
    for got, expected in zip(*found, strict=True):
        assert_close(got, expected.detach().cpu().numpy())
