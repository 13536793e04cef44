"""Write models as files of ONNX, and compare them with onnxruntime: the functions that users call."""

from __future__ import annotations

import inspect
import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

import miniflow.onnx.exporter.handlers  # noqa: F401  (registers them)
from miniflow.errors import ArgumentError, ArgumentTypeError, OnnxError
from miniflow.graph.graph import Graph
from miniflow.graph.ir import Program
from miniflow.graph.nested import check_arguments, constants, flatten, unflatten
from miniflow.nn.modules.module import Module
from miniflow.onnx.exporter.optimizer import SMALL, OnnxGraph
from miniflow.onnx.exporter.recording import Size, record
from miniflow.onnx.exporter.writer import HANDLERS, Writer, find
from miniflow.onnx.loader.frameworks import imported
from miniflow.onnx.loader.module import OnnxModule
from miniflow.ops.creation import from_numpy
from miniflow.serialization.atomic import replacing, writing
from miniflow.tensor import Tensor

OLDEST = 9
LARGEST = 2**31 - 2**24  # bytes of weights in one file: protobuf ends at 2 GB, nodes and names included


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
        FileWriteError: if a file cannot be written.

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
        args, kwargs, names = arguments_of(model, args)
        names = list(input_names or names)
        output_names = output_names or (model.outputs if isinstance(model, OnnxModule) else None)
        axes = axes_of(dynamic_axes or {}, names, output_names or (), flatten((args, kwargs), tell=False)[0])
        composites = [name for name in HANDLERS if find(name, opset)]
        program, sizes = record(graph, args, kwargs, axes, "" if graph is model else "module.", composites)
    for name, value in zip(names, program.inputs, strict=True):
        value.name = name
    onnx_graph = graph_of(program, sizes, opset, output_names)
    if check:
        check_graph(onnx_graph)
    return written(onnx_graph, type(model).__name__, None if path is None else Path(path), external_data)


@contextmanager
def evaluated(model: Module | Graph) -> Any:
    """The model as a graph in eval mode; afterwards each of its modules is in the mode in which it was."""
    if not isinstance(model, Module | Graph):
        raise ArgumentTypeError(f"export: got a {type(model).__name__}; expected an nn.Module or an nn.Graph")
    graph = model if isinstance(model, Graph) else Graph.trace(model)
    if graph._optimizers:
        raise OnnxError(f"export: {model.name} is a training step; expected a graph without an optimizer")
    training = [m for module in graph._blocks.values() for m in module.modules() if m.training]
    if training:
        warnings.warn("export: the model is in training mode; it is exported as in eval()", stacklevel=4)
    with ExitStack() as stack:
        for m in training:
            stack.callback(m.__dict__.update, training=True)
            m.__dict__["training"] = False
        yield graph


def arguments_of(model: Module | Graph, args: Any) -> tuple[tuple, dict[str, Any], list[str]]:
    """Arguments by position and by name, and the names of the tensors among them.

    They are called after the parameters, and numbered where a parameter takes several tensors.

    Raises:
        ArgumentTypeError: if the model does not take them, or for NumPy arrays.
    """
    args = tuple(args) if isinstance(args, tuple | list) else (args,)
    args, kwargs = (args[:-1], args[-1]) if args and isinstance(args[-1], dict) else (args, {})
    if any(isinstance(value, np.ndarray) for _, value in constants(flatten((args, kwargs), tell=False)[1], "args")):
        raise ArgumentTypeError("export: got a NumPy array among args; expected tensors: flow.from_numpy(x)")
    function = model.build if isinstance(model, Graph) else model.forward
    check_arguments("export", function, args, kwargs)
    bound = inspect.signature(function).bind(*args, **kwargs)
    if isinstance(model, OnnxModule):
        return bound.args, bound.kwargs, [*model.inputs[: len(args)], *kwargs]
    names = []
    for key, x in (bound.signature.bind_partial(*bound.args).arguments | bound.kwargs).items():
        names += [key] if isinstance(x, Tensor) else [f"{key}.{i}" for i, _ in enumerate(flatten(x, tell=False)[0])]
    return bound.args, bound.kwargs, names


