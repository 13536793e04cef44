"""Fake quantization in ONNX: which nodes it becomes, and that onnxruntime rounds to the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import miniflow as flow
from miniflow import nn
from miniflow.errors import OnnxError

ort = pytest.importorskip("onnxruntime")
PAIR = ["QuantizeLinear", "DequantizeLinear"]


class Quantized(nn.Module):
    """A layer whose weight is quantized by its range, and the result by one of averages, or by its own."""

    def __init__(self, scheme: str = "symmetric", bits: int = 8, per_layer: bool = True, own: bool = False):
        super().__init__()
        self.linear = nn.Linear(6, 5)
        self.weight_observer = nn.MinMaxObserver(quantization_bit=bits, per_layer_quantization=per_layer)
        self.weight_quantization = nn.FakeQuantization(quantization_bit=bits)
        self.average = nn.MovingAverageMinMaxObserver(True, "google", 100, 8, scheme, 0.9)
        self.range = nn.MinMaxObserver(quantization_scheme=scheme) if own else None
        self.quantization = nn.FakeQuantization(quantization_scheme=scheme)

    def forward(self, x: Any) -> Any:
        weight = self.weight_quantization(self.linear.weight, *self.weight_observer(self.linear.weight))
        y = nn.functional.linear(x, weight, self.linear.bias)
        return self.quantization(y, *(self.range(y) if self.range else self.average(y, flow.zeros(1))))


def operators(model: nn.Module, opset: int) -> list[str]:
    """Those of the exported model, whose results are checked."""
    draw = np.random.default_rng(0)
    for _ in range(3):
        model(flow.from_numpy(draw.standard_normal((20, 6), np.float32)))
    model.eval()
    x = draw.standard_normal((7, 6), np.float32)
    proto = flow.onnx.export(model, flow.from_numpy(x), opset=opset)
    result = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(result, model(flow.from_numpy(x)).detach().numpy(), rtol=0, atol=1e-6)
    assert len(np.unique(result)) > 10  # a step of the quantization is far above the tolerance
    return [node.op_type for node in proto.graph.node]


@pytest.mark.parametrize("opset", [10, 13, 19, 21])
def test_symmetric_per_tensor(opset: int) -> None:
    assert operators(Quantized(), opset) == [*PAIR, "Gemm", *PAIR]


@pytest.mark.parametrize("opset", [11, 13, 21])
def test_affine_per_tensor(opset: int) -> None:
    assert operators(Quantized("affine"), opset) == [*PAIR, "Gemm", *PAIR]


@pytest.mark.parametrize(("opset", "weight"), [(11, []), (13, PAIR), (21, PAIR)])
def test_per_channel_weights(opset: int, weight: list[str]) -> None:
    """Before opset 13, which has no such operator, the quantized weight is a constant."""
    assert operators(Quantized(per_layer=False), opset) == [*weight, "Gemm", *PAIR]


def test_what_is_no_constant_and_fewer_bits_are_computed_by_the_formula() -> None:
    assert operators(Quantized(bits=4), 17) == ["Gemm", *PAIR]
    found = operators(Quantized("affine", own=True), 17)
    assert found[:3] == [*PAIR, "Gemm"] and not {"ReduceMin", "Div", "Round"} - {*found} and PAIR[0] not in found[3:]
    with pytest.raises(OnnxError, match="needs opset 11"):
        operators(Quantized(bits=4), 10)


def test_quantization_alone() -> None:
    class Rounded(nn.Module):
        def forward(self, x: Any) -> Any:
            return nn.Quantization(quantization_scheme="affine")(x, flow.tensor([0.02]), flow.tensor([113.0]))

    assert operators(Rounded(), 17) == PAIR
