"""The checks of lesson 17: onnx's reference evaluator, its checker, onnxruntime, miniflow and NumPy are the oracles."""

import importlib.util

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import miniflow as flow
from tutorials import drawn, refused, same, same_all

F = flow.nn.functional
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
IMAGES = (4, 3, 6, 5)
STEPS = {  # op: (the same in miniflow, shape of x, shapes of the weights, options)
    "conv": (F.conv2d, IMAGES, [(5, 3, 3, 2), (5,)], {"stride": 3, "padding": 2}),
    "batch_norm": (lambda x, w, b, m, v, eps: F.batch_norm(x, m, v, w, b, eps=eps), IMAGES, [(3,)] * 4, {"eps": 0.1}),
    "linear": (F.linear, (4, 3), [(2, 3), (2,)], {}),
    "softmax": (F.softmax, IMAGES, [], {"dim": 1}),
    "reshape": (lambda x, shape: x.reshape(-1, *shape[1:]), IMAGES, [], {"shape": (4, 9, 10)}),
    "add": (flow.add, IMAGES, [(6, 5)], {}),
    "relu": (F.relu, IMAGES, [], {}),
}
MAY_NOT_CALL = {
    "17.1": ["SerializeToString"],
    "17.4": ["onnxruntime", "ReferenceEvaluator"],
    "17.6": ["version_converter"],
}


def nodes_of(text):
    """Nodes as onnx writes them, such as "c = Conv<strides=[2, 2]>(x, w); y = Relu(c)"."""
    return [onnx.parser.parse_node(line) for line in text.split("; ")]


def model_of(nodes, inputs, outputs, arrays, opset=17):
    """A model of nodes, or of a text for `nodes_of`; inputs: name -> shape."""
    nodes = nodes_of(nodes) if isinstance(nodes, str) else nodes
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in inputs.items()]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    tensors = [numpy_helper.from_array(np.asarray(x), n) for n, x in arrays.items()]
    graph = helper.make_graph(nodes, "made", infos, results, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def shown(model):
    """The model without its initializers on one line, for messages."""
    graph = helper.make_graph(model.graph.node, "model", model.graph.input, model.graph.output)
    return " ".join(onnx.printer.to_text(graph).split())


def results(model, feeds, what, evaluator=ReferenceEvaluator):
    """The outputs of a model, which must be valid."""
    if not isinstance(model, onnx.ModelProto):
        raise AssertionError(f"{what}: expected a ModelProto, got {model!r:.80}")
    try:
        onnx.checker.check_model(onnx.shape_inference.infer_shapes(model, strict_mode=True))
        return evaluator(model).run(None, feeds)
    except Exception as error:
        raise AssertionError(f"{what}: expected a valid model, got {shown(model)}: {str(error)[:300]}") from None


def same_results(got, model, feeds, what, hint=""):
    """Check that a model is valid, and computes what another one does."""
    wanted = ReferenceEvaluator(model).run(None, feeds)
    same_all(results(got, feeds, what), wanted, f"{what}: {shown(got)}", hint, **CLOSE)


def judge_pass(function, model, feeds, hint):
    """Run a pass: its model must be valid, with the same results. Returns that, and the call as text."""
    before, what = model.SerializeToString(), f"{function.__name__} of {shown(model)}"
    got = function(model)
    same(model.SerializeToString(), before, f"{what}: the model that it was given", "change a copy")
    same_results(got, model, feeds, what, hint)
    return got, what


@pytest.mark.task("17.1")
def test_varint(impl, rng):
    for n in [0, 1, 127, 128, 300, 16383, 16384, *(int(2**k) for k in rng.uniform(0, 62, 20))]:
        tensor = TensorProto(dims=[n]).SerializeToString()
        # field 1 of TensorProto, its dims: a byte for the key, then the number
        same(impl.varint(n), tensor[1:], f"varint({n})", "128 is added to each byte but the last")


@pytest.mark.task("17.1")
def test_field(impl, rng):
    n, long = int(rng.integers(128, 1 << 40)), "é" + "x" * int(rng.integers(126, 300))
    tensor = TensorProto(data_type=n % 1000, name=long, raw_data=bytes([0, 200, 128])).SerializeToString()
    got = impl.field(2, n % 1000) + impl.field(8, long) + impl.field(9, bytes([0, 200, 128]))
    what = f"fields 2, 8 and 9 with {n % 1000}, a text of {len(long)} characters and 3 bytes"
    same(got, tensor, what, "the length of a text is that of its bytes")
    same(impl.field(20, ""), b"\xa2\x01\x00", 'field(20, "")', "the key is a varint, too")


@pytest.mark.task("17.1")
def test_node_bytes(impl, rng):
    for op, inputs, outputs in [("Add", ["a", "b"], ["y"]), ("Split", ["x" * 130], ["a", "", "b"]), ("Relu", [], [])]:
        wanted = helper.make_node(op, inputs, outputs).SerializeToString()
        what = f"node_bytes({op!r}, {inputs}, {outputs})"
        same(impl.node_bytes(op, inputs, outputs), wanted, what, "a field for each name, in the order of the numbers")


@pytest.mark.task("17.2")
@pytest.mark.parametrize("op", STEPS)
def test_translated_step(impl, rng, op):
    function, shape, weights, options = STEPS[op]
    arrays = {f"w{k}": np.abs(drawn(rng, *size)) for k, size in enumerate(weights)}
    step = impl.Step("y", op, ("x", *arrays), options)
    node, constants = impl.translate(step)
    what = f"translate({step})"
    same(list(node.output), ["y"], f"{what}: the outputs of the node")
    model = model_of([node], {"x": (None, *shape[1:])}, ["y"], {**arrays, **constants})
    for batch in (4, 1, 3):
        x = drawn(rng, batch, *shape[1:])
        (got,) = results(model, {"x": x}, f"{what} for a batch of {batch}")
        wanted = function(*map(flow.tensor, (x, *arrays.values())), **options).numpy()
        hint = "attributes in ONNX's names; the batch may have another size than in the record"
        same(got, wanted, f"{what}: {shown(model)} for a batch of {batch}", hint, **CLOSE)


@pytest.mark.task("17.3")
def test_exported_model(impl, monkeypatch, rng):
    nodes = nodes_of("f = Reshape(x, to); h = Gemm<transB=1>(f, w, b); r = Relu(h); y = Add(r, k)")
    more = {"to": np.array([0, 12])}  # each step has its node, so that a task does not need the one before
    translated = {n.output[0]: (n, more if n.op_type == "Reshape" else {}) for n in nodes}
    monkeypatch.setattr(impl, "translate", lambda step: translated[step.output])
    steps = [impl.Step(n.output[0], n.op_type, n.input, {}) for n in nodes]
    arrays = {"w": drawn(rng, 3, 12), "b": drawn(rng, 3)}
    inputs, outputs = {"x": (4, 2, 6), "k": (4, 3)}, {"y": (4, 3), "h": (4, 3)}
    program = impl.Program(inputs, outputs, arrays, steps)
    got = impl.export(program)
    model = model_of(nodes, {n: (None, *s[1:]) for n, s in inputs.items()}, ["y", "h"], {**arrays, **more})
    for batch in (4, 3, 1):
        feeds = {n: drawn(rng, batch, *shape[1:]) for n, shape in inputs.items()}
        same_results(got, model, feeds, f"export, for a batch of {batch}", "do all nodes and constants belong to it?")
    infos = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", *s[1:]]) for n, s in (inputs | outputs).items()
    ]
    found, wanted = ([*map(helper.printable_value_info, v)] for v in ([*got.graph.input, *got.graph.output], infos))
    same(found, wanted, "export: inputs and outputs", 'the first size is the text "batch"')
    same((got.opset_import[0].version, got.ir_version), (17, 8), "export: opset and IR version", "both are given")
    same(sorted(program.constants), ["b", "w"], "the constants of the program after export", "it stays as it is")


