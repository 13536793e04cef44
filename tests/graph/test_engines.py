"""Graphs that run in onnxruntime: `enable_xla_jit`, `enable_tensorrt`, `enable_openvino`."""

import sys
import warnings

import numpy as np
import pytest

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentError, GraphError
from miniflow.graph.onnxruntime import PROVIDERS, OnnxReplay
from miniflow.graph.replay import Replay
from tests.checks import as_tuple, assert_close
from tests.samples import ROWS

onnxruntime = pytest.importorskip("onnxruntime")
AVAILABLE = onnxruntime.get_available_providers()


def having(engine):
    missing = f"the installed onnxruntime has no {PROVIDERS[engine]}"
    return pytest.param(engine, marks=pytest.mark.skipif(PROVIDERS[engine] not in AVAILABLE, reason=missing))


each_engine = pytest.mark.parametrize("engine", [having(engine) for engine in PROVIDERS])


class Run(nn.Graph):
    def __init__(self, function, engine=None, optimizer=None):
        super().__init__()
        self.function = function
        if engine:
            getattr(self.config, f"enable_{engine}")()
        if optimizer:
            self.add_optimizer(optimizer)

    def build(self, *args, **kwargs):
        return self.function(*args, **kwargs)

    @property
    def runs_in_onnxruntime(self):
        assert isinstance(self._last.replay, OnnxReplay | Replay)
        return isinstance(self._last.replay, OnnxReplay)


def vision():
    return nn.Sequential(
        nn.Conv2d(3, 5, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(5), nn.ReLU(), nn.MaxPool2d(3, 2),
        nn.Conv2d(5, 10, 3, groups=5), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5),
        nn.Linear(10, 4),
    )  # fmt: skip


def language():
    layer = nn.TransformerEncoderLayer(12, 3, 20, dropout=0.1, batch_first=True)
    return nn.Sequential(nn.Embedding(11, 12), nn.TransformerEncoder(layer, 2), nn.Linear(12, 7), nn.LogSoftmax(-1))


MODELS = {
    "vision": (vision, lambda: flow.randn(3, 3, 21, 17)),
    "language": (language, lambda: flow.randint(0, 11, (2, 5))),
}


@each_engine
@pytest.mark.parametrize("name", MODELS)
def test_its_numbers_are_those_of_eager_code(name, engine):
    flow.manual_seed(3)
    make, data = MODELS[name]
    model = make().eval()
    graph = Run(model, engine)
    for _ in range(2):
        x = data()
        y = graph(x)
        assert graph.runs_in_onnxruntime and y.dtype == flow.float32
        assert_close(y, model(x), rtol=1e-4, atol=1e-5)
    with flow.no_grad():
        for p in model.parameters():
            p.mul_(1.5)
        for b in model.buffers():
            b.add_(1)
    y, old = graph(x), y
    assert_close(y, model(x), rtol=1e-4, atol=1e-5)
    assert abs((y - old).numpy()).max() > 0.01, "the weights are not looked up"


@each_engine
def test_a_parameter_whose_memory_is_another_is_seen(engine):
    model = nn.Linear(3, 2)
    graph = Run(model, engine)
    x = flow.randn(4, 3)
    graph(x)
    model.weight.data = flow.randn(3, 2).t()  # not contiguous
    assert_close(graph(x), model(x), rtol=1e-5, atol=1e-6)
    assert graph.runs_in_onnxruntime


