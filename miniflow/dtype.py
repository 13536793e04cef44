"""Element types, and PyTorch's rules for mixing them.

Promotion (PyTorch, "Tensor Attributes: torch.dtype"): the categories are ordered bool < integer < floating. Among
operands with dimensions, the result is the smallest type that holds both; a 0-dim tensor or a Python number only takes
part when its category is higher than that of all operands with dimensions ("weak" operands).
"""

from __future__ import annotations

import functools
from types import SimpleNamespace

import ml_dtypes
import numpy as np

from miniflow.errors import DTypeError


class dtype:
    """An element type, e.g. `flow.float32`. There is exactly one object for each type: compare with `is` or `==`."""

    __slots__ = ("name", "numpy", "itemsize", "category", "is_floating_point", "is_signed")

    def __init__(self, name: str, numpy_type: type, category: int):
        self.name = name
        self.numpy = np.dtype(numpy_type)
        self.itemsize = self.numpy.itemsize
        self.category = category  # 0 bool, 1 integer, 2 floating, -1 for arrays
        self.is_floating_point = category == 2
        self.is_signed = name not in ("bool", "uint8")

    def __repr__(self) -> str:
        return f"miniflow.{self.name}"

    def __reduce__(self) -> str:
        return self.name if self.name != "bool" else "bool_"

    @staticmethod
    def from_numpy(numpy_dtype: np.dtype) -> dtype:
        """The dtype of a NumPy array.

        Raises:
            DTypeError: for element types that tensors cannot hold (complex, object, strings ...).
        """
        try:
            return BY_NUMPY[np.dtype(numpy_dtype)]
        except (KeyError, TypeError):
            supported = ", ".join(t.name for t in ALL)
            raise DTypeError(
                f"dtype {numpy_dtype} is not supported; expected one of {supported}: convert with astype"
            ) from None


bool_ = dtype("bool", np.bool_, 0)
uint8 = dtype("uint8", np.uint8, 1)
int8 = dtype("int8", np.int8, 1)
int16 = dtype("int16", np.int16, 1)
int32 = dtype("int32", np.int32, 1)
int64 = dtype("int64", np.int64, 1)
float16 = dtype("float16", np.float16, 2)
bfloat16 = dtype("bfloat16", ml_dtypes.bfloat16, 2)
float32 = dtype("float32", np.float32, 2)
float64 = dtype("float64", np.float64, 2)

ALL = (bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64)
BY_NUMPY = {t.numpy: t for t in ALL}
BY_NUMPY[np.dtype(np.longlong)] = int64
tensor_buffer = dtype("tensor_buffer", [("tensor_buffer", object)], -1)  # each element is an array
BY_NUMPY[tensor_buffer.numpy] = tensor_buffer
HALF = frozenset((float16.numpy, bfloat16.numpy))

_default = float32


def get_default_dtype() -> dtype:
    """The floating dtype given to Python floats: float32 unless `set_default_dtype` changed it."""
    return _default


def set_default_dtype(d: dtype) -> None:
    """Set the floating dtype given to Python floats.

    Raises:
        DTypeError: if `d` is not a floating dtype.
    """
    global _default
    if not isinstance(d, dtype) or not d.is_floating_point:
        raise DTypeError(f"set_default_dtype got {d!r}; expected a floating dtype such as flow.float32")
    _default = d


def of_scalar(value: bool | int | float) -> dtype:
    """The dtype of a Python number: bool, int64, or the default floating dtype."""
    if isinstance(value, bool | np.bool_):
        return bool_
    if isinstance(value, int | np.integer):
        return int64
    if isinstance(value, float | np.floating):
        return _default
    raise DTypeError(f"got {value!r} of type {type(value).__name__}; expected a Tensor or a Python bool, int or float")


def as_dtype(value: object) -> dtype:
    """Accept a miniflow dtype of numbers, a NumPy dtype or Python's `bool`, `int` and `float`, which is float64."""
    if value is None:  # NumPy would take it for float64
        raise DTypeError("got None for a dtype; expected one such as flow.float32")
    if isinstance(value, type) and value in (bool, int, float):  # np.dtype(float) == float, so test the type first
        return {bool: bool_, int: int64, float: float64}[value]
    result = value if isinstance(value, dtype) else dtype.from_numpy(value)
    if result is tensor_buffer:
        raise DTypeError(
            "got the dtype tensor_buffer; expected one of numbers: tensor buffers are made by flow.gen_tensor_buffer, "
            "flow.tensor_to_tensor_buffer and flow.tensor_list_to_tensor_buffer"
        )
    return result


def fitting(op: str, value: bool | int | float, dtype: dtype) -> bool | int | float:
    """A number that is to be written into a tensor of `dtype`, as PyTorch converts it.

    For integers it is truncated towards zero. Negative numbers wrap around in uint8, as in C.

    Raises:
        DTypeError: for a number that an integer dtype cannot hold.

    >>> fitting("full", -1.5, uint8)
    255
    """
    if dtype.category != 1:
        return value
    limits = np.iinfo(dtype.numpy)
    if not (limits.min or -limits.max) <= value <= limits.max:
        raise DTypeError(
            f"{op}: got the value {value}, which {dtype} cannot hold; expected one from {limits.min} to {limits.max}: "
            "use a wider dtype, or clamp it"
        )
    return int(value) % (limits.max + 1) if limits.min == 0 else int(value)


def finfo(type: dtype | None = None) -> SimpleNamespace:
    """The limits of a floating dtype, the default one if None: bits, eps, max, min, tiny, resolution. `torch.finfo`."""
    type = type or get_default_dtype()
    if not type.is_floating_point:
        raise DTypeError(f"finfo: got {type}; expected a floating dtype: use iinfo")
    limits = ml_dtypes.finfo(type.numpy)
    numbers = {name: float(getattr(limits, name)) for name in ("eps", "max", "min", "tiny", "smallest_normal")}
    return SimpleNamespace(bits=limits.bits, dtype=type.name, resolution=10.0**-limits.precision, **numbers)


def iinfo(type: dtype) -> SimpleNamespace:
    """The limits of an integer dtype: bits, max, min. `torch.iinfo`."""
    if type.category != 1:
        raise DTypeError(f"iinfo: got {type}; expected a dtype of integers: use finfo")
    limits = np.iinfo(type.numpy)
    return SimpleNamespace(bits=limits.bits, dtype=type.name, max=int(limits.max), min=int(limits.min))


def promote_types(a: dtype, b: dtype) -> dtype:
    """The smallest dtype that holds both.

    >>> promote_types(int64, float16)
    miniflow.float16
    >>> promote_types(uint8, int8), promote_types(float16, bfloat16)
    (miniflow.int16, miniflow.float32)
    """
    if a is b:
        return a
    if a.category != b.category:
        return a if a.category > b.category else b
    if {a, b} == {uint8, int8}:
        return int16
    if {a, b} == {float16, bfloat16}:
        return float32
    return a if a.itemsize > b.itemsize else b


def result_dtype(tensors: list[dtype], zero_dim: list[dtype], numbers: list[dtype]) -> dtype:
    """The dtype in which an operation computes, from those of its three kinds of operands, strongest kind first."""
    result = None
    for group in (tensors, zero_dim, numbers):
        if group:
            widest = functools.reduce(promote_types, group)
            if result is None or widest.category > result.category:
                result = widest
    return result


def can_cast(source: dtype, target: dtype) -> bool:
    """Whether an in-place operation may write results of `source` into `target`: never to a lower category."""
    return source.category <= target.category
