"""Rewrites of a graph of ONNX that leave what it computes as it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import NodeProto


def optimized(
    nodes: Sequence[NodeProto], initializers: dict[str, np.ndarray], outputs: Sequence[str], opset: int
) -> tuple[list[NodeProto], dict[str, np.ndarray]]:
    """The nodes and initializers after all rewrites, which are repeated until nothing changes."""
    return list(nodes), initializers
