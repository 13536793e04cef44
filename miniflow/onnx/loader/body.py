"""What a graph of ONNX computes, as a list of steps over named values.

A value is a `Tensor`, or a NumPy array if it is known on the host: integers among the initializers, constants, shapes
and what is computed of these alone. So shapes that a model computes are Python numbers when an operator asks for them,
also while an `nn.Graph` is being recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from miniflow.dtype import BY_NUMPY
from miniflow.errors import GraphTraceError, OnnxError
from miniflow.onnx.loader.registry import Operator, Value
from miniflow.ops.creation import from_numpy
from miniflow.tape import modes, no_grad
from miniflow.tensor import Tensor

KINDS = {"V": "f", "u": "i"}  # a module in another precision keeps its constants: floats may differ, and integers


@dataclass(eq=False)
class Node:
    """One node of a graph.

    Attributes:
        name: in errors: `Conv "conv1"`.
        operator: what computes it; or a `Body`, for a function.
        inputs, outputs: names of values, "" for absent ones.
        attributes: by name; graphs are `Subgraph`s.
        opset: of the operator's domain.
        alike: positions of inputs that have to be of one element type.
        last: names of values that no later node reads.
    """

    name: str
    operator: Operator | Body
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    opset: int
    alike: list[list[int]] = field(default_factory=list)
    last: list[str] = field(default_factory=list)

    def compute(self, values: Mapping[str, Value], device: Any) -> list[Value]:
        """The values of the outputs, given those of all names.

        Raises:
            OnnxError: with the name of the node, for what the operator refuses.
        """
        inputs = [values.get(name) for name in self.inputs]
        if isinstance(self.operator, Body):
            return self.operator.run(dict(zip(self.operator.inputs, inputs, strict=False)), device)
        # graphs may read tensors around them
        graphs = any(isinstance(x, Body) or callable(x) for x in self.attributes.values())
        known = bool(inputs) and not graphs and not any(isinstance(x, Tensor) for x in inputs)
        for group in self.alike:
            dtypes = [dtype_of(inputs[i]) for i in group if inputs[i] is not None]
            if len({KINDS.get(dtype.kind, dtype.kind) for dtype in dtypes}) > 1:
                raise OnnxError(f"got operands of the types {', '.join(map(str, dtypes))}; expected one", self.name)
        try:
            if not known:
                results = self._narrowed(self._call(inputs, values, device), inputs)
                return results if inputs else [x.to(device) if isinstance(x, Tensor) else x for x in results]
            with on_host():
                results = self._call(inputs, values, "cpu")
                return self._narrowed([x.numpy() if isinstance(x, Tensor) else x for x in results], inputs)
        except GraphTraceError:
            raise
        except OnnxError as error:
            raise OnnxError(error.message, error.node or self.name) from error
        except Exception as error:  # whatever an operator raises: the node is what the caller knows
            raise OnnxError(str(error), self.name) from error

    def _call(self, inputs: Sequence[Value | None], values: Mapping[str, Value], device: Any) -> Sequence[Value | None]:
        operator = self.operator
        keywords = {
            name: Subgraph(value, values, device) if isinstance(value, Body) else value
            for name, value in self.attributes.items()
            if name in operator.attributes
        }
        if operator.wants_node:
            keywords["node"] = self
        if operator.variadic:
            results = operator.function(*[as_argument(x, operator.variadic, device) for x in inputs], **keywords)
        else:
            for (name, kind), value in zip(operator.inputs.items(), inputs, strict=False):
                if value is not None:
                    keywords[name] = as_argument(value, kind, device)
            for name in operator.inputs:  # an input that older versions had as an attribute
                if name in self.attributes:
                    keywords[name] = as_argument(np.array(self.attributes[name]), operator.inputs[name], device)
            results = operator.function(**keywords)
        return results if isinstance(results, tuple | list) else (results,)

    def _narrowed(self, results: Sequence[Value | None], inputs: Sequence[Value | None]) -> Sequence[Value | None]:
        """Results that have the type of an input by the schema, in that type where it was widened; see `widened`."""
        narrow = [i for i, x in enumerate(inputs) if isinstance(x, np.ndarray) and is_narrow(x.dtype)]
        if not narrow:
            return results
        schema = onnx.defs.get_schema(self.operator.name, self.opset)
        dtypes = {schema.inputs[min(i, len(schema.inputs) - 1)].type_str: inputs[i].dtype for i in narrow}
        outputs = [schema.outputs[min(i, len(schema.outputs) - 1)].type_str for i in range(len(results))]
        arrays = [x.numpy() if isinstance(x, Tensor) else x for x in results]
        return [x.astype(dtypes[kind]) if kind in dtypes else x for x, kind in zip(arrays, outputs, strict=True)]


@dataclass(eq=False)
class Body:
    """A graph or a function: its nodes in order, and what it takes and returns.

    Attributes:
        nodes: in an order in which every value is computed before it is read.
        inputs, outputs: names of values.
        constants: values on the host by name.
    """

    nodes: list[Node]
    inputs: list[str]
    outputs: list[str]
    constants: dict[str, np.ndarray]

    def __post_init__(self) -> None:
        read: set[str] = set(self.outputs)
        for node in reversed(self.nodes):
            names = {*node.inputs, *node.outputs, *names_read_inside(node)} - {""}
            node.last = sorted(names - read)
            read |= names

    def run(self, given: Mapping[str, Value], device: Any) -> list[Value]:
        """The values of the outputs.

        Args:
            given: the values of the inputs and, in a subgraph, of all that is around it.
            device: of tensors that are made.
        """
        values = {**given, **self.constants}
        for node in self.nodes:
            values.update(zip(node.outputs, node.compute(values, device), strict=False))
            for name in node.last:
                values.pop(name, None)
        return [values.get(name) for name in self.outputs]  # functions need not compute optional ones


@dataclass
class Subgraph:
    """A graph among the attributes of a node, with the values around it: call it with the values of its inputs."""

    body: Body
    around: Mapping[str, Value]
    device: Any

    def __call__(self, *inputs: Value) -> list[Value]:
        return self.body.run({**self.around, **dict(zip(self.body.inputs, inputs, strict=True))}, self.device)


def names_read_inside(node: Node) -> set[str]:
    """The values around a node that the graphs among its attributes may read."""
    found: set[str] = set()
    for value in node.attributes.values():
        if isinstance(value, Body):
            for inner in value.nodes:
                found |= {*inner.inputs, *names_read_inside(inner)}
            found |= set(value.outputs)
    return found


def as_argument(value: Value, kind: str, device: Any) -> Any:
    """A value as a parameter of this annotation takes it; see `registry`."""
    if value is None or kind == "Value":
        return value
    if kind in ("Ints", "Array"):
        array = value.numpy() if isinstance(value, Tensor) else value
        return array if kind == "Array" else [int(x) for x in np.ravel(array)]
    if isinstance(value, Tensor):
        return value
    if kind == "Number" and value.ndim == 0:
        return value.item()
    return from_numpy(widened(np.array(value))).to(device)


def dtype_of(x: Value) -> np.dtype:
    """The NumPy dtype of a value."""
    return x.dtype.numpy if isinstance(x, Tensor) else x.dtype


def is_narrow(dtype: np.dtype) -> bool:
    """Whether it is a number type that tensors do not have: unsigned integers, float8, 4 and 2 bits."""
    return dtype not in BY_NUMPY and dtype.kind in "ufV"


def widened(array: np.ndarray) -> np.ndarray:
    """Values of a type that tensors do not have, in one that holds them exactly; others as they are."""
    if not is_narrow(array.dtype):
        if array.dtype not in BY_NUMPY:
            raise OnnxError(f"got values of type {array.dtype}; expected one of the dtypes of miniflow")
        return array
    wide = array.astype(np.int64 if array.dtype.kind == "u" else np.float32)
    if array.dtype == np.uint64 and (wide < 0).any():
        raise OnnxError(f"got {array.max()} in uint64; expected at most {np.iinfo(np.int64).max}")
    return wide


@contextmanager
def on_host() -> Iterator[None]:
    """Compute for good, also while a graph is being recorded."""
    tracer, modes.tracer = modes.tracer, None
    try:
        with no_grad():
            yield
    finally:
        modes.tracer = tracer
