"""miniflow as a backend of ONNX's own tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.backend.base import Backend, BackendRep

import miniflow as flow


class Loaded(BackendRep):
    """A loaded model; runs on arrays."""

    def __init__(self, model: Any):
        self.module = flow.onnx.load(model)

    def run(self, inputs: Sequence[Any], **kwargs: Any) -> tuple:
        with flow.no_grad():
            results = self.module(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        return tuple([x.numpy() if isinstance(x, flow.Tensor) else x for x in results])


class MiniflowBackend(Backend):
    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> Loaded:
        return Loaded(model)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


def as_arrays(values: Sequence[Any]) -> list[np.ndarray]:
    """Test data, of which some are lists (sequences) or None."""
    return [np.asarray(x) for x in values]
