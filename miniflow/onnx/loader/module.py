"""A model of ONNX as a module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from miniflow.dtype import BY_NUMPY
from miniflow.errors import ArgumentTypeError
from miniflow.nn.modules.module import Module
from miniflow.nn.parameter import Parameter
from miniflow.onnx.loader.body import Body, Node
from miniflow.onnx.loader.build import Builder
from miniflow.onnx.loader.calls import as_result, as_value
from miniflow.onnx.loader.reader import DEFAULT_DOMAINS, naming, read_model
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
        model: the `onnx.ModelProto`, without the values of large initializers, which are inputs in it.

    Shapes: as the model says. A call takes tensors or NumPy arrays, by position or by the names of inputs; an input
        that has an initializer may be left out. Returns a tensor, or a tuple of them.

    Raises:
        ArgumentTypeError: for a missing or an unknown input.
        OnnxError: naming the node, for what an operator refuses.
    """

    def __init__(self, source: Any, device: Any = None):
        super().__init__()
        with naming():
            read = read_model(source)
            opsets = {"" if o.domain in DEFAULT_DOMAINS else o.domain: o.version for o in read.model.opset_import}
            functions = {(f.domain, f.name): f for f in read.model.functions}
            self._body = Builder(opsets, functions).model(read.model.graph, read.weights)
        self.model = read.model
        self.outputs = self._body.outputs
        self._places: dict[str, tuple[Module, str]] = {}  # the container and the name of each parameter and buffer
        buffers = set(names_of_buffers(self._body.nodes))
        hosts = set(names_on_host(self._body.nodes))
        for name, array in list(self._body.constants.items()):
            floating = array.dtype in BY_NUMPY and BY_NUMPY[array.dtype].is_floating_point
            if floating and array.ndim and name not in hosts:
                self._keep(name, from_numpy(self._body.constants.pop(name)), name not in buffers)
        self.inputs = [name for name in self._body.inputs if name not in read.weights]
        self._known = set(self._body.inputs)
        if device is not None:
            self.to(device)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) > len(self.inputs):
            raise ArgumentTypeError(f"OnnxModule: got {len(args)} inputs; expected at most {len(self.inputs)}")
        given = {**dict(zip(self.inputs, args, strict=False)), **kwargs}
        missing, unknown = set(self.inputs) - set(given), set(given) - self._known
        if missing or unknown:
            raise ArgumentTypeError(f"OnnxModule: got the inputs {sorted(given)}; expected {self.inputs}")
        values: dict[str, Value] = {name: getattr(*place) for name, place in self._places.items()}
        values.update({name: as_value(x) for name, x in given.items()})
        device = next((x.device for x in values.values() if isinstance(x, Tensor)), "cpu")
        return as_result(*self._body.run(values, device), device=device)

    def _keep(self, name: str, values: Tensor, trainable: bool) -> None:
        """Make an initializer a parameter or a buffer; dots in its name lead through submodules."""
        *path, leaf = name.split(".")
        holder: Module = self
        for part in path:
            if part not in holder._modules:
                holder.add_module(part, Module())
            holder = holder._modules[part]
        if trainable:
            holder.register_parameter(leaf, Parameter(values))
        else:
            holder.register_buffer(leaf, values)
        self._places[name] = holder, leaf


def load(source: Any, device: Any = None) -> OnnxModule:
    """Read a model of ONNX as a module: to run it, to train it further, or to export it again.

    Args:
        source: a path, the bytes of a file, or an `onnx.ModelProto`.
        device: of the parameters; by default the CPU.

    Raises:
        OnnxError: naming node and cause, for a broken or hostile file, and for operators that are not supported.

    Source: `oneflow_onnx.x2oneflow.onnx2flow.from_onnx`.
    """
    return OnnxModule(source, device)


def uses(nodes: Iterable[Node]) -> Iterator[tuple[str, str]]:
    """Every name that nodes read, with the annotation of the parameter that takes it, those inside graphs too."""
    for node in nodes:
        if isinstance(node.operator, Body):
            yield from ((name, "Tensor") for name in node.inputs)
            continue
        kinds = list(node.operator.inputs.values())
        for i, name in enumerate(node.inputs):
            yield name, kinds[i] if i < len(kinds) else node.operator.variadic
        for value in node.attributes.values():
            if isinstance(value, Body):
                yield from uses(value.nodes)


def names_of_buffers(nodes: Iterable[Node]) -> list[str]:
    """The values that are no parameters to be trained."""
    return [name for name, kind in uses(nodes) if kind == "Buffer"]


def names_on_host(nodes: Iterable[Node]) -> list[str]:
    """The values that some operator asks for on the host."""
    return [name for name, kind in uses(nodes) if kind in ("Ints", "Array", "Number")]
