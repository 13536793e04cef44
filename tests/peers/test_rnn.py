"""Recurrent layers, cells and packed sequences beside PyTorch's, with its state_dict."""

import checks
import numpy as np
import pytest
from checks import assert_close

import miniflow as flow
from miniflow.nn.modules.rnn import TimeSteps
from miniflow.ops.recurrence import CELLS, SAVED, scan

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

pytestmark = pytest.mark.cpu_only("compositions of operators that are compared on every device")


def draw(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).normal(size=shape)


def pair(name, *args, **options):
    ours, theirs = (getattr(x.nn, name)(*args, **options).double() for x in (flow, torch))
    ours.load_state_dict({k: flow.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert repr(ours) == repr(theirs)
    return ours, theirs


def flat(result):
    """The tensors in a result."""
    if isinstance(result, flow.Tensor | torch.Tensor):
        return [result]
    if hasattr(result, "batch_sizes"):
        return [result.data]
    return [x for part in result for x in flat(part)]


def compare(layers, frameworks_call):
    """Results and gradients of a call in both frameworks, which returns the leaves too."""
    found = []
    for framework, layer in zip((flow, torch), layers, strict=True):
        leaves, result = frameworks_call(framework, layer)
        results = flat(result)
        sum((x * framework.tensor(draw(*x.shape, seed=i))).sum() for i, x in enumerate(results)).backward()
        found.append([x.detach() for x in results] + [x.grad for x in (*leaves, *layer.parameters())])
    assert len(found[0]) == len(found[1])
    for a, b in zip(*found, strict=True):
        assert_close(a, b, rtol=1e-9, atol=1e-10)


def with_state(framework, name, *shape):
    count = 2 if name.startswith("LSTM") else 1
    state = [framework.tensor(draw(*shape, seed=i + 7), requires_grad=True) for i in range(count)]
    return state, tuple(state) if count == 2 else state[0]


NAMES = ["RNN", "LSTM", "GRU"]
OPTIONS = [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False, "num_layers": 2}]


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_sequences(name, options, given):
    def call(framework, layer):
        x = framework.tensor(draw(5, 3, 4), requires_grad=True)
        batch = 5 if layer.batch_first else 3
        states = layer.num_layers * (1 + layer.bidirectional)
        leaves, state = with_state(framework, name, states, batch, 6) if given else ([], None)
        return [x, *leaves], layer(x, state)

    compare(pair(name, 4, 6, **options), call)


@pytest.mark.parametrize("name", NAMES)
def test_without_batch(name):
    def call(framework, layer):
        x = framework.tensor(draw(5, 4), requires_grad=True)
        leaves, state = with_state(framework, name, 2, 6)
        return [x, *leaves], layer(x, state)

    compare(pair(name, 4, 6, bidirectional=True), call)


@pytest.mark.parametrize("lengths", [[5, 3, 3, 1], [2, 5, 1, 4]])
@pytest.mark.parametrize("name", NAMES)
def test_packed_sequences(name, lengths):
    ordered = lengths == sorted(lengths, reverse=True)

    def call(framework, layer):
        rnn = framework.nn.utils.rnn
        x = framework.tensor(draw(5, 4, 3), requires_grad=True)
        packed = rnn.pack_padded_sequence(x, framework.tensor(lengths), enforce_sorted=ordered)
        leaves, state = with_state(framework, name, 4, 4, 6)
        y, last = layer(packed, state)
        padded, counts = rnn.pad_packed_sequence(y, padding_value=2.5, total_length=7)
        assert counts.tolist() == lengths
        return [x, *leaves], (padded, last)

    compare(pair(name, 3, 6, num_layers=2, bidirectional=True), call)


def test_relu_and_dropout_of_one():
    def call(framework, layer):
        x = framework.tensor(draw(5, 3, 4), requires_grad=True)
        return [x], layer(x)

    compare(pair("RNN", 4, 6, 2, "relu"), call)
    compare(pair("GRU", 4, 6, 2, dropout=1.0), call)


@pytest.mark.parametrize("shape", [(3,), ()])
@pytest.mark.parametrize(("name", "options"), [(f"{n}Cell", {}) for n in NAMES] + [("LSTMCell", {"bias": False})])
def test_cells(name, options, shape):
    def call(framework, layer):
        x = framework.tensor(draw(*shape, 4), requires_grad=True)
        leaves, state = with_state(framework, name, *shape, 6)
        return [x, *leaves], [layer(x, state), layer(x)]

    compare(pair(name, 4, 6, **options), call)


@pytest.mark.parametrize("name", NAMES)
def test_second_derivatives(name):
    cell = getattr(flow.nn, f"{name}Cell")(2, 3).double()
    x = flow.tensor(draw(2, 2), requires_grad=True)
    state = with_state(flow, name, 2, 3)[0]
    assert flow.autograd.gradgradcheck(
        lambda x, *s: flat(cell(x, s if len(s) == 2 else s[0]))[-1], (x, *[s.detach().requires_grad_() for s in state])
    )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_time_steps_as_one_operator(cell, reverse):
    """Its gradient, and that of the gradient, by finite differences: sequences of 3, 3 and 1 time steps."""
    columns = 2 * max(SAVED.get(cell, (1, 0))[0], 1)
    shapes = [(7, columns), (3, 2), (3, 2), (columns, 2)]
    x, h, c, weight = (flow.tensor(draw(*s), requires_grad=True) for s in shapes)
    bias = flow.tensor(draw(columns) + (cell == "rnn_relu"), requires_grad=True)  # less of the flat part
    state = (h, c) if cell == "lstm" else (h,)

    def run(x, weight, bias, h, c=None):
        return TimeSteps.apply(x, h, c, weight, bias, cell, (3, 2, 2), reverse)

    assert flow.autograd.gradcheck(run, (x, weight, bias, *state))
    assert flow.autograd.gradgradcheck(run, (x, weight, bias, *state))
    composed = scan(CELLS[cell], x, state, weight, bias, (3, 2, 2), reverse)
    for ours, expected in zip(run(x, weight, bias, *state), flat(composed), strict=True):
        assert_close(ours, expected, rtol=1e-12)


@pytest.mark.parametrize("batch_first", [False, True])
def test_padding(batch_first):
    arrays = [draw(n, 2, seed=n) for n in (2, 4, 1)]
    found = []
    for framework in (flow, torch):
        rnn, xs = framework.nn.utils.rnn, [framework.tensor(a) for a in arrays]
        padded = rnn.pad_sequence(xs, batch_first, 0.5)
        packed = rnn.pack_sequence(xs, enforce_sorted=False)
        again = rnn.unpad_sequence(padded.clone(), framework.tensor([2, 4, 1]), batch_first)
        left = rnn.pad_sequence(xs, batch_first, padding_side="left")
        found.append([padded, left, *again, *packed, *rnn.unpack_sequence(packed)])
    for a, b in zip(*found, strict=True):
        assert_close(a, b)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda nn: nn.LSTM(3, 4, proj_size=4), "proj_size=4; expected 0, or for an LSTM a size below hidden_size=4"),
        (lambda nn: nn.GRU(3, 4, proj_size=2), "GRU: got proj_size=2"),
        (lambda nn: nn.RNN(3, 4, nonlinearity="elu"), "'tanh' or 'relu'"),
        (lambda nn: nn.GRU(3, 0), "hidden_size=0"),
        (lambda nn: nn.GRU(3, 4)(flow.zeros(5, 2, 4)), "the last of 3"),
        (lambda nn: nn.GRU(3, 4)(flow.zeros(5, 2, 3), flow.zeros(1, 3, 4)), r"\(1, 3, 4\); expected \(1, 2, 4\)"),
        (lambda nn: nn.LSTM(3, 4)(flow.zeros(0, 2, 3)), r"\(0, 2, 3\); expected at least one time step"),
        (lambda nn: nn.GRUCell(3, 4)(flow.zeros(5, 2, 3)), "1 or 2 dims"),
        (lambda nn: nn.utils.rnn.pack_padded_sequence(flow.zeros(3, 2), [1, 2]), "which increase"),
        (lambda nn: nn.utils.rnn.pack_padded_sequence(flow.zeros(3, 2), [4, 2]), "2 from 1 to 3"),
        (lambda nn: nn.utils.rnn.pad_sequence([]), "at least one"),
    ],
)
def test_errors(call, words):
    with pytest.raises(ValueError, match=words):
        call(flow.nn)


