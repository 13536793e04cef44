"""float16 and bfloat16 in registers: kernels that compute with them read and write their bits as uint16.

Values are held in float32. `round_float16` and `round_bfloat16` give what is left of a float32 after it was stored.
"""

from __future__ import annotations

import numpy as np

from miniflow.hostcuda import cuda
from miniflow.kernels.copy import bfloat16_to_float32, float16_to_float32, float32_to_bfloat16, float32_to_float16

device = cuda.jit(device=True)


@device
def widen_float16(bits):
    """The value of a float16."""
    return np.uint32(float16_to_float32(bits)).view(np.float32)


@device
def widen_bfloat16(bits):
    """The value of a bfloat16."""
    return np.uint32(bfloat16_to_float32(bits)).view(np.float32)


@device
def narrow_float16(x):
    """The bits of the float16 nearest to a float32, halves to even."""
    return np.uint16(float32_to_float16(np.float32(x).view(np.uint32)))


@device
def narrow_bfloat16(x):
    """The bits of the bfloat16 nearest to a float32, halves to even."""
    return np.uint16(float32_to_bfloat16(np.float32(x).view(np.uint32)))


@device
def round_float16(x):
    """The float16 nearest to a float32, as a float32."""
    return widen_float16(narrow_float16(x))


@device
def round_bfloat16(x):
    """The bfloat16 nearest to a float32, as a float32."""
    return widen_bfloat16(narrow_bfloat16(x))
