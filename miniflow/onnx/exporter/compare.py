"""The functions of oneflow-onnx: export of a compiled graph, and comparison with onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from miniflow.errors import OnnxError
from miniflow.graph.graph import Graph
from miniflow.graph.nested import flatten, unflatten
from miniflow.onnx.exporter.api import default_names, export
from miniflow.onnx.loader.frameworks import imported
from miniflow.ops.creation import from_numpy


def export_onnx_model(
    graph: Graph, external_data: bool = False, opset: int | None = None, *, onnx_model_path: Any = "/tmp",
    dynamic_batch_size: bool = False,
) -> tuple[str, Callable[[], None]]:  # fmt: skip
    """Write a graph that has been called as model.onnx. oneflow-onnx's `flow_weight_dir` does not exist here: a graph
    has its weights.

    Args:
        graph: its inputs are those of the last call.
        external_data: whether weights are written to a file beside it.
        opset: by default 10, as in oneflow-onnx; see `export`.
        onnx_model_path: the folder.
        dynamic_batch_size: whether the first axis of all inputs may have any size.

    Returns:
        the path of model.onnx, and a function that removes what was written.

    Raises:
        OnnxError: for a graph that was not called before; see `export` too.

    Source: `oneflow_onnx.oneflow2onnx.util.export_onnx_model`.
    """
    if graph._recording is None:
        raise OnnxError(f"{graph.name} has not been called; call it once, which says what its inputs are")
    arrays = [np.zeros(slot.shape, slot.dtype) for slot in graph._recording.program.inputs]
    args, kwargs = arguments(graph, arrays)
    axes = {name: {0: "batch_size"} for name in default_names(graph, args, kwargs)} if dynamic_batch_size else None
    path = Path(onnx_model_path, "model.onnx")
    export(graph, (*args, kwargs), path, opset=opset or 10, dynamic_axes=axes, external_data=external_data)

    def cleanup() -> None:
        for file in (path, path.with_name("model.onnx.data")):
            file.unlink(missing_ok=True)

    return str(path), cleanup


def convert_to_onnx_and_check(
    graph: Graph, print_outlier: bool = True, *, ort_optimize: bool = True, device: str = "cpu",
    input_tensor_range: Sequence[float] | None = None, **options: Any,
) -> None:  # fmt: skip
    """Export a graph that has been called, and compare it with onnxruntime on random inputs.

    Args:
        print_outlier: whether numbers that differ are printed.
        ort_optimize, input_tensor_range: see `run_onnx`.
        device: "cpu" or "gpu", where onnxruntime runs; the graph stays where it is.
        options: of `export_onnx_model`.

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
        cleanup()
    args, kwargs = arguments(graph, list(inputs.values()))
    for ours, theirs in zip(flatten(graph(*args, **kwargs))[0], results, strict=True):
        compare_result(ours.detach().cpu().numpy(), theirs, print_outlier=print_outlier)


def arguments(graph: Graph, arrays: Sequence[np.ndarray]) -> tuple[tuple, dict[str, Any]]:
    """Arguments like those of the last call, with these values."""
    slots = graph._recording.program.inputs
    tensors = [from_numpy(x).to(slot.device) for x, slot in zip(arrays, slots, strict=True)]
    return unflatten(graph._recording.tree, tensors)


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
        kind = x.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        numbers = np.random.uniform(low, high, [n.dim_value or 1 for n in kind.shape.dim])
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
        outliers = ~np.isclose(a, b, rtol, atol)
        for x, y in zip(a[outliers], b[outliers], strict=True):
            print("a:", x, "b:", y)
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