@each_engine
def test_arguments_and_results_are_as_those_of_the_replay(engine):
    def function(x, pair, *, unused, scale):
        return {"x": x, "sum": [pair[0] + pair[1], x > 0], "again": x, "number": x.sum() * scale}, flow.ones(2)

    x, i = flow.randn(3, 4)[:, ::2], flow.arange(4)
    arguments = (x, (i, i)), {"unused": flow.zeros(5), "scale": flow.tensor(3.0)}
    graph = Run(function, engine)
    expected, found = Run(function)(*arguments[0], **arguments[1]), graph(*arguments[0], **arguments[1])
    assert graph.runs_in_onnxruntime
    assert found[0].keys() == expected[0].keys() and type(found) is tuple
    for a, b in [(found[1], expected[1]), *((found[0][key], expected[0][key]) for key in ("x", "again", "number"))]:
        assert a.dtype == b.dtype and a.shape == b.shape
        assert_close(a, b, rtol=1e-5, atol=1e-6)
    for a, b in zip(found[0]["sum"], expected[0]["sum"], strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    before = x.numpy().copy()
    found[0]["x"].add_(1)
    np.testing.assert_array_equal(x.numpy(), before)


def test_a_result_has_memory_of_its_own():
    model = nn.Linear(3, 2)
    graph = Run(lambda x: (model.weight, x), "xla_jit")
    graph.model = model
    x = flow.ones(3)
    weight, y = graph(x)
    assert graph.runs_in_onnxruntime
    kept = weight.clone()
    with flow.no_grad():
        model.weight.zero_()
    x.zero_()
    graph(x)
    np.testing.assert_array_equal(weight.numpy(), kept.numpy())
    np.testing.assert_array_equal(y.numpy(), np.ones(3))


def test_another_shape_and_another_attribute_make_another_plan():
    model = nn.Sequential(nn.Linear(3, 2), nn.LeakyReLU(0.5))
    graph = Run(model, "xla_jit")
    for shape in ((4, 3), (5, 3), (4, 3)):
        x = flow.randn(*shape)
        assert_close(graph(x), model(x), rtol=1e-5, atol=1e-6)
    model[1].negative_slope = 0.1
    assert_close(graph(x), model(x), rtol=1e-5, atol=1e-6)
    assert graph.runs_in_onnxruntime and len(graph._plans) == 3


def test_what_build_assigns_is_assigned_in_each_call():
    class Shapes(nn.Module):
        def forward(self, x):
            self.shape = x.shape
            return x + 1

    model = Shapes()
    graph = Run(model, "xla_jit")
    for n in (2, 3, 2):
        graph(flow.zeros(n))
        assert model.shape == (n,) and graph.runs_in_onnxruntime


def test_submitted_calls_run_in_it():
    graph = Run(lambda x: x * 2, "xla_jit")
    futures = [graph.submit(flow.full((2,), float(i))) for i in range(3)]
    assert [f.result().tolist() for f in futures] == [[0, 0], [2, 2], [4, 4]]
    assert graph.runs_in_onnxruntime


def test_it_prints_the_recording_once(capsys):
    graph = Run(nn.Linear(3, 2), "xla_jit")
    graph.debug(1)
    graph(flow.ones(1, 3))
    assert capsys.readouterr().out.count("(MODULE:function:Linear(") == 1


@pytest.mark.slow
@each_engine
def test_rows_of_the_sample_table(engine):
    """What a model can say is what eager code computes, in values, shape and dtype; the rest is replayed."""
    ran, wrong = 0, []
    for row in ROWS:
        if not row.graph or (row.name == "nanmedian" and engine == "openvino"):  # which sorts NaN in another way
            continue
        for sample in [sample for sample in row.samples() if not sample.brief][:2]:
            arrays = [x.astype(np.float32) if x.dtype.kind == "f" else x for x in sample.args if is_array(x)]

            def function(*tensors, row=row, sample=sample):
                tensors = iter(tensors)
                return row.function(*[next(tensors) if is_array(x) else x for x in sample.args], **sample.kwargs)

            graph, tensors = Run(function, engine), [flow.tensor(x) for x in arrays]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                found, expected = as_tuple(graph(*tensors)), as_tuple(function(*tensors))
            ran += graph.runs_in_onnxruntime
            for a, b in zip([x.numpy() for x in found], [x.numpy() for x in expected], strict=True):
                same = a.dtype == b.dtype and a.shape == b.shape
                if not same or not np.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True):
                    wrong.append((row.name, sample.kwargs))
    assert not wrong and ran > 250, (wrong, ran)


def is_array(x):
    return isinstance(x, np.ndarray)


@each_engine
def test_integers_are_clamped_on_one_side(engine):
    graph = Run(lambda x: (x.clamp(min=0), x.clamp(max=2), x.clamp(-1, 3)), engine)
    low, high, both = graph(flow.arange(-3, 5))
    assert graph.runs_in_onnxruntime
    assert low.tolist() == [0, 0, 0, 0, 1, 2, 3, 4]
    assert high.tolist() == [-3, -2, -1, 0, 1, 2, 2, 2]
    assert both.tolist() == [-1, -1, -1, 0, 1, 2, 3, 3]


# what is replayed as usual


