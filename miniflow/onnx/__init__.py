"""ONNX out and in: `flow.onnx.export(model, args, path)`, `flow.onnx.load(path)`."""

import miniflow.onnx.load.operators  # noqa: F401  (registers them)
from miniflow.errors import OnnxError
from miniflow.onnx.export.api import export
from miniflow.onnx.load.calls import Operators, as_result
from miniflow.onnx.load.module import OnnxModule, load
from miniflow.onnx.load.python import to_python
