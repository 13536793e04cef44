"""ONNX out and in: `flow.onnx.export(model, args, path)`, `flow.onnx.load(path)`."""

import miniflow.onnx.load.operators  # noqa: F401  (registers them)
from miniflow.errors import OnnxError
from miniflow.onnx.export.api import export
from miniflow.onnx.export.compare import compare_result, convert_to_onnx_and_check, export_onnx_model, run_onnx
from miniflow.onnx.load.calls import Operators, as_result
from miniflow.onnx.load.frameworks import from_paddle, from_pytorch, from_tensorflow2
from miniflow.onnx.load.module import OnnxModule, load
from miniflow.onnx.load.python import to_python