def replayed(graph, *args, reason):
    """The result of a graph that has to warn, once, that it is replayed."""
    with pytest.warns(UserWarning, match=f"has no effect, the graph is replayed as usual: {reason}") as caught:
        y = graph(*args)
    assert len(caught) == 1 and caught[0].filename == __file__ and not graph.runs_in_onnxruntime
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph(*args)
        graph(*[flow.cat([x, x]) for x in args])  # another plan
    return y


def test_a_training_step():
    model = nn.Linear(3, 1)
    before = model.weight.numpy().copy()

    def step(x):
        loss = model(x).sum()
        loss.backward()
        return loss

    graph = Run(step, "xla_jit", flow.optim.SGD(model.parameters(), lr=0.1))
    replayed(graph, flow.ones(2, 3), reason="it trains")
    np.testing.assert_allclose(model.weight.numpy(), before - 0.1 * (2 + 2 + 4), rtol=1e-5)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x + flow.rand(3), "it draws random numbers"),
        (lambda x: x.bfloat16(), "NumPy has no bfloat16"),
        (lambda x: None, "it returns no tensors"),
        (lambda x: flow.linalg.inv(flow.eye(3) + x[0]), "opset 17 has nothing for these operators"),
    ],
)
def test_what_a_model_cannot_say(function, reason):
    replayed(Run(function, "xla_jit"), flow.zeros(2, 3), reason=reason)


def test_tensors_without_elements():
    """Of which onnxruntime's mean is 0, and its any of none is true."""
    graph = Run(lambda x: (x.mean(), (x > 0).any(), x.t()), "xla_jit")
    mean, some, y = replayed(graph, flow.zeros(0, 4), reason="onnxruntime reduces tensors without elements")
    assert np.isnan(mean.item()) and not some.item() and y.shape == (4, 0)
    inner = Run(lambda x: x[:0].mean(), "xla_jit")
    assert np.isnan(replayed(inner, flow.ones(3), reason="onnxruntime reduces tensors without elements").item())


def test_modules_that_train():
    model = nn.Sequential(nn.BatchNorm1d(3))
    graph = Run(model, "xla_jit")
    x = flow.randn(5, 3)
    replayed(graph, x, reason="a call changes buffers")
    assert model[0].num_batches_tracked.item() == 3
    model.eval()
    assert_close(graph(x), model(x), rtol=1e-5, atol=1e-6)
    assert graph.runs_in_onnxruntime


def test_tensors_of_other_devices_and_amp():
    replayed(Run(lambda x: x + 1, "xla_jit"), flow.ones(2, device="cuda"), reason="its tensors are not all on the CPU")
    graph = Run(lambda x: x @ x.t(), "xla_jit")
    graph.config.enable_amp(True)
    replayed(graph, flow.ones(2, 2), reason="enable_amp")


def test_without_the_provider_or_onnxruntime(monkeypatch):
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    for engine, name in (("tensorrt", "TensorrtExecutionProvider"), ("openvino", "OpenVINOExecutionProvider")):
        y = replayed(Run(lambda x: x + 1, engine), flow.ones(3), reason=f"the installed onnxruntime has no {name}")
        assert y.tolist() == [2, 2, 2]
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    y = replayed(Run(lambda x: x + 1, "xla_jit"), flow.ones(3), reason="onnxruntime is not installed")
    assert y.tolist() == [2, 2, 2]


# options and errors


def test_the_last_one_runs():
    graph = Run(lambda x: x + 1, "openvino")
    graph.config.enable_xla_jit()
    assert graph.config.engine == "xla_jit" and "enable_xla_jit=True" in repr(graph.config)
    graph.config.enable_openvino(False)
    assert graph.config.engine == "xla_jit"
    assert graph(flow.ones(1)).tolist() == [2] and graph.runs_in_onnxruntime
    graph.config.enable_xla_jit(False)
    assert graph.config.engine is None
    assert graph(flow.ones(1)).tolist() == [2] and not graph.runs_in_onnxruntime
    with pytest.raises(ArgumentError, match="engine: got 'XLA'; expected None or one of xla_jit, tensorrt, openvino"):
        graph.config.engine = "XLA"


def test_what_it_refuses_names_the_graph():
    table = nn.Embedding(5, 2)
    graph = Run(table, "xla_jit")
    graph(flow.tensor([4]))
    with pytest.raises(GraphError, match=f"{graph.name}: onnxruntime: .*out of .*bounds"):
        graph(flow.tensor([5]))
    with pytest.raises(GraphError, match=f"{graph.name}: onnxruntime runs the graph, and plans its memory"):
        graph.memory()
