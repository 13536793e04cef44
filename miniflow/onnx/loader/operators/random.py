"""Random numbers. They are those of `flow.manual_seed`: the attribute `seed` would repeat them at every call."""

from __future__ import annotations

import miniflow as flow
from miniflow.onnx.loader.operators.quantize import as_dtype
from miniflow.onnx.loader.registry import Array, operator, operators
from miniflow.tensor import Tensor

operators({
    "RandomNormal": lambda *, shape, dtype, mean, scale: mean + scale * flow.randn(shape, dtype=as_dtype(dtype)),
    "RandomUniform": lambda *, shape, dtype, low, high: low + (high - low) * flow.rand(shape, dtype=as_dtype(dtype)),
    "RandomNormalLike": lambda x, *, dtype=0, mean, scale: mean + scale * flow.randn_like(x, dtype=as_dtype(dtype, x)),
    "RandomUniformLike": lambda x, *, dtype=0, low, high: (
        low + (high - low) * flow.rand_like(x, dtype=as_dtype(dtype, x))
    ),
    # not as the function of ONNX: that is 1 with the probability 1 - x
    "Bernoulli": lambda x, *, dtype=0: flow.bernoulli(x).to(as_dtype(dtype, x)),
    "Multinomial": lambda x, *, sample_size, dtype: (
        flow.multinomial(flow.softmax(x, -1), sample_size, True).to(as_dtype(dtype))
    ),
})  # fmt: skip


@operator("Dropout")
def dropout(data, ratio: Array = 0.5, training_mode: Array = False) -> tuple[Tensor, Tensor]:
    if not training_mode or not ratio:
        return data, flow.ones_like(data, dtype=flow.bool)
    mask = flow.rand_like(data) >= float(ratio)
    return data * mask / (1 - float(ratio)), mask
