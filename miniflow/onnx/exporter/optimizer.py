"""Rewrites of a graph of ONNX that leave what it computes as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

GROWTH = 1 << 16  # bytes by which a folded constant may make the model larger
SMALL = 1024  # elements that shape inference and the checker are shown
RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
UNKNOWN = 0, (None,)
KEPT = ("QuantizeLinear", "DequantizeLinear")  # of constants too: they say how a weight is stored


@dataclass
class OnnxGraph:
    """A graph that is rewritten.

    Attributes:
        opset: of the nodes.
        nodes: in the order in which they run; rewrites change them in place.
        initializers: values by name.
        inputs, outputs: their names stay.
        types: element type and shape of each value that is known; sizes are numbers, names, or None.
        output_names: the names of the outputs.
        producers: the node that computes each value, when a rewrite begins.
        uses: how often each value is read.
        firsts: the first node of each kind that a rewrite has seen.
    """

    opset: int
    nodes: list[NodeProto]
    initializers: dict[str, np.ndarray]
    inputs: Sequence[ValueInfoProto]
    outputs: Sequence[ValueInfoProto]
    types: dict[str, tuple[int, tuple]] = field(default_factory=dict)

    def optimize(self) -> None:
        """Do all rewrites until nothing changes."""
        graph = onnx.shape_inference.infer_shapes(self.model(SMALL), data_prop=True).graph
        self.types = {x.name: kind_of(x) for x in (*graph.input, *graph.value_info, *graph.output)}
        self.types.update({x.name: (x.data_type, tuple(x.dims)) for x in graph.initializer})
        before = None
        while before != (before := [node.SerializeToString() for node in self.nodes]):
            for rule in RULES:
                self.rewrite(rule)
            self.remove_dead_code()

    def rewrite(self, rule: Callable[[OnnxGraph, NodeProto], Sequence[str] | None]) -> None:
        """Apply a rule to each node: it may change the node, or return values equal to its results; then the node goes.

        A result that is an output of the graph keeps its name: the equal value takes it, if a node computes that.
        """
        self.output_names, self.firsts = {x.name for x in self.outputs}, {}
        self.producers = {name: node for node in self.nodes for name in node.output}
        self.uses = Counter([*self.output_names, *(name for node in self.nodes for name in node.input)])
        nodes, self.nodes, names = self.nodes, [], {}

        def current(name: str) -> str:
            while name in names:
                name = names[name]
            return name

        for node in nodes:
            new = [current(name) for name in rule(self, node) or ()]
            old = list(node.output[: len(new)])
            if len(new) == 1 and old[0] in self.output_names and new[0] in self.producers:
                old, new = new, old
            if new and self.output_names.isdisjoint(old):
                names.update((a, b) for a, b in zip(old, new, strict=True) if a != b)
            else:
                self.nodes.append(node)
        for node in self.nodes if names else ():
            for fields in (node.input, node.output):
                fields[:] = map(current, fields)

    def remove_dead_code(self) -> None:
        """Remove nodes and initializers that nothing reads."""
        needed = {x.name for x in self.outputs}
        for node in reversed(self.nodes):
            if not needed.isdisjoint(node.output):
                needed.update(name for name in node.input if name)
        self.nodes = [node for node in self.nodes if not needed.isdisjoint(node.output)]
        self.initializers = {name: x for name, x in self.initializers.items() if name in needed}

    def model(self, largest: float = inf) -> ModelProto:
        """The model; initializers with more elements are inputs: shape inference and the checker copy what they get."""
        arrays = self.initializers.items()
        weights = [helper.make_tensor_value_info(name, *kind_of(x)) for name, x in arrays if x.size > largest]
        tensors = [numpy_helper.from_array(x, name) for name, x in arrays if x.size <= largest]
        graph = helper.make_graph(self.nodes, "graph", [*self.inputs, *weights], self.outputs, tensors)
        ids = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=ids, ir_version=helper.find_min_ir_version_for(ids))


def kind_of(x: ValueInfoProto | np.ndarray) -> tuple[int, tuple]:
    """Element type and shape."""
    if isinstance(x, np.ndarray):
        return helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
    tensor = x.type.tensor_type
    sizes = [n.dim_value if n.HasField("dim_value") else n.dim_param or None for n in tensor.shape.dim]
    return tensor.elem_type, tuple(sizes) if tensor.HasField("shape") else UNKNOWN[1]


def attributes(node: NodeProto) -> dict[str, Any]:
    """The attributes of a node by name."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


# rules: what stands for the results of a node, or None


