"""What a graph of ONNX computes, as a list of steps over named values.

A value is a `Tensor`, or a NumPy array if it is known on the host: integers among the initializers, constants, shapes
and what is computed of these alone. So shapes that a model computes are Python numbers when an operator asks for them,
also while an `nn.Graph` is being recorded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto

from miniflow.dispatch.tape import modes, no_grad
from miniflow.dtype import BY_NUMPY
from miniflow.errors import GraphTraceError, OnnxError
from miniflow.onnx.loader.reader import array_of
from miniflow.onnx.loader.registry import Operator, Value
from miniflow.ops.creation import from_numpy
from miniflow.tensor import Tensor

KINDS = {"V": "f", "u": "i"}  # a module in another precision keeps its constants: floats may differ, and integers


@dataclass(eq=False)
class Node:
    """One node of a graph.

    Attributes:
        name: in errors: `Conv "conv1"`.
        operator: what computes it.
        inputs, outputs: names of values, "" for absent ones.
        attributes: by name; graphs are `Body`s.
        opset: of the operator's domain.
        last: names of values that no later node reads.
    """

    name: str
    operator: Operator
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    opset: int
    last: list[str] = field(default_factory=list)

    def compute(self, values: Mapping[str, Value], device: Any) -> list[Value]:
        """The values of the outputs, given those of all names.

        Raises:
            OnnxError: with the name of the node, for what the operator refuses.
        """
        inputs = [values.get(name) for name in self.inputs]
        # graphs may read tensors around them
        graphs = any(isinstance(x, Body) or callable(x) for x in self.attributes.values())
        known = bool(inputs) and not graphs and not any(isinstance(x, Tensor) for x in inputs)
        try:
            self._check_types(inputs)
            if known:
                with on_host():
                    results = [x.numpy() if isinstance(x, Tensor) else x for x in self._call(inputs, values, "cpu")]
                return self._narrowed(results, inputs)
            results = self._narrowed(self._call(inputs, values, device), inputs)
            return results if inputs else [x.to(device) if isinstance(x, Tensor) else x for x in results]
        except GraphTraceError:
            raise
        except Exception as error:  # whatever an operator raises: the node is what the caller knows
            first = error if isinstance(error, OnnxError) else OnnxError(str(error))
            raise OnnxError(first.message, first.node or self.name) from error

    def _call(self, inputs: Sequence[Value | None], values: Mapping[str, Value], device: Any) -> Sequence[Value | None]:
        operator, keywords = self.operator, {}
        for name, value in {**defaults(operator.name, self.opset), **self.attributes, "node": self}.items():
            if name in operator.keywords or (operator.any_keyword and name not in operator.inputs and name != "node"):
                keywords[name] = value.function(values, device) if isinstance(value, Body) else value
            elif name in operator.inputs:  # older versions had it as an attribute
                keywords[name] = as_argument(np.array(value), operator.inputs[name], device)
        if operator.variadic:
            results = operator.function(*[as_argument(x, operator.variadic, device) for x in inputs], **keywords)
        else:
            for (name, annotation), value in zip(operator.inputs.items(), inputs, strict=False):
                if value is not None:
                    keywords[name] = as_argument(value, annotation, device)
            results = operator.function(**keywords)
        return results if isinstance(results, tuple | list) else (results,)

    def _check_types(self, inputs: Sequence[Value | None]) -> None:
        """Refuse inputs of different element types where the schema has one type variable for them."""
        (variables, _), dtypes = type_variables(self.operator.name, self.opset), {}
        for variable, x in zip([*variables, *variables[-1:] * len(inputs)], inputs, strict=False):
            if x is not None and variable:
                dtype = dtype_of(x)
                first = dtypes.setdefault(variable, dtype)
                if KINDS.get(first.kind, first.kind) != KINDS.get(dtype.kind, dtype.kind):
                    raise OnnxError(f"got operands of the types {first}, {dtype}; expected one")

    def _narrowed(self, results: Sequence[Value | None], inputs: Sequence[Value | None]) -> Sequence[Value | None]:
        """Results in the unsigned type that an input has of the same type variable; they are computed in int64."""
        unsigned = [i for i, x in enumerate(inputs) if isinstance(x, np.ndarray) and is_unsigned(x.dtype)]
        if not unsigned:
            return results
        variables, outputs = type_variables(self.operator.name, self.opset)
        dtypes = {variables[min(i, len(variables) - 1)]: inputs[i].dtype for i in unsigned}
        arrays = [x.numpy() if isinstance(x, Tensor) else x for x in results]
        outputs = [*outputs, *outputs[-1:] * len(arrays)]  # the last may stand for any number of them
        return [x.astype(dtypes[v]) if v in dtypes else x for x, v in zip(arrays, outputs, strict=False)]


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

    def run(self, inputs: Mapping[str, Value], device: Any) -> list[Value]:
        """The values of the outputs.

        Args:
            inputs: the values of the inputs and, in a subgraph, of the graphs around it.
            device: of tensors that are made.
        """
        values = {**inputs, **self.constants}
        for node in self.nodes:
            values.update(zip(node.outputs, node.compute(values, device), strict=False))
            for name in node.last:
                values.pop(name, None)
        return [values.get(name) for name in self.outputs]  # functions need not compute optional ones

    def function(self, outer_values: Mapping[str, Value], device: Any) -> Callable[..., list[Value]]:
        """The graph as a function of its inputs, with the values around it."""
        return lambda *inputs: self.run({**outer_values, **dict(zip(self.inputs, inputs, strict=True))}, device)


def names_read_inside(node: Node) -> set[str]:
    """The values around a node that the graphs among its attributes may read."""
    names: set[str] = set()
    for body in node.attributes.values():
        if isinstance(body, Body):
            names.update(body.outputs, *[{*inner.inputs, *names_read_inside(inner)} for inner in body.nodes])
    return names


@functools.cache
def type_variables(name: str, opset: int) -> tuple[list[str], list[str]]:
    """The type variables of the inputs of an operator, "" for those whose types may differ; and of its outputs."""
    schema = onnx.defs.get_schema(name, opset)
    return [x.type_str if x.is_homogeneous else "" for x in schema.inputs], [x.type_str for x in schema.outputs]


@functools.cache
def defaults(name: str, opset: int) -> dict[str, Any]:
    """The attributes of an operator that have a default value."""
    attributes = onnx.defs.get_schema(name, opset).attributes.values()
    return {a.name: python_value(a.default_value) for a in attributes if a.default_value.name}


def python_value(a: AttributeProto) -> Any:
    """The value of an attribute in Python; of a tensor an array."""
    value = array_of(a.t) if a.type == AttributeProto.TENSOR else onnx.helper.get_attribute_value(a)
    if isinstance(value, list):
        return [x.decode("utf-8", "replace") if isinstance(x, bytes) else x for x in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def as_argument(value: Value, annotation: str, device: Any) -> Any:
    """A value as a parameter of this annotation takes it; see `registry`."""
    if value is None or annotation == "Value":
        return value
    if annotation in ("Ints", "Array"):
        array = value.numpy() if isinstance(value, Tensor) else value
        return array if annotation == "Array" else [int(x) for x in np.ravel(array)]
    if isinstance(value, Tensor):
        return value
    if annotation == "Number" and value.ndim == 0:
        return value.item()
    if is_unsigned(value.dtype):  # which tensors do not have
        if value.size and value.max() > np.iinfo(np.int64).max:
            raise OnnxError(f"got {value.max()} in {value.dtype}; expected at most {np.iinfo(np.int64).max}")
        value = value.astype(np.int64)
    if value.dtype not in BY_NUMPY:
        raise OnnxError(f"got values of type {value.dtype}; expected one of the dtypes of miniflow")
    return from_numpy(np.array(value)).to(device)


def is_unsigned(dtype: np.dtype) -> bool:
    """Whether it is uint16, uint32 or uint64."""
    return dtype.kind == "u" and dtype.itemsize > 1


def dtype_of(x: Value) -> np.dtype:
    """The NumPy dtype of a value."""
    return x.dtype.numpy if isinstance(x, Tensor) else x.dtype


@contextmanager
def on_host() -> Iterator[None]:
    """Compute at once, without recording, also while a graph is being recorded."""
    tracer, modes.tracer = modes.tracer, None
    try:
        with no_grad():
            yield
    finally:
        modes.tracer = tracer
