"""The checks of lesson 17: onnx's reference evaluator, its checker, onnxruntime, miniflow and NumPy are the oracles."""

import importlib.util

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tutorials import same

OPS = {"conv": "Conv", "batch_norm": "BatchNormalization", "relu": "Relu", "add": "Add", "reshape": "Reshape"}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def drawn(rng, *shape):
    return rng.uniform(-1, 1, shape).astype(np.float32)


def model_of(nodes, inputs, outputs, arrays, opset=17):
    """A model; inputs and outputs: name -> shape, outputs may be names alone."""
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in inputs.items()]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    tensors = [numpy_helper.from_array(np.asarray(x), n) for n, x in arrays.items()]
    graph = helper.make_graph(nodes, "made", infos, results, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def shown(model):
    """The nodes on one line, for messages."""
    nodes = []
    for n in model.graph.node:
        options = [f"{a.name}={helper.get_attribute_value(a)}" for a in n.attribute]
        nodes.append(f"{', '.join(n.output)} = {n.op_type}({', '.join([*n.input, *options])})")
    return "; ".join([*nodes, f"return {', '.join(o.name for o in model.graph.output)}"])


def reference(model, feeds):
    """The outputs, by onnx's reference evaluator."""
    return ReferenceEvaluator(model).run(None, feeds)


def same_results(got, model, feeds, what, hint):
    """Check that a model is valid, and computes what another one does."""
    if not isinstance(got, onnx.ModelProto):
        raise AssertionError(f"{what}: expected a ModelProto, got {got!r:.80}")
    try:
        onnx.checker.check_model(got, full_check=True)
        results = reference(got, feeds)
    except Exception as error:
        raise AssertionError(f"{what}: expected a valid model, got {shown(got)}: {str(error)[:300]}") from None
    for x, wanted, output in zip(results, reference(model, feeds), model.graph.output, strict=True):
        same(x, wanted, f"{what}: {output.name} of {shown(got)}", hint, **CLOSE)


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


def evaluated(program, feeds):
    """The outputs of a program, by NumPy."""
    values = {**program.constants, **feeds}
    for out, op, inputs, options in program.steps:
        x, *others = [values[name] for name in inputs]
        if op == "conv":
            p, s, (w, b) = options["padding"], options["stride"], others
            x = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
            rows, columns = ((n - k) // s + 1 for n, k in zip(x.shape[2:], w.shape[2:]))
            y = np.zeros((len(x), len(w), rows, columns), np.float32) + b.reshape(-1, 1, 1)
            for i, j in np.ndindex(w.shape[2:]):
                part = x[:, :, i : i + s * rows : s, j : j + s * columns : s]
                y += np.tensordot(part, w[:, :, i, j], (1, 1)).transpose(0, 3, 1, 2)
        elif op == "batch_norm":
            scale, bias, mean, var = (v.reshape(-1, 1, 1) for v in others)
            y = (x - mean) / np.sqrt(var + np.float32(options["eps"])) * scale + bias
        elif op == "softmax":
            y = np.exp(x) / np.exp(x).sum(options["dim"], keepdims=True)
        elif op == "linear":
            y = x @ others[0].T + others[1]
        elif op == "reshape":
            y = x.reshape(len(x), *options["shape"][1:])
        else:
            y = x + others[0] if op == "add" else np.where(x > 0, x, np.float32(0))
        values[out] = y
    return [values[name] for name in program.outputs]


def single(impl, op, rng):
    """A program of one step, recorded with a batch of 4."""
    x, constants, options = (4, 3, 6, 5), {}, {}
    if op == "conv":
        constants = {"w": drawn(rng, 5, 3, 3, 2), "b": drawn(rng, 5)}
        options = {"stride": int(rng.integers(1, 4)), "padding": int(rng.integers(1, 3))}
    elif op == "batch_norm":
        constants = {n: np.abs(drawn(rng, 3)) for n in ("scale", "bias", "mean", "var")}
        options = {"eps": 0.1}
    elif op == "linear":
        x, constants = (4, 3), {"w": drawn(rng, 2, 3), "b": drawn(rng, 2)}
    elif op in ("softmax", "reshape"):
        options = {"dim": int(rng.integers(1, 3)), "shape": (4, 9, 10)}
    names = ("x", "x") if op == "add" else ("x", *constants)
    program = impl.Program({"x": x}, {"y": ()}, constants, [impl.Step("y", op, names, options)])
    (y,) = evaluated(program, {"x": np.zeros(x, np.float32)})
    return program._replace(outputs={"y": y.shape})


@pytest.mark.task("17.2")
@pytest.mark.parametrize("op", [*OPS, "linear", "softmax"])
def test_translated_step(impl, rng, op):
    program = single(impl, op, rng)
    (step,) = program.steps
    node, constants = impl.translate(step)
    what = f"translate({step})"
    same(list(node.output), ["y"], f"{what}: the outputs of the node")
    model = model_of([node], {"x": (None, *program.inputs["x"][1:])}, ["y"], {**program.constants, **constants})
    for batch in (4, 1, 3):
        feeds = {"x": drawn(rng, batch, *program.inputs["x"][1:])}
        try:
            (got,) = reference(model, feeds)
        except Exception as error:
            raise AssertionError(f"{what}: {shown(model)} fails for a batch of {batch}: {str(error)[:300]}") from None
        hint = "attributes in ONNX's names; the batch may have another size than in the record"
        same(got, evaluated(program, feeds)[0], f"{what}: {shown(model)} for a batch of {batch}", hint, **CLOSE)


def translated(step):
    """Steps of `test_exported_model` as nodes, by another way than students: without `helper.make_node`."""
    op = OPS.get(step.op, "Gemm")
    node = onnx.NodeProto(op_type=op, input=step.inputs, output=[step.output])
    if step.op == "linear":
        node.attribute.append(helper.make_attribute("transB", 1))
    if step.op != "reshape":
        return node, {}
    node.input.append("to")
    return node, {"to": np.array([0, *step.options["shape"][1:]])}


@pytest.mark.task("17.3")
def test_exported_model(impl, monkeypatch, rng):
    monkeypatch.setattr(impl, "translate", translated)
    arrays = {"w": drawn(rng, 3, 12), "b": drawn(rng, 3)}
    rows = [("f", "reshape", ("x",), {"shape": (4, 12)}), ("h", "linear", ("f", "w", "b"), {})]
    rows += [("r", "relu", ("h",), {}), ("y", "add", ("r", "k"), {})]
    inputs, outputs = {"x": (4, 2, 6), "k": (4, 3)}, {"y": (4, 3), "h": (4, 3)}
    program = impl.Program(inputs, outputs, arrays, [impl.Step(*row) for row in rows])
    got = impl.export(program)
    nodes = [translated(step)[0] for step in program.steps]
    model = model_of(nodes, {n: (None, *s[1:]) for n, s in inputs.items()}, ["y", "h"], {**arrays, "to": [0, 12]})
    for batch in (4, 3, 1):
        feeds = {n: drawn(rng, batch, *shape[1:]) for n, shape in inputs.items()}
        same_results(got, model, feeds, f"export, for a batch of {batch}", "do all nodes and constants belong to it?")
    for infos, shapes in ((got.graph.input, inputs), (got.graph.output, outputs)):
        for info, (name, shape) in zip(infos, shapes.items(), strict=True):
            found = info.type.tensor_type
            sizes = [d.dim_value if d.HasField("dim_value") else d.dim_param for d in found.shape.dim]
            what = f"export: name, element type and sizes of {info.name}"
            hint = 'the first size is the text "batch"'
            same((info.name, found.elem_type, sizes), (name, TensorProto.FLOAT, ["batch", *shape[1:]]), what, hint)
    same((got.opset_import[0].version, got.ir_version), (17, 8), "export: opset and IR version", "both are given")
    same(sorted(program.constants), ["b", "w"], "the constants of the program after export", "it stays as it is")


def judge_run(impl, nodes, arrays, feeds, hint, opset=17):
    model = model_of(nodes, {n: x.shape for n, x in feeds.items()}, [nodes[-1].output[0]], arrays, opset)
    got = impl.run(model, dict(feeds))
    (wanted,) = reference(model, feeds)
    same(list(got), [nodes[-1].output[0]], f"run of {shown(model)}: the names of the outputs")
    shapes = {n: x.shape for n, x in feeds.items()}
    same(got[nodes[-1].output[0]], wanted, f"run of {shown(model)} with {shapes}", hint, **CLOSE)


@pytest.mark.task("17.4")
def test_run_gemm(impl, rng):
    for k in range(12):
        flags = {"transA": k % 2, "transB": k // 2 % 2, "alpha": float(rng.uniform(2, 3)), "beta": 0.5}
        a, b = drawn(rng, *(3, 4)[:: 1 - 2 * flags["transA"]]), drawn(rng, *(4, 5)[:: 1 - 2 * flags["transB"]])
        flags = {n: v for n, v in flags.items() if v and (k >= 4 or n.startswith("trans"))}  # what is 0 is left out
        c = {} if k % 3 == 0 else {"c": drawn(rng, *[(5,), (3, 1)][k % 2])}
        nodes = [helper.make_node("Gemm", ["a", "b", *c], ["y"], **flags)]
        judge_run(impl, nodes, {"b": b, **c}, {"a": a}, "alpha and beta are 1, transA and transB 0, if they are absent")
    nodes = [helper.make_node("Gemm", ["a", "a", ""], ["y"], transB=1)]
    judge_run(impl, nodes, {}, {"a": drawn(rng, 3, 2)}, 'an input with the name "" is absent')


@pytest.mark.task("17.4")
def test_run_softmax_and_reshape(impl, rng):
    x = drawn(rng, 2, 3, 4)
    for flags in ({}, {"axis": 1}, {"axis": -2}, {"axis": 0}):
        for scale in (1, 1000):
            node = helper.make_node("Softmax", ["x"], ["y"], **flags)
            judge_run(impl, [node], {}, {"x": np.float32(scale) * x}, "subtract the largest first; the last axis")
    for shape in ([6, 4], [0, -1], [-1, 0, 2, 1], [0, 0, 0], [4, 3, 2]):
        if shape != [-1, 0, 2, 1]:
            node = helper.make_node("Reshape", ["x", "to"], ["y"])
            judge_run(impl, [node], {"to": np.array(shape)}, {"x": x}, "0 copies the size of x at this place")
    node = helper.make_node("Reshape", ["x", "to"], ["y"], allowzero=1)
    judge_run(impl, [node], {"to": np.array([3, 0])}, {"x": x[:0]}, "with allowzero, 0 is 0")


@pytest.mark.task("17.4")
def test_run_models(impl, rng):
    program = impl.network()
    arrays, x = program.constants, drawn(rng, 3, 1, 8, 8)
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], strides=[2, 1], pads=[0, 1, 2, 0]),
        helper.make_node("BatchNormalization", ["c", "scale1", "bias1", "mean1", "var1"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Add", ["r", "c"], ["y"]),
    ]
    judge_run(impl, nodes, arrays, {"x": x}, "each value by its name")
    model = model_of([helper.make_node("Add", ["x", "k"], ["y"])], {"x": (2,)}, ["y"], {"k": np.ones(2, np.float32)})
    feeds = {"x": drawn(rng, 2), "k": drawn(rng, 2)}
    got = impl.run(model, feeds)
    same(got["y"], feeds["x"] + feeds["k"], f"run of {shown(model)} with k given", "feeds go before initializers")
    same(sorted(feeds), ["k", "x"], "the feeds after run", "they are the caller's")
    model = model_of([helper.make_node("Cos", ["x"], ["y"])], {"x": (2,)}, ["y"], {})
    with pytest.raises(NotImplementedError, match="Cos"):
        impl.run(model, {"x": drawn(rng, 2)})


def normalized(rng, name, x, y, **flags):
    """A BatchNormalization of 3 channels, and its arrays."""
    names = [f"{name}{k}" for k in range(4)]
    arrays = {n: rng.uniform(0.5, 1.5, 3).astype(np.float32) for n in names}
    return helper.make_node("BatchNormalization", [x, *names], [y], **flags), arrays


def folding_cases(rng):
    """name: (nodes, arrays, more inputs, outputs, how many nodes are left)"""
    w = {"w": drawn(rng, 3, 3, 3, 2), "b": drawn(rng, 3)}
    plain = helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 0, 1, 1], strides=[2, 1])
    bare = helper.make_node("Conv", ["x", "w"], ["c"])
    norm, n = normalized(rng, "n", "c", "y")
    loose, m = normalized(rng, "m", "c", "y", epsilon=0.3)
    second = helper.make_node("Conv", ["x", "w", "b"], ["d"])
    other, o = normalized(rng, "o", "d", "e")
    again, a = normalized(rng, "a", "y", "z")
    add = helper.make_node("Add", ["y", "c"], ["z"])
    relu = helper.make_node("Relu", ["c"], ["r"])
    late, t = normalized(rng, "t", "r", "y")
    first, f = normalized(rng, "f", "x", "y")
    return {
        "a bias": ([plain, norm], {**w, **n}, {}, ["y"], 1),
        "no bias": ([bare, norm], {"w": w["w"], **n}, {}, ["y"], 1),
        "epsilon": ([bare, loose], {"w": w["w"], **m}, {}, ["y"], 1),
        "shared weights": ([plain, norm, second, other], {**w, **n, **o}, {}, ["y", "e"], 2),
        "two in a row": ([plain, norm, again], {**w, **n, **a}, {}, ["z"], 1),
        "read twice": ([plain, norm, add], {**w, **n}, {}, ["z"], 3),
        "an output": ([plain, norm], {**w, **n}, {}, ["y", "c"], 2),
        "a relu between": ([plain, relu, late], {**w, **t}, {}, ["y"], 3),
        "no conv": ([first], f, {}, ["y"], 1),
        "a scale is given": ([bare, norm], {**w, **n}, {"n0": (3,)}, ["y"], 2),
        "weights are given": ([bare, norm], n, {"w": (3, 3, 3, 2)}, ["y"], 2),
    }