def identity(g: OnnxGraph, node: NodeProto) -> Sequence[str] | None:
    """The first input, of nodes that return what they get, such as a Cast to the same type."""
    if node.op_type not in ("Identity", "Cast", "Transpose", "Expand", *RESHAPES):
        return None
    (elem_type, shape), (_, result) = (g.types.get(name, UNKNOWN) for name in (node.input[0], node.output[0]))
    if node.op_type == "Cast":
        same = attributes(node)["to"] == elem_type
    elif node.op_type == "Transpose":
        order = attributes(node).get("perm")
        same = order is not None and list(order) == sorted(order)
    else:
        unequal = sum(a is None or a != b for a, b in zip(shape, result, strict=False))
        # of a reshape all sizes but one tell the last one, unless there are no elements
        one_may_differ = node.op_type != "Expand" and 0 not in shape and len(shape) > 1
        same = node.op_type == "Identity" or len(shape) == len(result) and unequal <= one_may_differ
    return node.input[:1] if same else None


def merge_pairs(g: OnnxGraph, node: NodeProto) -> None:
    """Two Transposes or reshapes in a row become one; the first goes if nothing else reads it."""
    first = g.producers.get(node.input[0]) if node.input else None
    if first and node.op_type == first.op_type == "Transpose":
        inner, outer = attributes(first)["perm"], attributes(node)["perm"]
        node.attribute[0].ints[:] = [inner[d] for d in outer]
        node.input[0] = first.input[0]
    elif first and node.op_type == "Reshape" and first.op_type in RESHAPES:
        if 0 not in g.initializers.get(node.input[1], [0]):  # which would copy a size
            node.input[0] = first.input[0]


def fold_constants(g: OnnxGraph, node: NodeProto) -> Sequence[str] | None:
    """An initializer that replaces a node whose inputs are all initializers, unless the model grows much."""
    name, arrays = node.output[0], {name: g.initializers.get(name) for name in node.input if name}
    elem_type, shape = g.types.get(name, UNKNOWN)
    constant = arrays and all(x is not None for x in arrays.values())
    foldable = node.op_type not in KEPT and len(node.output) == 1 and name not in g.output_names
    if not (constant and foldable and elem_type and all(isinstance(n, int) for n in shape)):
        return None
    dtype = helper.tensor_dtype_to_np_dtype(elem_type)
    freed = sum(x.nbytes for key, x in arrays.items() if g.uses[key] == 1)
    if prod(shape) * dtype.itemsize > freed + GROWTH:
        return None
    if g.uses[node.input[0]] == 1 and node.input[0] in arrays:  # a weight keeps its name
        name = node.input[0]
    g.initializers[name] = np.asarray(computed([node], arrays, node.output[0], g.opset), dtype)
    g.types[name] = elem_type, shape
    return [name]


def computed(nodes: Sequence[NodeProto], arrays: dict[str, np.ndarray], name: str, opset: int) -> np.ndarray:
    """The value that nodes of constants compute."""
    inputs = [helper.make_tensor_value_info(key, *kind_of(x)) for key, x in arrays.items()]
    graph = helper.make_graph(nodes, "constant", inputs, [helper.make_empty_tensor_value_info(name)])
    return np.asarray(ReferenceEvaluator(graph, {"": opset}).run(None, arrays)[0])


def merge_duplicates(g: OnnxGraph, node: NodeProto) -> Sequence[str] | None:
    """The results of the first node with the same operator, inputs and attributes."""
    computation = NodeProto(op_type=node.op_type, input=node.input, attribute=node.attribute)
    first = g.firsts.setdefault((computation.SerializeToString(), len(node.output)), node)
    return None if first is node else first.output


def fold_batch_norms(g: OnnxGraph, norm: NodeProto) -> Sequence[str] | None:
    """The result of a Conv, ConvTranspose or Gemm that only this BatchNormalization reads: the weights include it."""
    node = g.producers.get(norm.input[0]) if norm.op_type == "BatchNormalization" else None
    if node is None or node.op_type not in ("Conv", "ConvTranspose", "Gemm") or g.uses[norm.input[0]] > 1:
        return None
    options = attributes(node)
    bias = node.input[2] if len(node.input) > 2 else norm.input[2]
    input_names = [node.input[1], bias, *norm.input[1:5]]
    arrays = [g.initializers.get(name) for name in input_names]
    supported = node.op_type != "ConvTranspose" or options.get("group", 1) == 1
    if any(x is None for x in arrays) or g.uses[node.input[1]] > 1 or g.uses[bias] > 1 or not supported:
        return None
    weight, shift, scale, offset, mean, variance = [x.astype(np.float64) for x in arrays]
    factor = scale / np.sqrt(variance + attributes(norm).get("epsilon", 1e-5))
    shift = offset - mean * factor + (shift * factor if len(node.input) > 2 else 0)
    channels = 0 if node.op_type == "Conv" or options.get("transB") else 1  # the dim of the weight with the output's
    factor = factor.reshape([-1 if d == channels else 1 for d in range(weight.ndim)])
    for name, x in ((input_names[0], weight * factor), (bias, shift)):
        g.initializers[name] = x.astype(arrays[0].dtype)
    node.input[2:] = [bias]
    return node.output


RULES = (merge_duplicates, identity, merge_pairs, fold_constants, fold_batch_norms)
