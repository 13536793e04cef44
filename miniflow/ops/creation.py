"""Creating tensors from data, filled with a value, of evenly spaced numbers, and the identity matrix.

They are created on the device given by `device=`, or on the default device (see `set_default_device`), first the CPU.
Dtypes follow PyTorch: Python ints become int64, Python floats the default dtype (float32 unless `set_default_dtype`
changed it), NumPy arrays and scalars keep theirs.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from miniflow.backends import memory
from miniflow.device import CPU, chosen
from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.tape import modes
from miniflow.dtype import (
    BY_NUMPY,
    as_dtype,
    dtype,
    fitting,
    float64,
    get_default_dtype,
    int64,
    of_scalar,
    promote_types,
)
from miniflow.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, refusal
from miniflow.ops.method import method
from miniflow.ops.promotion import Number, cast, to_device
from miniflow.ops.views import sizes_of
from miniflow.tensor import Tensor

if TYPE_CHECKING:
    from typing import Unpack


class Options(TypedDict, total=False):
    """Keyword arguments of functions that make a tensor like another one, whose dtype and device are the defaults."""

    dtype: dtype | None
    device: Any
    requires_grad: bool
    layout: Any  # ignored: the only layout is strided, in row-major order
    memory_format: Any


# from data


def tensor(data: Any, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A new tensor holding a copy of `data`.

    Args:
        data: a number, nested lists or tuples of numbers, NumPy arrays or tensors, or one of these alone.
        dtype: the element type; None infers it (see the head of this file).
        device: where to put it; None for the device of a tensor `data`, and else for the default device.
        requires_grad: whether gradients are wanted.

    Returns:
        a leaf tensor of the shape of `data`.

    Raises:
        ShapeError: for nested lists of unequal lengths.
        DTypeError: for elements that are not numbers, or do not fit into `dtype`.

    >>> tensor([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]], dtype=miniflow.int64)
    >>> tensor(0.5, requires_grad=True)
    tensor(0.5000, dtype=miniflow.float32, requires_grad=True)

    Source: `torch.tensor`.
    """
    if isinstance(data, Tensor):
        device = data._device if device is None else device
        data = data._host_array()
    if isinstance(data, np.ndarray | np.generic):
        array = np.array(data, dtype=_numpy_dtype(dtype, data.dtype))
    else:
        array = _from_sequence(data, dtype)
    return new_leaf(array, device, requires_grad)


