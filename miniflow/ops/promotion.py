"""PyTorch's type promotion and broadcasting, shared by all pointwise ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from miniflow.device import Place, chosen
from miniflow.dispatch.call_errors import refuse_operand
from miniflow.dispatch.dispatcher import Op, call
from miniflow.dispatch.tape import modes
from miniflow.dtype import (
    BY_NUMPY,
    as_dtype,
    bfloat16,
    dtype,
    fitting,
    float16,
    float32,
    get_default_dtype,
    of_scalar,
    result_dtype,
)
from miniflow.errors import ArgumentError, DTypeError, ShapeError
from miniflow.formulas.scalar import Expr
from miniflow.ops.method import method
from miniflow.sbp import each_element_alone, elementwise
from miniflow.tensor import Tensor

Number = bool | int | float


def promote(x: Tensor | Number, y: Tensor | Number, name: str) -> tuple[Any, Any]:
    """Bring two operands to the dtype in which PyTorch would compute; Python numbers stay numbers.

    A NumPy array becomes a tensor on the device of the other operand. `name` is that of the op, for errors.
    """
    if x is not None and y is not None and are_of_one_float((x, y)):
        return x, y
    arrays = isinstance(x, np.ndarray), isinstance(y, np.ndarray)
    x, y = as_tensor_or_number(x, name, "x"), as_tensor_or_number(y, name, "y")
    if arrays[0] and isinstance(y, Tensor):
        x = to_device(x, y._device)
    if arrays[1] and isinstance(x, Tensor):
        y = to_device(y, x._device)
    target = result_type(x, y)
    return as_operand(x, target, name), as_operand(y, target, name)


def are_of_one_float(operands: Sequence[Any]) -> bool:
    """Whether these are tensors of one floating dtype of 32 or 64 bits, Python numbers and None: nothing to promote."""
    dtype = None
    for x in operands:
        if isinstance(x, Tensor):
            if dtype is None:
                dtype = x._array.dtype
            elif x._array.dtype is not dtype:
                return False
        elif x is not None and x.__class__ is not float and x.__class__ is not int:
            return False
    return dtype is not None and dtype.kind == "f" and dtype.itemsize > 2


def left_to_autocast(*operands: Any) -> bool:
    """Whether autocast is going to bring operands of a matrix product, which may differ in dtype, to one dtype."""
    if modes.autocast is None or modes.autocast.dtype_for(operands) is None:
        return False
    return all(x is None or isinstance(x, Tensor) and x.dtype in (float32, float16, bfloat16) for x in operands)


def as_tensor_or_number(x: Any, name: str, parameter: str = "an operand") -> Tensor | Number:
    """An operand as ops take it: NumPy arrays become tensors, NumPy scalars Python numbers."""
    if isinstance(x, Tensor | bool | int | float):
        return x
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, np.ndarray):
        dtype.from_numpy(x.dtype)
        return Tensor._wrap(x)
    refuse_operand(x, name, "a Tensor, a NumPy array or a Python number", parameter)


def as_operand(x: Tensor | Number, target: dtype, name: str) -> Tensor | Number:
    """`x` in the dtype `target`; a number is converted (integers wrap around) and stays a number.

    Raises:
        DTypeError: for an integer of more than 64 bits beside integers; it names the op.
    """
    if isinstance(x, Tensor):
        return x if x._array.dtype == target.numpy else cast(x, target)
    if target.category == 2:
        return float(x)
    if target.category == 0:
        return bool(x)
    try:
        return int(np.array(x).astype(target.numpy))
    except OverflowError:
        return fitting(name, x, target)


def result_type(*operands: Tensor | Number) -> dtype:
    """The dtype in which an operation on these tensors and numbers computes.

    >>> import miniflow as flow
    >>> result_type(flow.ones(2, dtype=flow.int32), 1.5)
    miniflow.float32
    """
    tensors, zero_dim, numbers = [], [], []
    for x in operands:
        if isinstance(x, Tensor):
            (tensors if x._array.ndim else zero_dim).append(x.dtype)
        else:
            numbers.append(of_scalar(x))
    return result_dtype(tensors, zero_dim, numbers)


def broadcast_shape(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape of operands, aligned at the last dimension.

    Raises:
        ShapeError: if they cannot be broadcast.
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        got = " and ".join(str(tuple(s)) for s in shapes)
        expected = "sizes that are equal or 1, aligned at the last dimension: reshape or expand one of them"
        raise ShapeError(f"{name}: shapes {got} cannot be broadcast together; expected {expected}") from None


def require_floating(op: str, x: Any) -> None:
    """Refuse arrays of integers and bool with a DTypeError."""
    if x.dtype.kind in "biu":
        raise DTypeError(f"{op}: got {x.dtype}; expected a floating dtype: use x.float()")


def as_float(x: Tensor) -> Tensor:
    """`x`, in the default floating dtype if it holds integers or bools."""
    return cast(x, get_default_dtype()) if isinstance(x, Tensor) and x._array.dtype.kind in "iub" else x


def require_one_dtype(op: str, *arrays: Any) -> None:
    """Refuse arrays (None among them is passed over) of different dtypes with a DTypeError."""
    dtypes = [BY_NUMPY[x.dtype].name for x in arrays if x is not None]
    if len(set(dtypes)) > 1:
        raise DTypeError(f"{op}: got dtypes {', '.join(dtypes)}; expected one: cast with .to(dtype)")


class Cast(Op):
    """The same values in another floating dtype."""

    amp = "untouched"

    def infer(x, *, dtype):
        return x.shape, dtype

    def sbp(x, *, ranks, dtype):
        return elementwise(x, linear=x.dtype.kind in "fV")  # integers wrap around

    def backward(ctx, dy):
        return dy  # the engine casts a gradient to the dtype of its input


class ToInteger(Op):
    """The values truncated to an integer dtype, or as bool; there is no gradient."""

    infer = Cast.infer
    sbp = each_element_alone


@method
def cast(x: Tensor, dtype: object) -> Tensor:
    """The values of `x` in another dtype; `x` itself if it has that dtype. Floats are truncated for integers."""
    target = as_dtype(dtype)
    if x._array.dtype == target.numpy:
        return x
    return call(Cast if target.is_floating_point else ToInteger, x, dtype=target.numpy)


class ToDevice(Op):
    """The same values on another device; the gradient is copied back."""

    amp = "untouched"

    def backward(ctx, dy):
        return to_device(dy, ctx.attrs["source"])


def to_device(x: Tensor, target: Any) -> Tensor:
    """`x` on another device; `x` itself if it is there already.

    Raises:
        DeviceError: for a device that does not exist.
        ArgumentError: for a global tensor and a device with a number.
    """
    if x.is_global:
        return x.to_global(_placement(x, target))
    device = chosen(target)
    source = x._device
    return x if source == device else call(ToDevice, x, source=source, target=device)


def _placement(x: Tensor, target: Any) -> Any:
    """The placement of a global tensor, with another type of device if that is what is asked for."""
    if isinstance(target, Place) and target.is_global:
        return target
    if str(target) not in ("cpu", "cuda"):
        raise ArgumentError(
            f'to: got {target!r}; Only string device without device id (eg. "cpu" or "cuda") is expected for global '
            "tensor"
        )
    return x.placement.with_type(str(target))


def device_and_dtype(args: tuple, device: Any, dtype: Any) -> tuple[Any, Any]:
    """What the arguments of `to` ask for: each is a device, a dtype, or a tensor whose device and dtype to take."""
    for argument in args:
        if isinstance(argument, Tensor):
            device, dtype = argument._device, argument.dtype
        elif isinstance(argument, bool):  # `non_blocking` of PyTorch
            continue
        elif isinstance(argument, str | int | Place):
            device = argument
        else:
            dtype = argument
    return device, dtype


def binary(op: type[Op], x: Any, y: Any) -> Tensor:
    """Promote the operands and run the op; two common cases, which need no conversion, come first."""
    if isinstance(x, Tensor):
        if isinstance(y, Tensor):
            if x._array.dtype is y._array.dtype:
                return call(op, x, y)
        elif (y.__class__ is float or y.__class__ is int) and x._array.dtype.kind == "f" and x._array.itemsize > 2:
            return call(op, x, y)
    if isinstance(x, Expr) or isinstance(y, Expr):
        return op.formula.function(x, y)
    x, y = promote(x, y, op.function_name)
    if x.__class__ is float or y.__class__ is float:
        tensor = x if isinstance(x, Tensor) else y
        dtype = tensor.dtype if isinstance(tensor, Tensor) else None
        if dtype is bfloat16 or dtype is float16 and op.backward is not None:  # computed in float32 and rounded once
            result = call(op, *[cast(v, np.float32) if isinstance(v, Tensor) else v for v in (x, y)])
            return cast(result, dtype) if result.is_floating_point() else result
    return call(op, x, y)


def floating_binary(op: type[Op], x: Any, y: Any) -> Tensor:
    """As `binary`; integers and bools are computed in the default floating dtype."""
    if not (isinstance(x, Tensor) and isinstance(y, Tensor) and x._array.dtype.kind in "fV"):
        first, second = as_tensor_or_number(x, op.function_name), as_tensor_or_number(y, op.function_name)
        if result_type(first, second).category < 2:
            default = get_default_dtype()
            return call(op, *[as_operand(x, default, op.function_name) for x in (first, second)])
    return binary(op, x, y)
