"""Rewrites of a graph of ONNX that leave what it computes as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

GROWTH = 1 << 16  # bytes by which a folded constant may make the model larger
SMALL = 1024  # elements that shape inference and the checker are shown, and that stay inside the model
RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
UNKNOWN = 0, (None,)
KEPT = ("QuantizeLinear", "DequantizeLinear")  # of constants too: they say how a weight is stored


@dataclass
class OnnxGraph:
    """A graph that is rewritten.

    Attributes:
        opset: of the nodes.
        nodes: in the order in which they run; rewrites change them in place and put None for those that go.
        initializers: values by name.
        inputs, outputs: their names stay.
        kinds: element type and shape of each value that is known; sizes are numbers, names, or None.
        renamed: values that have got another name, or for which another one stands in, during a rewrite.
    """

    opset: int
    nodes: list[NodeProto | None]
    initializers: dict[str, np.ndarray]
    inputs: Sequence[ValueInfoProto]
    outputs: Sequence[ValueInfoProto]
    kinds: dict[str, tuple[int, tuple]] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)

    def optimize(self) -> None:
        """Do all rewrites until nothing changes."""
        graph = onnx.shape_inference.infer_shapes(self.without_weights(), data_prop=True).graph
        self.kinds = {x.name: kind_of(x) for x in (*graph.input, *graph.value_info, *graph.output)}
        self.kinds.update({x.name: (x.data_type, tuple(x.dims)) for x in graph.initializer})
        before = None
        while before != (before := [node.SerializeToString() for node in self.nodes]):
            for rewrite in REWRITES:
                rewrite(self)
                self.nodes = [node for node in self.nodes if node is not None]
                for node in self.nodes if self.renamed else ():
                    for names in (node.input, node.output):
                        names[:] = map(self.current, names)
                self.renamed = {}

    def without_weights(self) -> ModelProto:
        """The model, large initializers as inputs: for shape inference and the checker, which copy what they get."""
        arrays = self.initializers.items()
        weights = [helper.make_tensor_value_info(name, type_of(x), x.shape) for name, x in arrays if x.size > SMALL]
        small = [numpy_helper.from_array(x, name) for name, x in arrays if x.size <= SMALL]
        graph = helper.make_graph(self.nodes, "graph", [*self.inputs, *weights], self.outputs, small)
        ids = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=ids, ir_version=helper.find_min_ir_version_for(ids))

    def current(self, name: str) -> str:
        """The name that stands for a value now."""
        while name in self.renamed:
            name = self.renamed[name]
        return name

    def kept(self) -> set[str]:
        """The names of the outputs."""
        return {x.name for x in self.outputs}

    def producers(self) -> dict[str, NodeProto]:
        """The node that computes each value."""
        return {name: node for node in self.nodes for name in node.output}

    def uses(self) -> Counter[str]:
        """How often each value is read."""
        return Counter([*self.kept(), *(name for node in self.nodes for name in node.input)])

    def constant(self, name: str) -> np.ndarray | None:
        """The values of an initializer."""
        return self.initializers.get(self.current(name))


def type_of(array: np.ndarray) -> int:
    """The element type of an array."""
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def kind_of(x: ValueInfoProto) -> tuple[int, tuple]:
    """Element type and shape."""
    tensor = x.type.tensor_type
    sizes = [n.dim_value if n.HasField("dim_value") else n.dim_param or None for n in tensor.shape.dim]
    return tensor.elem_type, tuple(sizes) if tensor.HasField("shape") else UNKNOWN[1]


def attributes(node: NodeProto) -> dict[str, Any]:
    """The attributes of a node by name."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


# rewrites


def remove_identities(g: OnnxGraph) -> None:
    """Nodes that return what they get, such as a Cast to the same type."""
    producers, kept = g.producers(), g.kept()
    for i, node in enumerate(g.nodes):
        if does_nothing(node, g):
            old, new = node.output[0], g.current(node.input[0])
            if old in kept:  # the value that goes in gets its name
                old, new = new, old
            if old in producers and old not in kept:
                g.renamed[old] = new
                g.nodes[i] = None


def does_nothing(node: NodeProto, g: OnnxGraph) -> bool:
    """Whether the first input of a node is its result."""
    if node.op_type == "Identity":
        return True
    if node.op_type not in ("Cast", "Transpose", "Expand", *RESHAPES):
        return False
    (kind, shape), (_, result) = (g.kinds.get(name, UNKNOWN) for name in (node.input[0], node.output[0]))
    if node.op_type == "Cast":
        return attributes(node)["to"] == kind
    if node.op_type == "Transpose":
        order = attributes(node).get("perm")
        return order is not None and list(order) == sorted(order)
    unequal = sum(a is None or a != b for a, b in zip(shape, result, strict=False))
    # of a reshape all sizes but one tell the last one, unless there are no elements
    one_may_differ = node.op_type != "Expand" and 0 not in shape
    return len(shape) == len(result) and (unequal == 0 or unequal == 1 and one_may_differ and len(shape) > 1)


def merge_pairs(g: OnnxGraph) -> None:
    """Two Transposes, reshapes or Casts in a row become one; the first goes if nothing else reads it."""
    producers = g.producers()
    for node in g.nodes:
        first = producers.get(node.input[0]) if node.input else None
        if first is None:
            continue
        if node.op_type == first.op_type == "Transpose":
            inner, outer = attributes(first)["perm"], attributes(node)["perm"]
            node.attribute[0].ints[:] = [inner[d] for d in outer]
        elif node.op_type == "Reshape" and first.op_type in RESHAPES:
            shape = g.constant(node.input[1])
            if shape is None or 0 in shape:
                continue
        elif not (node.op_type == first.op_type == "Cast" and loses_nothing(first, g)):
            continue
        node.input[0] = first.input[0]


