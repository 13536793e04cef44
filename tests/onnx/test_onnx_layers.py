"""Layers of ONNX in old and new versions, with the borders and options that its node tests leave out."""

import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import OnnxError
from tests.onnx.one_node import Case, check_against_onnxruntime, floats, ints

LENGTHS = np.array([2, 5, 3], np.int32)
WINDOWS = {"kernel_shape": [3, 2], "strides": [2, 3]}


def bytes_of(kind: type, *shape: int) -> np.ndarray:
    return (floats(*shape) * 50).astype(np.int8).astype(kind)


def scale(*numbers: float) -> np.ndarray:
    return np.array(numbers if len(numbers) > 1 else numbers[0], np.float32)


def recurrent(op: str, opset: int, gates: int, directions: int = 1, extra: tuple = (), **attributes) -> Case:
    """Sequences (5, 3, 4), states of 2."""
    layout = attributes.get("layout", 0)
    x = floats(5, 3, 4).transpose(1, 0, 2).copy() if layout else floats(5, 3, 4)
    w, r, b = floats(directions, gates * 2, 4), floats(directions, gates * 2, 2), floats(directions, gates * 4)
    outputs = 3 if op == "LSTM" else 2
    graph = not any(x is LENGTHS for x in extra)  # their values are looked at
    return Case(op, opset, [x, w, r, b, *extra], {"hidden_size": 2, **attributes}, outputs, graph=graph)