def as_tensor(data: Any, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """`data` as a tensor, without a copy where that is possible: a tensor or NumPy array of the wanted dtype is shared.

    Raises:
        ShapeError, DTypeError: as `tensor`.

    >>> array = np.zeros(2)
    >>> as_tensor(array)[0] = 7.0
    >>> array.tolist()
    [7.0, 0.0]

    Source: `torch.as_tensor`.
    """
    if isinstance(data, Tensor):
        data = data if dtype is None else cast(data, dtype)
        return data if device is None else to_device(data, device)
    if isinstance(data, np.ndarray):
        array = np.asarray(data, dtype=_numpy_dtype(dtype, data.dtype))
        return _borrowing(array) if array is data and chosen(device).type == "cpu" else new_leaf(array, device)
    return tensor(data, dtype, device)


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor on the memory of a NumPy array: changes to one are seen in the other.

    Raises:
        DTypeError: if `array` is not an array, or its dtype is not one of miniflow's.

    >>> from_numpy(np.arange(3, dtype=np.int32))
    tensor([0, 1, 2], dtype=miniflow.int32)

    Source: `torch.from_numpy`.
    """
    if not isinstance(array, np.ndarray):
        raise DTypeError(f"from_numpy: got {type(array).__name__}; expected a NumPy array, or use flow.tensor")
    return _borrowing(np.asarray(array, dtype=_numpy_dtype(None, array.dtype)))


def _borrowing(array: np.ndarray) -> Tensor:
    """A tensor on memory that others may change too; tells the graph that is being recorded."""
    result = Tensor._wrap(array)
    if modes.tracer is not None:
        modes.tracer.borrowed(result)
    return result


def from_dlpack(source: Any) -> Tensor:
    """A tensor on the memory of another library's tensor: changes to one are seen in the other.

    Args:
        source: anything that exports DLPack on the CPU, e.g. a torch tensor or a NumPy array.

    Raises:
        DTypeError: if `source` does not export DLPack, or has a dtype that NumPy cannot exchange (bfloat16).

    >>> array = np.zeros(2)
    >>> from_dlpack(array)[0] = 7.0
    >>> array.tolist()
    [7.0, 0.0]

    Source: `torch.from_dlpack`.
    """
    try:
        return from_numpy(np.from_dlpack(source))
    except (AttributeError, BufferError, RuntimeError) as error:
        raise DTypeError(
            f"from_dlpack: got {type(source).__name__}; expected a CPU tensor that exports DLPack, of a dtype "
            f"that NumPy has ({error}): convert it first, or use flow.tensor"
        ) from error


def _numpy_dtype(dtype: Any, source: np.dtype) -> np.dtype:
    """The NumPy dtype for data of dtype `source`: `dtype`, if this is a conversion between numbers."""
    if dtype is None or source.hasobject or not (source.kind in "biuf" or source in BY_NUMPY):
        return as_dtype(source).numpy
    return as_dtype(dtype).numpy


def _from_sequence(data: Any, dtype: dtype | None) -> np.ndarray:
    leaf = data
    while isinstance(leaf, list | tuple) and leaf:
        leaf = leaf[0]
    try:
        array = np.array(_arrays(data) if isinstance(leaf, Tensor) else data)
    except ValueError as error:
        expected = f"a rectangular nesting: pad the rows ({error})"
        raise ShapeError(f"tensor: got nested sequences of unequal lengths; expected {expected}") from None
    target = _numpy_dtype(dtype, array.dtype)
    if dtype is None and array.dtype == float64.numpy:  # which NumPy chooses for mixed elements and Python floats
        dtypes = _dtypes(data) or {get_default_dtype()}
        target = functools.reduce(promote_types, dtypes).numpy
    with np.errstate(invalid="ignore", over="ignore"):
        result = array.astype(target)
    if target.kind in "iu" and array.dtype.kind in "iuf" and (result != np.trunc(array)).any():
        raise DTypeError(f"tensor: got values that do not fit into {as_dtype(target)}; expected a wider dtype")
    return result


NUMBERS = {bool, int, float}


def _dtypes(data: Any) -> set[dtype]:
    """The dtypes of the elements of nested lists."""
    if _is_sequence(data):
        types = set(map(type, data))
        return {of_scalar(type_()) for type_ in types} if types <= NUMBERS else set().union(*map(_dtypes, data))
    if type(data) in NUMBERS:
        return {of_scalar(data)}
    return {data.dtype if isinstance(data, Tensor) else as_dtype(np.asarray(data).dtype)}


def _arrays(data: Any) -> Any:
    """Nested lists of tensors as nested lists of arrays."""
    if isinstance(data, Tensor):
        return data._host_array()
    return [_arrays(item) for item in data] if _is_sequence(data) else data


def _is_sequence(data: Any) -> bool:
    return isinstance(data, Sequence) and not isinstance(data, str | bytes)


def new_leaf(array: np.ndarray, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor around a new array, with the device and `requires_grad` that the factory was given."""
    return _leaf(memory.move(array, chosen(device)), requires_grad)


def _leaf(array: Any, requires_grad: bool) -> Tensor:
    result = note_created(Tensor._wrap(array))
    return result.requires_grad_() if requires_grad else result


# filled


def sizes_to_shape(op: str, sizes: tuple) -> tuple[int, ...]:
    """Sizes given one by one or as one sequence, checked."""
    sizes = sizes_of(sizes)
    try:
        shape = tuple([operator.index(n) for n in sizes])
    except TypeError:
        raise DTypeError(f"{op}: got sizes {sizes}; expected integers") from None
    if any(n < 0 for n in shape):
        raise ShapeError(f"{op}: got sizes {shape}; expected sizes of at least 0")
    return shape


def floating_dtype(dtype: dtype | None) -> np.dtype:
    """The NumPy dtype of `dtype`; None for the default floating dtype."""
    return (get_default_dtype() if dtype is None else as_dtype(dtype)).numpy


def _filled(
    shape: tuple[int, ...], value: Any, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    device, numpy_dtype = chosen(device), floating_dtype(dtype)
    if device is CPU and value == 0:
        return _leaf(np.zeros(shape, numpy_dtype), requires_grad)  # large ones get zeroed pages from the OS
    return _leaf(memory.full(shape, value, numpy_dtype, device), requires_grad)


def like_options(
    x: Tensor, dtype: dtype | None = None, device: Any = None, layout: Any = None, memory_format: Any = None,
    **options: Any
) -> dict[str, Any]:  # fmt: skip
    """The options of a tensor like `x`."""
    return {
        "dtype": x.dtype if dtype is None else dtype,
        "device": x._device_and_sbp if device is None else device,
        **options,
    }


def note_created(result: Tensor) -> Tensor:
    """`result`, a newly created tensor; tells the graph that is being recorded."""
    if modes.tracer is not None:
        modes.tracer.created(result)
    return result


@takes_tensors
def empty(
    *size: int | Sequence[int], dtype: dtype | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """An uninitialized tensor: its values are arbitrary.

    Args:
        size: the shape, as integers or as one sequence.
        dtype: None for the default floating dtype.
        device: None for the default device.
        requires_grad: whether gradients are wanted.

    Raises:
        ShapeError: for a negative size.
        DeviceError: for a device that does not exist.

    >>> empty(2, 3).shape
    miniflow.Size([2, 3])

    Source: `torch.empty`.
    """
    return _leaf(memory.empty(sizes_to_shape("empty", size), floating_dtype(dtype), chosen(device)), requires_grad)


@takes_tensors
def zeros(
    *size: int | Sequence[int], dtype: dtype | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of zeros; arguments as for `empty`.

    Raises:
        ShapeError: for a negative size.

    >>> zeros(2)
    tensor([0., 0.], dtype=miniflow.float32)

    Source: `torch.zeros`.
    """
    return _filled(sizes_to_shape("zeros", size), 0, dtype, device, requires_grad)


@takes_tensors
def ones(
    *size: int | Sequence[int], dtype: dtype | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of ones; arguments as for `empty`.

    Raises:
        ShapeError: for a negative size.

    >>> ones((1, 2), dtype=float64)
    tensor([[1., 1.]], dtype=miniflow.float64)

    Source: `torch.ones`.
    """
    return _filled(sizes_to_shape("ones", size), 1, dtype, device, requires_grad)


def full(
    size: Sequence[int], fill_value: Number | Tensor, dtype: dtype | None = None, *, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor filled with `fill_value`.

    Args:
        size: the shape, one sequence.
        fill_value: a number; without `dtype` it decides the dtype.
        dtype, device, requires_grad: as for `empty`.

    Raises:
        ShapeError: for a negative size.
        DTypeError: if the value does not fit into `dtype`.

    >>> full((2,), 7)
    tensor([7, 7], dtype=miniflow.int64)

    Source: `torch.full`.
    """
    if not isinstance(size, list | tuple):
        raise DTypeError(f"full: got size={size!r}; expected a sequence of integers such as ({size!r},)")
    if isinstance(fill_value, Tensor):
        dtype, fill_value = fill_value.dtype if dtype is None else dtype, fill_value.item()
    dtype = of_scalar(fill_value) if dtype is None else as_dtype(dtype)
    value = fitting("full", fill_value, dtype)
    return _filled(sizes_to_shape("full", tuple(size)), value, dtype, device, requires_grad)


def scalar_tensor(s: Number, dtype: dtype | None = None, *, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor without dims, of the default floating dtype unless another is given. `torch.scalar_tensor`."""
    dtype = get_default_dtype() if dtype is None else dtype
    return full((), s, dtype, device=device, requires_grad=requires_grad)


@takes_tensors
def empty_like(input: Tensor, **options: Unpack[Options]) -> Tensor:
    """An uninitialised tensor with the shape of `input`, and its dtype and device unless others are given.

    >>> empty_like(zeros(2, 3)).shape
    miniflow.Size([2, 3])

    Source: `torch.empty_like`.
    """
    return empty(input._array.shape, **like_options(input, **options))


@takes_tensors
def zeros_like(input: Tensor, **options: Unpack[Options]) -> Tensor:
    """Zeros with the shape of `input`, and its dtype and device unless others are given.

    >>> zeros_like(tensor([1, 2]))
    tensor([0, 0], dtype=miniflow.int64)

    Source: `torch.zeros_like`.
    """
    return zeros(input._array.shape, **like_options(input, **options))


@takes_tensors
def ones_like(input: Tensor, **options: Unpack[Options]) -> Tensor:
    """Ones with the shape of `input`, and its dtype and device unless others are given.

    >>> ones_like(tensor([1, 2]))
    tensor([1, 1], dtype=miniflow.int64)

    Source: `torch.ones_like`.
    """
    return ones(input._array.shape, **like_options(input, **options))


@takes_tensors
def full_like(input: Tensor, fill_value: Number, **options: Unpack[Options]) -> Tensor:
    """A tensor filled with `fill_value`, with the shape of `input`, and its dtype and device unless others are given.

    Raises:
        DTypeError: if the value does not fit into the dtype.

    >>> full_like(zeros(2), 3)
    tensor([3., 3.], dtype=miniflow.float32)

    Source: `torch.full_like`.
    """
    return full(input._array.shape, fill_value, **like_options(input, **options))


# methods of a tensor whose dtype and device they take


@method
def new_tensor(self: Tensor, data: Any, **options: Unpack[Options]) -> Tensor:
    """`tensor(data)` with the dtype and device of `self` unless others are given.

    >>> zeros(2).new_tensor([1, 2])
    tensor([1., 2.], dtype=miniflow.float32)

    Source: `torch.Tensor.new_tensor`.
    """
    return tensor(data, **like_options(self, **options))


@method
def new_empty(self: Tensor, *size: int | Sequence[int], **options: Unpack[Options]) -> Tensor:
    """`empty(*size)` with the dtype and device of `self` unless others are given.

    >>> tensor([1]).new_empty(2).dtype
    miniflow.int64

    Source: `torch.Tensor.new_empty`.
    """
    return empty(*size, **like_options(self, **options))


@method
def new_zeros(self: Tensor, *size: int | Sequence[int], **options: Unpack[Options]) -> Tensor:
    """`zeros(*size)` with the dtype and device of `self` unless others are given.

    >>> tensor([1]).new_zeros(2)
    tensor([0, 0], dtype=miniflow.int64)

    Source: `torch.Tensor.new_zeros`.
    """
    return zeros(*size, **like_options(self, **options))


@method
def new_ones(self: Tensor, *size: int | Sequence[int], **options: Unpack[Options]) -> Tensor:
    """`ones(*size)` with the dtype and device of `self` unless others are given.

    >>> tensor([1]).new_ones(2)
    tensor([1, 1], dtype=miniflow.int64)

    Source: `torch.Tensor.new_ones`.
    """
    return ones(*size, **like_options(self, **options))


@method
def new_full(self: Tensor, size: Sequence[int], fill_value: Number, **options: Unpack[Options]) -> Tensor:
    """`full(size, fill_value)` with the dtype and device of `self` unless others are given.

    >>> zeros(1).new_full((2,), 3)
    tensor([3., 3.], dtype=miniflow.float32)

    Source: `torch.Tensor.new_full`.
    """
    return full(size, fill_value, **like_options(self, **options))


# evenly spaced numbers, and the identity matrix


def arange(
    start: Number, end: Number | None = None, step: Number = 1, *, dtype: dtype | None = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """start, start + step, ... below (for a negative step: above) `end`: ceil((end - start) / step) numbers.

    For integer dtypes `start` and `step` are cut to integers; for int64 they are, and `end` is, before it is counted.

    Args:
        start: the first number; with one argument it is the end, and counting starts at 0.
        end: exclusive.
        step: not zero.
        dtype: None for int64 if all arguments are integers, else the default floating dtype.
        device, requires_grad: as for `empty`.

    Raises:
        ArgumentError: for a step of zero or of the wrong sign.

    >>> arange(3), arange(1, 2, 0.5)
    (tensor([0, 1, 2], dtype=miniflow.int64), tensor([1.0000, 1.5000], dtype=miniflow.float32))

    Source: `torch.arange`.
    """
    if end is None:
        start, end = 0, start
    start, end, step = (v.item() if isinstance(v, Tensor | np.generic) else v for v in (start, end, step))
    if not all(isinstance(v, int | float) for v in (start, end, step)):
        raise refusal(ArgumentTypeError, "arange", "numbers", start=start, end=end, step=step)
    integral = all(isinstance(v, int) for v in (start, end, step))
    result_dtype = (int64 if integral else get_default_dtype()) if dtype is None else as_dtype(dtype)
    finite = all(map(math.isfinite, (start, end, step)))
    if result_dtype is int64 and finite:
        start, end, step, integral = int(start), int(end), int(step), True
    if step == 0 or not finite or (end - start) * (1 if step > 0 else -1) < 0:
        expected = "finite bounds and a nonzero step that leads from start to end"
        raise ArgumentError(f"arange: got start={start}, end={end}, step={step}; expected {expected}")
    count = -((start - end) // step) if integral else math.ceil((end - start) / step)
    if result_dtype.category == 1:
        start, step = int(start), int(step)
    return new_leaf((start + np.arange(count) * step).astype(result_dtype.numpy), device, requires_grad)


def _between(op: str, start: Number, end: Number, steps: int, dtype: np.dtype) -> np.ndarray:
    """`steps` equally spaced float64 numbers, symmetric in rounding; the ends are exact, but cut for integer dtypes."""
    if steps < 0:
        raise ArgumentError(f"{op}: got steps={steps}; expected at least 0")
    start, end = (float(int(v) if dtype.kind in "iu" else v) for v in (start, end))
    if steps < 2:
        return np.full(steps, start)
    step, i = (end - start) / (steps - 1), np.arange(steps)
    return np.where(i < steps // 2, start + i * step, end - (steps - 1 - i) * step)


def linspace(
    start: Number, end: Number, steps: int, *, dtype: dtype | None = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """y_i = start + i (end - start) / (steps - 1): `steps` numbers from `start` to `end`, both included.

    Args:
        start, end: the ends.
        steps: how many numbers.
        dtype: None for the default floating dtype.
        device, requires_grad: as for `empty`.

    Raises:
        ArgumentError: for negative `steps`.

    >>> linspace(0, 1, 3)
    tensor([0.0000, 0.5000, 1.0000], dtype=miniflow.float32)

    Source: `torch.linspace`.
    """
    numpy_dtype = floating_dtype(dtype)
    return new_leaf(_between("linspace", start, end, steps, numpy_dtype).astype(numpy_dtype), device, requires_grad)


def logspace(
    start: Number, end: Number, steps: int, base: float = 10.0, *, dtype: dtype | None = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """y_i = base ** linspace(start, end, steps)_i.

    Raises:
        ArgumentError: for negative `steps`.

    >>> logspace(0, 2, 3)
    tensor([  1.,  10., 100.], dtype=miniflow.float32)

    Source: `torch.logspace`.
    """
    numpy_dtype = floating_dtype(dtype)
    powers = np.power(float(base), _between("logspace", start, end, steps, numpy_dtype))
    return new_leaf(powers.astype(numpy_dtype), device, requires_grad)


def eye(
    n: int, m: int | None = None, *, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """The matrix of shape (n, m) with ones on the diagonal and zeros elsewhere; `m` is `n` unless given.

    Raises:
        ShapeError: for a negative size.

    >>> eye(2, 3)
    tensor([[1., 0., 0.],
            [0., 1., 0.]], dtype=miniflow.float32)

    Source: `torch.eye`.
    """
    rows, columns = sizes_to_shape("eye", (n, n if m is None else m))
    return new_leaf(np.eye(rows, columns, dtype=floating_dtype(dtype)), device, requires_grad)
