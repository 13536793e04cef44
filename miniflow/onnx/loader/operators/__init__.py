"""The operators of ONNX, one family a file. Importing it registers them; see `registry`."""

from miniflow.onnx.loader.operators import (
    control,
    conv,
    elementwise,
    index,
    matmul,
    norm,
    pool,
    quantize,
    random,
    recurrent,
    reduce,
    resize,
    shape,
    signal,
    strings,
    types,
    vision,
)
