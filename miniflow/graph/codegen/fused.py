"""The op that stands for a fused region."""

from __future__ import annotations

from typing import Any

import numpy as np

import miniflow.graph.codegen.cpu  # noqa: F401  (registers its kernels)
from miniflow.backends.registry import EVERY, register, register_into
from miniflow.dispatch import Op
from miniflow.graph.codegen.body import Body
from miniflow.ops.promotion import broadcast_shape


class FusedElementwise(Op):
    """Several pointwise ops in one loop: each output is computed, element by element, from inputs that are broadcast.

    The attribute `body` says how.
    """

    outputs = ("y", "more")  # one or any number: kernels return a tuple

    def infer(*inputs: Any, body: Body) -> list[tuple[tuple[int, ...], np.dtype]]:
        shape = broadcast_shape("fused_elementwise", *[x.shape for x in inputs])
        return [(shape, np.dtype(kind)) for kind in body.output_dtypes]


@register("cuda", "FusedElementwise", half="native")
def fused_on_device(*inputs: Any, body: Body) -> tuple:
    from miniflow.graph.codegen.cuda import fused_elementwise  # there may be no cuda backend

    return fused_elementwise(*inputs, body=body)


@register_into("cuda", "FusedElementwise", in_place=EVERY, half="native")
def fused_on_device_into(out: Any, *inputs: Any, body: Body) -> None:
    from miniflow.graph.codegen.cuda import run

    run(body, out if type(out) is tuple else (out,), inputs)
