"""oneflow-onnx's functions: export of a graph that was called, and comparison with onnxruntime."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

import miniflow as flow
from miniflow import nn
from miniflow.errors import OnnxError
from miniflow.onnx import run_onnx
from miniflow.onnx.exporter import api

pytest.importorskip("onnxruntime")


class Sum(nn.Graph):
    """Of a layer of one input and another one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3).eval()

    def build(self, x: Any, y: Any) -> Any:
        return self.layer(x) + y["shift"]


def called() -> Sum:
    graph = Sum()
    graph(flow.ones(4, 5), {"shift": flow.ones(4, 3)})
    return graph


@pytest.mark.parametrize("external", [False, True])
def test_export_of_a_called_graph(tmp_path: Path, external: bool) -> None:
    path, cleanup = flow.onnx.export_onnx_model(
        called(), external, 13, tmp_path / "weights of OneFlow", tmp_path, dynamic_batch_size=True
    )
    model = onnx.load(path)
    assert path == str(tmp_path / "model.onnx") and model.opset_import[0].version == 13
    assert [x.name for x in model.graph.input] == ["x", "y.0"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch_size"
    cleanup()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_graph_agrees_with_onnxruntime(tmp_path: Path, dynamic: bool) -> None:
    flow.onnx.convert_to_onnx_and_check(
        called(), onnx_model_path=tmp_path, dynamic_batch_size=dynamic, ort_optimize=False, input_tensor_range=[-9, 9]
    )
    model = onnx.load(tmp_path / "model.onnx")
    assert bool(model.graph.input[0].type.tensor_type.shape.dim[0].dim_param) == dynamic


def test_the_model_of_a_check_stays_only_where_a_folder_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    written = []
    monkeypatch.setattr(api, "run_onnx", lambda path, *options: written.append(path) or run_onnx(path, *options))
    flow.onnx.convert_to_onnx_and_check(called())
    flow.onnx.convert_to_onnx_and_check(called(), flow_weight_dir=tmp_path / "saved", onnx_model_path=tmp_path)
    assert [Path(path).exists() for path in written] == [False, True]


def test_a_wrong_export_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    graph = called()
    call = Sum.__call__
    monkeypatch.setattr(Sum, "__call__", lambda self, *args: call(self, *args) + 1)
    with pytest.raises(AssertionError, match="Not equal to tolerance rtol=0.01, atol=1e-05"):
        flow.onnx.convert_to_onnx_and_check(graph, onnx_model_path=tmp_path)
    assert capsys.readouterr().out.count("a: ") == 12


def test_inputs_are_drawn_from_the_range(tmp_path: Path) -> None:
    path, _ = flow.onnx.export_onnx_model(called(), onnx_model_path=tmp_path)
    inputs, results = flow.onnx.run_onnx(path, ["CPUExecutionProvider"], input_tensor_range=(5, 7))
    assert {name: x.shape for name, x in inputs.items()} == {"x": (4, 5), "y.0": (4, 3)}
    assert all(5 <= x.min() < x.max() < 7 for x in inputs.values()) and results[0].shape == (4, 3)


def test_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OnnxError, match="has not been called; call it once"):
        flow.onnx.export_onnx_model(Sum(), onnx_model_path=tmp_path)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(OnnxError, match="onnxruntime is needed for this, and not installed: pip install onnxruntime"):
        flow.onnx.convert_to_onnx_and_check(called(), onnx_model_path=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["tf2onnx", "paddle2onnx"])
def test_frameworks_that_are_not_installed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    convert = {"tf2onnx": flow.onnx.from_tensorflow2, "paddle2onnx": flow.onnx.from_paddle}[name]
    with pytest.raises(OnnxError, match=f"{name} is needed for this, and not installed"):
        convert(None, [])
