"""Writes the nodes of an ONNX graph, one call of an operator after the other.

What an operator of miniflow becomes is said by a handler:

    handler("gather", since=11)(lambda g, x, index, *, dim: g("GatherElements", x, index, axis=dim))

A handler gets the writer `g`, the inputs of one instruction (`Value`s; numbers; None where absent) and its attributes,
and returns the result, or a tuple of them: names, values or arrays. Of several for one operator, the newest that is
not above the opset of the model is used. For a composite function it gets the arguments of the call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ValueInfoProto, defs, helper

from miniflow.errors import OnnxError
from miniflow.graph.ir import Instruction, Program, Slot
from miniflow.onnx.exporter.optimizer import OnnxGraph
from miniflow.onnx.exporter.recording import Size, one_size
from miniflow.parallel.global_array import GlobalArray
from miniflow.sbp import B
from miniflow.tensor import Tensor

Value = Slot  # an array of the model; its name is that in ONNX
onnx_type = helper.np_dtype_to_tensor_dtype

HANDLERS: dict[str, dict[int, Callable[..., Any]]] = {}  # by name and opset


def handler(*names: str, since: int = 1) -> Callable:
    """Register a function for operators of miniflow, from an opset on."""

    def register(function: Callable) -> Callable:
        for name in names:
            HANDLERS.setdefault(name, {})[since] = function
        return function

    return register


def find(name: str, opset: int) -> Callable[..., Any] | None:
    """The newest handler of an operator that is not above the opset."""
    versions = HANDLERS.get(name, {})
    return versions.get(max((since for since in versions if since <= opset), default=0))


class Writer(OnnxGraph):
    """The graph of a program, in the order in which it is computed; handlers call it to add a node.

    Attributes:
        program: that is written; sizes in it may vary.
        call: the instruction that is being written; its `outputs` tell the shapes and dtypes of its results.
    """

    def __init__(self, program: Program, axes: Mapping[Size, str], opset: int, output_names: Sequence[str]):
        values = [(x.name, x) for x in program.inputs], zip(output_names, program.outputs, strict=True)
        super().__init__(opset, [], {}, *([described(name, x, axes) for name, x in named] for named in values))
        self.program = program
        self._taken = {x.name for x in (*program.inputs, *program.constants)}.union(output_names)
        self.call: Instruction | None = None
        self._numbers: Counter[str] = Counter()
        self._constants: dict[tuple, str] = {}
        self._sources: dict[Size, tuple[Value, int]] = {}  # a value and its dim of that size
        for value in program.inputs:
            self._define(value, value.name)

    def write(self) -> None:
        """Write all instructions, and give the outputs their names.

        Raises:
            OnnxError: naming all operators without a handler, or what a handler refuses.
        """
        calls = self.program.instructions
        handlers = [(x, f"{x.op.function_name} ({x.location})", find(x.op.function_name, self.opset)) for x in calls]
        if unknown := dict.fromkeys(location for _, location, function in handlers if function is None):
            raise OnnxError(f"opset {self.opset} has nothing for these operators: {', '.join(unknown)}")
        for call, location, function in handlers:
            self.call = call
            args = call.attrs.get("arguments")  # of a composite function
            try:
                results = function(self, *args.values()) if args else function(self, *call.inputs, **call.attrs)
            except OnnxError as error:
                raise OnnxError(error.message, location) from error
            for value, name in zip(call.outputs, results if isinstance(results, tuple) else (results,), strict=False):
                self._define(value, self.name(name))
        self.call = None
        for x, value in zip(self.outputs, self.program.outputs, strict=True):
            self.nodes.append(helper.make_node("Identity", [self.name(value)], [x.name], name=f"{x.name}.Identity"))

    def __call__(self, op: str, *inputs: Any, outputs: int = 1, **named: Any) -> Any:
        """Add a node.

        Args:
            op: of ONNX.
            inputs: values, names, arrays, or None for absent ones; a list of sizes is a one-dimensional array.
            outputs: how many.
            named: attributes of the node, and inputs by their names: what is an attribute in some opsets and an input
                in others is given in one way. None stands for an absent one.

        Returns:
            the name of the output; a tuple of names for several.

        Raises:
            OnnxError: if the opset does not have the operator, or not with that.
        """
        if not defs.has(op, self.opset):
            raise OnnxError(f"opset {self.opset} has no {op}")
        schema = defs.get_schema(op, self.opset)
        places = {x.name.lower(): i for i, x in enumerate(schema.inputs)}
        operands, attributes = list(inputs), {}
        for key, x in named.items():
            if x is not None and key in schema.attributes:
                attributes[key] = self._attribute(x, schema.attributes[key].type)
            elif x is not None and key in places:
                operands += [None] * (places[key] + 1 - len(operands))
                operands[places[key]] = x
            elif x is not None:
                raise OnnxError(f"opset {self.opset} has no {op} with {key}")
        names = [self.name(x) for x in operands]
        while names and not names[-1]:
            names.pop()
        name = self._unused(f"{self.call.scope if self.call else ''}.{op}".removeprefix("."))
        results = [name if i == 0 else f"{name}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, names, results, name=name, **attributes))
        return results[0] if outputs == 1 else tuple(results)

    def _attribute(self, x: Any, attribute_type: defs.OpSchema.AttrType) -> Any:
        """A value as an attribute of a node, which must not follow dynamic axes."""
        if isinstance(x, np.dtype | type):
            return onnx_type(np.dtype(x))
        if attribute_type == defs.OpSchema.AttrType.FLOAT:
            return float(x)
        if attribute_type == defs.OpSchema.AttrType.INT:
            return int(fixed([x] if np.ndim(x) == 0 else x)[0])
        return fixed(x) if attribute_type == defs.OpSchema.AttrType.INTS else x

    def _unused(self, base: str) -> str:
        """A name with a number that no input, output or parameter has, nor another node."""
        self._numbers[base] += 1
        name = f"{base}_{self._numbers[base]}"
        return self._unused(base) if name in self._taken else name

    def name(self, x: Any) -> str:
        """The name of a value, a name or an array; arrays and lists of sizes become initializers."""
        if x is None or isinstance(x, str):
            return x or ""
        if isinstance(x, list | tuple):
            return self.sizes(x)
        if not isinstance(x, Value):
            return self.constant(np.asarray(x))
        if x in self.program.constants and x.name not in self.initializers:
            x.name = self._stored(x)
        if not x.name:
            raise OnnxError("the value of a result is needed that ONNX's operator does not have")
        return x.name

    def constant(self, array: np.ndarray) -> str:
        """The name of an initializer with these values; equal ones are shared."""
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = self._unused("constant")
            self.initializers[name], self._constants[key] = array, name
        return self._constants[key]

    def scalar(self, x: Any, like: Value) -> Any:
        """A number in the dtype of a value; anything else as it is."""
        if isinstance(x, Size):
            return self("Cast", self("Squeeze", [x], axes=[0]), to=like.dtype)
        return np.array(x, like.dtype) if isinstance(x, bool | int | float | np.number) else x

    def _stored(self, value: Value) -> str:
        """The name of a parameter, a buffer or a constant.

        One whose shape follows dynamic axes is one number everywhere, or integers in equal steps.
        """
        arrays = [to_numpy(x) for x in self.program.constants[value]]
        first = arrays[0]
        if all(np.array_equal(first, x) for x in arrays[1:]):
            self.initializers.update({value.name: first} if value.name else {})
            return value.name or self.constant(first)
        start = np.asarray(first.flat[0])
        if all((x == start).all() for x in arrays):
            return self("Expand", start, value.shape)
        step = (first.flat[1:2].sum() - start).astype(value.dtype) if value.dtype.kind == "i" else None
        if step is not None and all(np.array_equal(x, start + step * np.arange(x.size)) for x in arrays):
            count = self("Cast", self("Squeeze", value.shape, axes=[0]), to=value.dtype)
            return self("Range", start, self("Add", self("Mul", count, step), start), step)
        raise OnnxError("a constant changes with the sizes of dynamic axes; expected one number, or an arange")

    # sizes

    def sizes(self, numbers: Iterable[int | Size]) -> str:
        """The name of a one-dimensional int64 tensor of these numbers."""
        if not any(isinstance(n, Size) for n in numbers):
            return self.constant(np.array(numbers, np.int64))
        dims = [self._size(n) if isinstance(n, Size) else self.sizes([n]) for n in numbers]
        return dims[0] if len(dims) == 1 else self("Concat", *dims, axis=0)

    def _size(self, size: Size) -> str:
        """The name of a size computed from sizes of values: equal to one, a multiple, a sum, or a product of two.

        Raises:
            OnnxError: if it follows from them in another way.
        """
        if size in self._sources:
            value, dim = self._sources[size]
            return self("Gather", self("Shape", value), [dim], axis=0)
        pairs = [(other, np.array([size.values, other.values])) for other in self._sources if 0 not in other.values]
        factors = [(other, one_size(a // b)) for other, (a, b) in pairs if not (a % b).any()]
        derivations = [("Mul", other, n) for other, n in factors if not isinstance(n, Size)]
        derivations += [("Add", other, one_size(a - b)) for other, (a, b) in pairs if len({*(a - b)}) == 1]
        derivations += [("Mul", other, n) for other, n in factors if n in self._sources]
        if not derivations:
            raise OnnxError("a size follows from those of dynamic axes in a way that is not exported")
        op, other, n = derivations[0]
        return self(op, self._size(other), [n])

    def _define(self, value: Value, name: str) -> None:
        value.name = name
        for dim, size in enumerate(value.shape):
            if isinstance(size, Size):
                self._sources.setdefault(size, (value, dim))


def described(name: str, value: Value, axes: Mapping[Size, str]) -> ValueInfoProto:
    """Name, element type and shape of an input or an output; dynamic axes by their names."""
    shape = [axes.get(n) if isinstance(n, Size) else n for n in value.shape]
    return helper.make_tensor_value_info(name, onnx_type(value.dtype), shape)


def fixed(sizes: Sequence[int | Size]) -> list[int]:
    """Sizes that must not vary."""
    if any(isinstance(n, Size) for n in sizes):
        raise OnnxError("a dim that must be of a fixed size varies with dynamic axes")
    return list(sizes)


def to_numpy(x: Any) -> np.ndarray:
    """The values of a tensor or an array on any device; of a global one the logical tensor."""
    tensor = x if isinstance(x, Tensor) else Tensor._wrap(x)
    if isinstance(tensor._array, GlobalArray):
        tensor = tensor.detach().to_global(sbp=[B] * len(tensor.sbp)).to_local()
    return tensor.detach().cpu().numpy()
