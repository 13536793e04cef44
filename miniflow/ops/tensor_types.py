"""`FloatTensor`, `LongTensor` and the like: each makes tensors of one dtype, and knows which tensors are of it.

Also the methods that cast, by the same names, and questions about tensors whose answers are Python values.
"""

from __future__ import annotations

import builtins
from typing import Any

from miniflow.device import CPU
from miniflow.dtype import (
    bfloat16,
    bool_,
    dtype,
    float16,
    float32,
    float64,
    get_default_dtype,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from miniflow.errors import ArgumentError, ShapeError
from miniflow.ops.creation import empty, tensor
from miniflow.ops.method import METHODS, method
from miniflow.ops.promotion import cast
from miniflow.tensor import Size, Tensor


class TensorType:
    """A dtype on the CPU, by its name in older code.

    >>> import miniflow as flow
    >>> flow.LongTensor([1, 2])
    tensor([1, 2], dtype=miniflow.int64)
    >>> isinstance(flow.zeros(2), flow.FloatTensor)
    True

    Source: `torch.FloatTensor`; `oneflow.FloatTensor`.
    """

    def __init__(self, name: str, dtype: dtype):
        self.__name__, self.dtype = name, dtype

    def __call__(self, *data: Any) -> Tensor:
        """A tensor of data, or uninitialized, of the sizes that are passed."""
        return of_data_or_sizes(data, self.dtype, CPU)

    def __instancecheck__(self, x: Any) -> bool:
        return isinstance(x, Tensor) and x.dtype is self.dtype and x.is_local and x.device.type == "cpu"

    def __repr__(self) -> str:
        return f"miniflow.{self.__name__}"


NAMES = {
    "Bool": bool_, "Byte": uint8, "Char": int8, "Short": int16, "Int": int32, "Long": int64,
    "Half": float16, "BFloat16": bfloat16, "Float": float32, "Double": float64,
}  # fmt: skip
TENSOR_TYPES = {f"{name}Tensor": TensorType(f"{name}Tensor", dtype) for name, dtype in NAMES.items()}


@method(checked=False)
def type(self: Tensor, dtype: Any = None) -> str | Tensor:
    """The name of the tensor's type, as "miniflow.FloatTensor"; with a dtype or a tensor type, the values as that.

    Source: `torch.Tensor.type`.
    """
    if dtype is None:
        device = "" if self.is_global or self.device.type == "cpu" else f"{self.device.type}."
        name = next((name for name, element_dtype in NAMES.items() if element_dtype is self.dtype), "Buffer")
        return f"miniflow.{device}{name}Tensor"
    if isinstance(dtype, str):
        tensor_type = TENSOR_TYPES.get(dtype.rpartition(".")[2])
        if tensor_type is None or dtype.count(".") > 1:
            raise ArgumentError(f"type: got {dtype!r}; expected a dtype, or one of {', '.join(TENSOR_TYPES)}")
        dtype = tensor_type
    return cast(self, getattr(dtype, "dtype", dtype))


def is_tensor(obj: Any) -> bool:
    """Whether an object is a tensor. `torch.is_tensor`."""
    return isinstance(obj, Tensor)


def numel(input: Tensor) -> int:
    """The number of elements. `torch.numel`."""
    return input.numel()


def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a floating one. `torch.is_floating_point`."""
    return input.is_floating_point()


@method
def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero.

    Raises:
        ShapeError: for another number of elements.

    Source: `torch.is_nonzero`.
    """
    if input.numel() != 1:
        raise ShapeError(f"is_nonzero: got {input.numel()} elements; expected one: use any() or all()")
    return input.item() != 0


def bool(self: Tensor) -> Tensor:
    """The values as bool. `torch.Tensor.bool`."""
    return cast(self, bool_)


def byte(self: Tensor) -> Tensor:
    """The values as uint8. `torch.Tensor.byte`."""
    return cast(self, uint8)


def char(self: Tensor) -> Tensor:
    """The values as int8. `torch.Tensor.char`."""
    return cast(self, int8)


def short(self: Tensor) -> Tensor:
    """The values as int16. `torch.Tensor.short`."""
    return cast(self, int16)


def int(self: Tensor) -> Tensor:
    """The values as int32. `torch.Tensor.int`."""
    return cast(self, int32)


def long(self: Tensor) -> Tensor:
    """The values as int64. `torch.Tensor.long`."""
    return cast(self, int64)


def half(self: Tensor) -> Tensor:
    """The values as float16. `torch.Tensor.half`."""
    return cast(self, float16)


def bfloat16(self: Tensor) -> Tensor:
    """The values as bfloat16. `torch.Tensor.bfloat16`."""
    return cast(self, "bfloat16")


def float(self: Tensor) -> Tensor:
    """The values as float32. `torch.Tensor.float`."""
    return cast(self, float32)


def double(self: Tensor) -> Tensor:
    """The values as float64. `torch.Tensor.double`."""
    return cast(self, float64)


METHODS.update({f.__name__: f for f in (bool, byte, char, short, int, long, half, bfloat16, float, double)})


def of_data_or_sizes(data: tuple, dtype: dtype, device: Any) -> Tensor:
    """A tensor of data, or uninitialized, of sizes that are passed."""
    if len(data) == 1 and not isinstance(data[0], builtins.int | Size):
        return tensor(data[0], dtype, device)
    return empty(*data or (0,), dtype=dtype, device=device)


def tensor_of_class(*data: Any, device: Any = None) -> Tensor:
    """What `Tensor(...)` makes, in the default dtype: see `of_data_or_sizes`."""
    return of_data_or_sizes(data, get_default_dtype(), device)


tensor_of_class.__name__ = tensor_of_class.__qualname__ = "Tensor"  # in messages
