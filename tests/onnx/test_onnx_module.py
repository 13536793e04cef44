"""Loaded models as modules: parameters, training, nn.Graph, control flow, inputs; and the modules of `to_python`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto
from onnx import helper as h

import miniflow as flow
from miniflow.onnx.loader.module import as_value
from tests.onnx.test_onnx_models import DATA, assert_close, run, run_onnxruntime, with_random_weights
from tools.onnx_table import REASONS, as_array, node_cases

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name: str, *shape, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return h.make_tensor_value_info(name, kind, list(shape))


def array(values: np.ndarray, name: str) -> TensorProto:
    return onnx.numpy_helper.from_array(np.asarray(values), name)


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def model_of(graph: onnx.GraphProto, opset: int = 17, **rest) -> ModelProto:
    model = h.make_model(graph, ir_version=8, opset_imports=[h.make_opsetid("", opset)], **rest)
    onnx.checker.check_model(model, full_check=True)
    return model


def network() -> ModelProto:
    """A convolution, batch normalization, a reshape to computed sizes, and a linear layer."""
    nodes = [
        h.make_node("Conv", ["x", "conv.weight"], ["a"], "conv", pads=[1, 1, 1, 1]),
        h.make_node("BatchNormalization", ["a", "bn.weight", "bn.bias", "bn.mean", "bn.var"], ["b"], "bn"),
        h.make_node("Relu", ["b"], ["c"], "relu"),
        h.make_node("Shape", ["c"], ["s"], "shape"),
        h.make_node("Gather", ["s", "zero"], ["n"], "gather", axis=0),
        h.make_node("Unsqueeze", ["n", "axes"], ["n1"], "unsqueeze"),
        h.make_node("Concat", ["n1", "rest"], ["shape"], "concat", axis=0),
        h.make_node("Reshape", ["c", "shape"], ["d"], "reshape"),
        h.make_node("Gemm", ["d", "fc.weight", "fc.bias"], ["y"], "fc", transB=1),
    ]
    values = {
        "conv.weight": draw(4, 2, 3, 3), "bn.weight": np.ones(4, np.float32), "bn.bias": draw(4, seed=1),
        "bn.mean": draw(4, seed=2), "bn.var": np.abs(draw(4, seed=3)) + 0.5, "fc.weight": draw(3, 80, seed=4),
        "fc.bias": draw(3, seed=5), "zero": np.int64(0), "axes": np.array([0]), "rest": np.array([-1]),
    }  # fmt: skip
    weights = [array(x, name) for name, x in values.items()]
    return model_of(h.make_graph(nodes, "main", [info("x", "n", 2, 4, 5)], [info("y", "n", 3)], weights))


def test_parameters_and_buffers():
    module = flow.onnx.load(network())
    assert {name: tuple(p.shape) for name, p in module.named_parameters()} == {
        "conv.weight": (4, 2, 3, 3), "bn.weight": (4,), "bn.bias": (4,), "fc.weight": (3, 80), "fc.bias": (3,),
    }  # fmt: skip
    assert {name for name, _ in module.named_buffers()} == {"bn.mean", "bn.var"}
    np.testing.assert_array_equal(module.conv.weight.detach().numpy(), draw(4, 2, 3, 3))
    assert (module.inputs, module.outputs) == (["x"], ["y"])


@pytest.mark.parametrize("as_bytes", [True, False])
def test_sources(as_bytes, tmp_path):
    model = network()
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    module = flow.onnx.load(model.SerializeToString() if as_bytes else tmp_path / "model.onnx")
    assert_close(run(module, draw(2, 2, 4, 5)), run_onnxruntime(model, draw(2, 2, 4, 5)))


def test_a_message_is_not_changed_and_shares_no_memory():
    model = network()
    before = model.SerializeToString()
    module = flow.onnx.load(model)
    with flow.no_grad():
        module.fc.bias += 1
    assert model.SerializeToString() == before


def test_fine_tuning_lowers_the_loss():
    module = flow.onnx.load(network())
    x, target = flow.tensor(draw(16, 2, 4, 5)), flow.tensor(np.arange(16) % 3)
    optimizer = flow.optim.Adam(module.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        loss = flow.nn.functional.cross_entropy(module(x), target)
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None for p in module.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


class Evaluated(flow.nn.Graph):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def build(self, *inputs):
        return self.module(*inputs)


def test_a_graph_computes_what_the_module_does():
    module = flow.onnx.load(network())
    graph = Evaluated(module)
    for batch in (2, 3, 2):
        x = flow.tensor(draw(batch, 2, 4, 5, seed=batch))
        np.testing.assert_array_equal(graph(x).numpy(), module(x).detach().numpy())


def test_training_in_a_graph_computes_what_the_module_does():
    x, target = flow.tensor(draw(16, 2, 4, 5)), flow.tensor(np.arange(16) % 3)
    losses = []
    for _ in range(2):
        module = flow.onnx.load(network())
        optimizer = flow.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)

        class Training(flow.nn.Graph):
            def __init__(self, module=module, optimizer=optimizer):
                super().__init__()
                self.module = module
                self.add_optimizer(optimizer)

            def build(self, x, target):
                loss = flow.nn.functional.cross_entropy(self.module(x), target)
                loss.backward()
                return loss

        if not losses:
            graph = Training()
            losses.append([graph(x, target).item() for _ in range(4)])
        else:
            losses.append([])
            for _ in range(4):
                loss = flow.nn.functional.cross_entropy(module(x), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses[1].append(loss.item())
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert losses[0][-1] < losses[0][0]


def test_light_model_in_a_graph():
    model = with_random_weights(onnx.load(DATA / "light" / "light_squeezenet.onnx"))
    module = flow.onnx.load(model).eval()
    image = flow.tensor(np.random.default_rng(0).random((1, 3, 224, 224), np.float32))
    with flow.no_grad():
        assert_close([Evaluated(module)(image).numpy()], [module(image).numpy()], 1e-5)


def test_inputs_by_name_and_initializers_as_inputs():
    graph = h.make_graph(
        [h.make_node("Sub", ["x", "w"], ["y"])], "main", [info("x", 2), info("w", 2)], [info("y", 2)],
        [array(np.array([1, 2], np.float32), "w")],
    )  # fmt: skip
    module = flow.onnx.load(model_of(graph))
    x, w = np.array([5, 7], np.float32), np.array([10, 20], np.float32)
    assert module.inputs == ["x"]
    np.testing.assert_array_equal(run(module, x)[0], [4, 5])
    with flow.no_grad():
        np.testing.assert_array_equal(module(w=w, x=x).numpy(), [-5, -13])
        np.testing.assert_array_equal(module(x, w=flow.tensor(w)).numpy(), [-5, -13])


@pytest.mark.parametrize("name", ["forward", "inputs", "train.w", "w.", ".", "a.b", "_body"])
def test_initializers_may_have_any_name(name):
    graph = h.make_graph([h.make_node("Sub", ["x", name], ["y"])], "g", [info("x", 2)], [info("y", 2)],
                         [array(np.array([1, 2], np.float32), name)])  # fmt: skip
    module = flow.onnx.load(model_of(graph))
    np.testing.assert_array_equal(run(module, np.array([5, 7], np.float32))[0], [4, 5])
    assert len(list(module.parameters())) == 1


def test_functions_of_the_model():
    """Two calls, with a default attribute, an absent input and an output that is not asked for; one in the other."""
    inner = [h.make_node("Elu", ["a"], ["e"]), h.make_node("Clip", ["e", "", "most"], ["b"])]
    inner[0].attribute.add(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT)
    inner.append(h.make_node("Neg", ["b"], ["other"]))
    opsets = [h.make_opsetid("", 17), h.make_opsetid("mine", 1)]
    default = [h.make_attribute("alpha", 0.5)]
    f = h.make_function("mine", "f", ["a", "most"], ["b", "other"], inner, opsets, [], default)
    nodes = [h.make_node("f", ["a"], ["t", "e"], domain="mine"), h.make_node("Add", ["t", "e"], ["b"])]
    g = h.make_function("mine", "g", ["a"], ["b"], nodes, opsets)
    calls = [
        h.make_node("f", ["x", "e"], ["t"], domain="mine", alpha=2.0),
        h.make_node("g", ["t"], ["zero"], domain="mine"),
        h.make_node("f", ["t"], ["b"], domain="mine"),
        h.make_node("Add", ["b", "zero"], ["y"]),
    ]
    graph = h.make_graph(calls, "main", [info("x", 3)], [info("y", 3)], [array(np.float32(1), "e")])
    model = h.make_model(graph, ir_version=10, opset_imports=opsets, functions=[f, g])
    x = np.array([-1, 0.5, 3], np.float32)
    t = np.minimum(np.where(x < 0, 2 * np.expm1(x), x), 1)
    expected = np.where(t < 0, 0.5 * np.expm1(t), t)
    np.testing.assert_allclose(run(flow.onnx.load(model), x)[0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1.0, 2.0), {}), ((), {"z": 1.0}), ((1.0,), {"z": 1.0})], ids=str
)  # fmt: skip
def test_wrong_inputs(args, kwargs):
    with pytest.raises(flow.errors.ArgumentTypeError, match="OnnxModule: got .*; expected"):
        flow.onnx.load(network())(*args, **kwargs)


def test_wrong_shapes_name_the_node():
    with pytest.raises(flow.onnx.OnnxError, match='Conv "conv"'):
        flow.onnx.load(network())(draw(2, 3, 4, 5))


# control flow


def branching() -> ModelProto:
    """x * w if the condition holds, else x - 1; both branches read values around them."""
    then = h.make_graph([h.make_node("Mul", ["x", "w"], ["a"])], "then", [], [info("a", 2)])
    otherwise = h.make_graph(
        [h.make_node("Sub", ["x", "one"], ["b"])], "else", [], [info("b", 2)], [array(np.float32(1), "one")]
    )
    node = h.make_node("If", ["c"], ["y"], "if", then_branch=then, else_branch=otherwise)
    inputs = [info("x", 2), info("c", kind=BOOL)]
    return model_of(h.make_graph([node], "main", inputs, [info("y", 2)], [array(np.array([2, 3], np.float32), "w")]))


@pytest.mark.parametrize("condition", [True, False])
def test_if(condition):
    inputs = draw(2), np.array(condition)
    assert_close(run(flow.onnx.load(branching()), *inputs), run_onnxruntime(branching(), *inputs))


def test_gradients_pass_branches():
    module = flow.onnx.load(branching())
    module(flow.tensor(draw(2)), np.array(True)).sum().backward()
    np.testing.assert_allclose(module.w.grad.numpy(), draw(2))


def test_conditions_that_are_tensors_in_a_graph():
    with pytest.raises(flow.errors.GraphTraceError):
        Evaluated(flow.onnx.load(branching()))(flow.tensor(draw(2)), flow.tensor(True))


def looping() -> ModelProto:
    """As many steps as x has rows: s = s * w + x[i]; all s, and the last."""
    body = h.make_graph(
        [
            h.make_node("Gather", ["x", "i"], ["row"], axis=0),
            h.make_node("Mul", ["s", "w"], ["t"]),
            h.make_node("Add", ["t", "row"], ["s2"]),
            h.make_node("Identity", ["go"], ["go2"]),
            h.make_node("Identity", ["s2"], ["out"]),
        ],
        "body", [info("i", kind=INT64), info("go", kind=BOOL), info("s", 3)],
        [info("go2", kind=BOOL), info("s2", 3), info("out", 3)],
    )  # fmt: skip
    nodes = [
        h.make_node("Shape", ["x"], ["shape"]),
        h.make_node("Gather", ["shape", "zero"], ["rows"], axis=0),
        h.make_node("Loop", ["rows", "", "start"], ["last", "all"], "loop", body=body),
    ]
    values = [
        array(np.array([0.5, -1, 2], np.float32), "w"),
        array(np.zeros(3, np.float32), "start"),
        array(np.int64(0), "zero"),
    ]
    graph = h.make_graph(nodes, "main", [info("x", "n", 3)], [info("last", 3), info("all", "n", 3)], values)
    return model_of(graph)


def test_loop():
    module = flow.onnx.load(looping())
    for rows in (1, 4):
        assert_close(run(module, draw(rows, 3)), run_onnxruntime(looping(), draw(rows, 3)))
    with pytest.raises(flow.onnx.OnnxError, match='Loop "loop": got no steps'):
        module(draw(0, 3))


def test_loop_in_a_graph_and_its_gradients():
    module = flow.onnx.load(looping())
    x = flow.tensor(draw(4, 3))
    for result, expected in zip(Evaluated(module)(x), module(x), strict=True):
        np.testing.assert_array_equal(result.numpy(), expected.detach().numpy())
    module(x)[0].sum().backward()
    w = np.array([0.5, -1, 2])
    expected = sum(i * w ** (i - 1) * draw(4, 3)[3 - i] for i in range(1, 4))
    np.testing.assert_allclose(module.w.grad.numpy(), expected, rtol=1e-5)


def scanning(**attributes) -> ModelProto:
    body = h.make_graph(
        [
            h.make_node("Add", ["s", "a"], ["t"]),
            h.make_node("Mul", ["t", "w"], ["s2"]),
            h.make_node("Sub", ["t", "b"], ["out"]),
        ],
        "body", [info("s", 3), info("a", 3), info("b", 3)], [info("s2", 3), info("out", 3)],
    )  # fmt: skip
    node = h.make_node("Scan", ["start", "a", "b"], ["last", "all"], num_scan_inputs=2, body=body, **attributes)
    a = info("a", 3, 4) if attributes else info("a", 4, 3)
    out = info("all", 3, 4) if attributes else info("all", 4, 3)
    weights = [array(np.array([0.5, 1, 2], np.float32), "w")]
    return model_of(
        h.make_graph([node], "main", [info("start", 3), a, info("b", 4, 3)], [info("last", 3), out], weights)
    )


DIRECTIONS = {
    "scan_input_axes": [1, -2], "scan_input_directions": [1, 0],
    "scan_output_axes": [-1], "scan_output_directions": [1],
}  # fmt: skip


@pytest.mark.parametrize("attributes", [{}, DIRECTIONS], ids=["plain", "directions"])
def test_scan(attributes):
    model = scanning(**attributes)
    inputs = draw(3), draw(3, 4, seed=1) if attributes else draw(4, 3, seed=1), draw(4, 3, seed=2)
    assert_close(run(flow.onnx.load(model), *inputs), run_onnxruntime(model, *inputs))


# to_python


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hostile_names() -> ModelProto:
    """A network whose names are pieces of Python."""
    names = [
        'x"); import os; os.abort(); ("',
        "import os\nos.abort()",
        "self",
        "class",
        "op",
        "x\u0000'''",
        "forward",
        "é",
    ]
    nodes = [h.make_node("Relu", [a], [b], b) for a, b in zip(names, names[1:], strict=False)]
    nodes.append(h.make_node("Add", [names[-1], 'w"] = os.abort()  # '], ["return"], '""" os.abort()'))
    graph = h.make_graph(
        nodes, "main", [info(names[0], 3)], [info("return", 3)], [array(draw(3), 'w"] = os.abort()  # ')]
    )
    return model_of(graph, doc_string='""" os.abort()')


