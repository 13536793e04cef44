"""From the protobuf messages of a graph to a `Body`: operators looked up, functions of the model inlined."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeAlias

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto

from miniflow.errors import OnnxError
from miniflow.onnx.loader.body import Body, Node, dtype_of, python_value
from miniflow.onnx.loader.reader import DEFAULT_DOMAINS, array_of
from miniflow.onnx.loader.registry import OPERATORS, Operator, Value
from miniflow.onnx.loader.unsupported import UNSUPPORTED
from miniflow.tensor import Tensor

Attributes: TypeAlias = Mapping[str, AttributeProto]


@dataclass
class Builder:
    """Builds the nodes of a model, or of one call of a function.

    Attributes:
        opsets: the version of each domain that is imported.
        functions: of the model, by domain and name.
        outer: the attributes of the call, to which those of nodes may refer.
        renamed: the name in the model of a value of the function.
        calls: the number of the next call of a function.
        unsupported: the nodes for which there is no operator, by operator.
    """

    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str], FunctionProto] = field(default_factory=dict)
    outer: Attributes = field(default_factory=dict)
    renamed: Callable[[str], str] = str
    calls: Iterator[int] = field(default_factory=count)
    unsupported: dict[str, list[str]] = field(default_factory=dict)

    def body(self, graph: GraphProto) -> Body:
        """The body of a graph; its initializers are constants on the host."""
        if graph.sparse_initializer:
            raise OnnxError(f"the graph {graph.name!r} has sparse initializers, which are not supported")
        inputs, outputs = ([self.renamed(x.name) for x in values] for values in (graph.input, graph.output))
        constants = {self.renamed(x.name): array_of(x) for x in graph.initializer}
        return Body(list(self.nodes(graph.node)), inputs, outputs, constants)

    def nodes(self, protos: Iterable[NodeProto]) -> Iterator[Node]:
        """Nodes, those of functions in place of their calls."""
        for proto in protos:
            resolved = {a.name: self.outer.get(a.ref_attr_name) if a.ref_attr_name else a for a in proto.attribute}
            attributes = {name: a for name, a in resolved.items() if a is not None}
            inputs, outputs = (list(map(self.renamed, names)) for names in (proto.input, proto.output))
            domain = "" if proto.domain in DEFAULT_DOMAINS else proto.domain
            opset = self.opsets.get(domain, 0)
            operator = None if domain else operator_of(proto.op_type, opset)
            function = self.functions.get((proto.domain, proto.op_type))
            if operator is not None:
                values = {key: self.value(a) for key, a in attributes.items()}
                yield Node(name_of(proto), operator, inputs, outputs, values, opset)
            elif function is not None:
                names = dict(zip(function.input, inputs + [""] * len(function.input), strict=False))
                names |= {inner: outer for inner, outer in zip(function.output, outputs, strict=False) if outer}
                yield from self.inside(function, attributes, names, f" in {function.name} {next(self.calls)}")
            else:
                why = f"opset {opset}" if domain else UNSUPPORTED.get(proto.op_type, f"opset {opset}")
                key = f"{proto.op_type}{domain and f' of the domain {domain!r}'}, {why}"
                self.unsupported.setdefault(key, []).append(name_of(proto))

    def value(self, a: AttributeProto) -> Any:
        """The value of an attribute in Python; of a graph a `Body`."""
        return self.body(a.g) if a.type == AttributeProto.GRAPH else python_value(a)

    def inside(self, function: FunctionProto, attributes: Attributes, names: Mapping, end: str) -> list[Node]:
        """The nodes of a function for one call of it; `names` renames its values, the others get the suffix `end`."""
        outer = {a.name: a for a in function.attribute_proto} | attributes
        opsets = {**self.opsets, **opsets_of(function)}
        inner = replace(self, opsets=opsets, outer=outer, renamed=lambda x: names.get(x, x and x + end))
        return list(inner.nodes(function.node))

    def checked(self, result: Any) -> Any:
        """`result`, if all operators are supported.

        Raises:
            OnnxError: naming those that are not, with their nodes.
        """
        if self.unsupported:
            problems = [f"{operator} ({shortened(nodes)})" for operator, nodes in sorted(self.unsupported.items())]
            raise OnnxError(f"these operators are not supported: {'; '.join(problems)}")
        return result


def body_of(model: ModelProto) -> Body:
    """The body of a model."""
    builder = Builder(opsets_of(model), {(f.domain, f.name): f for f in model.functions})
    return builder.checked(builder.body(model.graph))


def opsets_of(proto: ModelProto | FunctionProto) -> dict[str, int]:
    """The version of each domain that a model or a function imports."""
    return {"" if o.domain in DEFAULT_DOMAINS else o.domain: o.version for o in proto.opset_import}


@functools.cache
def operator_of(name: str, opset: int) -> Operator | None:
    """An operator of the default domain, also one that ONNX defines as a function of others.

    The body of a function may depend on the types of the inputs. It is made when they are known, at the first call with
    such: shape inference of the whole model would tell them before, but a small hostile file lets it take all memory.
    """
    if name in OPERATORS or name in UNSUPPORTED or not onnx.defs.has(name, opset, ""):
        return OPERATORS.get(name)
    schema = onnx.defs.get_schema(name, opset, "")
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if not versions and not schema.has_function:
        return None
    bodies: dict[Any, Body] = {}

    def run(*inputs: Value | None, node: Node, **_: Any) -> list[Value]:
        names = ["" if x is None else str(i) for i, x in enumerate(inputs)]
        proto = onnx.helper.make_node(name, names, node.outputs, **node.attributes)
        types = [type_of(x).SerializeToString() for x in inputs]
        key = proto.SerializeToString(deterministic=True), *types
        if key not in bodies:
            function = schema.function_body
            if versions:
                serialized = schema.get_context_dependent_function_with_opset_version(max(versions), key[0], types)
                function = FunctionProto.FromString(serialized)
            attributes = {a.name: a.default_value for a in schema.attributes.values() if a.default_value.name}
            attributes |= {a.name: a for a in proto.attribute}
            builder, outputs = Builder({"": opset}), list(function.output)[: len(node.outputs)]
            nodes = builder.checked(builder.inside(function, attributes, {}, ""))
            bodies[key] = Body(nodes, list(function.input), outputs, {})
        body = bodies[key]
        device = next((x.device for x in inputs if isinstance(x, Tensor)), "cpu")
        return body.run(dict(zip(body.inputs, inputs, strict=False)), device)

    return Operator(name, run, {}, "Value", ("node", *schema.attributes))


def type_of(x: Value | None) -> onnx.TypeProto:
    """Element type and shape of a value; nothing for an absent one."""
    if x is None:
        return onnx.TypeProto()
    return onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(dtype_of(x)), tuple(x.shape))


def shortened(names: list[str]) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def name_of(node: NodeProto) -> str:
    """`Conv "conv1"`; a node without a name goes by its first output."""
    return f'{node.op_type} "{node.name or next(iter(node.output), "")}"'
