"""Write models as files of ONNX."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, helper

import miniflow.onnx.export.handlers  # noqa: F401  (registers them)
from miniflow.errors import ArgumentError, OnnxError
from miniflow.graph.graph import Graph
from miniflow.graph.nested import flatten
from miniflow.nn.modules.module import Module
from miniflow.onnx.export.optimizer import optimized
from miniflow.onnx.export.recording import Recorded, Size, Value, Wrapped, record
from miniflow.onnx.export.writer import Writer, onnx_type, tensor_message

OLDEST = 9


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
        input_names, output_names: by default those of the graph, and output.0 ...
        dynamic_axes: name of an input -> {axis: name} or [axes]; their sizes may differ from call to call. The model is
            recorded with three sizes of these axes.
        external_data: whether the weights are written to a file beside it, path + ".data"; so they are if they are
            larger than 2 GB, which is the most that one file holds.
        check: whether `onnx.checker` is asked.

    Returns:
        the model.

    Raises:
        OnnxError: for operators that ONNX does not have, all of them with the lines that use them; nothing is written.
        ArgumentError: for an unknown opset or name.

    >>> import miniflow as flow
    >>> model = flow.onnx.export(flow.nn.Linear(3, 2), flow.ones(1, 3))
    >>> [node.op_type for node in model.graph.node]
    ['Gemm']

    Source: `torch.onnx.export`, `oneflow_onnx.oneflow2onnx.util.export_onnx_model`.
    """
    if not OLDEST <= opset <= onnx.defs.onnx_opset_version():
        raise ArgumentError(f"export: got opset={opset}; expected {OLDEST} to {onnx.defs.onnx_opset_version()}")
    args = tuple(args) if isinstance(args, tuple | list) else (args,)
    args, kwargs = (args[:-1], args[-1]) if args and isinstance(args[-1], dict) else (args, {})
    count = len(flatten((args, kwargs), tell=False)[0])
    names = list(input_names or ()) or None
    if names and len(names) != count:
        raise ArgumentError(f"export: got {len(names)} input_names for {count} tensors")
    with evaluated(model) as graph:
        prefix = "model." if isinstance(graph, Wrapped) else ""
        recorded = record(graph, args, kwargs, axes_by_input(dynamic_axes or {}, names, count), prefix)
    for i, value in enumerate(recorded.inputs):
        value.name = names[i] if names else f"input.{i}"
    proto = to_model(recorded, opset, output_names, model)
    if check:
        onnx.checker.check_model(proto, full_check=True)
    if path is not None:
        save(proto, Path(path), external_data)
    return proto


@contextmanager
def evaluated(model: Module | Graph) -> Any:
    """The model as a graph in eval mode; afterwards each of its modules is in the mode in which it was."""
    if isinstance(model, Graph):
        if model._optimizers:
            raise OnnxError(f"export: {model.name} is a training step; expected a graph without an optimizer")
        graph, modules = model, list(model._blocks.values())
    else:
        graph, modules = Wrapped(model), [model]
    training = [m for module in modules for m in module.modules() if m.training]
    if training:
        warnings.warn("export: the model is in training mode; it is exported as in eval()", stacklevel=3)
    try:
        for m in training:
            m.__dict__["training"] = False
        yield graph
    finally:
        for m in training:
            m.__dict__["training"] = True


def axes_by_input(
    dynamic_axes: Mapping[str, Any], names: Sequence[str] | None, count: int
) -> dict[int, dict[int, str]]:
    """Number of an input -> axis -> name; axes without a name are called after the input.

    Raises:
        ArgumentError: for the name of no input.
    """
    names = names or [f"input.{i}" for i in range(count)]
    found = {}
    for name, axes in dynamic_axes.items():
        if name not in names:
            raise ArgumentError(f"export: dynamic_axes names {name!r}; expected inputs, of {list(names)}")
        named = axes if isinstance(axes, Mapping) else {axis: f"{name}_dim{axis}" for axis in axes}
        found[names.index(name)] = dict(named)
    return found


def to_model(recorded: Recorded, opset: int, output_names: Sequence[str] | None, model: Any) -> ModelProto:
    """The model of a recording."""
    g = Writer(recorded, opset)
    g.write()
    names = list(output_names or [f"output.{i}" for i in range(len(recorded.outputs))])
    if len(names) != len(recorded.outputs):
        raise ArgumentError(f"export: got {len(names)} output_names for {len(recorded.outputs)} outputs")
    g.call = None
    for name, value in zip(names, recorded.outputs, strict=True):
        g.nodes.append(helper.make_node("Identity", [g.name(value)], [name], name=f"{name}.Identity"))
    nodes, initializers = optimized(g.nodes, g.initializers, names, opset)
    graph = helper.make_graph(
        nodes,
        type(model).__name__,
        [described(value.name, value, recorded.axes) for value in recorded.inputs],
        [described(name, value, recorded.axes) for name, value in zip(names, recorded.outputs, strict=True)],
        [tensor_message(name, array) for name, array in initializers.items()],
    )
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", opset)],
        producer_name="miniflow",
        producer_version=version("miniflow-edu"),
        ir_version=helper.find_min_ir_version_for([helper.make_opsetid("", opset)]),
    )


def described(name: str, value: Value, axes: Mapping[Size, str]) -> onnx.ValueInfoProto:
    """Name, element type and shape of an input or an output; dynamic axes by their names."""
    shape = [axes.get(n) if isinstance(n, Size) else n for n in value.shape]
    return helper.make_tensor_value_info(name, onnx_type(value.dtype), shape)


def save(model: ModelProto, path: Path, external_data: bool) -> None:
    """Write a model to a file, with its weights beside it if wanted or if they are too large for one file."""
    beside = {"save_as_external_data": True, "location": path.name + ".data"} if external_data else {}
    onnx.save(model, path, **beside)
