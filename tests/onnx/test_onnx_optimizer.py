"""Each rewrite of exported graphs: what is left, that results stay, and that names of inputs and outputs do."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from miniflow.onnx.exporter.optimizer import OnnxGraph

ort = pytest.importorskip("onnxruntime")
OPSET = 17


def model_of(text: str, weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    """A model from the text of its graph."""
    graph = onnx.parser.parse_graph(text)
    graph.initializer.extend(numpy_helper.from_array(x, name) for name, x in weights.items())
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def rewritten(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model after all rewrites."""
    g = model.graph
    weights = {x.name: numpy_helper.to_array(x) for x in g.initializer}
    rewritten = OnnxGraph(
        OPSET, [NodeProto.FromString(x.SerializeToString()) for x in g.node], weights, g.input, g.output
    )
    rewritten.optimize()
    tensors = [numpy_helper.from_array(x, name) for name, x in rewritten.initializers.items()]
    graph = helper.make_graph(rewritten.nodes, g.name, g.input, g.output, tensors)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=8)


def run(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What onnxruntime computes without rewrites of its own."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), options).run(None, inputs)


def compare(text: str, weights: dict[str, np.ndarray], expected: list[str], exact: bool = True) -> onnx.ModelProto:
    """Check the operators that are left, and the results for random inputs; returns the rewritten model."""
    before = model_of(text, weights)
    after = rewritten(before)
    assert [node.op_type for node in after.graph.node] == expected
    onnx.checker.check_model(after, full_check=True)
    draw = np.random.default_rng(0)
    inputs = {}
    for x in before.graph.input:
        shape = [n.dim_value or 4 for n in x.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(x.type.tensor_type.elem_type)
        inputs[x.name] = (10 * draw.standard_normal(shape)).astype(dtype)
    results = run(before, inputs), run(after, inputs)
    assert len(results[0]) == len(before.graph.output)
    for a, b in zip(*results, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=0 if exact else 1e-5, atol=0 if exact else 1e-4)
    return after


def weights(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).uniform(0.5, 2, shape).astype(dtype)


IDENTITIES = {
    "cast": "g (float[2, 3] x) => (float[2, 3] y) {a = Cast<to = 1>(x) y = Relu(a)}",
    "transpose": "g (float[2, 3] x) => (float[2, 3] y) {a = Transpose<perm = [0, 1]>(x) y = Relu(a)}",
    "reshape": "g (float[2, 3] x) => (float[2, 3] y) {a = Reshape(x, same) y = Relu(a)}",
    "reshape of a dynamic size": "g (float[N, 3] x) => (float[N, 3] y) {a = Reshape(x, rest) y = Relu(a)}",
    "expand": "g (float[2, 3] x) => (float[2, 3] y) {a = Expand(x, same) y = Relu(a)}",
    "in a row": "g (float[2, 3] x) => (float[2, 3] y) {a = Identity(x) b = Identity(a) c = Relu(b) y = Identity(c)}",
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_what_does_nothing_goes(name: str) -> None:
    compare(IDENTITIES[name], {"same": np.array([2, 3]), "rest": np.array([-1, 3])}, ["Relu"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("g (float[2, 3] x) => (float[2, 3] y) {y = Identity(x)}", ["Identity"]),
        ("g (float[2, 3] x) => (float[2, 3] y) {y = Cast<to = 1>(x)}", ["Cast"]),
        ("g (float[2, 3] x) => (float[2, 3] y, float[2, 3] z) {a = Relu(x) y = Identity(a) z = Identity(a)}",
         ["Relu", "Identity"]),
        ("g (float[2, 3] x) => (float[2, 3] y, float[2, 3] z) {y = Relu(x) z = Identity(y)}", ["Relu", "Identity"]),
        ("g () => (float[3] y) {y = Identity(w)}", ["Identity"]),
        ("g (float[1, 3] x) => (float[4, 3] y) {y = Expand(x, four)}", ["Expand"]),
        ("g (float[2, 6] x) => (float[3, 4] y) {y = Reshape(x, other)}", ["Reshape"]),
        ("g (float[N, M] x) => (float[P, Q] y) {y = Reshape(x, three)}", ["Reshape"]),
    ],
)  # fmt: skip
def test_outputs_keep_their_names_and_shapes(text: str, expected: list[str]) -> None:
    arrays = {"w": weights(3), "four": np.array([4, 3]), "other": np.array([3, 4]), "three": np.array([-1, 8])}
    compare(text, arrays, expected)


def test_transposes_cancel() -> None:
    text = """g (float[2, 3, 5] x) => (float[2, 3, 5] y) {
        a = Transpose<perm = [2, 0, 1]>(x) b = Transpose<perm = [1, 2, 0]>(a) y = Relu(b)}"""
    compare(text, {}, ["Relu"])


def test_transposes_merge_and_the_first_stays_for_others() -> None:
    text = """g (float[2, 3, 5] x) => (float[3, 2, 5] y, float[5, 2, 3] z) {
        a = Transpose<perm = [2, 0, 1]>(x) y = Transpose<perm = [2, 1, 0]>(a) z = Relu(a)}"""
    after = compare(text, {}, ["Transpose", "Transpose", "Relu"])
    assert after.graph.node[1].input[0] == "x" and list(after.graph.node[1].attribute[0].ints) == [1, 0, 2]


def test_reshapes_merge() -> None:
    text = """g (float[2, 3, 5] x) => (float[6, 5] y) {
        a = Flatten<axis = 1>(x) b = Reshape(a, flat) c = Unsqueeze(b, zero) y = Reshape(c, shape)}"""
    arrays = {"flat": np.array([-1]), "zero": np.array([0]), "shape": np.array([6, 5])}
    compare(text, arrays, ["Reshape"])


def test_a_reshape_that_copies_a_size_stays() -> None:
    text = "g (float[6, 5] x) => (float[3, 10] y) {a = Reshape(x, first) y = Reshape(a, copies)}"
    compare(text, {"first": np.array([3, 10]), "copies": np.array([0, -1])}, ["Reshape"])
    text = "g (float[6, 5] x) => (float[3, 2, 5] y) {a = Reshape(x, first) y = Reshape(a, copies)}"
    compare(text, {"first": np.array([3, 10]), "copies": np.array([0, 2, 5])}, ["Reshape", "Reshape"])


def test_a_transposed_weight_becomes_the_initializer_and_keeps_its_name() -> None:
    text = "g (float[2, 3] x) => (float[2, 5] y) {w = Transpose<perm = [1, 0]>(weight) y = MatMul(x, w)}"
    after = compare(text.replace("weight", "fc_weight"), {"fc_weight": weights(5, 3)}, ["MatMul"])
    assert {x.name: list(x.dims) for x in after.graph.initializer} == {"fc_weight": [3, 5]}


def test_chains_of_constants_fold() -> None:
    text = """g (float[2, 3] x) => (float[2, 3] y) {
        a = Mul(w, w) b = Sqrt(a) c = Cast<to = 11>(b) d = Cast<to = 1>(c) y = Add(x, d)}"""
    after = compare(text, {"w": weights(3)}, ["Add"])
    assert len(after.graph.initializer) == 1


def test_constants_that_would_make_the_model_large_stay() -> None:
    text = "g (float[300, 300] x) => (float[300, 300] y) {a = Expand(one, shape) y = Add(x, a)}"
    compare(text, {"one": weights(1), "shape": np.array([300, 300])}, ["Expand", "Add"])
    tied = """g (bool[2] x, float[2, 30] h) => (float[2, 30] y, float[2, 900] z) {
        i = Cast<to = 7>(x) y = Gather(w, i) t = Transpose<perm = [1, 0]>(w) z = MatMul(h, t)}"""
    compare(tied, {"w": weights(900, 30)}, ["Cast", "Gather", "Transpose", "MatMul"])


def test_duplicates_merge() -> None:
    text = """g (float[2, 3] x) => (float[2, 3] y, float[2, 3] z) {
        a = Softmax<axis = 1>(x) b = Softmax<axis = 1>(x) c = Softmax<axis = 0>(x) d = Exp(a) e = Exp(b)
        y = Mul(d, e) z = Add(d, c)}"""
    after = compare(text, {}, ["Softmax", "Softmax", "Exp", "Mul", "Add"])
    assert len(set(after.graph.node[3].input)) == 1


CONVOLUTIONS = {
    "conv": ("Conv(x, w, b)", (2, 4, 5, 6), (3, 4, 2, 2), (2, 3, 4, 5)),
    "conv without bias": ("Conv(x, w)", (2, 4, 5, 6), (3, 4, 2, 2), (2, 3, 4, 5)),
    "groups": ("Conv<group = 2>(x, w, b)", (2, 4, 5), (6, 2, 2), (2, 6, 4)),
    "transposed": ("ConvTranspose(x, w, b)", (2, 4, 5), (4, 3, 2), (2, 3, 6)),
    "gemm": ("Gemm<transB = 1>(x, w, b)", (7, 4), (5, 4), (7, 5)),
    "gemm, not transposed": ("Gemm(x, w, b)", (7, 4), (4, 5), (7, 5)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_batch_norms_go_into_the_weights(name: str) -> None:
    node, *shapes = CONVOLUTIONS[name]
    x, w, y = (list(shape) for shape in shapes)
    text = f"g (float{x} x) => (float{y} y) {{c = {node} y = BatchNormalization<epsilon = 0.3>(c, s, o, m, v)}}"
    arrays = {key: weights(y[1]) + i for i, key in enumerate("somvb")} | {"w": weights(*w)}
    compare(text, arrays, [node[: node.index("(")].partition("<")[0]], exact=False)


def test_batch_norms_stay_where_others_read_the_result_or_the_weight() -> None:
    graph = "g (float[2, 4, 5] x) => (float[2, 3, 4] y, float[2, 3, 4] z) {c = Conv(x, w, b) "
    arrays = {key: weights(3) + i for i, key in enumerate("somvb")} | {"w": weights(3, 4, 2)}
    norm = "y = BatchNormalization(c, s, o, m, v) "
    compare(graph + norm + "z = Relu(c)}", arrays, ["Conv", "BatchNormalization", "Relu"])
    other = "d = Relu(x) z = Conv(d, w)}"
    compare(graph + norm + other, arrays, ["Conv", "BatchNormalization", "Relu", "Conv"])
    grouped = "g (float[2, 4, 5] x) => (float[2, 6, 6] y) {c = ConvTranspose<group = 2>(x, w, b) "
    arrays = {key: weights(6) + i for i, key in enumerate("somvb")} | {"w": weights(4, 3, 2)}
    compare(grouped + norm + "}", arrays, ["ConvTranspose", "BatchNormalization"])


def test_what_nothing_reads_goes() -> None:
    text = "g (float[2, 3] x, float[4] unused) => (float[2, 3] y) {y = Relu(x) a = Exp(x) b = Mul(a, w)}"
    after = compare(text, {"w": weights(3)}, ["Relu"])
    assert not after.graph.initializer and [x.name for x in after.graph.input] == ["x", "unused"]


def test_quantized_constants_are_kept() -> None:
    text = """g (float[2, 3] x) => (float[2, 3] y) {
        q = QuantizeLinear(w, s, z) d = DequantizeLinear(q, s, z) y = Mul(x, d)}"""
    arrays = {"w": weights(3), "s": np.float32(0.1), "z": np.int8(0)}
    compare(text, arrays, ["QuantizeLinear", "DequantizeLinear", "Mul"])


STEPS = (
    "{} = Transpose<perm = [1, 0]>({})", "{} = Cast<to = 1>({})", "{} = Identity({})", "{} = Relu({})",
    "{} = Reshape({}, flat)", "{} = Reshape({}, square)", "{} = Add({}, t)", "{} = Cast<to = 11>({})",
    "{} = Expand({}, square)", "{} = Neg({})",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_compute_the_same(seed: int) -> None:
    """Of square matrices and of constants: any node of STEPS follows any other of the same type and shape."""
    draw = np.random.default_rng(seed)
    known, lines = ["x", "w"], ["t = Transpose<perm = [1, 0]>(w)"]
    for i in range(25):
        source, step = draw.choice(known), draw.choice(STEPS)
        name = f"n{i}"
        if "flat" in step:
            step = "{0}f = Reshape({1}, flat) {0} = Reshape({0}f, square)"
        if "= 11" in step:
            step = "{0}d = Cast<to = 11>({1}) {0} = Cast<to = 1>({0}d)"
        known.append(name)
        lines.append(step.format(name, source))
    outputs = draw.choice([name for name in known if name != "w"], 4, replace=False)
    lines += [f"y{i} = Identity({name})" for i, name in enumerate(outputs)]
    declared = ", ".join(f"float[5, 5] y{i}" for i in range(4))
    before = model_of(f"g (float[5, 5] x) => ({declared}) {{{' '.join(lines)}}}", {
        "w": weights(5, 5), "flat": np.array([25]), "square": np.array([5, 5]),
    })  # fmt: skip
    after = rewritten(before)
    onnx.checker.check_model(after, full_check=True)
    assert len(after.graph.node) < len(before.graph.node)
    x = draw.standard_normal((5, 5), np.float32)
    for a, b in zip(run(before, {"x": x}), ReferenceEvaluator(after).run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(a, b)
