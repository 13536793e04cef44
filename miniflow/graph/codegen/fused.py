"""The op that stands for a fused region."""

from __future__ import annotations

from typing import Any

import numpy as np

from miniflow.backends.body import Body
from miniflow.dispatch.dispatcher import Op
from miniflow.ops.promotion import broadcast_shape


class FusedElementwise(Op):
    """Several pointwise ops in one loop: each output is computed, element by element, from inputs that are broadcast.

    The attribute `body` says how.
    """

    made_by_passes = True

    outputs = ("y", "more")  # one or any number: kernels return a tuple

    def infer(*inputs: Any, body: Body) -> list[tuple[tuple[int, ...], np.dtype]]:
        shape = broadcast_shape("fused_elementwise", *[x.shape for x in inputs])
        return [(shape, np.dtype(kind)) for kind in body.output_dtypes]