IMAGE, VOLUME, LINE = floats(1, 4, 5, 6), floats(1, 2, 4, 5, 3), floats(2, 4, 7)
CASES = [
    Case("MatMul", 13, [floats(4), floats(2, 4, 3)]),
    Case("Gemm", 7, [floats(3, 4), floats(5, 3), floats(4, 5)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    Case("Gemm", 11, [floats(3, 4), floats(5, 4), floats(5)], {"transB": 1}),
    Case("Gemm", 13, [floats(3, 4), floats(4, 5), floats(3, 1)]),
    Case("Gemm", 13, [floats(3, 4), floats(4, 5)], {"alpha": 2.0}),
    # onnxruntime saturates sums of two products of 8 bits on some CPUs: // 4
    Case("QLinearMatMul", 10, [bytes_of(np.uint8, 2, 3, 4), scale(0.02), np.uint8(90), bytes_of(np.int8, 4, 5) // 4,
        scale(1.2), np.int8(-7), scale(1.7), np.uint8(140)], grad=False),
    Case("QLinearMatMul", 10, [bytes_of(np.int8, 3, 4), scale(0.02), np.int8(0), bytes_of(np.int8, 4, 2),
        scale(0.3, 0.1), np.int8([1, -3]), scale(0.5), np.int8(4)], grad=False),
    Case("QLinearConv", 10, [bytes_of(np.uint8, 1, 4, 5, 5), scale(0.02), np.uint8(100),
        bytes_of(np.int8, 6, 2, 3, 3) // 4,
        scale(0.3, 0.1, 0.2, 0.5, 0.7, 0.6), np.int8([0] * 6), scale(1.3), np.uint8(120),
        np.int32(range(-300, 300, 100))],
        {"group": 2, "pads": [1, 0, 0, 2], "strides": [2, 1]}, grad=False),
    Case("QLinearConv", 10, [bytes_of(np.uint8, 2, 3, 7), scale(0.02), np.uint8(100), bytes_of(np.uint8, 2, 3, 3),
        scale(0.1), np.uint8(7), scale(0.7), np.uint8(3)], grad=False),
    Case("MatMulInteger", 10, [bytes_of(np.uint8, 3, 4), bytes_of(np.int8, 4, 2), np.uint8(7), np.int8([1, -3])],
        grad=False),
    Case("ConvInteger", 10, [bytes_of(np.uint8, 1, 4, 5, 5), bytes_of(np.uint8, 6, 2, 3, 3), np.uint8(9)],
        {"group": 2, "pads": [1, 0, 0, 2]}, grad=False),
    Case("Conv", 7, [IMAGE, floats(6, 2, 3, 2), floats(6)], {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1]}),
    Case("Conv", 11, [IMAGE, floats(6, 4, 3, 2)], {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    Case("Conv", 11, [IMAGE, floats(6, 4, 2, 2)], {"auto_pad": "SAME_LOWER"}),
    Case("Conv", 11, [IMAGE, floats(6, 4, 2, 2)], {"auto_pad": "VALID"}),
    Case("Conv", 11, [LINE, floats(3, 4, 4)], {"pads": [1, 3], "dilations": [2]}),
    Case("Conv", 22, [VOLUME, floats(3, 2, 2, 3, 1), floats(3)], {"pads": [1, 0, 0, 0, 1, 2], "strides": [2, 1, 1]}),
    Case("ConvTranspose", 11, [IMAGE, floats(4, 3, 3, 2), floats(6)],
        {"group": 2, "strides": [2, 3], "pads": [1, 1, 1, 1], "output_padding": [1, 2]}),
    Case("ConvTranspose", 11, [IMAGE, floats(4, 3, 3, 2), floats(3)], {"strides": [2, 3], "pads": [1, 0, 2, 1]}),
    Case("ConvTranspose", 11, [IMAGE, floats(4, 3, 3, 2)], {"strides": [2, 3], "output_shape": [12, 19]}),
    Case("ConvTranspose", 11, [IMAGE, floats(4, 3, 3, 2)], {"strides": [2, 1], "auto_pad": "SAME_UPPER"}),
    Case("ConvTranspose", 11, [LINE, floats(4, 3, 3), floats(3)], {"dilations": [3], "pads": [2, 2]}),
    Case("MaxPool", 12, [VOLUME], {"kernel_shape": [2, 3, 2], "storage_order": 1, "pads": [0, 1, 0, 1, 0, 0]},
        outputs=2),
    Case("MaxPool", 8, [IMAGE], {**WINDOWS, "pads": [1, 0, 2, 1]}, outputs=2),
    Case("MaxPool", 10, [IMAGE], {**WINDOWS, "ceil_mode": 1, "pads": [1, 1, 1, 1], "dilations": [1, 2]}),
    Case("MaxPool", 12, [IMAGE], {"kernel_shape": [3, 2], "ceil_mode": 1, "auto_pad": "SAME_LOWER"}),
    Case("MaxPool", 12, [VOLUME], {"kernel_shape": [2, 3, 2], "pads": [0, 1, 0, 1, 0, 0]},
        outputs=2),
    Case("MaxPool", 12, [LINE], {"kernel_shape": [4], "strides": [3], "ceil_mode": 1}, outputs=2),
    Case("MaxPool", 12, [bytes_of(np.int8, 1, 2, 4, 4)], {"kernel_shape": [2, 2]}, grad=False),
    Case("AveragePool", 7, [IMAGE], {**WINDOWS, "pads": [1, 0, 2, 1]}),
    Case("AveragePool", 10, [IMAGE], {**WINDOWS, "pads": [1, 0, 0, 1], "count_include_pad": 1}),
    Case("AveragePool", 19, [IMAGE], {**WINDOWS, "pads": [1, 1, 1, 1], "ceil_mode": 1}),
    Case("AveragePool", 19, [IMAGE], {**WINDOWS, "pads": [2, 0, 0, 1], "dilations": [2, 1]}),
    Case("AveragePool", 19, [VOLUME], {"kernel_shape": [2, 3, 2], "dilations": [1, 2, 1], "count_include_pad": 1,
        "pads": [1, 0, 1, 0, 1, 1]}),
    Case("LpPool", 11, [IMAGE], {**WINDOWS, "p": 3}),
    Case("LpPool", 11, [IMAGE], {"kernel_shape": [3, 2], "pads": [1, 0, 2, 1]}),
    Case("LpPool", 18, [IMAGE], {**WINDOWS, "ceil_mode": 1, "dilations": [1, 2], "p": 1}),
    Case("LpPool", 11, [VOLUME], {"kernel_shape": [2, 3, 2], "auto_pad": "SAME_LOWER"}),
    Case("LpPool", 22, [LINE], {"kernel_shape": [4], "strides": [3], "p": 4}),
    Case("GlobalLpPool", 7, [VOLUME], {"p": 3}),
    Case("GlobalLpPool", 7, [IMAGE]),
    Case("GlobalAveragePool", 7, [VOLUME]),
    Case("GlobalMaxPool", 7, [VOLUME]),
    Case("BatchNormalization", 7, [IMAGE, floats(4), floats(4), floats(4), np.abs(floats(4))]),
    Case("BatchNormalization", 9, [LINE, floats(4), floats(4), floats(4), np.abs(floats(4))], {"epsilon": 0.1}),
    Case("BatchNormalization", 15, [IMAGE, floats(4), floats(4), floats(4), np.abs(floats(4))],
        {"training_mode": 1, "momentum": 0.7}, outputs=3),
    Case("InstanceNormalization", 6, [IMAGE, floats(4), floats(4)], {"epsilon": 0.1}),
    Case("InstanceNormalization", 7, [IMAGE, floats(4), floats(4)], {"epsilon": 0.1}),
    Case("LayerNormalization", 17, [IMAGE, floats(5, 6), floats(5, 6)], {"axis": 2}),
    Case("LayerNormalization", 17, [IMAGE, floats(1, 6)], {"axis": -2}),
    Case("GroupNormalization", 21, [IMAGE, floats(4), floats(4)], {"num_groups": 2, "epsilon": 0.01}),
    Case("LpNormalization", 7, [floats(3, 4, 2)], {"axis": 1, "p": 1}),
    Case("LRN", 13, [floats(2, 7, 3, 3)], {"size": 5, "alpha": 0.3, "beta": 0.6, "bias": 2.0}),
    Case("Upsample", 7, [IMAGE], {"scales": [1.0, 1.0, 2.0, 3.0], "mode": "nearest"}),
    Case("Upsample", 9, [IMAGE, scale(1, 1, 2, 1.5)], {"mode": "linear"}),
    Case("Resize", 10, [IMAGE, scale(1, 1, 0.7, 0.6)]),
    Case("Resize", 10, [IMAGE, scale(1, 1, 2, 0.6)], {"mode": "linear"}),
    Case("Resize", 13, [IMAGE, None, scale(1, 1, 1.5, 2.2)], {"mode": "linear"}),
    Case("Resize", 13, [IMAGE, None, None, ints(1, 4, 9, 5)],
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
    Case("Resize", 13, [IMAGE, None, None, ints(1, 4, 9, 5)],
        {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel", "exclude_outside": 1}),
    Case("Resize", 18, [IMAGE, None, None, ints(3, 4)], {"mode": "linear", "antialias": 1, "axes": [3, 2],
        "exclude_outside": 1}),
    Case("Resize", 18, [IMAGE, None, None, ints(20, 9)], {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger",
        "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}),
    Case("Resize", 13, [VOLUME, None, scale(1, 1, 2, 0.5, 3)], {"mode": "linear"}),
    Case("GridSample", 16, [IMAGE, floats(1, 3, 4, 2) / 2], {"mode": "bilinear", "padding_mode": "border"}, fed=(1,)),
    Case("GridSample", 20, [IMAGE, floats(1, 3, 4, 2) / 2], {"mode": "cubic", "align_corners": 1}),
    Case("RoiAlign", 10, [IMAGE, floats(3, 4) ** 2, ints(0, 0, 0)], {"output_height": 2, "output_width": 3,
        "sampling_ratio": 2}, graph=False),
    Case("RoiAlign", 16, [IMAGE, np.float32([[0, 1, 4, 5]]), ints(0)], {"output_height": 2, "spatial_scale": 0.5,
        "sampling_ratio": 3}, graph=False),
    Case("NonMaxSuppression", 11, [np.abs(floats(2, 9, 4)), np.abs(floats(2, 3, 9)), ints(4), scale(0.1), scale(0.2)],
        {"center_point_box": 1}, grad=False),
    recurrent("LSTM", 7, 4),
    recurrent("LSTM", 14, 4, 2, (None, floats(2, 3, 2), floats(2, 3, 2)), direction="bidirectional"),
    recurrent("LSTM", 14, 4, 1, (None, floats(1, 3, 2)), direction="reverse"),
    recurrent("GRU", 7, 3, 1, (LENGTHS,)),
    recurrent("GRU", 14, 3, 2, (LENGTHS, floats(2, 3, 2)), direction="bidirectional", linear_before_reset=1),
    recurrent("GRU", 14, 3, linear_before_reset=1, activations=["Sigmoid", "Tanh"]),
    recurrent("RNN", 7, 1, 2, (LENGTHS,), direction="bidirectional"),
    recurrent("RNN", 14, 1, 2, activations=["Relu", "Relu"], direction="bidirectional"),
    recurrent("LSTM", 7, 4, clip=0.4),
    recurrent("LSTM", 14, 4, 2, (LENGTHS, floats(2, 3, 2), floats(2, 3, 2)), direction="bidirectional", clip=0.3),
    recurrent("GRU", 14, 3, clip=0.4, linear_before_reset=1),
    recurrent("GRU", 14, 3, 1, (LENGTHS,), clip=0.4, direction="reverse"),
    recurrent("RNN", 14, 1, 2, clip=0.4, direction="bidirectional"),
    recurrent("RNN", 14, 1, clip=2.5, activations=["Relu"]),
    Case("QuantizeLinear", 10, [floats(3, 4), scale(0.02), np.int8(3)], grad=False),
    Case("QuantizeLinear", 13, [floats(3, 4), scale(0.02, 0.01, 0.5), np.uint8([3, 200, 0])], {"axis": 0}, grad=False),
    Case("QuantizeLinear", 13, [floats(3, 4), scale(0.02)], grad=False),
    Case("DequantizeLinear", 13, [bytes_of(np.int8, 3, 4), scale(0.2, 0.1, 3.0, 1.0), np.int8([3, -2, 0, 1])],
        grad=False),
    Case("DequantizeLinear", 10, [np.int32([[-70000, 5]]), scale(0.02)], grad=False),
    Case("DynamicQuantizeLinear", 11, [floats(3, 4)], outputs=3, grad=False),
]  # fmt: skip


RECURRENT = [case for case in CASES if case.op in ("LSTM", "GRU", "RNN")]  # each compiles loops of its own
SLOW = {id(case) for i, case in enumerate(RECURRENT) if i % 4}
NAMED = [
    pytest.param(case, marks=pytest.mark.slow if id(case) in SLOW else (), id=f"{i}-{case.op}-{case.opset}")
    for i, case in enumerate(CASES)
]


@pytest.mark.parametrize("case", NAMED)
def test_layers_agree_with_onnxruntime(case: Case) -> None:
    check_against_onnxruntime(case)


@pytest.mark.parametrize(("p", "want"), [(2, 600.0), (1, 1200.0)])
def test_powers_of_half_precision_do_not_overflow(p, want) -> None:
    x = np.full((1, 1, 2, 2), 300, np.float16)
    for case in (Case("GlobalLpPool", 7, [x], {"p": p}), Case("LpPool", 11, [x], {"kernel_shape": [2, 2], "p": p})):
        y = flow.onnx.load(case.model())(flow.tensor(x))
        assert y.dtype is flow.float16 and y.tolist() == [[[[want]]]]


def test_what_is_no_model_is_refused() -> None:
    for wrong in (None, 3):
        with pytest.raises(
            OnnxError, match=f"onnx.load: got a {type(wrong).__name__}; expected a path, the bytes of a"
        ):
            flow.onnx.load(wrong)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (Case("Conv", 11, [floats(1, 1, 2, 2, 2, 2), floats(1, 1, 1, 1, 1, 1)]), "expected .N, C, L."),
        (Case("LRN", 13, [floats(2, 7, 3, 3)], {"size": 4}), "got size=4; expected an odd number"),
        (Case("RoiAlign", 16, [IMAGE, floats(1, 4), ints(0)], {"mode": "max"}), "got mode='max'; expected 'avg'"),
        (recurrent("LSTM", 14, 4, input_forget=1), "got input_forget; expected a layer as PyTorch exports it"),
        (recurrent("LSTM", 14, 4, 1, (None, None, None, floats(1, 6))), "got P; expected a layer"),
        (recurrent("LSTM", 14, 4, activations=["Sigmoid", "Relu", "Softsign"]), "got activations; expected a layer"),
        (recurrent("GRU", 14, 3, activations=["HardSigmoid", "Softsign"]), "got activations; expected a layer"),
        (recurrent("RNN", 14, 1, layout=1), "got layout; expected a layer"),
        (Case("Col2Im", 18, [floats(1, 2, 8), ints(2, 2, 2), ints(1, 1, 1)]), "expected two dims"),
    ],
)
def test_options_of_layers_that_are_not_supported_are_refused_by_name(case: Case, message: str) -> None:
    module = flow.onnx.load(case.model())
    with pytest.raises(flow.errors.OnnxError, match=message) as error:
        module(*case.given.values())
    assert f'{case.op} "y0"' in str(error.value)


@pytest.mark.parametrize(
    "case",
    [
        recurrent("LSTM", 14, 4, 2, direction="bidirectional"),
        recurrent("GRU", 14, 3, linear_before_reset=1),
        recurrent("GRU", 14, 3, direction="reverse"),
        recurrent("RNN", 14, 1),
    ],
    ids=["LSTM", "GRU", "GRU-reset-first", "RNN"],
)
def test_loaded_recurrent_layers_are_exported_again(case: Case, tmp_path) -> None:
    module = flow.onnx.load(case.model()).eval()
    x = flow.tensor(case.inputs[0])
    flow.onnx.export(module, (x,), tmp_path / "again.onnx")
    again = flow.onnx.load(tmp_path / "again.onnx")
    for got, want in zip(again(x), module(x), strict=True):
        np.testing.assert_array_equal(got.detach().numpy(), want.detach().numpy())