@pytest.mark.task("17.5")
@pytest.mark.parametrize("name", folding_cases(np.random.default_rng(0)))
def test_folding(impl, rng, name):
    nodes, arrays, inputs, outputs, count = folding_cases(rng)[name]
    arrays = {n: x for n, x in arrays.items() if n not in inputs}
    model = model_of(nodes, {"x": (None, 3, 5, 6), **inputs}, outputs, arrays)
    before = model.SerializeToString()
    got = impl.fold(model)
    what = f"fold of {shown(model)}"
    same(model.SerializeToString(), before, f"{what}: the model that it was given", "change a copy")
    feeds = {n: drawn(rng, *shape) for n, shape in {"x": (2, 3, 5, 6), **inputs}.items()}
    same_results(got, model, feeds, what, "weight times s, and (bias - mean) s + shift, where s = scale / std")
    hint = "fold if nobody else reads the result of the Conv, and all weights are initializers"
    same(len(got.graph.node), count, f"{what}: the number of nodes", hint)


@pytest.mark.task("17.6")
def test_upgrade(impl, rng):
    make, x = helper.make_node, drawn(rng, 2, 1, 3, 1)
    chains = [
        [make("Squeeze", ["x"], ["y"], axes=[1, 3])],
        [make("Squeeze", ["x"], ["y"])],
        [make("Unsqueeze", ["x"], ["a"], axes=[0, 3]), make("Squeeze", ["a"], ["y"], axes=[0, 3])],
        [make("ReduceSum", ["x"], ["a"], axes=[-2], keepdims=0), make("ReduceSum", ["a"], ["y"], axes=[0])],
        [make("ReduceSum", ["x"], ["y"], keepdims=1)],
        [make("ReduceMean", ["x"], ["a"], axes=[2]), make("Relu", ["a"], ["b"]), make("Add", ["b", "k"], ["y"])],
    ]
    for nodes in chains:
        model = model_of(nodes, {"x": x.shape}, ["y"], {"k": drawn(rng, 3, 1)}, opset=12)
        before, what = model.SerializeToString(), f"upgrade of {shown(model)}"
        got = impl.upgrade(model)
        same(model.SerializeToString(), before, f"{what}: the model that it was given", "change a copy")
        hint = "an initializer of int64 for each node that has axes; the other attributes stay"
        same_results(got, model, {"x": x}, what, hint)
        same(got.opset_import[0].version, 13, f"{what}: the opset")
        same([n.op_type for n in got.graph.node], [n.op_type for n in nodes], f"{what}: the nodes", "they stay")


@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="onnxruntime is not installed")
@pytest.mark.task("17.3")
def test_onnxruntime_runs_the_network(impl, rng):
    import onnxruntime

    program, feeds = impl.network(), {"x": drawn(rng, 3, 1, 8, 8)}
    what, model = "onnxruntime with the exported network, for a batch of 3", impl.export(program)
    try:
        (got,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    except Exception as error:
        raise AssertionError(f"{what}: expected that it runs {shown(model)}: {str(error)[:300]}") from None
    same(got, evaluated(program, feeds)[0], what, **CLOSE)


@pytest.mark.task("17.4")
def test_models_of_miniflow(impl, rng):
    import miniflow as flow

    layers = flow.nn.Conv2d(2, 3, (3, 2), stride=2, padding=1), flow.nn.ReLU(), flow.nn.Flatten(), flow.nn.Linear(27, 4)
    net = flow.nn.Sequential(*layers, flow.nn.Softmax(1)).eval()
    x = flow.tensor(drawn(rng, 3, 2, 6, 5))
    model = flow.onnx.export(net, x, input_names=["x"], output_names=["y"])
    same(impl.run(model, {"x": x.numpy()})["y"], net(x).detach().numpy(), f"run of {shown(model)}", **CLOSE)
