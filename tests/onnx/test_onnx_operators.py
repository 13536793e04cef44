"""Operators of ONNX in old and new versions, and where ONNX's node tests do not go: against onnxruntime."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import miniflow as flow
from tests.onnx.one_node import Case, check_against_onnxruntime, floats, ints

ELEMENT = np.float32(0.3)
HOLES = np.array([[1.0, np.inf, -np.inf], [np.nan, -3.5, 2.5]], np.float32)
CASES = [
    Case("Softmax", 11, [floats(2, 3, 4)]),
    Case("Softmax", 11, [floats(2, 3, 4)], {"axis": 0}),
    Case("Softmax", 12, [floats(2, 3, 4)], {"axis": -1}),
    Case("Softmax", 13, [floats(2, 3, 4)], {"axis": 1}),
    Case("LogSoftmax", 9, [floats(2, 3, 4)], {"axis": 2}),
    Case("Hardmax", 11, [floats(2, 3, 4)], grad=False),
    Case("Hardmax", 13, [np.float32([[1, 3, 3], [2, 2, 1]])], grad=False),
    Case("Clip", 7, [floats(3, 4)], {"min": -1.0, "max": 0.7}),
    Case("Clip", 10, [floats(3, 4)], {"max": 0.7}),
    Case("Clip", 11, [floats(3, 4), np.float32(-0.5), np.float32(0.5)]),
    Case("Clip", 13, [floats(3, 4), None, np.float32(0.5)]),
    Case("Clip", 13, [ints(-3, 0, 9), ints(1)[0]], grad=False),
    Case("Dropout", 7, [floats(3, 4)], {"ratio": 0.5}),
    Case("Dropout", 10, [floats(3, 4)]),
    Case("Dropout", 12, [floats(3, 4), ELEMENT], outputs=2),
    Case("Dropout", 13, [floats(3, 4), ELEMENT, np.array(False)], outputs=2),
    Case("Squeeze", 11, [floats(1, 3, 1)], {"axes": [-1]}),
    Case("Squeeze", 13, [floats(1, 3, 1), ints(0, 2)]),
    Case("Squeeze", 13, [floats(1, 3, 1)]),
    Case("Unsqueeze", 11, [floats(3, 2)], {"axes": [-1, 0]}),
    Case("Unsqueeze", 13, [floats(3, 2), ints(3, 1)]),
    Case("ReduceSum", 11, [floats(2, 3, 4)], {"axes": [1, -1], "keepdims": 0}),
    Case("ReduceSum", 13, [floats(2, 3, 4), ints(0)]),
    Case("ReduceSum", 13, [floats(2, 3, 4)], {"noop_with_empty_axes": 1}),
    Case("ReduceSum", 13, [ints(5, 6, 7).astype(np.int32)], {"keepdims": 0}, grad=False),
    Case("ReduceMean", 13, [floats(2, 3, 4)], {"axes": [2]}),
    Case("ReduceMean", 18, [floats(2, 3, 4), ints(2, 0)], {"keepdims": 0}),
    Case("ReduceMax", 12, [floats(2, 3, 4)], {"axes": [-2], "keepdims": 0}),
    Case("ReduceMin", 18, [floats(2, 3, 4)], {"keepdims": 0}),
    Case("ReduceProd", 13, [floats(2, 3, 4)], {"axes": [0, -1]}),
    Case("ReduceL1", 18, [floats(2, 3, 4), ints(1)]),
    Case("ReduceL2", 11, [floats(2, 3, 4)], {"axes": [1]}),
    Case("ReduceLogSum", 13, [np.abs(floats(2, 3, 4)) + 1], {"axes": [1]}),
    Case("ReduceLogSumExp", 18, [floats(2, 3, 4), ints(1, 2)]),
    Case("ReduceSumSquare", 13, [floats(2, 3, 4)], {"keepdims": 0}),
    Case("ArgMax", 11, [floats(2, 3, 4)], {"axis": 1}, grad=False),
    Case("ArgMax", 13, [np.float32([[1, 3, 3], [2, 2, 1]])], {"axis": -1, "select_last_index": 1}, grad=False),
    Case("ArgMin", 13, [np.float32([[1, 1, 3], [2, 2, 1]])], {"axis": 1, "keepdims": 0}, grad=False),
    Case("CumSum", 14, [floats(3, 4), ints(-1)[0]], {"exclusive": 1, "reverse": 1}),
    Case("CumSum", 11, [floats(3, 4), ints(0)[0]], {"reverse": 1}),
    Case("CumSum", 14, [ints(1, 2, 3).astype(np.int32), ints(0)[0]], grad=False),
    Case("ReduceMean", 13, [np.int32([[7, -8], [0, -5], [-2, 2]])], {"axes": [0]}, grad=False),
    Case("ReverseSequence", 10, [floats(5, 3, 2), ints(2, 5, 1)]),
    Case("ReverseSequence", 10, [floats(3, 5, 2), ints(0, 5, 4)], {"batch_axis": 0, "time_axis": 1}, fed=(1,),
        graph=False),
    Case("Pow", 13, [np.int32([21, -3, 2]), np.float32([6, 3, 0.5])], grad=False),
    Case("Pow", 13, [ints(21, -3, 2**31), ints(6, 3, 1)], grad=False),
    Case("Einsum", 12, [np.int32([[1, 2], [3, 4]])], {"equation": "ij->i"}, grad=False),
    Case("Shrink", 9, [floats(3, 4)], {"lambd": 0.7, "bias": 0.3}),
    Case("Shrink", 9, [np.int32([-9, -1, 0, 2, 30])], {"lambd": 1.5, "bias": 1.5}, grad=False),
    Case("Slice", 9, [floats(4, 5)], {"starts": [1, -3], "ends": [10, -1]}),
    Case("Slice", 10, [floats(4, 5), ints(1), ints(-1), ints(1)]),
    Case("Slice", 13, [floats(4, 5), ints(-1, 9), ints(-99, 0), ints(1, 0), ints(-2, -1)]),
    Case("Slice", 13, [floats(4, 5), ints(3), ints(2**63 - 1), ints(-1), ints(2)]),
    Case("Slice", 13, [floats(4, 5), ints(3), ints(2), ints(1), ints(1)], grad=False),
    Case("Pad", 10, [floats(2, 3)], {"pads": [0, 1, 2, 0], "value": 1.5}),
    Case("Pad", 10, [floats(2, 3)], {"pads": [1, 2, 0, 1], "mode": "reflect"}),
    Case("Pad", 13, [floats(2, 3), ints(0, 1, 2, 0), np.float32(1.5)]),
    Case("Pad", 13, [floats(3, 4), ints(0, -1, 2, -2)]),
    Case("Pad", 18, [floats(2, 3, 4), ints(1, 3, 0, 1), None, ints(-1, 0)], {"mode": "edge"}),
    Case("Pad", 19, [floats(3, 4), ints(2, 0, 1, 3)], {"mode": "wrap"}),
    Case("Split", 11, [floats(2, 6)], {"axis": -1}, 3),
    Case("Split", 11, [floats(2, 6)], {"axis": 1, "split": [1, 5]}, 2),
    Case("Split", 13, [floats(5, 2), ints(2, 0, 3)], outputs=3),
    Case("Split", 18, [floats(7, 2)], {"num_outputs": 3}, 3),
    Case("TopK", 9, [floats(3, 5)], {"k": 2}, 2),
    Case("TopK", 10, [floats(3, 5), ints(3)], {"axis": 0}, 2),
    Case("TopK", 11, [np.float32([[1, 3, 3, 1, 2]]), ints(4)], {"largest": 0}, 2, grad=False),
    Case("TopK", 11, [np.float32([[1, 3, 3, 1, 2]]), ints(4)], {}, 2, grad=False),
    Case("Gather", 11, [floats(3, 4), ints(-1)[0]], {"axis": 1}),
    Case("Gather", 13, [floats(3, 4), ints([0, -1], [2, 2])]),
    Case("Gather", 13, [floats(3, 4), ints([0, -1], [2, 2])], {"axis": -1}, fed=(1,)),
    Case("GatherElements", 13, [floats(3, 4), ints([0, -1, 1, 2], [-3, 0, 0, 0])], fed=(1,)),
    Case("GatherND", 12, [floats(2, 3, 4), ints([[-1, 0]], [[1, 2]])], {"batch_dims": 1}, grad=False),
    Case("GatherND", 13, [floats(2, 3, 4), ints([0, -1], [1, 1])], fed=(1,)),
    Case("GatherND", 13, [floats(2, 3, 4), ints([[0]], [[-2]])], {"batch_dims": 1}),
    Case("GatherND", 13, [floats(2, 3, 4), ints([[0]] * 3, [[-2]] * 3)], {"batch_dims": 2}),
    Case("Scatter", 9, [floats(3, 3), ints([1, 0, 2]), floats(1, 3)], fed=(2,)),
    Case("ScatterElements", 13, [floats(3, 3), ints([-1], [0]), floats(2, 1)], {"axis": 1}, fed=(2,)),
    Case("ScatterElements", 18, [floats(3), ints(1, 1, 0), floats(3)], {"reduction": "mul"}, fed=(2,)),
    Case("ScatterElements", 18, [floats(3), ints(1, 1, 0), floats(3)], {"reduction": "max"}, fed=(2,)),
    Case("ScatterND", 13, [floats(4, 3), ints([-1], [0]), floats(2, 3)], fed=(2,)),
    Case("ScatterND", 18, [floats(4, 3), ints([1, 0], [1, -3], [2, 2]), floats(3)], {"reduction": "add"}, fed=(2,)),
    Case("ScatterND", 18, [floats(4, 3), ints([1], [1]), floats(2, 3)], {"reduction": "min"}, fed=(2,)),
    Case("OneHot", 11, [ints(0, -1, 3, 5, -9), ints(4)[0], np.float32([0.5, 2])], grad=False),
    Case("OneHot", 11, [np.float32([[0, 2]]), ints(3), ints(7, 9)], {"axis": 1}, grad=False),
    Case("Compress", 11, [floats(3, 4), np.array([True, False, True])], {"axis": 1}, grad=False),
    Case("Compress", 11, [floats(2, 2), np.array([False, True, True])], grad=False),
    Case("NonZero", 13, [np.float32([[0, 1, 2], [3, 0, 0]])], grad=False),
    Case("Unique", 11, [np.float32([2, 1, 1, 3, 2])], {"sorted": 0}, 4, grad=False),
    Case("Unique", 11, [np.float32([[2, 1, 2], [0, 1, 0]])], {"axis": 1}, 4, grad=False),
    Case("Reshape", 13, [floats(2, 3, 4), ints(0, -1)]),
    Case("Reshape", 14, [floats(0, 3), ints(3, 0)], {"allowzero": 1}, grad=False),
    Case("Transpose", 13, [floats(2, 3, 4)]),
    Case("Flatten", 9, [floats(2, 3, 4)], {"axis": 0}),
    Case("Flatten", 13, [floats(2, 3, 4)], {"axis": -1}),
    Case("Flatten", 13, [floats(2, 3, 4)], {"axis": 3}),
    Case("Expand", 13, [floats(3, 1), ints(2, 1, 4)]),
    Case("Expand", 13, [floats(2, 3), ints(1)]),
    Case("Tile", 13, [floats(2, 3), ints(2, 1)]),
    Case("DepthToSpace", 11, [floats(1, 8, 2, 3)], {"blocksize": 2}),
    Case("DepthToSpace", 13, [floats(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
    Case("SpaceToDepth", 13, [floats(2, 1, 4, 6)], {"blocksize": 2}),
    Case("Trilu", 14, [floats(3, 4), ints(1)[0]]),
    Case("Trilu", 14, [floats(2, 3, 3), ints(-1)[0]], {"upper": 0}),
    Case("EyeLike", 9, [floats(3, 4)], {"k": -1, "dtype": onnx.TensorProto.INT32}, grad=False),
    Case("Shape", 15, [floats(3, 4, 5)], {"start": -2, "end": -1}, grad=False),
    Case("Size", 13, [floats(3, 4)], grad=False),
    Case("Concat", 13, [floats(2, 3), floats(2, 1)], {"axis": -1}, fed=(1,)),
    Case("Where", 16, [np.array([[True], [False]]), floats(3), floats(2, 1)], grad=False, fed=(1, 2)),
    Case("Div", 14, [ints(-7, 7, -8), ints(2, -2, 3)], grad=False),
    Case("Div", 14, [floats(3, 4), np.abs(floats(4)) + 1], fed=(1,)),
    Case("Mod", 13, [ints(-7, 7, -8), ints(3, -3, 3)], grad=False),
    Case("Mod", 13, [np.float32([-7.5, 7.5]), np.float32([2, -2])], {"fmod": 1}, grad=False),
    Case("Pow", 13, [np.abs(floats(3, 4)) + 1, np.float32(1.5)]),
    Case("Pow", 13, [ints(2, 3), np.float32(2.5)], grad=False),
    Case("Pow", 15, [floats(3, 4), ints(3)]),
    Case("Mean", 13, [floats(3, 4), floats(4), floats(1)], fed=(1, 2)),
    Case("Sum", 8, [floats(3, 4), floats(4), floats(1)], fed=(1, 2)),
    Case("Max", 8, [floats(3, 4), floats(4)], fed=(1,)),
    Case("Min", 13, [floats(3, 4)]),
    Case("BitShift", 11, [np.uint8([200, 3]), np.uint8([1, 2])], {"direction": "LEFT"}, grad=False),
    Case("IsInf", 10, [HOLES], {"detect_negative": 0}, grad=False),
    Case("IsInf", 10, [HOLES], {"detect_positive": 0}, grad=False),
    Case("IsNaN", 13, [HOLES], grad=False),
    Case("Round", 11, [np.float32([0.5, 1.5, 2.5, -0.5, -1.7])], grad=False),
    Case("Cast", 9, [np.float32([1.7, -1.7, 0])], {"to": onnx.TensorProto.INT32}, grad=False),
    Case("Cast", 13, [floats(3)], {"to": onnx.TensorProto.DOUBLE}),
    Case("Cast", 13, [np.float32([0, 0.3, np.nan])], {"to": onnx.TensorProto.BOOL}, grad=False),
    Case("Cast", 13, [ints(300, -1)], {"to": onnx.TensorProto.UINT16}, grad=False),
    Case("Elu", 7, [floats(3, 4)], {"alpha": 0.7}),
    Case("Celu", 12, [floats(3, 4)], {"alpha": 0.7}),
    Case("Selu", 7, [floats(3, 4)], {"alpha": 0.7, "gamma": 1.2}),
    Case("LeakyRelu", 7, [floats(3, 4)]),
    Case("PRelu", 9, [floats(2, 3, 4), floats(3, 1)], fed=(1,)),
    Case("HardSigmoid", 7, [floats(3, 4)], {"alpha": 0.4, "beta": 0.3}),
    Case("HardSwish", 14, [4 * floats(3, 4)]),
    Case("Gelu", 20, [floats(3, 4)], {"approximate": "tanh"}),
    Case("Gelu", 20, [floats(3, 4)]),
    Case("ThresholdedRelu", 10, [floats(3, 4)], {"alpha": 0.8}),
    Case("Shrink", 9, [floats(3, 4)], {"lambd": 0.8, "bias": 0.3}),
    Case("Softplus", 7, [20 * floats(3, 4)], grad=False),
    Case("Softsign", 7, [floats(3, 4)]),
    Case("Mish", 18, [floats(3, 4)]),
    Case("Einsum", 12, [floats(2, 3, 4), floats(4, 3)], {"equation": "...ij,ji->...i"}, fed=(1,)),
    Case("Det", 11, [floats(2, 3, 3)]),
    Case("ConstantOfShape", 9, [ints(2, 3)], {"value": numpy_helper.from_array(ints(7))}, grad=False, fed=(0,)),
    Case("Range", 11, [np.array(x, np.float32) for x in (3, -1, -1.5)], grad=False),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{c.op}-{c.opset}" for i, c in enumerate(CASES)])
def test_operators_agree_with_onnxruntime(case: Case) -> None:
    check_against_onnxruntime(case)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (Case("Pad", 13, [floats(2, 3), ints(0, 1, 2, 0)], {"mode": "mirror"}), "got mode='mirror'; expected one of"),
        (Case("DepthToSpace", 13, [floats(1, 4, 1, 1)], {"blocksize": 2, "mode": "X"}), "got mode='X'; expected one"),
        (Case("ScatterND", 18, [floats(2), ints([0]), floats(1)], {"reduction": "mean"}), "got reduction='mean'"),
        (Case("BitShift", 11, [np.uint8([1]), np.uint8([1])], {"direction": "UP"}), "got direction='UP'"),
        (Case("Gather", 13, [floats(3), ints(3)]), "index 3"),
        (Case("ScatterND", 13, [floats(2, 2), ints([0, 2]), floats(1)]), "index 2"),
        (Case("Add", 13, [np.uint64([2**63]), np.uint64([1])]), "got 9223372036854775808 in uint64; expected at most"),
        (Case("Reshape", 13, [floats(2, 3), ints(4, 2)]), "reshape"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(case: Case, message: str) -> None:
    module = flow.onnx.load(case.model())
    with pytest.raises(flow.errors.OnnxError, match=message) as error:
        module(*case.given.values())
    assert f'{case.op} "y0"' in str(error.value)


def test_dropout_in_training_mode_scales_what_its_mask_keeps() -> None:
    x = floats(1000) + 3
    case = Case("Dropout", 13, [x, np.array(0.25, np.float32), np.array(True)], outputs=2)
    y, mask = flow.onnx.load(case.model())(x)
    assert mask.dtype is flow.bool
    assert 700 < mask.sum().item() < 800
    np.testing.assert_allclose(y.numpy(), np.where(mask.numpy(), x / 0.75, 0), rtol=1e-6)


RANDOM = [
    (Case("RandomNormal", 13, [], {"shape": [50, 60], "mean": 2.0, "scale": 0.5}), 2, 0.5),
    (Case("RandomUniform", 13, [], {"shape": [50, 60], "low": 1.0, "high": 3.0}), 2, 3**-0.5),
    (Case("RandomNormalLike", 13, [floats(50, 60)], {"mean": 2.0, "scale": 0.5}), 2, 0.5),
    (Case("RandomUniformLike", 13, [floats(50, 60)], {"low": 1.0, "high": 3.0, "dtype": 11}), 2, 3**-0.5),
    (Case("Bernoulli", 15, [np.full((50, 60), 0.3, np.float32)], {"dtype": 11}), 0.3, 0.21**0.5),
    (Case("Multinomial", 13, [np.log(np.float32([[0.5, 1.0, 0.5]]))], {"sample_size": 3000}), 1, 0.5**0.5),
]


@pytest.mark.parametrize(("case", "mean", "std"), RANDOM, ids=[case.op for case, *_ in RANDOM])
def test_random_numbers_have_their_distribution_and_follow_the_seed(case: Case, mean: float, std: float) -> None:
    module = flow.onnx.load(case.model())
    flow.manual_seed(3)
    first, second = module(*case.given.values()), module(*case.given.values())
    flow.manual_seed(3)
    again = module(*case.given.values())
    kinds = {1: flow.float32, 6: flow.int32, 11: flow.float64}
    assert first.dtype is kinds[case.attributes.get("dtype", 6 if case.op == "Multinomial" else 1)]
    assert first.numel() == 3000
    assert abs(first.double().mean().item() - mean) < 0.06
    assert abs(first.double().std().item() - std) < 0.04
    np.testing.assert_array_equal(first.numpy(), again.numpy())
    assert (first != second).any().item()


def test_single_numbers_are_no_parameters() -> None:
    nodes = [helper.make_node("Mul", ["x", "w"], ["m"]), helper.make_node("Pow", ["m", "two"], ["p"])]
    nodes += [helper.make_node("Where", ["c", "p", "half"], ["y"])]
    values = {"w": floats(3), "two": np.array(2, np.float32), "half": np.array(0.5, np.float32)}
    kept = [numpy_helper.from_array(array, name) for name, array in values.items()]
    described = {"x": onnx.TensorProto.FLOAT, "c": onnx.TensorProto.BOOL, "y": onnx.TensorProto.FLOAT}
    x, c, y = [helper.make_tensor_value_info(name, kind, [3]) for name, kind in described.items()]
    graph = helper.make_graph(nodes, "numbers", [x, c], [y], kept)
    module = flow.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert [name for name, _ in module.named_parameters()] == ["w"]
    given = floats(3)
    got = module(given, np.array([True, False, True]))
    np.testing.assert_allclose(got.detach().numpy(), np.where([1, 0, 1], (given * values["w"]) ** 2, 0.5), rtol=1e-6)
