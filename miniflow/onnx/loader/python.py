"""`to_python`: a model of ONNX as a Python module that people can read and change.

    class Network(nn.Module):
        def __init__(self, weights=...):
            self.conv1_weight = nn.Parameter(flow.tensor(values["conv1_weight"]))  # (64, 3, 7, 7)
        def forward(self, x):
            conv1 = op.Conv(x, self.conv1_weight, strides=[2, 2])
            relu1 = op.Relu(conv1)
            return as_result(relu1)

One line is one operator of ONNX, with its inputs and attributes. Functions are inlined, graphs among the attributes are
nested functions. All names in the file that come from the model are identifiers made here; strings are written by repr.
"""

from __future__ import annotations

import keyword
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from miniflow.atomic import replacing
from miniflow.nn.modules.module import Module
from miniflow.nn.parameter import Parameter
from miniflow.onnx.loader.body import Body, Node
from miniflow.onnx.loader.module import OnnxModule

RESERVED = {
    *dir(Module),
    "Path",
    "as_result",
    "flow",
    "float",
    "load_file",
    "nn",
    "np",
    "op",
    "self",
    "super",
    "values",
    "weights",
}
HEAD = '''"""A network, written by miniflow.onnx.to_python."""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

import miniflow as flow
from miniflow import nn
from miniflow.onnx import Operators, as_result

'''
SHORT = 16  # elements of an array that is written into the code
STORED = tuple("bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64".split())


def to_python(source: Any, out: str | os.PathLike) -> Path:
    """Write a model of ONNX as a Python module with the class `Network`, and its weights beside it.

    Its results are those of `flow.onnx.load(source)`. The weights are read from the file of the same name that ends in
    `.safetensors`.

    Args:
        source: a path, the bytes of a file, or an `onnx.ModelProto`.
        out: the path of the module, which ends in `.py`.

    Returns:
        the path of the file with the weights.

    Raises:
        OnnxError: as `flow.onnx.load`.

    Source: `oneflow_onnx.x2oneflow`, `oneflow_code_gen_flag`.
    """
    path = Path(out)
    weights = path.with_suffix(".safetensors")
    code = Writer(OnnxModule(source))
    text = code.text()
    with replacing(weights) as temporary:
        safetensors.numpy.save_file(code.arrays, temporary)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return weights