@pytest.mark.parametrize(
    "options", [{}, {"bidirectional": True, "num_layers": 2}, {"bias": False, "batch_first": True}], ids=str
)
def test_lstm_with_a_projection(options):
    layers = [framework.nn.LSTM(4, 5, proj_size=3, **options).double() for framework in (flow, torch)]
    ours, theirs = layers
    assert list(ours.state_dict()) == list(theirs.state_dict()) and repr(ours) == repr(theirs)
    ours.load_state_dict({name: x.numpy() for name, x in theirs.state_dict().items()})
    generator, found = np.random.default_rng(0), []
    count, batch = len(ours.state_dict()) // (3 if options.get("bias") is False else 5), 2
    arrays = [generator.normal(size=size) for size in ((6, 2, 4), (count, batch, 3), (count, batch, 5))]
    if options.get("batch_first"):
        arrays[0] = arrays[0].swapaxes(0, 1).copy()
    for framework, layer in zip((flow, torch), layers, strict=True):
        x, h, c = (framework.tensor(a, requires_grad=True) for a in arrays)
        y, state = layer(x, (h, c))
        (sum((s * s).sum() for s in state) + (y * y * y).sum()).backward()
        found.append([y, *state, x.grad, h.grad, c.grad, *[p.grad for p in layer.parameters()]])
    for a, b in zip(*found, strict=True):
        checks.assert_close(a.detach(), b.detach(), rtol=1e-8, atol=1e-9)
