"""ONNX export and import. Fill in what raises Todo, then run: python -m tutorials check 17"""

import copy
from collections import Counter  # noqa: F401
from typing import NamedTuple

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tutorials import Todo  # noqa: F401

OPSET, IR_VERSION = 17, 8
# an op of a program -> the same in ONNX
NAMES = {"conv": "Conv", "batch_norm": "BatchNormalization", "relu": "Relu", "add": "Add", "reshape": "Reshape"}
NAMES |= {"linear": "Gemm", "softmax": "Softmax"}
AXES_MOVED = ("Squeeze", "Unsqueeze", "ReduceSum")  # to an input, in opset 13


class Step(NamedTuple):
    """One instruction: the name of its result, an op, the names of the values that it reads, and its options."""

    output: str
    op: str
    inputs: tuple
    options: dict


class Program(NamedTuple):
    """A recorded network in float32; the first dimension of its inputs and outputs is the batch.

    Attributes:
        inputs, outputs: name -> shape, as it was recorded.
        constants: name -> array.
        steps: in an order in which they can run.
    """

    inputs: dict
    outputs: dict
    constants: dict
    steps: list


def varint(n):
    """The bytes of a number from 0 on: seven bits in each byte, the lowest first."""
    # task 17.1: bytes of protobuf
    data = []
    while n > 127:
        data.append(n % 128 + 128)
        n //= 128
    return bytes([*data, n])
    # end


def field(number, value):
    """The bytes of one field of a message; the value is an int, bytes, or a str."""
    # task 17.1: bytes of protobuf
    if isinstance(value, int):
        return varint(8 * number) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(8 * number + 2) + varint(len(value)) + value
    # end


def node_bytes(op, inputs, outputs):
    """The bytes of a NodeProto without attributes: inputs are field 1, outputs field 2, the op is field 4."""
    # task 17.1: bytes of protobuf
    fields = [(1, name) for name in inputs] + [(2, name) for name in outputs] + [(4, op)]
    return b"".join(field(number, name) for number, name in fields)
    # end


def translate(step):
    """A step as a node of ONNX.

    Returns:
        a NodeProto that writes `step.output`, and a dict of the constants that it needs beside those of the program.
    """
    # task 17.2: from steps to nodes
    inputs, attributes, constants = list(step.inputs), {}, {}
    if step.op == "conv":
        attributes = {"strides": [step.options["stride"]] * 2, "pads": [step.options["padding"]] * 4}
    elif step.op == "batch_norm":
        attributes = {"epsilon": step.options["eps"]}
    elif step.op == "linear":
        attributes = {"transB": 1}
    elif step.op == "softmax":
        attributes = {"axis": step.options["dim"]}
    elif step.op == "reshape":
        shape = f"{step.output}.shape"
        inputs.append(shape)
        constants[shape] = np.array([-1, *step.options["shape"][1:]], np.int64)
    return helper.make_node(NAMES[step.op], inputs, [step.output], **attributes), constants
    # end


def export(program):
    """The ModelProto of a program, for batches of any size."""
    # task 17.3: a model
    nodes, constants = [], dict(program.constants)
    for step in program.steps:
        node, more = translate(step)
        nodes.append(node)
        constants.update(more)
    sizes = {name: ["batch", *shape[1:]] for name, shape in (program.inputs | program.outputs).items()}
    infos = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, some) for name, some in sizes.items()}
    ends = [[infos[name] for name in names] for names in (program.inputs, program.outputs)]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "network", *ends, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    # end


def conv(x, w, b=None, strides=(1, 1), pads=(0, 0, 0, 0), **others):
    """x (N, C, H, W) with w (O, C, h, w) and b (O,); pads are top, left, bottom, right."""
    x = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))[:, :, :: strides[0], :: strides[1]]
    y = np.einsum("nchwij,ocij->nohw", windows, w)
    return y if b is None else y + b[:, None, None]


def batch_norm(x, scale, bias, mean, var, epsilon=1e-5, **others):
    """x (N, C, ...); scale, bias, mean and var (C,)."""
    scale, bias, mean, var = (v.reshape(-1, *[1] * (x.ndim - 2)) for v in (scale, bias, mean, var))
    return scale * (x - mean) / np.sqrt(var + np.float32(epsilon)) + bias


def gemm(a, b, c=None, **attributes):
    """alpha * A @ B + beta * C for matrices, where A and B may be transposed first."""
    # task 17.4: run a model
    a = a.T if attributes.get("transA", 0) else a
    b = b.T if attributes.get("transB", 0) else b
    y = attributes.get("alpha", 1.0) * (a @ b)
    return y if c is None else y + attributes.get("beta", 1.0) * c
    # end


def softmax(x, **attributes):
    """e^x over the sum of e^x along an axis."""
    # task 17.4: run a model
    axis = attributes.get("axis", -1)
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)
    # end


def reshape(x, shape, **attributes):
    """x in another shape, which is an array of int64."""
    # task 17.4: run a model
    copies = not attributes.get("allowzero", 0)
    return x.reshape([x.shape[d] if n == 0 and copies else n for d, n in enumerate(shape)])
    # end