def axes_of(
    dynamic_axes: Mapping[str, Any], names: Sequence[str], output_names: Sequence[str], tensors: Sequence[Tensor]
) -> list[dict[int, str]]:
    """For each input a dict axis -> name; axes without a name are called after the input. Those of outputs follow.

    Raises:
        ArgumentError: for the name of no input, or if there are not as many names as tensors.
        OnnxError: for an axis that an input does not have, or for axes of one name with different sizes.
    """
    if len(names) != len(tensors):
        raise ArgumentError(f"export: got {len(names)} input_names for {len(tensors)} tensors")
    if not isinstance(dynamic_axes, Mapping):
        raise ArgumentTypeError(f"export: got dynamic_axes={dynamic_axes!r}; expected {{name: {{axis: name}}}}")
    for name in dynamic_axes.keys() - {*names, *output_names}:
        raise ArgumentError(f"export: dynamic_axes names {name!r}; expected inputs, of {list(names)}")
    axes_of_inputs, sizes = [], {}
    for i, (name, x) in enumerate(zip(names, tensors, strict=True)):
        axes = dynamic_axes.get(name, {})
        axes = axes if isinstance(axes, Mapping) else {d: f"{name}_dim{d}" for d in axes}
        for d, axis in axes.items():
            if not -x.ndim <= d < x.ndim:
                raise OnnxError(f"dynamic_axes: got axis {d} of input {i}, whose shape is {tuple(x.shape)}")
            if sizes.setdefault(axis, x.shape[d]) != x.shape[d]:
                raise OnnxError(f"dynamic_axes: {axis!r} names axes of sizes {sizes[axis]} and {x.shape[d]}")
        axes_of_inputs.append({d % x.ndim: axis for d, axis in axes.items()})
    return axes_of_inputs


def graph_of(program: Program, axes: Mapping[Size, str], opset: int, output_names: Sequence[str] | None) -> OnnxGraph:
    """The graph of a recording.

    Raises:
        OnnxError: for operators that ONNX does not have.
        ArgumentError: for names that do not fit.
    """
    names = list(output_names or [f"output.{i}" for i in range(len(program.outputs))])
    if len(names) != len(program.outputs) or not names:
        raise ArgumentError(f"export: got {len(names)} output_names for {len(program.outputs)} outputs")
    g = Writer(program, axes, opset, names)
    g.write()
    taken = Counter([*(x.name for x in program.inputs), *names, *g.initializers])
    if twice := [name for name, count in taken.items() if count > 1]:
        raise ArgumentError(f"export: several inputs, outputs or parameters are called {twice}; choose other names")
    g.optimize()
    return g


