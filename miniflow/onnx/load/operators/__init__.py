"""The operators of ONNX, one family a file. Importing it registers them; see `registry`."""

from miniflow.onnx.load.operators import (
    control,
    elementwise,
    index,
    random,
    reduce,
    shape,
    strings,
    types,
)
