"""The operators of ONNX as functions: what modules call that `to_python` writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto

from miniflow.dtype import BY_NUMPY
from miniflow.onnx.loader.body import Node
from miniflow.onnx.loader.build import Builder
from miniflow.onnx.loader.registry import Operator, Value, find
from miniflow.ops.creation import from_numpy
from miniflow.tensor import Tensor


class Operators:
    """The operators of the default domain in one version, by name.

    An input is a tensor; or a NumPy array, a number or a list, which stay on the host if all inputs of a call are such.
    Attributes are keyword arguments; of a graph a function. `outputs` is how many outputs are asked for.

    >>> import miniflow as flow
    >>> op = Operators(17)
    >>> op.Add(flow.tensor([1.0, 2.0]), flow.tensor(1.0))
    tensor([2., 3.], dtype=miniflow.float32)

    Raises:
        AttributeError: if the opset has no such operator.
        OnnxError: for what an operator refuses.
    """

    def __init__(self, opset: int):
        self.opset = opset

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found = find(name, self.opset)

        def call(*inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
            if found is not None:
                return self._call(found, inputs, attributes, outputs)
            names = ["" if x is None else str(i) for i, x in enumerate(inputs)]
            node = onnx.helper.make_node(name, names, [str(i) for i in range(outputs)], **attributes)
            return self._call(Builder({"": self.opset}, {}).typed_function(node, self.opset), inputs, {}, outputs)

        if found is None and Builder({"": self.opset}, {}).typed_function(NodeProto(op_type=name), self.opset) is None:
            raise AttributeError(f"ONNX operator {name} is not supported in opset {self.opset}")
        return call

    def _call(self, operator: Operator, inputs: tuple, attributes: dict[str, Any], outputs: int) -> Any:
        values = {str(i): x if isinstance(x, Tensor) else np.asarray(x) for i, x in enumerate(inputs) if x is not None}
        names = ["" if x is None else str(i) for i, x in enumerate(inputs)]
        node = Node(operator.name, operator, names, ["output"] * outputs, attributes, self.opset)
        device = next((x.device for x in values.values() if isinstance(x, Tensor)), "cpu")
        results = tuple(node.compute(values, device))[:outputs]
        return results[0] if outputs == 1 else results


def as_value(x: Any) -> Value:
    """An argument as a value: a tensor, or an array of a type that tensors do not have."""
    if isinstance(x, Tensor):
        return x
    array = np.asarray(x)
    return from_numpy(array) if array.dtype in BY_NUMPY else array


def as_result(*values: Value, device: Any = "cpu") -> Any:
    """Values as `forward` returns them: tensors, but for types that tensors do not have; a tuple, or the only one."""
    results = tuple(
        [from_numpy(np.array(x)).to(device) if isinstance(x, np.ndarray) and x.dtype in BY_NUMPY else x for x in values]
    )
    return results[0] if len(results) == 1 else results
