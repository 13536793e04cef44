"""Models of one node, compared with onnxruntime; their outputs have no types, as some exporters write them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import miniflow as flow
from tests.checks import check_op

draw = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    """Normally distributed, no two elements closer than rounding errors."""
    return (
        draw.permutation(np.linspace(-2.13, 2.37, max(int(np.prod(shape)), 1)))[: np.prod(shape, dtype=int)]
        .reshape(shape)
        .astype(np.float32)
    )


def ints(*numbers: Any) -> np.ndarray:
    return np.array(numbers, np.int64)


@dataclass
class Case:
    """One node.

    Attributes:
        op: the operator.
        opset: its version.
        inputs: arrays; None for an absent one. Those of floats are inputs of the model, others are initializers.
        attributes: of the node.
        outputs: how many.
        grad: whether gradients of the first input are compared with finite differences.
        fed: numbers of further inputs that are no initializers.
        graph: whether nn.Graph records it.
    """

    op: str
    opset: int
    inputs: list
    attributes: dict = field(default_factory=dict)
    outputs: int = 1
    grad: bool = True
    fed: tuple = ()
    graph: bool = True

    @property
    def names(self) -> list[str]:
        return ["" if x is None else f"x{i}" for i, x in enumerate(self.inputs)]

    @property
    def given(self) -> dict[str, np.ndarray]:
        pairs = zip(self.names, self.inputs, strict=True)
        return {n: x for i, (n, x) in enumerate(pairs) if x is not None and (i == 0 or i in self.fed)}

    def model(self) -> onnx.ModelProto:
        outputs = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(self.op, self.names, outputs, **self.attributes)
        kept = [
            numpy_helper.from_array(x, n)
            for n, x in zip(self.names, self.inputs, strict=True)
            if n and n not in self.given
        ]
        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in self.given.items()
        ]
        graph = helper.make_graph(
            [node], "one", inputs, [helper.make_empty_tensor_value_info(y) for y in outputs], kept
        )
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def check_against_onnxruntime(case: Case) -> None:
    """Types, shapes and values of the results, and the gradients of inputs by finite differences."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    model = case.model()
    expected = ort.InferenceSession(model.SerializeToString(), options).run(None, case.given)
    module = flow.onnx.load(model)
    for got, want in zip(as_tuple(module(*case.given.values())), expected, strict=True):
        got = got.numpy() if isinstance(got, flow.Tensor) else got
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        largest = np.abs(np.nan_to_num(want, posinf=0, neginf=0)).max(initial=1) if want.dtype.kind == "f" else 0
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-6 * largest)
    if case.grad:
        module.double()
        floating = [i for i, x in enumerate(case.given.values()) if x.dtype.kind == "f"]
        check_op(
            lambda *xs: tuple(y for y in as_tuple(module(*xs)) if y.is_floating_point()),
            list(case.given.values()),
            grad=floating,
            gradient="sparse",
            dtypes=("float64",),
            second=False,
            graph=case.graph,
            layouts=(),
        )


def as_tuple(x: Any) -> tuple:
    return x if isinstance(x, tuple) else (x,)
