"""A model of ONNX as a module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from miniflow.dtype import BY_NUMPY
from miniflow.errors import ArgumentTypeError
from miniflow.nn.modules.module import Module
from miniflow.nn.parameter import Parameter
from miniflow.onnx.loader.body import Body, Node
from miniflow.onnx.loader.build import body_of
from miniflow.onnx.loader.reader import naming, read_model
from miniflow.onnx.loader.registry import Value
from miniflow.ops.creation import from_numpy
from miniflow.tensor import Tensor


class OnnxModule(Module):
    """Computes what a model of ONNX does; `flow.onnx.load` makes it.

    Floating-point initializers are parameters under their own names, `fc.weight`, but for running statistics, which
    are buffers. Integers, single numbers (0-dim), and what is computed of these and of shapes alone, stay on the host.

    Attributes:
        inputs: the names of the inputs, in the order of the arguments.
        outputs: the names of the outputs.
        model: the `onnx.ModelProto`, without the values of initializers, which are inputs in it.

    Shapes: as the model says. A call takes tensors or NumPy arrays, by position or by the names of inputs; an input
        that has an initializer may be left out. Returns a tensor, or a tuple of them.

    Raises:
        ArgumentTypeError: for a missing or an unknown input.
        OnnxError: naming the node, for what an operator refuses.
    """

    def __init__(self, source: Any, device: Any = None):
        super().__init__()
        with naming(source):
            self.model, weights = read_model(source)
            self._body = body_of(self.model)
        self.outputs = self._body.outputs
        self.inputs = [name for name in self._body.inputs if name not in weights]
        self._owners: dict[str, tuple[Module, str]] = {}  # the container and the name of each parameter and buffer
        annotations: dict[str, set[str]] = {}
        for name, annotation in uses(self._body.nodes):
            annotations.setdefault(name, set()).add(annotation)
        for name in list(weights):
            array, uses_of_weight = weights.pop(name), annotations.get(name, set())
            floating = array.dtype in BY_NUMPY and BY_NUMPY[array.dtype].is_floating_point
            if floating and array.ndim and not uses_of_weight & {"Ints", "Array", "Number"}:
                self._keep(name, from_numpy(array), "Buffer" not in uses_of_weight)
            else:
                self._body.constants[name] = array
        if device is not None:
            self.to(device)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) > len(self.inputs):
            raise ArgumentTypeError(f"OnnxModule: got {len(args)} inputs; expected at most {len(self.inputs)}")
        inputs = {**dict(zip(self.inputs, args, strict=False)), **kwargs}
        if set(self.inputs) - set(inputs) or set(inputs) - set(self._body.inputs):
            raise ArgumentTypeError(f"OnnxModule: got the inputs {sorted(inputs)}; expected {self.inputs}")
        values: dict[str, Value] = {name: getattr(*owner) for name, owner in self._owners.items()}
        values.update({name: as_value(x) for name, x in inputs.items()})
        device = next((x.device for x in values.values() if isinstance(x, Tensor)), "cpu")
        return as_result(*self._body.run(values, device), device=device)

    def _keep(self, name: str, values: Tensor, trainable: bool) -> None:
        """Make an initializer a parameter or a buffer; dots in its name lead through submodules."""
        *path, leaf = name.split(".")
        holder: Module = self
        for part in path:
            holder = holder._modules.setdefault(part, Module())
        while not leaf or hasattr(holder, leaf):
            leaf += "_"
        if trainable:
            holder.register_parameter(leaf, Parameter(values))
        else:
            holder.register_buffer(leaf, values)
        self._owners[name] = holder, leaf


def load(source: Any, device: Any = None) -> OnnxModule:
    """Read a model of ONNX as a module: to run it, to train it further, or to export it again.

    Args:
        source: a path, the bytes of a file, or an `onnx.ModelProto`.
        device: of the parameters; by default the CPU.

    Raises:
        OnnxError: naming file, node and cause, for a file that cannot be read, is broken or hostile, and for operators
            that are not supported.

    Source: `oneflow_onnx.x2oneflow.onnx2flow.from_onnx`.
    """
    return OnnxModule(source, device)


def as_value(x: Any) -> Value:
    """An argument as a value: a tensor, or an array of a type that tensors do not have."""
    array = x if isinstance(x, Tensor) else np.asarray(x)
    return from_numpy(array) if isinstance(array, np.ndarray) and array.dtype in BY_NUMPY else array


def as_result(*values: Value, device: Any = "cpu") -> Any:
    """Values as `forward` returns them: tensors, but for types that tensors do not have; a tuple, or the only one."""
    results = tuple(
        [from_numpy(np.array(x)).to(device) if isinstance(x, np.ndarray) and x.dtype in BY_NUMPY else x for x in values]
    )
    return results[0] if len(results) == 1 else results


def uses(nodes: Iterable[Node]) -> Iterator[tuple[str, str]]:
    """Every name that nodes read, with the annotation of the parameter that takes it, those inside graphs too."""
    for node in nodes:
        kinds = list(node.operator.inputs.values())
        for i, name in enumerate(node.inputs):
            yield name, kinds[i] if i < len(kinds) else node.operator.variadic
        for value in node.attributes.values():
            if isinstance(value, Body):
                yield from uses(value.nodes)
