"""What operators of miniflow become in ONNX, one family a file. Importing it registers them; see `registry`."""

from miniflow.onnx.exporter.handlers import conv, elementwise, index, matmul, reduce, shape
