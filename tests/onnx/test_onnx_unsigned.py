"""uint16, uint32 and uint64, which tensors do not have: they stay on the host, and results wrap around as theirs do."""

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import helper, numpy_helper

import miniflow as flow

TOP = 2**16 - 1
CASES = {  # operator -> (inputs that become unsigned, or are arrays already; attributes; outputs)
    "Add": ([[TOP, 3, 0], [2, TOP, 0]], {}, 1),
    "Sub": ([[3, TOP, 0], [5, 1, 0]], {}, 1),
    "Mul": ([[TOP, 300, 7], [TOP, 300, 0]], {}, 1),
    "Div": ([[TOP, 300, 7], [2, 7, 9]], {}, 1),
    "Mod": ([[TOP, 300, 7], [2, 7, 9]], {}, 1),
    "Max": ([[TOP, 3, 7], [2, TOP, 7], [0, 0, 9]], {}, 1),
    "Min": ([[TOP, 3, 7], [2, TOP, 7]], {}, 1),
    "Less": ([[TOP, 3, 7], [2, TOP, 7]], {}, 1),
    "GreaterOrEqual": ([[TOP, 3, 7], [2, TOP, 7]], {}, 1),
    "Equal": ([[TOP, 3, 7], [2, TOP, 7]], {}, 1),
    "BitwiseNot": ([[TOP, 3, 0]], {}, 1),
    "BitwiseXor": ([[TOP, 3, 0], [TOP - 9, 5, 1]], {}, 1),
    "BitShift": ([[TOP, 3, 1], [1, 4, 15]], {"direction": "LEFT"}, 1),
    "Where": ([np.array([True, False, True]), [TOP, 3, 0], [1, 2, 3]], {}, 1),
    "Concat": ([[TOP, 3], [1]], {"axis": 0}, 1),
    "Split": ([[TOP, 3, 0, 1, 2, 9]], {"axis": 0, "num_outputs": 3}, 3),
    "Gather": ([[TOP, 3, 0], np.array([0, 2, -1])], {}, 1),
    "Transpose": ([[[TOP, 3, 0]]], {}, 1),
    "Tile": ([[TOP, 3], np.array([2])], {}, 1),
    "ReduceSum": ([[TOP, TOP, 3]], {"keepdims": 0}, 1),
    "ReduceMax": ([[TOP, 7, 3]], {}, 1),
    "ReduceMean": ([[7, 8, 4]], {"keepdims": 0}, 1),
    "CumSum": ([[TOP, 1, 3], np.array(0)], {}, 1),
    "TopK": ([[3, TOP, 9], np.array([2])], {}, 2),
    "Clip": ([[TOP, 1, 9], np.array(2), np.array(500)], {}, 1),
    "Abs": ([[TOP, 3, 0]], {}, 1),
    "Sign": ([[TOP, 3, 0]], {}, 1),
    "Identity": ([[TOP, 3, 0]], {}, 1),
    "Pad": ([[TOP, 3], np.array([1, 1])], {}, 1),
    "Cast": ([[TOP, 300, 0]], {"to": onnx.TensorProto.FLOAT}, 1),
    "Unique": ([[TOP, 300, TOP]], {}, 4),
    "Trilu": ([[[TOP, 3], [4, 5]]], {}, 1),
}
SAME = {"Clip"}  # all inputs are of one type


def cases():
    return [(name, kind) for name in CASES for kind in (np.uint16, np.uint32, np.uint64)]


def model_of(op: str, arrays: list[np.ndarray], attributes: dict, outputs: int, stored: bool) -> onnx.ModelProto:
    """One node; its inputs after the first are stored in the model, or fed too."""
    names = [f"x{i}" for i in range(len(arrays))]
    made = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], **attributes)
    kind = helper.np_dtype_to_tensor_dtype
    given = [helper.make_tensor_value_info(n, kind(x.dtype), x.shape) for n, x in zip(names, arrays, strict=True)]
    kept = [numpy_helper.from_array(x, n) for n, x in zip(names, arrays, strict=True)][1:] if stored else []
    outs = [helper.make_empty_tensor_value_info(y) for y in made.output]
    graph = helper.make_graph([made], "one", given[: len(given) - len(kept)], outs, kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(("op", "kind"), cases())
def test_unsigned_integers_are_exact(op, kind, stored):
    inputs, attributes, outputs = CASES[op]
    scale = 2 ** (8 * np.dtype(kind).itemsize - 17)  # so that the largest are near the end of the type, below 2**63
    arrays = []
    for x in inputs:
        if isinstance(x, np.ndarray) and op not in SAME:
            arrays.append(x)
        else:
            small = op in ("BitShift", "ReduceMean") or isinstance(x, np.ndarray)
            arrays.append(np.array([[int(n) * scale if n == TOP and not small else int(n) for n in np.ravel(x)]], kind))
            arrays[-1] = arrays[-1].reshape(np.shape(x))
    model = model_of(op, arrays, attributes, outputs, stored)
    with np.errstate(over="ignore"):
        expected = onnx.reference.ReferenceEvaluator(model).run(
            None, {v.name: x for v, x in zip(model.graph.input, arrays, strict=False)}
        )
    results = flow.onnx.load(model)(*arrays[: len(model.graph.input)])
    for got, want in zip(results if outputs > 1 else (results,), expected, strict=True):
        got = got.numpy() if isinstance(got, flow.Tensor) else got
        assert (got.dtype, got.shape) == (np.asarray(want).dtype, np.shape(want))
        np.testing.assert_array_equal(got, want)


def test_numbers_that_int64_does_not_hold_are_refused():
    x = np.array([2**63, 1], np.uint64)
    module = flow.onnx.load(model_of("Add", [x, x], {}, 1, stored=False))
    with pytest.raises(flow.onnx.OnnxError, match=f'Add "y0": got {2**63} in uint64; expected at most {2**63 - 1}'):
        module(x, x)
    kept = flow.onnx.load(model_of("Cast", [x], {"to": onnx.TensorProto.FLOAT}, 1, stored=False))
    np.testing.assert_array_equal(kept(x).numpy(), np.float32([2**63, 1]))  # casts do not compute in int64
