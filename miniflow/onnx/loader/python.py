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
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from textwrap import indent
from typing import Any

import numpy as np
import safetensors.numpy

from miniflow.nn.modules.module import Module
from miniflow.nn.parameter import Parameter
from miniflow.onnx.loader.body import Body, Node
from miniflow.onnx.loader.build import operator_of, opsets_of
from miniflow.onnx.loader.module import OnnxModule
from miniflow.onnx.loader.registry import Value
from miniflow.serialization.atomic import replacing, writing
from miniflow.tensor import Tensor

FILE = '''"""A network, written by miniflow.onnx.to_python."""

from math import inf, nan
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

import miniflow as flow
from miniflow import nn
from miniflow.onnx import Operators, as_result

op = Operators({opset})


class Network(nn.Module):
    def __init__(self, weights=Path(__file__).with_suffix(".safetensors")):
        super().__init__()
        values = load_file(weights)
{attributes}

    def forward({arguments}):
{lines}
        return as_result({outputs})
'''
RESERVED = {*dir(Module), *re.findall(r"\w+", FILE)}
SHORT = 16  # elements of an array that is written into the code
STORED = "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64".split()


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
        FileWriteError: if a file cannot be written.

    Source: `oneflow_onnx.x2oneflow`, `oneflow_code_gen_flag`.
    """
    path = Path(out)
    weights = path.with_suffix(".safetensors")
    code = Writer(OnnxModule(source))
    text = code.text()
    with writing("to_python", weights), replacing(weights) as temporary:
        safetensors.numpy.save_file(code.arrays, temporary)
    with writing("to_python", path), replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return weights


class Writer:
    """Writes the code of one module.

    Attributes:
        arrays: for the file with the weights.
        attributes: the lines that set the attributes of the class.
        opset: of the model; nodes of its functions may have others.
    """

    def __init__(self, module: OnnxModule):
        self.module, self.taken, self.opset = module, set(RESERVED), opsets_of(module.model)[""]
        self.arrays: dict[str, np.ndarray] = {}
        self.attributes: list[str] = []

    def text(self) -> str:
        """The whole file."""
        scope = {name: self.stored(name, getattr(*owner)) for name, owner in self.module._owners.items()}
        scope |= {name: self.identifier(name) for name in self.module.inputs}
        lines = indent("\n".join(self.block(self.module._body, scope)), 8 * " ")
        arguments = ", ".join(["self", *[scope[name] for name in self.module.inputs]])
        outputs = ", ".join(scope[name] for name in self.module.outputs)
        attributes = indent("\n".join(self.attributes), 8 * " ")
        return FILE.format(opset=self.opset, attributes=attributes, arguments=arguments, lines=lines, outputs=outputs)

    def block(self, body: Body, scope: dict[str, str]) -> Iterator[str]:
        """The lines that compute a body; the expression of each of its values is put into the scope."""
        for name, values in body.constants.items():
            scope[name] = self.literal(name, values)
        for node in body.nodes:
            if node.operator.name == "Constant" and "value" in node.attributes:
                scope[node.outputs[0]] = self.literal(node.outputs[0], node.attributes["value"])
            else:
                yield from self.call(node, scope)

    def call(self, node: Node, scope: dict[str, str]) -> Iterator[str]:
        """The lines of one node."""
        operands = [scope.get(name, "None") for name in node.inputs]
        operands = [x[9:-1] if x.startswith("np.array([") and x.endswith("])") else x for x in operands]
        for name, value in node.attributes.items():
            if isinstance(value, Body):
                function = self.identifier(name)
                yield from self.function(function, value, scope)
                operands.append(f"{name}={function}")
            elif node.operator.any_keyword or name in (*node.operator.keywords, *node.operator.inputs):
                operands.append(f"{name}={self.literal(name, value)}")
        names = [self.identifier(name) if name else "_" for name in node.outputs]
        scope.update({name: x for name, x in zip(node.outputs, names, strict=True) if name})
        if len(names) > 1:
            operands.append(f"outputs={len(names)}")
        operators = "op" if node.opset == self.opset else f"Operators({node.opset})"
        yield f"{', '.join(names)} = {operators}.{node.operator.name}({', '.join(operands)})"

    def function(self, name: str, body: Body, outer: Mapping[str, str]) -> Iterator[str]:
        """The lines of a nested function."""
        scope = {**outer, **{x: self.identifier(x) for x in body.inputs}}
        yield f"def {name}({', '.join(scope[x] for x in body.inputs)}):"
        yield from (f"    {line}" for line in self.block(body, scope))
        yield f"    return [{', '.join(scope[x] for x in body.outputs)}]"

    def literal(self, name: str, value: Any) -> str:
        """An attribute or an array as an expression."""
        if not isinstance(value, np.ndarray):
            return ascii(value)
        if value.dtype != object and not (0 < value.size <= SHORT and value.dtype.name in STORED):
            return self.stored(name, value)
        dtype = "" if value.dtype == np.int64 and value.ndim < 2 else f', "{value.dtype.name}"'
        return f"np.array({ascii(value.tolist())}{dtype})"

    def stored(self, name: str, values: Value) -> str:
        """An array, a parameter or a buffer in the file with the weights, as an attribute of the class."""
        attribute = self.identifier(name)
        array = values if isinstance(values, np.ndarray) else values.detach().numpy()
        read, shape = f'values["{attribute}"]', f"  # {array.shape}"
        if array.dtype.name not in STORED:
            read = f'{read}.view("{array.dtype.name}").reshape{array.shape}'
            array = array.reshape(-1).view(np.uint8)
        self.arrays[attribute] = np.ascontiguousarray(array)
        line = f"self.{attribute} = {read}{shape}, on the host"
        if isinstance(values, Tensor):
            line = f'self.register_buffer("{attribute}", flow.tensor({read})){shape}'
        if isinstance(values, Parameter):
            line = f"self.{attribute} = nn.Parameter(flow.tensor({read})){shape}"
        self.attributes.append(line)
        return f"self.{attribute}"

    def identifier(self, name: str) -> str:
        """A name of Python for a name of ONNX, which no other name has."""
        base = re.sub(r"[^a-zA-Z0-9]+", "_", name)[:60].strip("_") or "x"
        base = f"x{base}" if base[0].isdigit() or keyword.iskeyword(base) else base
        candidate, number = base, 1
        while candidate in self.taken:
            number += 1
            candidate = f"{base}_{number}"
        self.taken.add(candidate)
        return candidate


class Operators:
    """The operators of the default domain in one version, by name.

    An input is a tensor; or a NumPy array, a number or a list, which stay on the host if all inputs of a call are such.
    Attributes are keyword arguments; of a graph a function. `outputs` is how many outputs are asked for.

    >>> import miniflow as flow
    >>> op = Operators(17)
    >>> op.Add(flow.tensor([1.0, 2.0]), flow.tensor(1.0))
    tensor([2., 3.], dtype=miniflow.float32)

    Raises:
        AttributeError: if there is no such operator.
        OnnxError: for what an operator refuses.
    """

    def __init__(self, opset: int):
        self.opset = opset

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operator = operator_of(name, self.opset)
        if operator is None:
            raise AttributeError(f"ONNX operator {name} is not supported in opset {self.opset}")

        def call(*inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
            names = ["" if x is None else str(i) for i, x in enumerate(inputs)]
            values = {str(i): x if isinstance(x, Tensor) else np.asarray(x) for i, x in enumerate(inputs)}
            node = Node(name, operator, names, ["output"] * outputs, attributes, self.opset)
            device = next((x.device for x in values.values() if isinstance(x, Tensor)), "cpu")
            results = tuple(node.compute(values, device))[:outputs]
            return results[0] if outputs == 1 else results

        return call
