"""From the protobuf messages of a graph to a `Body`: operators looked up, attributes as Python values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto

from miniflow.errors import OnnxError
from miniflow.onnx.loader.body import Body, Node, dtype_of
from miniflow.onnx.loader.reader import DEFAULT_DOMAINS, array_of
from miniflow.onnx.loader.registry import Operator, Value, find
from miniflow.onnx.loader.unsupported import UNSUPPORTED
from miniflow.tensor import Tensor


@dataclass
class Builder:
    """Builds the bodies of one model.

    Attributes:
        opsets: the version of each domain that the model imports.
        functions: of the model, by domain and name.
        unsupported: the nodes for which there is no operator, by operator.
    """

    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str], FunctionProto]
    unsupported: dict[str, list[str]] = field(default_factory=dict)

    def model(self, graph: GraphProto, weights: dict[str, np.ndarray]) -> Body:
        """The body of the main graph.

        Raises:
            OnnxError: naming all operators that are not supported, with their nodes.
        """
        body = self.body(graph, weights)
        if self.unsupported:
            each = [f"{operator} ({shortened(nodes)})" for operator, nodes in sorted(self.unsupported.items())]
            raise OnnxError("these operators are not supported: " + "; ".join(each))
        return body

    def body(self, graph: GraphProto, weights: dict[str, np.ndarray] | None = None) -> Body:
        """The body of a graph; its initializers are constants on the host."""
        if graph.sparse_initializer:
            raise OnnxError(f"the graph {graph.name!r} has sparse initializers, which are not supported")
        constants = {x.name: array_of(x, None) for x in graph.initializer} if weights is None else dict(weights)
        nodes = [self.node(node) for node in graph.node]
        return Body(nodes, [x.name for x in graph.input], [x.name for x in graph.output], constants)

    def node(self, proto: NodeProto, outer: Mapping[str, AttributeProto] | None = None) -> Node:
        """One node; in the body of a function its attributes may refer to those of the call, `outer`."""
        opset = self.opsets.get("" if proto.domain in DEFAULT_DOMAINS else proto.domain, 0)
        messages = {a.name: a for a in resolved(proto.attribute, outer or {})}
        operator = find(proto.op_type, opset) if proto.domain in DEFAULT_DOMAINS else None
        if operator is None:
            operator = self.function_body(proto, messages) or self.typed_function(proto, opset)
        if operator is None:
            domain = f" of the domain {proto.domain!r}" if proto.domain not in DEFAULT_DOMAINS else ""
            why = UNSUPPORTED.get(proto.op_type, f"opset {opset}") if not domain else f"opset {opset}"
            self.unsupported.setdefault(f"{proto.op_type}{domain}, {why}", []).append(name_of(proto))
            operator = Body([], [], [], {})
        attributes = {name: self.attribute(a) for name, a in messages.items()}
        alike = inputs_of_one_type(schema_of(proto, opset), len(proto.input))
        return Node(name_of(proto), operator, list(proto.input), list(proto.output), attributes, opset, alike)

    def attribute(self, a: AttributeProto) -> Any:
        """The value of an attribute in Python; of a tensor an array, of a graph a `Body`."""
        if a.type == AttributeProto.GRAPH:
            return self.body(a.g)
        if a.type == AttributeProto.TENSOR:
            return array_of(a.t, None)
        value = onnx.helper.get_attribute_value(a)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if isinstance(value, Iterable) and not isinstance(value, str):
            return [x.decode("utf-8", "replace") if isinstance(x, bytes) else x for x in value]
        return value

    def function_body(self, proto: NodeProto, attributes: Mapping[str, AttributeProto]) -> Body | None:
        """The body of a function of the model, or of an operator that ONNX defines as a function; None for others."""
        function = self.functions.get((proto.domain, proto.op_type))
        schema = schema_of(proto, self.opsets.get("", 0))
        if function is None and schema is not None:
            function = schema.function_body if schema.has_function else None
        return None if function is None else self.expanded(function, proto, attributes)

    def expanded(self, function: FunctionProto, proto: NodeProto, attributes: Mapping[str, AttributeProto]) -> Body:
        """The body of a function for one call of it."""
        opsets = {"" if o.domain in DEFAULT_DOMAINS else o.domain: o.version for o in function.opset_import}
        defaults = {a.name: a for a in function.attribute_proto}
        if (proto.domain, proto.op_type) not in self.functions:
            schema = onnx.defs.get_schema(proto.op_type, self.opsets[""], "")
            defaults = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.name}
        inner = Builder({**self.opsets, **opsets}, self.functions, self.unsupported)
        nodes = [inner.node(node, {**defaults, **attributes}) for node in function.node]
        return Body(nodes, list(function.input), list(function.output)[: len(proto.output)], {})

    def typed_function(self, proto: NodeProto, opset: int) -> Operator | None:
        """An operator that ONNX defines as a function whose body depends on the types of its inputs.

        The body is made when they are known, at the first call with inputs of such types: shape inference of the whole
        model would tell them before, but a small hostile file lets it take all memory.
        """
        schema = schema_of(proto, opset)
        if schema is None or not schema.has_context_dependent_function or proto.op_type in UNSUPPORTED:
            return None
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        bodies: dict[tuple, Body] = {}

        def run(*inputs: Value | None, node: Node, **attributes: Any) -> list[Value]:
            types = [type_of(x).SerializeToString() for x in inputs]
            if tuple(types) not in bodies:
                made = schema.get_context_dependent_function_with_opset_version(
                    max(versions), proto.SerializeToString(), types
                )
                own = {a.name: a for a in proto.attribute}
                bodies[tuple(types)] = self.expanded(FunctionProto.FromString(made), proto, own)
            body = bodies[tuple(types)]
            device = next((x.device for x in inputs if isinstance(x, Tensor)), "cpu")
            return body.run(dict(zip(body.inputs, inputs, strict=False)), device)

        return Operator(proto.op_type, max(versions), run, {}, "Value", tuple(schema.attributes), True)


def schema_of(proto: NodeProto, opset: int) -> onnx.defs.OpSchema | None:
    """What ONNX says about an operator of the default domain; None for others."""
    if proto.domain not in DEFAULT_DOMAINS or not onnx.defs.has(proto.op_type, opset, ""):
        return None
    return onnx.defs.get_schema(proto.op_type, opset, "")


def inputs_of_one_type(schema: onnx.defs.OpSchema | None, count: int) -> list[list[int]]:
    """The inputs whose element types have to be equal: those with the same type variable."""
    groups: dict[str, list[int]] = {}
    for i in range(count if schema is not None and schema.inputs else 0):
        parameter = schema.inputs[min(i, len(schema.inputs) - 1)]
        if parameter.is_homogeneous:
            groups.setdefault(parameter.type_str, []).append(i)
    return [group for group in groups.values() if len(group) > 1]


def type_of(x: Value | None) -> onnx.TypeProto:
    """Element type and shape of a value; nothing for an absent one."""
    if x is None:
        return onnx.TypeProto()
    return onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(dtype_of(x)), tuple(x.shape))


def resolved(messages: Iterable[AttributeProto], outer: Mapping[str, AttributeProto]) -> Iterable[AttributeProto]:
    """Attributes with the values that references to attributes of the call stand for; absent ones are left out."""
    for a in messages:
        if not a.ref_attr_name:
            yield a
        elif a.ref_attr_name in outer:
            copy = AttributeProto()
            copy.CopyFrom(outer[a.ref_attr_name])
            copy.name = a.name
            yield copy


def shortened(names: list[str]) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def name_of(node: NodeProto) -> str:
    """`Conv "conv1"`; a node without a name goes by its first output."""
    return f'{node.op_type} "{node.name or next(iter(node.output), "")}"'