def check_graph(graph: OnnxGraph) -> None:
    """Ask `onnx.checker`, which infers and compares all types and shapes.

    Raises:
        OnnxError: with its words; a handler is wrong then.
    """
    try:
        onnx.checker.check_model(graph.model(SMALL), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise OnnxError(f"onnx.checker: {error}") from error


def written(graph: OnnxGraph, name: str, path: Path | None, external_data: bool) -> ModelProto:
    """The model, which is also written to a file; weights go beside it if wanted, or if there are too many.

    Raises:
        OnnxError: for weights that do not fit into one message, and no path beside which to write them.
    """
    size = sum(x.nbytes for x in graph.initializers.values())
    if path is None and size > LARGEST:
        raise OnnxError(f"export: got {size:,} bytes of weights; expected a path, since a message ends at 2 GB")
    external = path is not None and (external_data or size > LARGEST)
    model = graph.model(SMALL if external else math.inf)
    model.producer_name, model.producer_version, model.graph.name = "miniflow", version("miniflow-edu"), name
    if path is None:
        return model
    with writing("export", path), ExitStack() as files:
        file = files.enter_context(replacing(path))
        if external:
            data = path.with_name(path.name + ".data")
            write_external_data(graph, model, files.enter_context(replacing(data)), data.name)
        file.write_bytes(model.SerializeToString())
    return model


def write_external_data(graph: OnnxGraph, model: ModelProto, file: Path, name: str) -> None:
    """Write the large initializers, which are inputs of the model by now, to a file that will have this name.

    Array by array: messages of more than 2 GB cannot be copied.
    """
    del model.graph.input[len(graph.inputs) :]
    with file.open("wb") as out:
        for key, x in graph.initializers.items():
            if x.size > SMALL:
                data_type = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
                tensor = model.graph.initializer.add(name=key, data_type=data_type, dims=x.shape)
                tensor.data_location = onnx.TensorProto.EXTERNAL
                for entry, value in {"location": name, "offset": out.tell(), "length": x.nbytes}.items():
                    tensor.external_data.add(key=entry, value=str(value))
                out.write(np.ascontiguousarray(x).view(np.uint8).data)


# oneflow-onnx's functions


def export_onnx_model(
    graph: Graph, external_data: bool = False, opset: int | None = None, flow_weight_dir: Any = None,
    onnx_model_path: Any = "/tmp", dynamic_batch_size: bool = False,
) -> tuple[str, Callable[[], None]]:  # fmt: skip
    """Write a graph that has been called as model.onnx. Its inputs are named after the parameters of `build`.

    Args:
        graph: its inputs are those of the last call.
        external_data: whether weights are written to a file beside it.
        opset: by default 10, as in oneflow-onnx; see `export`.
        flow_weight_dir: of OneFlow, without effect: the weights are those that the graph has.
        onnx_model_path: the folder.
        dynamic_batch_size: whether the first axis of all inputs may have any size.

    Returns:
        the path of model.onnx, and a function that removes what was written.

    Raises:
        OnnxError: for a graph that was not called before; see `export` too.

    Source: `oneflow_onnx.oneflow2onnx.util.export_onnx_model`.
    """
    if graph._last is None:
        raise OnnxError(f"{graph.name} has not been called; call it once, which says what its inputs are")
    args, kwargs = arguments(graph, [np.zeros(slot.shape, slot.dtype) for slot in graph._last.recording.program.inputs])
    names = arguments_of(graph, (*args, kwargs))[2] if dynamic_batch_size else ()
    path, files = Path(onnx_model_path, "model.onnx"), ExitStack()
    axes = {name: {0: "batch_size"} for name in names}
    export(graph, (*args, kwargs), path, opset=opset or 10, dynamic_axes=axes, external_data=external_data)
    for file in (path, path.with_name("model.onnx.data")):
        files.callback(file.unlink, missing_ok=True)
    return str(path), files.close


def convert_to_onnx_and_check(
    graph: Graph, print_outlier: bool = True, *, ort_optimize: bool = True, device: str = "cpu",
    input_tensor_range: Sequence[float] | None = None, **options: Any,
) -> None:  # fmt: skip
    """Export a graph that has been called, and compare it with onnxruntime on random inputs.

    Args:
        print_outlier: whether numbers that differ are printed.
        ort_optimize, input_tensor_range: see `run_onnx`.
        device: "cpu" or "gpu", where onnxruntime runs; the graph stays where it is.
        options: of `export_onnx_model`. The model stays where `onnx_model_path` says, if that is given.

    Raises:
        AssertionError: if a result differs by more than 1e-2 of it, and 1e-5.
        OnnxError: if onnxruntime is not installed.

    Source: `oneflow_onnx.oneflow2onnx.util.convert_to_onnx_and_check`.
    """
    imported("onnxruntime")
    path, cleanup = export_onnx_model(graph, **options)
    try:
        providers = ["CUDAExecutionProvider"] if device.startswith("gpu") else ["CPUExecutionProvider"]
        inputs, results = run_onnx(path, providers, ort_optimize, input_tensor_range)
    finally:
        if "onnx_model_path" not in options:
            cleanup()
    args, kwargs = arguments(graph, list(inputs.values()))
    for ours, theirs in zip(flatten(graph(*args, **kwargs))[0], results, strict=True):
        compare_result(ours.detach().cpu().numpy(), theirs, print_outlier=print_outlier)


def arguments(graph: Graph, arrays: Sequence[np.ndarray]) -> tuple[tuple, dict[str, Any]]:
    """Arguments like those of the last call, with these values."""
    slots = graph._last.recording.program.inputs
    tensors = [from_numpy(x).to(slot.device) for x, slot in zip(arrays, slots, strict=True)]
    return unflatten(graph._last.recording.tree, tensors)


def run_onnx(
    onnx_model_path: Any, providers: Sequence[str], ort_optimize: bool = True,
    input_tensor_range: Sequence[float] | None = None,
) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:  # fmt: skip
    """The random inputs that a model was given, by name, and what onnxruntime computed.

    Args:
        onnx_model_path: of the file.
        providers: of onnxruntime, such as "CPUExecutionProvider".
        ort_optimize: whether onnxruntime rewrites the model.
        input_tensor_range: the least and the largest number; by default 0 and 1. Axes without a size have 1.

    Source: `oneflow_onnx.oneflow2onnx.util.run_onnx`.
    """
    ort, options = imported("onnxruntime"), imported("onnxruntime").SessionOptions()
    if not ort_optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(onnx_model_path), options, providers=list(providers))
    inputs, (low, high) = {}, input_tensor_range or (0, 1)
    for x in onnx.load(onnx_model_path, load_external_data=False).graph.input:
        tensor_type = x.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor_type.elem_type)
        numbers = np.random.uniform(low, high, [n.dim_value or 1 for n in tensor_type.shape.dim])
        inputs[x.name] = (numbers if dtype.kind in "fV" else numbers.round()).astype(dtype)
    return inputs, session.run(None, inputs)


def compare_result(
    a: np.ndarray, b: np.ndarray, rtol: float = 1e-2, atol: float = 1e-5, print_outlier: bool = False
) -> None:
    """Compare two arrays.

    Raises:
        AssertionError: if they differ.

    Source: `oneflow_onnx.oneflow2onnx.util.compare_result`.
    """
    if print_outlier and a.shape == b.shape:
        for x, y in zip(*(array[~np.isclose(a, b, rtol, atol)] for array in (a, b)), strict=True):
            print("a:", x, "b:", y)
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
