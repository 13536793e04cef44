"""Write models as files of ONNX."""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

import miniflow.onnx.exporter.handlers  # noqa: F401  (registers them)
from miniflow.atomic import replacing
from miniflow.errors import ArgumentError, ArgumentTypeError, OnnxError
from miniflow.graph.graph import Graph
from miniflow.graph.nested import check_arguments, constants, flatten
from miniflow.nn.modules.module import Module
from miniflow.onnx.exporter.optimizer import SMALL, OnnxGraph, type_of
from miniflow.onnx.exporter.recording import Recorded, Size, Value, Wrapped, record
from miniflow.onnx.exporter.writer import Writer, onnx_type, tensor_message
from miniflow.onnx.loader.module import OnnxModule
from miniflow.tensor import Tensor

OLDEST = 9
LARGEST = 2**31 - 2**24  # bytes of weights in one file: protobuf ends at 2 GB, nodes and names included
ALIGNMENT = 64  # of weights in a file beside the model


def export(
    model: Module | Graph,
    args: Any,
    path: Any = None,
    *,
    opset: int = 17,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    external_data: bool = False,
    check: bool = True,
) -> ModelProto:
    """Write a model as an ONNX file.

    Args:
        model: a module, exported as in `eval`, or an `nn.Graph` without an optimizer.
        args: an input, or a tuple of them; the last may be a dict of keyword arguments. Tensors among them become
            inputs of the model, everything else is fixed.
        path: of the file; None to write none.
        opset: the version of ONNX's operators, from 9 on.
        input_names: by default the names of the parameters of `forward` or `build`: x, or x.0 ... for a list.
        output_names: by default output.0 ... A model that was loaded from ONNX keeps the names that it had.
        dynamic_axes: name of an input -> {axis: name} or [axes]; their sizes may differ from call to call. The model is
            recorded with four sizes of these axes. Those of outputs follow from them.
        external_data: whether the weights are written to a file beside it, path + ".data"; so they are if they are
            larger than 2 GB, which is the most that one file holds.
        check: whether `onnx.checker` is asked, before anything is written.

    Returns:
        the model; where weights are written beside it, without them.

    Raises:
        OnnxError: for operators that ONNX does not have, all of them with the lines that use them; nothing is written.
        ArgumentError: for an unknown opset or name, or a path into a folder that is not there.

    >>> import miniflow as flow
    >>> model = flow.onnx.export(flow.nn.Linear(3, 2), flow.ones(1, 3))
    >>> [node.op_type for node in model.graph.node]
    ['Gemm']

    Source: `torch.onnx.export`, `oneflow_onnx.oneflow2onnx.util.export_onnx_model`.
    """
    newest = onnx.defs.onnx_opset_version()
    if not isinstance(opset, int) or not OLDEST <= opset <= newest:
        raise ArgumentError(f"export: got opset={opset!r}; expected {OLDEST} to {newest}")
    if path is not None and not Path(path).parent.is_dir():
        raise ArgumentError(f"export: got path {str(path)!r}; expected a file in a folder that exists")
    with evaluated(model) as graph:
        args, kwargs = arguments_of(model, args)
        names = list(input_names or default_names(model, args, kwargs))
        output_names = output_names or (model.outputs if isinstance(model, OnnxModule) else None)
        prefix = "model." if isinstance(graph, Wrapped) else ""
        axes = axes_by_input(dynamic_axes or {}, names, output_names or (), flatten((args, kwargs), tell=False)[0])
        recorded = record(graph, args, kwargs, axes, prefix, opset)
    for name, value in zip(names, recorded.inputs, strict=True):
        value.name = name
    found = graph_of(recorded, opset, output_names)
    if check:
        check_graph(found)
    return written(found, type(model).__name__, None if path is None else Path(path), external_data)


@contextmanager
def evaluated(model: Module | Graph) -> Any:
    """The model as a graph in eval mode; afterwards each of its modules is in the mode in which it was."""
    if not isinstance(model, Module | Graph):
        raise ArgumentTypeError(f"export: got a {type(model).__name__}; expected an nn.Module or an nn.Graph")
    if isinstance(model, Graph):
        if model._optimizers:
            raise OnnxError(f"export: {model.name} is a training step; expected a graph without an optimizer")
        graph, modules = model, list(model._blocks.values())
    else:
        graph, modules = Wrapped(model), [model]
    training = [m for module in modules for m in module.modules() if m.training]
    if training:
        warnings.warn("export: the model is in training mode; it is exported as in eval()", stacklevel=4)
    try:
        for m in training:
            m.__dict__["training"] = False
        yield graph
    finally:
        for m in training:
            m.__dict__["training"] = True


def forward_of(model: Module | Graph) -> Callable:
    return model.build if isinstance(model, Graph) else model.forward


def arguments_of(model: Module | Graph, args: Any) -> tuple[tuple, dict[str, Any]]:
    """Arguments by position, and by name in the order of the parameters.

    Raises:
        ArgumentTypeError: if the model does not take them, or for NumPy arrays.
    """
    args = tuple(args) if isinstance(args, tuple | list) else (args,)
    args, kwargs = (args[:-1], args[-1]) if args and isinstance(args[-1], dict) else (args, {})
    for _, value in constants(flatten((args, kwargs), tell=False)[1], "args"):
        if isinstance(value, np.ndarray):
            raise ArgumentTypeError("export: got a NumPy array among args; expected tensors: flow.from_numpy(x)")
    places = list(inspect.signature(forward_of(model)).parameters)
    return args, {name: kwargs[name] for name in sorted(kwargs, key=lambda n: (places + [n]).index(n))}


