"""Copying, converting and filling `DeviceArray`s: between any layouts, any dtypes, and shapes that broadcast."""

from __future__ import annotations

from typing import Any

import numpy as np

from miniflow.backends.body import Body, Step
from miniflow.backends.cuda.array import DeviceArray, bits, contiguous
from miniflow.backends.cuda.pointwise import run
from miniflow.backends.registry import kernel
from miniflow.dtype import HALF, bfloat16, float16, float32, float64


class Conversion(Body):
    """A body with a Python expression as its only step: of an input, or of a number if there is no input."""

    def __init__(self, expression: str):
        is_number = expression == "n0"
        steps = [Step(expression, (), "")]
        super().__init__([] if is_number else [""], [(0.0, "int64")] if is_number else [], steps, ["v0"])

    def computing(self) -> list[str]:
        """The step as a statement."""
        return [f"v0 = {self.steps[0].function}"]


SAME, TRUTH, NUMBER = map(Conversion, ("x0_here", "x0_here != 0", "n0"))
OF_HALF = {
    (float16.numpy, float32.numpy): Conversion("widen_float16(x0_here)"),
    (bfloat16.numpy, float32.numpy): Conversion("widen_bfloat16(x0_here)"),
    (float32.numpy, float16.numpy): Conversion("narrow_float16(x0_here)"),
    (float32.numpy, bfloat16.numpy): Conversion("narrow_bfloat16(x0_here)"),
    (float64.numpy, float16.numpy): Conversion("narrow_float16_once(x0_here)"),
}


def copy_into(out: DeviceArray, value: DeviceArray) -> None:
    """Write `value`, broadcast and converted as C converts, to every element of `out`. To bool: whether it is not 0."""
    if out.size == 0:
        return
    if overlaps(out, value):
        value = contiguous(value) if not value.flags.c_contiguous else value.copy()
    source, target = value.dtype, out.dtype
    if source == target:
        run(SAME, (bits(out),), (bits(value),), ())
    elif (source, target) in OF_HALF:
        run(OF_HALF[source, target], (out,), (value,), ())
    elif source in HALF or target in HALF:  # by way of float32, as NumPy does it
        copy_into(out, value.astype(np.float32))
    else:
        run(TRUTH if target == np.bool_ else SAME, (bools_as_bytes(out),), (bools_as_bytes(value),), ())


def overlaps(out: DeviceArray, value: DeviceArray) -> bool:
    """Whether writing `out` may change elements of `value` that are still to be read."""
    if out.block is not value.block or not np.may_share_memory(out.layout, value.layout):
        return False
    return (out.address, out.shape, out.strides) != (value.address, value.shape, value.strides)


def bools_as_bytes(x: DeviceArray) -> DeviceArray:
    """Bools as the numbers 0 and 1; other arrays as they are."""
    return bits(x) if x.dtype == np.bool_ else x


def bits_of_number(number: Any, dtype: np.dtype) -> np.unsignedinteger:
    """A number in `dtype`, as the unsigned integer that its bits are."""
    with np.errstate(over="ignore"):  # a float beyond the dtype's range is infinite in it
        return np.full(1, number, dtype).view(f"u{dtype.itemsize}")[0]


def fill_into(out: DeviceArray, value: Any) -> None:
    """Write a number, converted to the dtype of `out`, to every element of `out`."""
    run(NUMBER, (bits(out),), (), (bits_of_number(value, out.dtype),))


@kernel("cuda", half="native")
def cast(out, x, *, dtype):
    copy_into(out, x)


@kernel("cuda", half="native")
def to_integer(out, x, *, dtype):
    copy_into(out, x)


DeviceArray.write, DeviceArray.fill = copy_into, fill_into  # methods of arrays that need kernels