OPERATORS = {"Add": np.add, "MatMul": np.matmul, "Relu": lambda x: np.maximum(x, 0), "Reshape": reshape}
OPERATORS |= {"Conv": conv, "BatchNormalization": batch_norm, "Gemm": gemm, "Softmax": softmax}


def arrays_of(model):
    """The initializers of a model as arrays, by name."""
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def run(model, feeds):
    """The outputs of a model by name, for arrays by name; each node has one output.

    Raises:
        NotImplementedError: naming the op that is not in `OPERATORS`.
    """
    # task 17.4: run a model
    values = {**arrays_of(model), **feeds, "": None}
    for node in model.graph.node:
        if node.op_type not in OPERATORS:
            raise NotImplementedError(f"{node.op_type} is not in OPERATORS")
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        values[node.output[0]] = OPERATORS[node.op_type](*[values[name] for name in node.input], **attributes)
    return {output.name: values[output.name] for output in model.graph.output}
    # end


def rebuilt(model, nodes, arrays, opset=None):
    """A model with other nodes and initializers, of which it keeps those that nodes read; inputs and outputs stay."""
    read = {name for node in nodes for name in node.input}
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items() if name in read]
    graph = helper.make_graph(nodes, model.graph.name, model.graph.input, model.graph.output, tensors)
    opset = opset or model.opset_import[0].version
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=model.ir_version)


def fold(model):
    """The model with each BatchNormalization after a Conv in the weights of the Conv, where that is possible."""
    # task 17.5: fold batch normalization
    arrays, kept, made = arrays_of(model), [], {}
    reads = Counter(name for node in model.graph.node for name in node.input)
    reads.update(output.name for output in model.graph.output)
    for node in map(copy.deepcopy, model.graph.node):
        before = made.get(node.input[0])
        foldable = node.op_type == "BatchNormalization" and before is not None and before.op_type == "Conv"
        if foldable and reads[node.input[0]] == 1 and {*before.input[1:], *node.input[1:]} <= set(arrays):
            weight, *old = [arrays[name] for name in before.input[1:]]
            scale, bias, mean, var = [arrays[name] for name in node.input[1:]]
            epsilon = {a.name: a.f for a in node.attribute}.get("epsilon", 1e-5)
            factor = scale / np.sqrt(var + np.float32(epsilon))
            before.input[1:] = [f"{node.output[0]}.weight", f"{node.output[0]}.bias"]
            arrays[before.input[1]] = weight * factor[:, None, None, None]
            arrays[before.input[2]] = bias + (sum(old) - mean) * factor
            before.output[0] = node.output[0]
            node = before
        else:
            kept.append(node)
        made[node.output[0]] = node
    return rebuilt(model, kept, arrays)
    # end


def upgrade(model):
    """A model of opset 12 as one of opset 13: axes of the ops in `AXES_MOVED` become an input."""
    # task 17.6: from opset 12 to 13
    arrays, nodes = arrays_of(model), []
    for node in map(copy.deepcopy, model.graph.node):
        axes = [a for a in node.attribute if a.name == "axes" and node.op_type in AXES_MOVED]
        for attribute in axes:
            name = f"{node.output[0]}.axes"
            arrays[name] = np.array(attribute.ints, np.int64)
            node.input.append(name)
            node.attribute.remove(attribute)
        nodes.append(node)
    return rebuilt(model, nodes, arrays, opset=13)
    # end


def network():
    """A small residual network for images of 8 by 8, with random weights."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (4, 1, 3, 3), "b1": (4,), "w2": (4, 4, 3, 3), "b2": (4,)}
    shapes |= {"w3": (16, 256), "b3": (16,), "w4": (10, 16), "b4": (10,)}
    constants = {name: 0.3 * rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    for name in ("scale1", "bias1", "mean1", "var1", "scale2", "bias2", "mean2", "var2"):
        constants[name] = rng.uniform(0.5, 1.5, 4).astype(np.float32)
    steps = [
        Step("c1", "conv", ("x", "w1", "b1"), {"stride": 1, "padding": 1}),
        Step("n1", "batch_norm", ("c1", "scale1", "bias1", "mean1", "var1"), {"eps": 1e-5}),
        Step("r1", "relu", ("n1",), {}),
        Step("c2", "conv", ("r1", "w2", "b2"), {"stride": 1, "padding": 1}),
        Step("n2", "batch_norm", ("c2", "scale2", "bias2", "mean2", "var2"), {"eps": 1e-5}),
        Step("a", "add", ("n2", "r1"), {}),
        Step("r2", "relu", ("a",), {}),
        Step("s1", "reshape", ("r2",), {"shape": (5, 4, 64)}),
        Step("s2", "reshape", ("s1",), {"shape": (5, 256)}),
        Step("l1", "linear", ("s2", "w3", "b3"), {}),
        Step("l2", "linear", ("l1", "w4", "b4"), {}),
        Step("y", "softmax", ("l2",), {"dim": 1}),
    ]
    return Program({"x": (5, 1, 8, 8)}, {"y": (5, 10)}, constants, steps)