def default_names(model: Module | Graph, args: tuple, kwargs: dict[str, Any]) -> list[str]:
    """The inputs by the names of the parameters; numbered where a parameter takes several tensors."""
    if isinstance(model, OnnxModule):
        return [*model.inputs[: len(args)], *kwargs]
    function, names = forward_of(model), []
    for name, value in check_arguments("export", function, args, kwargs).items():
        kind = inspect.signature(function).parameters[name].kind
        for key, item in value.items() if kind is inspect.Parameter.VAR_KEYWORD else [(name, value)]:
            count = len(flatten(item, tell=False)[0])
            names += [key] if isinstance(item, Tensor) else [f"{key}.{i}" for i in range(count)]
    return names


def axes_by_input(
    dynamic_axes: Mapping[str, Any], names: Sequence[str], output_names: Sequence[str], tensors: Sequence[Tensor]
) -> dict[int, dict[int, str]]:
    """Number of an input -> axis -> name; axes without a name are called after the input. Those of outputs follow.

    Raises:
        ArgumentError: for the name of no input, or if there are not as many names as tensors.
    """
    if len(names) != len(tensors):
        raise ArgumentError(f"export: got {len(names)} input_names for {len(tensors)} tensors")
    found = {}
    if not isinstance(dynamic_axes, Mapping):
        raise ArgumentTypeError(
            f"export: got dynamic_axes={dynamic_axes!r}; expected {{name: {{axis: name}} or [axes]}}"
        )
    for name, axes in dynamic_axes.items():
        if name not in (*names, *output_names):
            raise ArgumentError(f"export: dynamic_axes names {name!r}; expected inputs, of {list(names)}")
        if name in names:
            named = axes if isinstance(axes, Mapping) else {axis: f"{name}_dim{axis}" for axis in axes}
            ndim = tensors[names.index(name)].ndim
            found[names.index(name)] = {d + ndim if -ndim <= d < 0 else d: axis for d, axis in named.items()}
    return found


def graph_of(recorded: Recorded, opset: int, output_names: Sequence[str] | None) -> OnnxGraph:
    """The graph of a recording.

    Raises:
        OnnxError: for operators that ONNX does not have.
        ArgumentError: for names that do not fit.
    """
    names = list(output_names or [f"output.{i}" for i in range(len(recorded.outputs))])
    if len(names) != len(recorded.outputs) or not names:
        raise ArgumentError(f"export: got {len(names)} output_names for {len(recorded.outputs)} outputs")
    g = Writer(recorded, opset, names)
    g.write()
    g.call = None
    for name, value in zip(names, recorded.outputs, strict=True):
        g.nodes.append(helper.make_node("Identity", [g.name(value)], [name], name=f"{name}.Identity"))
    taken = Counter([*(x.name for x in recorded.inputs), *names, *g.initializers])
    if twice := [name for name, count in taken.items() if count > 1]:
        raise ArgumentError(f"export: several inputs, outputs or parameters are called {twice}; choose other names")
    inputs = [described(value.name, value, recorded.axes) for value in recorded.inputs]
    outputs = [described(name, value, recorded.axes) for name, value in zip(names, recorded.outputs, strict=True)]
    graph = OnnxGraph(opset, g.nodes, g.initializers, inputs, outputs)
    graph.optimize()
    return graph


def check_graph(graph: OnnxGraph) -> None:
    """Ask `onnx.checker`, which infers and compares all types and shapes.

    Raises:
        OnnxError: with its words; a handler is wrong then.
    """
    try:
        onnx.checker.check_model(graph.without_weights(), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise OnnxError(f"onnx.checker: {error}") from error


def written(graph: OnnxGraph, name: str, path: Path | None, external_data: bool) -> ModelProto:
    """The model, which is also written to a file; weights go beside it if wanted, or if there are too many."""
    model = graph.without_weights()
    model.producer_name, model.producer_version, model.graph.name = "miniflow", version("miniflow-edu"), name
    del model.graph.input[len(graph.inputs) :], model.graph.initializer[:]
    arrays = graph.initializers
    if path is None or not (external_data or sum(x.nbytes for x in arrays.values()) > LARGEST):
        model.graph.initializer.extend(tensor_message(key, x) for key, x in arrays.items())
        if path is not None:
            with replacing(path) as file:
                file.write_bytes(model.SerializeToString())
        return model
    data = path.with_name(path.name + ".data")
    with replacing(path) as file, replacing(data) as weights:
        model.graph.initializer.extend(write_beside(arrays, weights, data.name))
        file.write_bytes(model.SerializeToString())
    return model


def write_beside(initializers: Mapping[str, np.ndarray], file: Path, location: str) -> list[TensorProto]:
    """The messages of initializers whose values, but for small ones, are written to a file."""
    messages = []
    with file.open("wb") as stream:
        for name, array in initializers.items():
            if array.size <= SMALL:
                messages.append(tensor_message(name, array))
                continue
            stream.seek(-(-stream.tell() // ALIGNMENT) * ALIGNMENT)
            message = TensorProto(
                name=name, data_type=type_of(array), dims=array.shape, data_location=TensorProto.EXTERNAL
            )
            for key, value in (("location", location), ("offset", stream.tell()), ("length", array.nbytes)):
                message.external_data.add(key=key, value=str(value))
            stream.write(array.tobytes())
            messages.append(message)
    return messages


def described(name: str, value: Value, axes: Mapping[Size, str]) -> ValueInfoProto:
    """Name, element type and shape of an input or an output; dynamic axes by their names."""
    shape = [axes.get(n) if isinstance(n, Size) else n for n in value.shape]
    return helper.make_tensor_value_info(name, onnx_type(value.dtype), shape)
