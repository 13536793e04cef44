"""Writes the nodes of an ONNX graph, one call of an operator after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, defs, helper, numpy_helper

from miniflow.errors import OnnxError
from miniflow.onnx.exporter.recording import Call, Recorded, Size, Value
from miniflow.onnx.exporter.registry import find
from miniflow.parallel.global_array import GlobalArray
from miniflow.sbp import B
from miniflow.tensor import Tensor


class Writer:
    """Nodes and initializers in the order in which they are computed; handlers call it to add a node.

    Attributes:
        opset: of the model.
        nodes: so far.
        initializers: values by name.
        call: the call that is being written; its `outputs` tell the shapes and dtypes of its results.
    """

    def __init__(self, recorded: Recorded, opset: int, output_names: Sequence[str]):
        self.recorded, self.opset = recorded, opset
        self._taken = recorded.names.union(output_names, [x.name for x in recorded.inputs])
        self.nodes: list[NodeProto] = []
        self.initializers: dict[str, np.ndarray] = {}
        self.call: Call | None = None
        self._numbers: Counter[str] = Counter()
        self._constants: dict[tuple, str] = {}
        self._known: dict[Size, str] = {}  # 1-d tensors of one number
        self._sources: dict[Size, tuple[Value, int]] = {}  # a value and its dim of that size
        for value in recorded.inputs:
            self._define(value, value.name)

    def write(self) -> None:
        """Write all calls.

        Raises:
            OnnxError: naming all operators without a handler, or what a handler refuses.
        """
        unknown = {
            f"{call.name} ({call.location})": None
            for call in self.recorded.calls
            if find(call.name, self.opset) is None
        }
        if unknown:
            raise OnnxError(f"opset {self.opset} has nothing for these operators: {', '.join(unknown)}")
        for call in self.recorded.calls:
            self.call = call
            function = find(call.name, self.opset)
            inputs = [self._number(x) if isinstance(x, bool | int | float | Size) else x for x in call.inputs]
            try:
                if "arguments" in call.attributes:
                    results = function(self, **call.attributes["arguments"])
                else:
                    results = function(self, *inputs, **call.attributes)
            except OnnxError as error:
                raise OnnxError(error.message, f"{call.name} ({call.location})") from error
            names = results if isinstance(results, tuple) else (results,)
            for value, name in zip(call.outputs, names, strict=False):
                self._define(value, name)

    def __call__(self, op: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node.

        Args:
            op: of ONNX.
            inputs: values, names, arrays, or None for absent ones.
            outputs: how many.
            attributes: of the node; None stands for an absent one.

        Returns:
            the name of the output; a tuple of names for several.
        """
        if not defs.has(op, self.opset):
            raise OnnxError(f"opset {self.opset} has no {op}")
        scope = self.call.scope if self.call else ""
        name = self._unused(f"{scope}.{op}".removeprefix("."))
        results = [name if i == 0 else f"{name}.{i}" for i in range(outputs)]
        given = {key: value for key, value in attributes.items() if value is not None}
        names = [self.name(x) for x in inputs]
        while names and not names[-1]:
            names.pop()
        self.nodes.append(helper.make_node(op, names, results, name=name, **given))
        return results[0] if outputs == 1 else tuple(results)

    def _unused(self, base: str) -> str:
        """A name with a number that no input, output or parameter has, nor another node."""
        self._numbers[base] += 1
        name = f"{base}_{self._numbers[base]}"
        return self._unused(base) if name in self._taken else name

    def name(self, x: Any) -> str:
        """The name of a value, a name or an array; arrays become initializers."""
        if x is None or isinstance(x, str):
            return x or ""
        if isinstance(x, np.ndarray | np.generic):
            return self.constant(np.asarray(x))
        if not x.name or (x.arrays and x.name not in self.initializers):
            if not x.arrays:
                raise OnnxError("the value of a result is needed that ONNX's operator does not have")
            x.name = self._stored(x)
        return x.name

    def constant(self, array: np.ndarray) -> str:
        """The name of an initializer with these values; equal ones are shared."""
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = self._unused("constant")
            self.initializers[name], self._constants[key] = array, name
        return self._constants[key]

    def ints(self, *numbers: int) -> str:
        """An initializer of int64, one-dimensional."""
        return self.constant(np.array(numbers, np.int64))

    def scalar(self, number: float, like: Value) -> str:
        """An initializer with one number in the dtype of a value."""
        return self.constant(np.array(number, like.dtype))

    def _number(self, x: float | Size) -> Value:
        """A Python number among the operands of an operator: the dtype is that of the others."""
        kinds = [v.dtype for v in self.call.inputs if isinstance(v, Value)]
        kinds = [kind for kind in kinds if kind != np.bool_] or kinds  # not that of a condition
        whole = self.call.outputs[0].dtype
        floating = whole if whole.kind in "fV" else np.float32
        dtype = kinds[0] if isinstance(x, int | Size) or kinds[0].kind in "fV" else floating
        if isinstance(x, Size):
            alone = self("Squeeze", self.sizes([x]), *self.axes_input(0), **self.axes_attribute(0))
            return Value((), np.dtype(dtype), self("Cast", alone, to=onnx_type(dtype)))
        return Value((), np.dtype(dtype), arrays=(np.array(x, dtype),))

    def _stored(self, value: Value) -> str:
        """The name of a parameter, a buffer or a constant, put among the initializers."""
        arrays = [np.asarray(to_numpy(x)) for x in value.arrays]
        if any(isinstance(n, Size) for n in value.shape):
            return self._of_varying_shape(value, arrays)
        if not all(np.array_equal(arrays[0], x) for x in arrays[1:]):
            raise OnnxError("a constant changes with the sizes of dynamic axes")
        if not value.name:
            return self.constant(arrays[0])
        self.initializers[value.name] = arrays[0]
        return value.name

    def _of_varying_shape(self, value: Value, arrays: Sequence[np.ndarray]) -> str:
        """A constant whose shape follows dynamic axes: one number everywhere, or numbers in equal steps."""
        first = arrays[0].flat[0]
        if all((x == first).all() for x in arrays):
            return self("Expand", self.constant(np.asarray(first)), self.sizes(value.shape))
        step = arrays[0].flat[1] - first
        if value.dtype.kind == "i" and all(
            x.ndim == 1 and np.array_equal(x, first + step * np.arange(x.size)) for x in arrays
        ):
            count = self("Squeeze", self.sizes(value.shape), *self.axes_input(0), **self.axes_attribute(0))
            count = count if value.dtype == np.int64 else self("Cast", count, to=onnx_type(value.dtype))
            ends = self("Add", self("Mul", count, np.asarray(step)), np.asarray(first))
            return self("Range", np.asarray(first), ends, np.asarray(step))
        raise OnnxError("a constant changes with the sizes of dynamic axes; expected one number, or an arange")

    def axes_input(self, *axes: int) -> list[Any]:
        """Axes as an input of Squeeze, Unsqueeze or ReduceSum, which they are from opset 13 on."""
        return [self.ints(*axes)] if self.opset >= 13 else []

    def axes_attribute(self, *axes: int) -> dict[str, list[int]]:
        """Axes as an attribute of Squeeze, Unsqueeze or ReduceSum, which they are before opset 13."""
        return {} if self.opset >= 13 else {"axes": list(axes)}

    # sizes

    def sizes(self, numbers: Iterable[int | Size]) -> str:
        """The name of a one-dimensional int64 tensor of these numbers."""
        numbers = list(numbers)
        if not any(isinstance(n, Size) for n in numbers):
            return self.ints(*numbers)
        parts = [self._size(n) if isinstance(n, Size) else self.ints(n) for n in numbers]
        return parts[0] if len(parts) == 1 else self("Concat", *parts, axis=0)

    def _size(self, size: Size) -> str:
        if size not in self._known:
            self._known[size] = self._computed(size)
        return self._known[size]

    def _computed(self, size: Size) -> str:
        """A size from those of values: equal to one, a multiple of it, so much more, or the product of two.

        Raises:
            OnnxError: if it follows from them in another way.
        """
        if size in self._sources:
            value, dim = self._sources[size]
            return self("Gather", self("Shape", value), self.ints(dim), axis=0)
        for other in self._sources:
            pairs = list(zip(size.values, other.values, strict=True))
            ratio, difference = pairs[0][0] // pairs[0][1], pairs[0][0] - pairs[0][1]
            if all(a == ratio * b for a, b in pairs):
                return self("Mul", self._size(other), self.ints(ratio))
            if all(a - b == difference for a, b in pairs):
                return self("Add", self._size(other), self.ints(difference))
        for other in self._sources:
            rest = [a / b for a, b in zip(size.values, other.values, strict=True)]
            if all(x.is_integer() for x in rest) and Size(tuple(int(x) for x in rest)) in self._sources:
                return self("Mul", self._size(other), self._size(Size(tuple(int(x) for x in rest))))
        raise OnnxError("a size follows from those of dynamic axes in a way that is not exported")

    def _define(self, value: Value, name: str) -> None:
        value.name = name
        for dim, size in enumerate(value.shape):
            if isinstance(size, Size):
                self._sources.setdefault(size, (value, dim))


def to_numpy(x: Any) -> np.ndarray:
    """The values of a tensor or an array on any device; of a global one the logical tensor."""
    tensor = x if isinstance(x, Tensor) else Tensor._wrap(x)
    if isinstance(tensor._array, GlobalArray):
        tensor = tensor.detach().to_global(sbp=[B] * len(tensor.sbp)).to_local()
    return tensor.detach().cpu().numpy()


def onnx_type(dtype: Any) -> int:
    """The element type in ONNX of a NumPy dtype."""
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def tensor_message(name: str, array: np.ndarray) -> Any:
    """An initializer."""
    return numpy_helper.from_array(np.asarray(array, order="C"), name)