def judge_run(impl, nodes, arrays, feeds, hint):
    model = model_of(nodes, {n: x.shape for n, x in feeds.items()}, ["y"], arrays)
    got, what = impl.run(model, dict(feeds)), f"run of {shown(model)}"
    (wanted,) = ReferenceEvaluator(model).run(None, feeds)
    same(list(got), ["y"], f"{what}: the names of the outputs")
    same(got["y"], wanted, what, hint, **CLOSE)


@pytest.mark.task("17.4")
def test_run_gemm(impl, rng):
    hint = 'alpha and beta are 1, transA and transB 0, if they are absent; an input with the name "" is absent'
    for k in range(16):
        left, right = k % 2, k // 2 % 2
        a, b = drawn(rng, *(3, 4)[:: 1 - 2 * left]), drawn(rng, *(4, 5)[:: 1 - 2 * right])
        flags = ["transA=1"] * left + ["transB=1"] * right + [f"alpha={rng.uniform(2, 3)}, beta=0.5"] * (k > 7)
        options = f"<{', '.join(flags)}>" if flags else ""
        for c, name in ((drawn(rng, 5), ", c"), (drawn(rng, 3, 1), ", c"), (0, ', ""'), (0, "")):
            judge_run(impl, f"y = Gemm{options}(a, b{name})", {"b": b, "c": c}, {"a": a}, hint)


@pytest.mark.task("17.4")
def test_run_softmax_and_reshape(impl, rng):
    x = drawn(rng, 2, 3, 4)
    for flags in ("", "<axis=1>", "<axis=-2>", "<axis=0>"):
        for scale in (1, 1000):
            feeds = {"x": np.float32(scale) * x}
            judge_run(impl, f"y = Softmax{flags}(x)", {}, feeds, "subtract the largest first; the last axis")
    for shape in ([6, 4], [0, -1], [0, 0, 0], [4, 3, 2]):
        judge_run(impl, "y = Reshape(x, to)", {"to": np.array(shape)}, {"x": x}, "0 copies the size of x at this place")
    judge_run(impl, "y = Reshape<allowzero=1>(x, to)", {"to": np.array([3, 0])}, {"x": x[:0]}, "with allowzero, 0 is 0")


