"""Whole models: those that the onnx package brings along, against their recorded outputs and onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto
from onnx import helper as h

import miniflow as flow

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
LIGHT = sorted(path.stem for path in (DATA / "light").glob("*.onnx"))
LARGE = ("light_bvlc_alexnet", "light_vgg19")


def tensor_of(path: Path) -> np.ndarray:
    return onnx.numpy_helper.to_array(TensorProto.FromString(path.read_bytes()))


def run(module: flow.nn.Module, *inputs: np.ndarray) -> list[np.ndarray]:
    with flow.no_grad():
        results = module(*inputs)
    return [
        x.numpy() if isinstance(x, flow.Tensor) else x for x in (results if isinstance(results, tuple) else (results,))
    ]


def run_onnxruntime(model: ModelProto, *inputs: np.ndarray) -> list[np.ndarray]:
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([x.name for x in session.get_inputs()], inputs, strict=False)))


def assert_close(results: list[np.ndarray], expected: list[np.ndarray], tolerance: float = 1e-4) -> None:
    """Equal shapes and types, and values within the tolerance, relative to the largest."""
    assert [(x.shape, x.dtype) for x in results] == [(x.shape, x.dtype) for x in expected]
    for result, value in zip(results, expected, strict=True):
        if value.dtype.kind == "f":
            np.testing.assert_allclose(
                result, value, rtol=tolerance, atol=tolerance * np.nanmax(np.abs(value), initial=0)
            )
        else:
            np.testing.assert_array_equal(result, value)


def marked(names: list[str], slow: tuple[str, ...]) -> list:
    return [pytest.param(name, marks=[pytest.mark.slow] if name in slow else []) for name in names]


# light models


@pytest.mark.parametrize("name", marked([name for name in LIGHT if "squeezenet" not in name], LARGE))
def test_light_models_give_their_recorded_outputs(name):
    image = (np.arange(3 * 224 * 224).reshape(1, 3, 224, 224) / (3 * 224 * 224)).astype(np.float32)
    module = flow.onnx.load(DATA / "light" / f"{name}.onnx")
    assert_close(run(module, image), [tensor_of(DATA / "light" / f"{name}_output_0.pb")])


@pytest.mark.parametrize("name", marked(LIGHT, (*LARGE, *LIGHT[1:5], "light_zfnet512")))
def test_light_models_with_random_weights(name):
    """Their weights are all equal as they are; the logits of SqueezeNet are 1e10, of which softmax makes anything."""
    model = with_random_weights(onnx.load(DATA / "light" / f"{name}.onnx"))
    image = np.random.default_rng(0).random((1, 3, 224, 224), np.float32)
    expected = run_onnxruntime(model, image)
    assert expected[0].std() > 1e-7
    assert_close(run(flow.onnx.load(model), image), expected)


def with_random_weights(model: ModelProto) -> ModelProto:
    """The model with random initializers in place of what ConstantOfShape makes, of a size that keeps the variance."""
    draw = np.random.default_rng(1)
    shapes = {x.name: onnx.numpy_helper.to_array(x) for x in model.graph.initializer}
    shapes |= {
        n.output[0]: onnx.numpy_helper.to_array(n.attribute[0].t) for n in model.graph.node if n.op_type == "Constant"
    }
    positive = {
        name for n in model.graph.node if n.op_type == "BatchNormalization" for name in (n.input[1], n.input[4])
    }
    kept = []
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            shape = [int(n) for n in shapes[node.input[0]]]
            values = draw.standard_normal(shape, np.float32) * np.sqrt(2 / max(1, np.prod(shape[1:])))
            values = np.float32(0.5) + draw.random(shape, np.float32) if node.output[0] in positive else values
            model.graph.initializer.append(onnx.numpy_helper.from_array(values.astype(np.float32), node.output[0]))
            model.graph.input.append(h.make_tensor_value_info(node.output[0], TensorProto.FLOAT, shape))
        else:
            kept.append(node)
    assert len(kept) < len(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


# the other sets

UNSUPPORTED_SETS = {
    "gradient": "preview.training",
    "sequence": "sequences are not supported",
    "strnorm": "strings are not supported",
}
CONVERTED = {
    "PReLU_1d_multiparam",
    "PReLU_2d_multiparam",
    "PReLU_3d_multiparam",
}  # the converter leaves their slopes as they are


@pytest.mark.parametrize(
    "folder", ["simple", "pytorch-operator", pytest.param("pytorch-converted", marks=pytest.mark.slow)]
)
def test_data_sets(folder):
    count = 0
    for path in sorted((DATA / folder).glob("*/model.onnx")):
        name = path.parent.name.removeprefix("test_")
        reason = next((why for word, why in UNSUPPORTED_SETS.items() if name.startswith(word)), None)
        if name in CONVERTED:
            continue
        if reason:
            with pytest.raises(flow.onnx.OnnxError, match=reason):
                flow.onnx.load(path)
            continue
        module = flow.onnx.load(converted(path))
        for data in sorted(path.parent.glob("test_data_set_*")):
            inputs, outputs = (
                [tensor_of(p) for p in sorted(data.glob(f"{kind}_*.pb"))] for kind in ("input", "output")
            )
            assert_close(run(module, *inputs), outputs, 1e-3)
            count += 1
    assert count >= {"simple": 7, "pytorch-operator": 35, "pytorch-converted": 79}[folder]


def converted(path: Path) -> Path | ModelProto:
    """A model of an opset that is not supported in one that is."""
    try:
        flow.onnx.load(path)
        return path
    except flow.onnx.OnnxError as error:
        assert "onnx.version_converter" in str(error)
        return onnx.version_converter.convert_version(onnx.load(path), 13)


# opsets


@pytest.mark.few(4)
@pytest.mark.parametrize("name", ["light_squeezenet", "light_shufflenet", "light_inception_v2"])
@pytest.mark.parametrize("opset", [7, 8, 10, 11, 12, 13, 15, 18, 21])
def test_light_models_in_other_opsets(name, opset):
    model = with_random_weights(onnx.load(DATA / "light" / f"{name}.onnx"))
    model = onnx.version_converter.convert_version(model, opset)
    assert model.opset_import[0].version == opset
    image = np.random.default_rng(0).random((1, 3, 224, 224), np.float32)
    assert_close(run(flow.onnx.load(model), image), run_onnxruntime(model, image))


ATTRIBUTES = [  # operators whose attributes became inputs, or that changed otherwise
    h.make_node("Slice", ["x"], ["sliced"], starts=[1, 0], ends=[100, -1], axes=[1, 2]),
    h.make_node("Clip", ["sliced"], ["clipped"], min=-0.5, max=1.0),
    h.make_node("Pad", ["clipped"], ["padded"], mode="reflect", pads=[0, 1, 2, 0, 2, 0]),
    h.make_node("Unsqueeze", ["padded"], ["unsqueezed"], axes=[1]),
    h.make_node("Softmax", ["unsqueezed"], ["softmax"], axis=2),
    h.make_node("Squeeze", ["softmax"], ["squeezed"], axes=[1]),
    h.make_node("Split", ["squeezed"], ["first", "second"], axis=2, split=[2, 6]),
    h.make_node("ReduceSum", ["second"], ["sum"], axes=[-1], keepdims=1),
    h.make_node("ReduceMean", ["first"], ["mean"], axes=[2], keepdims=1),
    h.make_node("Add", ["sum", "mean"], ["y"]),
    h.make_node("TopK", ["x"], ["values", "indices"], axis=1, k=3),
    h.make_node("Dropout", ["values"], ["dropped"], ratio=0.4),
    h.make_node("ArgMax", ["dropped"], ["best"], axis=-1),
]


@pytest.mark.parametrize("opset", [9, 10, 11, 12, 13, 14, 18, 21])
def test_opsets(opset):
    kinds = {"y": (1, [2, 7, 1]), "values": (1, [2, 3, 7]), "indices": (7, [2, 3, 7]), "best": (7, [2, 3, 1])}
    outputs = [h.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in kinds.items()]
    graph = h.make_graph(ATTRIBUTES, "main", [h.make_tensor_value_info("x", TensorProto.FLOAT, [2, 5, 7])], outputs)
    model = h.make_model(graph, ir_version=8, opset_imports=[h.make_opsetid("", 9)])
    onnx.checker.check_model(model, full_check=True)
    x = np.random.default_rng(0).standard_normal((2, 5, 7), np.float32)
    expected = run_onnxruntime(model, x)
    assert_close(run(flow.onnx.load(onnx.version_converter.convert_version(model, opset)), x), expected)
