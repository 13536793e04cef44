"""Conversions between dtypes."""

import numpy as np

from miniflow.backends.registry import kernel


@kernel("cpu", half="native")
def cast(out, x, *, dtype):
    np.copyto(out, x, casting="unsafe")


@kernel("cpu", half="native")
def to_integer(out, x, *, dtype):
    with np.errstate(invalid="ignore"):
        np.copyto(out, x, casting="unsafe")
