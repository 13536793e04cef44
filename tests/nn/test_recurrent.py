"""The operator of recurrent layers beside single time steps; the tests of the peers compare the layers with PyTorch."""

import numpy as np
import pytest
from checks import assert_close

import miniflow as flow
from miniflow.nn.modules.rnn import TimeSteps
from miniflow.ops.recurrence import CELLS, scan

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


def lstm(x, h, c, weights):
    """One sequence (time, features) by the formulas, the gates in PyTorch's order."""
    w_ih, w_hh, b_ih, b_hh = weights
    results = []
    for row in x:
        i, f, g, o = np.split(w_ih @ row + b_ih + w_hh @ h + b_hh, 4)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        results.append(h)
    return np.array(results), h, c


@pytest.mark.parametrize("given", [False, True])
def test_packed_sequences_in_any_order(given):
    """Each comes out, with its own last state, in the place where it was given."""
    draw, lengths = np.random.default_rng(3), [2, 5, 1, 4]
    layer = flow.nn.LSTM(3, HIDDEN, dtype=flow.float64)
    weights = [p.detach().numpy() for p in layer.parameters()]
    x, h, c = draw.normal(size=(5, 4, 3)), draw.normal(size=(1, 4, HIDDEN)), draw.normal(size=(1, 4, HIDDEN))
    if not given:
        h, c = np.zeros_like(h), np.zeros_like(c)
    packed = flow.nn.utils.rnn.pack_padded_sequence(flow.tensor(x), flow.tensor(lengths), enforce_sorted=False)
    y, (last_h, last_c) = layer(packed, (flow.tensor(h), flow.tensor(c)) if given else None)
    padded, _ = flow.nn.utils.rnn.pad_packed_sequence(y)
    for n, length in enumerate(lengths):
        result, *state = lstm(x[:length, n], h[0, n], c[0, n], weights)
        assert_close(padded[:length, n], result, rtol=1e-11, atol=1e-12)
        assert_close(last_h[0, n], state[0], rtol=1e-11, atol=1e-12)
        assert_close(last_c[0, n], state[1], rtol=1e-11, atol=1e-12)


def test_a_wrong_number_of_states():
    h, one = flow.zeros(1, 2, 3), flow.zeros(2, 3)
    for layer, x, states in (
        (flow.nn.LSTM(4, 3), flow.zeros(5, 2, 4), (h, h, h)), (flow.nn.LSTM(4, 3), flow.zeros(5, 2, 4), (h,)),
        (flow.nn.LSTMCell(4, 3), flow.zeros(2, 4), (one, one, one)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"LSTM.*: got {len(states)} states; expected 2"):
            layer(x, states)