@pytest.mark.task("17.4")
def test_run_models(impl, rng):
    arrays, x = impl.network().constants, drawn(rng, 3, 1, 8, 8)
    nodes = "c = Conv<strides=[2, 1], pads=[0, 1, 2, 0]>(x, w1); r = Relu(n); y = Add(r, c)"
    nodes = nodes.replace("r =", "n = BatchNormalization(c, scale1, bias1, mean1, var1); r =")
    judge_run(impl, nodes, arrays, {"x": x}, "each value by its name")
    feeds = {"x": drawn(rng, 2), "k": drawn(rng, 2)}
    model = model_of("y = Add(x, k)", {"x": (2,)}, ["y"], {"k": np.ones(2, np.float32)})
    got = impl.run(model, feeds)
    same(got["y"], feeds["x"] + feeds["k"], f"run of {shown(model)} with k given", "feeds go before initializers")
    same(sorted(feeds), ["k", "x"], "the feeds after run", "they are the caller's")
    model = model_of("y = Cos(x)", {"x": (2,)}, ["y"], {})
    refused(lambda: impl.run(model, feeds), NotImplementedError, f"run of {shown(model)}", "Cos")


NORM = "y = BatchNormalization(c, n0, n1, n2, n3)"
PLAIN, BARE = "c = Conv<pads=[1, 0, 1, 1], strides=[2, 1]>(x, w, b)", "c = Conv(x, w)"
FOLDED = {  # name: (nodes, outputs, how many nodes are left, names of inputs beside x)
    "a bias": (f"{PLAIN}; {NORM}", "y", 1, ""),
    "no bias, epsilon": (f"{BARE}; {NORM.replace('(', '<epsilon=0.3>(')}", "y", 1, ""),
    "shared weights": (f"{PLAIN}; {NORM}; d = Conv(x, w, b); e = BatchNormalization(d, m0, m1, m2, m3)", "ye", 2, ""),
    "two in a row": (f"{PLAIN}; {NORM}; z = BatchNormalization(y, m0, m1, m2, m3)", "z", 1, ""),
    "read twice": (f"{PLAIN}; {NORM}; z = Add(y, c)", "z", 3, ""),
    "an output": (f"{PLAIN}; {NORM}", "yc", 2, ""),
    "a relu between": (f"{PLAIN}; r = Relu(c); y = BatchNormalization(r, n0, n1, n2, n3)", "y", 3, ""),
    "no conv": (NORM.replace("(c", "(x"), "y", 1, ""),
    "a scale is given": (f"{BARE}; {NORM}", "y", 2, "n0"),
    "weights are given": (f"{BARE}; {NORM}", "y", 2, "w"),
}


@pytest.mark.task("17.5")
@pytest.mark.parametrize("name", FOLDED)
def test_folding(impl, rng, name):
    nodes, outputs, count, given = FOLDED[name]
    arrays = {"w": drawn(rng, 3, 3, 3, 2), "b": drawn(rng, 3)}
    arrays |= {f"{n}{k}": rng.uniform(0.5, 1.5, 3).astype(np.float32) for n in "nm" for k in range(4)}
    feeds = {"x": drawn(rng, 2, 3, 5, 6)} | {n: x for n, x in arrays.items() if n == given}
    inputs = {n: x.shape for n, x in feeds.items()}
    model = model_of(nodes, inputs, outputs, {n: x for n, x in arrays.items() if n in nodes and n != given})
    hint = "weight times s, and (bias - mean) s + shift, where s = scale / std"
    got, what = judge_pass(impl.fold, model, feeds, hint)
    hint = "fold if nobody else reads the result of the Conv, and all weights are initializers"
    same(len(got.graph.node), count, f"{what}: the number of nodes", hint)


@pytest.mark.task("17.6")
def test_upgrade(impl, rng):
    x = drawn(rng, 2, 1, 3, 1)
    for nodes in [
        "y = Squeeze<axes=[1, 3]>(x)",
        "y = Squeeze(x)",
        "a = Unsqueeze<axes=[0, 3]>(x); y = Squeeze<axes=[0, 3]>(a)",
        "a = ReduceSum<axes=[-2], keepdims=0>(x); y = ReduceSum<axes=[0]>(a)",
        "a = ReduceMean<axes=[2]>(x); b = Relu(a); y = Add(b, k)",
    ]:
        model = model_of(nodes, {"x": x.shape}, ["y"], {"k": drawn(rng, 3, 1)}, opset=12)
        hint = "an initializer of int64 for each node that has axes; the other attributes stay"
        got, what = judge_pass(impl.upgrade, model, {"x": x}, hint)
        same(got.opset_import[0].version, 13, f"{what}: the opset")


@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="onnxruntime is not installed")
@pytest.mark.task("17.3")
def test_onnxruntime_runs_the_network(impl, rng):
    import onnxruntime

    model, feeds = impl.export(impl.network()), {"x": drawn(rng, 3, 1, 8, 8)}
    what = "onnxruntime with the exported network, for a batch of 3"
    got = results(model, feeds, what, lambda model: onnxruntime.InferenceSession(model.SerializeToString()))
    same_all(got, results(model, feeds, what), what, **CLOSE)
