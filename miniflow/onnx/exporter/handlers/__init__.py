"""What operators of miniflow become in ONNX, one family a file. Importing it registers them; see `registry`."""

from miniflow.onnx.exporter.handlers import (
    conv,
    elementwise,
    image,
    index,
    matmul,
    norm,
    placement,
    pool,
    quantization,
    recurrent,
    reduce,
    shape,
)
