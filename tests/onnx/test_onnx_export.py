"""flow.onnx.export: names, files, modes, places and errors."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentError, ArgumentTypeError, OnnxError
from miniflow.onnx.exporter import api
from miniflow.onnx.exporter.optimizer import OnnxGraph

ort = pytest.importorskip("onnxruntime")


class Net(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))

    def forward(self, x: Any) -> Any:
        return self.layers(x)


class Inference(nn.Graph):
    """A module as a graph."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def build(self, x: Any) -> Any:
        return self.model(x)


class Applied(nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def run(model: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    """What onnxruntime computes with a model, or with the file of one."""
    session = ort.InferenceSession(model if isinstance(model, str) else model.SerializeToString())
    return session.run(None, dict(zip([x.name for x in session.get_inputs()], arrays, strict=True)))


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


def names(values: Any) -> list[str]:
    return [x.name for x in values]


def check(model: nn.Module, *arrays: np.ndarray, tolerance: float = 1e-5) -> onnx.ModelProto:
    """Export in eval and compare with onnxruntime; returns the model."""
    inputs = tuple([flow.from_numpy(x) for x in arrays])
    proto = flow.onnx.export(model.eval(), inputs)
    expected = model(*inputs)
    results = run(proto, *arrays)
    for a, b in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert a.dtype == b.numpy().dtype and a.shape == tuple(b.shape)
        np.testing.assert_allclose(a, b.detach().numpy(), rtol=tolerance, atol=tolerance)
    return proto


# names and structure


def test_initializers_are_called_after_the_modules_and_inputs_after_the_parameters() -> None:
    proto = check(Net(), numbers(4, 5))
    assert names(proto.graph.input) == ["x"] and names(proto.graph.output) == ["output.0"]
    expected = ["layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias"]
    assert names(proto.graph.initializer) == expected
    assert proto.producer_name == "miniflow" and proto.producer_version == flow.__version__
    assert names(proto.graph.node) == ["layers.0.Gemm_1", "layers.1.Relu_1", "layers.2.Gemm_1"]


def test_names_that_are_given() -> None:
    proto = flow.onnx.export(Net().eval(), flow.ones(4, 5), input_names=["a"], output_names=["b"])
    assert (names(proto.graph.input), names(proto.graph.output)) == (["a"], ["b"])


class Nested(nn.Module):
    """Arguments of every kind."""

    def forward(self, x: Any, pair: Any, *more: Any, scale: float = 1.0, shift: Any = None, **others: Any) -> Any:
        return {"sum": x * scale + pair[1], "list": [more[0] - shift, others["last"] * pair[0]]}


def test_nested_arguments_and_results() -> None:
    arrays = [numbers(2, 3) + i for i in range(6)]
    x, first, second, more, shift, last = map(flow.from_numpy, arrays)
    args = (x, [first, second], more, {"last": last, "shift": shift, "scale": 3.0})
    proto = flow.onnx.export(Nested().eval(), args)
    assert names(proto.graph.input) == ["x", "pair.0", "pair.1", "more.0", "shift", "last"]
    expected = 3 * arrays[0] + arrays[2], arrays[3] - arrays[4], arrays[5] * arrays[1]
    for a, b in zip(run(proto, *arrays), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_outputs_that_are_inputs_or_parameters_or_the_same_twice() -> None:
    model = nn.Linear(5, 3)
    model.forward = lambda x: (x, model.weight, x * 2, x * 2, model.weight)
    check(model, numbers(4, 5))
    twice = Applied(lambda x: [x.relu()] * 2)
    proto = flow.onnx.export(twice.eval(), flow.ones(3))
    np.testing.assert_array_equal(run(proto, numbers(3))[0], run(proto, numbers(3))[1])


def test_a_model_without_parameters_and_one_with_shared_ones() -> None:
    assert not check(Applied(lambda x: x.relu()), numbers(3)).graph.initializer
    model = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5))
    model[1].weight = model[0].weight
    assert names(check(model, numbers(4, 5)).graph.initializer) == ["0.weight", "0.bias", "1.bias"]


def test_a_graph() -> None:
    net = Net().eval()
    proto = flow.onnx.export(Inference(net), flow.ones(4, 5))
    assert names(proto.graph.initializer)[0] == "model.layers.0.weight" and names(proto.graph.input) == ["x"]
    x = numbers(4, 5)
    np.testing.assert_allclose(run(proto, x)[0], net(flow.from_numpy(x)).detach().numpy(), rtol=1e-5, atol=1e-6)


# sizes


def test_dynamic_axes() -> None:
    net = Net().eval()
    for axes in ({0: "batch"}, [0], {-2: "batch"}):
        wanted = {"x": axes, "y": {0: "batch"}}
        proto = flow.onnx.export(net, flow.ones(4, 5), output_names=["y"], dynamic_axes=wanted)
        for batch in (1, 9):
            x = numbers(batch, 5)
            np.testing.assert_allclose(run(proto, x)[0], net(flow.from_numpy(x)).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert proto.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "batch"


# modes


def test_training_mode_is_exported_as_eval_and_comes_back() -> None:
    net = nn.Sequential(nn.Linear(5, 4), nn.Sequential(nn.Linear(4, 3)))
    net[1].eval()
    modes = [m.training for m in net.modules()]
    with pytest.warns(UserWarning, match="training mode") as caught:
        flow.onnx.export(net, flow.ones(2, 5))
    assert caught[0].filename == __file__
    assert [m.training for m in net.modules()] == modes == [True, True, False, False]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flow.onnx.export(net.eval(), flow.ones(2, 5))


def test_flags_come_back_after_an_error() -> None:
    model = Applied(lambda x: x.numpy())
    with pytest.warns(UserWarning, match="training mode"), pytest.raises(flow.errors.GraphTraceError):
        flow.onnx.export(model, flow.ones(3))
    assert model.training


# files


def test_the_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.onnx"
    net = Net().eval()
    flow.onnx.export(net, flow.ones(4, 5), path)
    assert [x.name for x in tmp_path.iterdir()] == ["net.onnx"]
    before = path.read_bytes()

    def interrupted(self: Path, data: bytes) -> None:
        self.open("wb").write(data[:10])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    for external in (False, True):
        with pytest.raises(KeyboardInterrupt):
            flow.onnx.export(net, flow.ones(4, 5), path, external_data=external)
        assert [x.name for x in tmp_path.iterdir()] == ["net.onnx"] and path.read_bytes() == before


def large(path: Path, **options: Any) -> tuple[nn.Module, onnx.ModelProto]:
    model = nn.Sequential(nn.Linear(5, 700), nn.Linear(700, 3)).eval()
    return model, flow.onnx.export(model, flow.ones(4, 5), path, **options)


@pytest.mark.parametrize("automatic", [False, True])
def test_external_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, automatic: bool) -> None:
    path = tmp_path / "net.onnx"
    if automatic:
        monkeypatch.setattr(api, "LARGEST", 1000)
    model, proto = large(path, external_data=not automatic)
    assert sorted(x.name for x in tmp_path.iterdir()) == ["net.onnx", "net.onnx.data"]
    assert path.stat().st_size < 8000 and onnx.load(path, load_external_data=False) == proto
    onnx.checker.check_model(str(path), full_check=True)
    x = numbers(4, 5)
    expected = model(flow.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(run(str(path), x)[0], expected, rtol=1e-4, atol=1e-5)


def graph_of(*sides: int) -> OnnxGraph:
    """x + a square weight for each side; one row of it is stored."""
    weights = {f"w{i}": np.broadcast_to(np.arange(n, dtype=np.float32) + i, (n, n)) for i, n in enumerate(sides)}
    nodes = [helper.make_node("Add", ["x", name], [f"y{name}"]) for name in weights]
    outputs = [helper.make_tensor_value_info(f"y{name}", 1, w.shape) for name, w in weights.items()]
    return OnnxGraph(17, nodes, weights, [helper.make_tensor_value_info("x", 1, [1])], outputs)


def test_more_than_2_gb_need_a_path() -> None:
    with pytest.raises(OnnxError, match="got 3,221,225,472 bytes of weights; expected a path"):
        api.written(graph_of(2**14, 2**14, 2**14), "net", None, external_data=False)


def test_external_data_is_written_array_by_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No message holds it, whose copies are refused beyond 2 GB; 2 MB stand for these here."""
    monkeypatch.setattr(api, "LARGEST", 2 * 10**6)

    def no_copy(x: np.ndarray, name: str) -> onnx.TensorProto:
        assert x.nbytes <= 4096, "a message of a large weight"
        return onnx.helper.make_tensor(name, 1, x.shape, x.tobytes(), raw=True)

    monkeypatch.setattr(onnx.numpy_helper, "from_array", no_copy)
    graph, path = graph_of(500, 30, 600, 400), tmp_path / "net.onnx"
    api.written(graph, "net", path, external_data=False)
    monkeypatch.undo()
    assert path.stat().st_size < 10_000 and (tmp_path / "net.onnx.data").stat().st_size == 4 * (
        500**2 + 600**2 + 400**2
    )
    for tensor in onnx.load(path).graph.initializer:
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), graph.initializers[tensor.name])
    for got, want in zip(run(str(path), np.float32([3])), graph.initializers.values(), strict=True):
        np.testing.assert_array_equal(got, want + 3)


def test_nothing_is_written_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(OnnxError, match=r"opset 17 has nothing for these operators: .*test_onnx_export.py:\d+"):
        flow.onnx.export(Applied(lambda x: flow.linalg.cholesky(x)).eval(), flow.eye(3), tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())


# types and places


def test_half_and_double_precision() -> None:
    check(Net().half(), numbers(4, 5, dtype=np.float16), tolerance=5e-3)
    check(Net().double(), numbers(4, 5, dtype=np.float64), tolerance=1e-12)


def test_autocast() -> None:
    net = Net()

    def forward(x: Any) -> Any:
        with flow.autocast("cpu", dtype=flow.float16):
            return net(x)

    model = Applied(forward)
    model.net = net
    assert names(check(model, numbers(4, 5), tolerance=5e-3).graph.input) == ["x"]


def test_modules_on_a_cuda_device() -> None:
    net = Net().to("cuda").eval()
    x = numbers(4, 5)
    expected = net(flow.from_numpy(x).to("cuda")).cpu().detach().numpy()
    for model, given in (
        (net, flow.ones(4, 5, device="cuda")),
        (Applied(lambda x: net(x.to("cuda"))), flow.ones(4, 5)),
    ):
        model.eval()
        proto = flow.onnx.export(model, given)
        np.testing.assert_allclose(run(proto, x)[0], expected, rtol=1e-5, atol=1e-6)


def test_global_tensors_export_as_the_logical_graph() -> None:
    flow.parallel.simulate(2)
    try:
        where, x = flow.placement("cpu", [0, 1]), numbers(4, 5)
        net = Net().eval()
        expected = net(flow.from_numpy(x)).detach().numpy()
        net.to_global(where, flow.sbp.broadcast)
        for i, sbp in ((0, flow.sbp.split(0)), (2, flow.sbp.split(1))):  # columns, then rows: the sum is partial
            net.layers[i].weight = nn.Parameter(net.layers[i].weight.detach().to_global(where, sbp))
        proto = flow.onnx.export(net, flow.from_numpy(x).to_global(where, flow.sbp.broadcast))
        assert [node.op_type for node in proto.graph.node] == ["Gemm", "Relu", "Gemm"]
        np.testing.assert_allclose(run(proto, x)[0], expected, rtol=1e-5, atol=1e-6)
    finally:
        flow.parallel.simulate(1)


# errors


class Training(Inference):
    """A training step."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))


class Counting(nn.Module):
    """Changes a buffer at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", flow.zeros(1))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls


ERRORS = {
    "opset too old": (ArgumentError, "got opset=8; expected 9 to", {"opset": 8}),
    "opset as a string": (ArgumentError, "got opset='17'; expected 9 to", {"opset": "17"}),
    "folder": (ArgumentError, "expected a file in a folder that exists", {"path": "/nowhere/net.onnx"}),
    "array": (ArgumentTypeError, "got a NumPy array among args", {"args": np.ones(3)}),
    "too many": (ArgumentTypeError, "too many positional arguments", {"args": (flow.ones(1), flow.ones(1))}),
    "no model": (ArgumentTypeError, "got a builtin_function_or_method; expected an nn.Module", {"model": len}),
    "axis of nothing": (ArgumentError, "dynamic_axes names 'z'", {"dynamic_axes": {"z": [0]}}),
    "axis too large": (OnnxError, "got axis 2 of input 0", {"dynamic_axes": {"x": [2]}}),
    "axes without names": (ArgumentTypeError, "got dynamic_axes=", {"dynamic_axes": ["x"]}),
    "names of inputs": (ArgumentError, "got 2 input_names for 1 tensors", {"input_names": ["a", "b"]}),
    "names of outputs": (ArgumentError, "got 2 output_names for 1 outputs", {"output_names": ["a", "b"]}),
    "equal names": (ArgumentError, r"are called \['a'\]", {"input_names": ["a"], "output_names": ["a"]}),
    "name of a parameter": (ArgumentError, r"called \['layers.0.bias'\]", {"output_names": ["layers.0.bias"]}),
    "training graph": (OnnxError, "is a training step", {"model": Training(Net())}),
    "buffers": (OnnxError, "changes calls, which", {"model": Counting()}),
    "no outputs": (ArgumentError, "for 0 outputs", {"model": Applied(lambda x: 3)}),
}


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.filterwarnings("ignore:export. the model is in training mode", "ignore:.*returns")
def test_errors_say_what_is_wrong(name: str) -> None:
    error, message, changes = ERRORS[name]
    given = {"model": Net(), "args": flow.ones(4, 5), **changes}
    with pytest.raises(error, match=message):
        flow.onnx.export(given.pop("model"), given.pop("args"), **given)
