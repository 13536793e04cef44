"""ONNX export and import: `flow.onnx.export(model, args, path)`, `flow.onnx.load(path)`."""

import miniflow.onnx.loader.operators  # noqa: F401  (registers them)
from miniflow.errors import OnnxError
from miniflow.onnx.exporter.api import compare_result, convert_to_onnx_and_check, export, export_onnx_model, run_onnx
from miniflow.onnx.loader.frameworks import from_paddle, from_pytorch, from_tensorflow2
from miniflow.onnx.loader.module import OnnxModule, as_result, load
from miniflow.onnx.loader.python import Operators, to_python