def loses_nothing(node: NodeProto, g: OnnxGraph) -> bool:
    """Whether a Cast leaves each value as it is."""
    kinds = g.kinds.get(node.input[0], UNKNOWN)[0], attributes(node)["to"]
    before, after = (helper.tensor_dtype_to_np_dtype(kind or onnx.TensorProto.STRING) for kind in kinds)
    return np.can_cast(before, after) and not (before.kind in "iu" and before.itemsize == 8 and after.kind not in "iu")


def fold_constants(g: OnnxGraph) -> None:
    """Nodes of initializers alone become initializers, unless the model grows much by it."""
    uses, kept = g.uses(), g.kept()
    for i, node in enumerate(g.nodes):
        arrays = {name: g.constant(name) for name in node.input if name}
        kind, shape = g.kinds.get(node.output[0], UNKNOWN)
        if node.op_type in KEPT or len(node.output) > 1 or node.output[0] in kept or not (arrays and kind):
            continue
        if any(x is None for x in arrays.values()) or not all(isinstance(n, int) for n in shape):
            continue
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        freed = sum(x.nbytes for name, x in arrays.items() if uses[name] == 1)
        if prod(shape) * dtype.itemsize > freed + GROWTH:
            continue
        result = np.asarray(computed([node], arrays, node.output[0], g.opset), dtype)
        first, name = g.current(node.input[0]), node.output[0]
        if uses[node.input[0]] == 1 and first in g.initializers:  # a weight keeps its name
            g.renamed[name] = name = first
            g.kinds[name] = kind, shape
        g.initializers[name] = result
        g.nodes[i] = None


def computed(nodes: Sequence[NodeProto], arrays: dict[str, np.ndarray], name: str, opset: int) -> np.ndarray:
    """The value that nodes of constants compute."""
    described = [helper.make_tensor_value_info(key, type_of(x), x.shape) for key, x in arrays.items()]
    graph = helper.make_graph(nodes, "constant", described, [helper.make_empty_tensor_value_info(name)])
    return np.asarray(ReferenceEvaluator(graph, {"": opset}).run(None, arrays)[0])


def merge_duplicates(g: OnnxGraph) -> None:
    """Nodes that compute the same of the same become one."""
    known: dict[tuple, NodeProto] = {}
    kept = g.kept()
    for i, node in enumerate(g.nodes):
        given = sorted(a.SerializeToString() for a in node.attribute)
        key = node.op_type, *map(g.current, node.input), *given, len(node.output)
        first = known.setdefault(key, node)
        if first is not node and kept.isdisjoint(node.output):
            g.renamed.update(zip(node.output, first.output, strict=True))
            g.nodes[i] = None


def fold_batch_norms(g: OnnxGraph) -> None:
    """A Conv, ConvTranspose or Gemm that only a BatchNormalization reads gets weights that include it."""
    uses, producers = g.uses(), g.producers()
    for i, norm in enumerate(g.nodes):
        node = producers.get(norm.input[0]) if norm.op_type == "BatchNormalization" else None
        if node is None or node.op_type not in ("Conv", "ConvTranspose", "Gemm") or uses[norm.input[0]] > 1:
            continue
        given = attributes(node)
        bias = node.input[2] if len(node.input) > 2 else norm.input[2]
        read = [node.input[1], bias, *norm.input[1:5]]
        arrays = [g.constant(name) for name in read]
        plain = given.get("alpha", 1) == given.get("beta", 1) == 1
        if any(x is None for x in arrays) or uses[node.input[1]] > 1 or uses[bias] > 1 or not plain:
            continue
        weight, shift, scale, offset, mean, variance = [x.astype(np.float64) for x in arrays]
        factor = scale / np.sqrt(variance + attributes(norm).get("epsilon", 1e-5))
        shift = offset - mean * factor + (shift * factor if len(node.input) > 2 else 0)
        if node.op_type == "ConvTranspose":  # (C_in, C_out / groups, ...)
            groups = given.get("group", 1)
            weight = weight.reshape(groups, -1, *weight.shape[1:])
            factor = factor.reshape(groups, 1, -1, *[1] * (weight.ndim - 3))
        elif node.op_type == "Conv" or given.get("transB"):
            factor = factor.reshape(-1, *[1] * (weight.ndim - 1))
        g.initializers[read[0]] = (weight * factor).reshape(arrays[0].shape).astype(arrays[0].dtype)
        g.initializers[bias] = shift.astype(arrays[0].dtype)
        node.input[2:] = [bias]
        node.output[0] = norm.output[0]
        g.nodes[i] = None


def remove_dead_code(g: OnnxGraph) -> None:
    """Nodes and initializers that nothing reads."""
    needed = g.kept()
    for i, node in reversed(list(enumerate(g.nodes))):
        if needed.isdisjoint(node.output):
            g.nodes[i] = None
        else:
            needed.update(name for name in node.input if name)
    g.initializers = {name: x for name, x in g.initializers.items() if name in needed}


REWRITES = (merge_duplicates, remove_identities, merge_pairs, fold_constants, fold_batch_norms, remove_dead_code)