PROGRAMS = {
    "network": (network, [draw(2, 2, 4, 5)]),
    "if": (branching, [draw(2), np.array(True)]),
    "loop": (looping, [draw(4, 3)]),
    "scan": (lambda: scanning(**DIRECTIONS), [draw(3), draw(3, 4, seed=1), draw(4, 3, seed=2)]),
    "hostile": (hostile_names, [draw(3)]),
    "shufflenet": (
        lambda: with_random_weights(onnx.load(DATA / "light" / "light_shufflenet.onnx")),
        [np.abs(draw(1, 3, 224, 224))]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_python_modules_compute_the_same(name, tmp_path):
    make, inputs = PROGRAMS[name]
    path = tmp_path / "net.py"
    weights = flow.onnx.to_python(make(), path)
    assert (
        sorted(p.name for p in tmp_path.iterdir()) == ["net.py", "net.safetensors"]
        and weights == tmp_path / "net.safetensors"
    )
    tensors = [flow.tensor(x) for x in inputs]
    module, network = flow.onnx.load(make()), imported(path).Network()
    assert len(list(network.parameters())) == len(list(module.parameters()))
    assert len(list(network.buffers())) == len(list(module.buffers()))
    results, expected = network(*tensors), module(*tensors)
    pairs = zip(results, expected, strict=True) if isinstance(expected, tuple) else [(results, expected)]
    for result, value in pairs:
        np.testing.assert_array_equal(result.detach().numpy(), value.detach().numpy())
        assert result.dtype is value.dtype


OPERATORS = "Resize LSTM Split Clip Pad TopK Attention AffineGrid Dropout Constant".split()


@pytest.mark.parametrize("operator", [*OPERATORS, pytest.param("Loop", marks=pytest.mark.slow)])
def test_python_modules_of_node_tests(operator, tmp_path):
    cases = [case for case in node_cases()[operator] if case.name not in REASONS][:3]
    assert cases
    for case in cases:
        path = tmp_path / f"{case.name}.py"  # Python takes files of one name, size and second for the same
        flow.onnx.to_python(case.model, path)
        inputs = [as_value(as_array(x)) for x in case.data_sets[0][0]]
        expected = run(flow.onnx.load(case.model), *inputs)
        for result, value in zip(run(imported(path).Network(), *inputs), expected, strict=True):
            np.testing.assert_array_equal(result, value)
            assert result.dtype == value.dtype


def test_python_modules_read_well(tmp_path):
    flow.onnx.to_python(network(), tmp_path / "net.py")
    lines = (tmp_path / "net.py").read_text().splitlines()
    for line in (
        "op = Operators(17)",
        "        self.conv_weight = nn.Parameter(flow.tensor(values[\"conv_weight\"]))  # (4, 2, 3, 3)",
        "        self.register_buffer(\"bn_mean\", flow.tensor(values[\"bn_mean\"]))  # (4,)",
        "    def forward(self, x):",
        "        a = op.Conv(x, self.conv_weight, pads=[1, 1, 1, 1])",
        "        n1 = op.Unsqueeze(n, [0])",
        "        y = op.Gemm(d, self.fc_weight, self.fc_bias, transB=1)",
        "        return as_result(y)",
    ):  # fmt: skip
        assert line in lines


def test_python_modules_can_be_trained(tmp_path):
    flow.onnx.to_python(network(), tmp_path / "net.py")
    net = imported(tmp_path / "net.py").Network()
    net(flow.tensor(draw(2, 2, 4, 5))).square().sum().backward()
    assert all(p.grad.abs().max().item() > 0 for p in net.parameters())


def test_models_that_are_refused_write_nothing(tmp_path):
    model = network()
    model.graph.node[0].op_type = "SequenceEmpty"
    with pytest.raises(flow.onnx.OnnxError):
        flow.onnx.to_python(model, tmp_path / "net.py")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_memory_of_loading(tmp_path):
    """At its peak, loading takes at most 2.2 times the memory of the weights."""
    pytest.importorskip("resource")
    values = [array(np.zeros((1024, 1024), np.float32) + i, f"w{i}") for i in range(40)]  # 160 MiB
    nodes = [h.make_node("Add", [f"y{i}", f"w{i}"], [f"y{i + 1}"]) for i in range(40)]
    model = h.make_model(h.make_graph(nodes, "main", [info("y0", 1024)], [info("y40", 1024, 1024)], values))
    model.opset_import[0].version, model.ir_version = 17, 8
    code = (
        "import resource, sys, miniflow as flow; load = flow.onnx.load\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "module = load(sys.argv[1])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    for name, outside in (("inside", False), ("outside", True)):
        path = tmp_path / f"{name}.onnx"
        onnx.save(model, path, save_as_external_data=outside, location=f"{name}.bin")
        out = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
        assert int(out) * 1024 < 2.2 * 40 * 2**22, f"{name}: {int(out) // 1024} MiB"