class Writer:
    """Writes the code of one module.

    Attributes:
        arrays: for the file with the weights.
        attributes: the lines that set the attributes of the class.
        opsets: those that nodes use, the model's first.
    """

    def __init__(self, module: OnnxModule):
        self.module, self.taken = module, set(RESERVED)
        self.arrays: dict[str, np.ndarray] = {}
        self.attributes: list[str] = []
        self.opsets: dict[int, str] = {}

    def text(self) -> str:
        """The whole file."""
        body, scope = self.module._body, {}
        for name, (holder, leaf) in self.module._places.items():
            scope[name] = self.stored(name, getattr(holder, leaf))
        for name in self.module.inputs:
            scope[name] = self.identifier(name)
        arguments = "".join(f", {scope[name]}" for name in self.module.inputs)
        lines = list(self.block(body, scope))
        returned = ", ".join(scope[name] for name in body.outputs)
        opsets = [f"{name} = Operators({opset})" for opset, name in self.opsets.items()]
        head = ["def __init__(self, weights=Path(__file__).with_suffix('.safetensors')):", "    super().__init__()"]
        values = ["values = load_file(weights)", *self.attributes] if self.attributes else []
        inside = [*head, *indented(values), "", f"def forward(self{arguments}):", *indented(lines)]
        inside.append(f"    return as_result({returned})")
        return "\n".join([HEAD, *opsets, "\n", "class Network(nn.Module):", *indented(inside), ""])

    def block(self, body: Body, scope: dict[str, str]) -> Iterator[str]:
        """The lines that compute a body; the expression of each of its values is put into the scope."""
        for name, values in body.constants.items():
            scope[name] = self.array(name, values)
        for node in body.nodes:
            if isinstance(node.operator, Body):
                called = {
                    name: scope.get(x, "None") for name, x in zip(node.operator.inputs, node.inputs, strict=False)
                }
                yield f"# {node.name!a}"
                yield from self.block(node.operator, called)
                scope.update(
                    {name: called[x] for name, x in zip(node.outputs, node.operator.outputs, strict=False) if name}
                )
            elif node.operator.name == "Constant" and isinstance(node.attributes.get("value"), np.ndarray):
                scope[node.outputs[0]] = self.array(node.outputs[0], node.attributes["value"])
            else:
                yield from self.call(node, scope)

    def call(self, node: Node, scope: dict[str, str]) -> Iterator[str]:
        """The lines of one node."""
        operands = [scope.get(name, "None") for name in node.inputs]
        operands = [x[9:-1] if x.startswith("np.array([") and x.endswith("])") else x for x in operands]
        for name, value in node.attributes.items():
            if name not in node.operator.attributes and name not in node.operator.inputs:
                continue
            if isinstance(value, Body):
                function = self.identifier(name)
                yield from self.function(function, value, scope)
                operands.append(f"{name}={function}")
            else:
                operands.append(f"{name}={self.literal(name, value)}")
        names = [self.identifier(name) if name else "_" for name in node.outputs]
        scope.update({name: x for name, x in zip(node.outputs, names, strict=True) if name})
        if len(names) > 1:
            operands.append(f"outputs={len(names)}")
        if node.opset not in self.opsets:
            self.opsets[node.opset] = self.identifier(f"op_{node.opset}") if self.opsets else "op"
        yield f"{', '.join(names)} = {self.opsets[node.opset]}.{node.operator.name}({', '.join(operands)})"

    def function(self, name: str, body: Body, outer: Mapping[str, str]) -> Iterator[str]:
        """The lines of a nested function."""
        scope = {**outer, **{x: self.identifier(x) for x in body.inputs}}
        yield f"def {name}({', '.join(scope[x] for x in body.inputs)}):"
        yield from indented(self.block(body, scope))
        yield f"    return [{', '.join(scope[x] for x in body.outputs)}]"

    def literal(self, name: str, value: Any) -> str:
        """An attribute as an expression."""
        if isinstance(value, np.ndarray):
            return self.array(name, value)
        if isinstance(value, list):
            return f"[{', '.join(self.literal(name, x) for x in value)}]"
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        return ascii(value)

    def array(self, name: str, values: np.ndarray) -> str:
        """An array as an expression."""
        if values.dtype == object or values.dtype.kind in "U":
            return f'np.array({ascii(values.tolist())}, "object")'
        if values.size > SHORT or values.dtype.name not in STORED or not np.isfinite(values).all():
            return self.stored(name, values)
        if values.dtype == np.int64 and values.size and values.ndim < 2:
            return f"np.array({values.tolist()})"
        shape = f".reshape{values.shape}" if values.size == 0 else ""
        return f'np.array({ascii(values.tolist())}, "{values.dtype.name}"){shape}'

    def stored(self, name: str, values: Any) -> str:
        """An array, a parameter or a buffer in the file with the weights, as an attribute of the class."""
        own = self.identifier(name)
        array = values if isinstance(values, np.ndarray) else values.detach().numpy()
        read = f'values["{own}"]'
        if array.dtype.name not in STORED:
            read = f'{read}.view("{array.dtype.name}").reshape{array.shape}'
            array = array.reshape(-1).view(np.uint8)
        self.arrays[own] = np.ascontiguousarray(array)
        if isinstance(values, Parameter):
            self.attributes.append(f"self.{own} = nn.Parameter(flow.tensor({read}))  # {tuple(values.shape)}")
        elif isinstance(values, np.ndarray):
            self.attributes.append(f"self.{own} = {read}  # {values.shape}, on the host")
        else:
            self.attributes.append(f'self.register_buffer("{own}", flow.tensor({read}))  # {tuple(values.shape)}')
        return f"self.{own}"

    def identifier(self, name: str) -> str:
        """A name of Python for a name of ONNX, which no other name has."""
        base = re.sub(r"[^a-zA-Z0-9]+", "_", name)[:60].strip("_") or "x"
        base = f"x{base}" if base[0].isdigit() or keyword.iskeyword(base) else base
        found, number = base, 1
        while found in self.taken:
            number += 1
            found = f"{base}_{number}"
        self.taken.add(found)
        return found


def indented(lines: Any) -> list[str]:
    return [f"    {line}" if line else line for line in lines]
