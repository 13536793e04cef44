"""Tensors whose elements are arrays of different shapes, such as the images of a batch: dtype `flow.tensor_buffer`.

In a *tensor buffer* each array has memory of its own; in a *tensor list* all have one dtype and lie one after the other
in one memory, which `x.is_contiguous()` tells. Both are tensors on the CPU with a shape, views, `numpy()` (the list of
arrays), `tolist()` and a printed form. No operator computes with them, and nothing is differentiated: functions here
convert them, and layers of `nn.image` take them.

Source: `oneflow.tensor_buffer`; the concepts TensorBuffer and TensorList of OneFlow's documentation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from miniflow.backends.buffer import BufferArray
from miniflow.dispatch.call_errors import refuse_operand
from miniflow.dtype import as_dtype, dtype, fitting, float32, tensor_buffer
from miniflow.errors import DTypeError, ShapeError, refusal
from miniflow.ops.creation import from_numpy
from miniflow.tensor import Tensor


def elements_of(x: Tensor, op: str) -> list[np.ndarray]:
    """The arrays of a tensor of dtype `tensor_buffer`, in row-major order.

    Raises:
        DTypeError: for a tensor of numbers.
    """
    if not isinstance(x, Tensor):
        refuse_operand(x, op, "a Tensor of tensor_buffer", "input")
    if x.dtype is not tensor_buffer:
        expected = "a tensor of tensor_buffer: use flow.tensor_to_tensor_buffer, or flow.tensor_list_to_tensor_buffer"
        raise DTypeError(f"{op}: got a tensor of {x.dtype}; expected {expected}")
    return x._host_array().elements()


def buffer_of(arrays: Sequence[np.ndarray], shape: Sequence[int] | None = None) -> Tensor:
    """A tensor of dtype `tensor_buffer` around arrays, by default of one dim."""
    return Tensor._wrap(BufferArray.of(arrays, shape))


def tensor_to_tensor_buffer(x: Tensor, instance_dims: int) -> Tensor:
    """The tensor whose elements are the arrays of the last dims, as copies.

    Args:
        x: any shape and dtype.
        instance_dims: how many dims the arrays have; fewer than x.

    Returns:
        dtype `tensor_buffer`, of the first `x.ndim - instance_dims` dims.

    Raises:
        ShapeError: for too few dims.
        DTypeError: for a tensor buffer.

    >>> import miniflow as flow
    >>> x = flow.tensor_to_tensor_buffer(flow.ones(4, 16, 64, 32), instance_dims=2)
    >>> x.shape, x.dtype
    (miniflow.Size([4, 16]), miniflow.tensor_buffer)

    Source: `oneflow.tensor_to_tensor_buffer`.
    """
    if not isinstance(x, Tensor):
        refuse_operand(x, "tensor_to_tensor_buffer", parameter="x")
    if x.dtype is tensor_buffer:
        raise DTypeError("tensor_to_tensor_buffer: got a tensor of tensor_buffer; expected one of numbers")
    if not 0 <= instance_dims < x.ndim:
        expected = f"from 0 to {x.ndim - 1} dims"
        raise refusal(ShapeError, "tensor_to_tensor_buffer", expected, x=x, instance_dims=instance_dims)
    outer, array = x.ndim - instance_dims, x._host_array()
    rows = array.reshape(math.prod(array.shape[:outer]), *array.shape[outer:])
    return buffer_of([row.copy() for row in rows], array.shape[:outer])


def tensor_buffer_to_tensor(x: Tensor, dtype: dtype, instance_shape: Sequence[int]) -> Tensor:
    """The tensor of numbers whose last dims are those of the arrays, all of one shape.

    Args:
        x: dtype `tensor_buffer`.
        dtype, instance_shape: those of each array.

    Returns:
        shape (*x.shape, *instance_shape).

    Raises:
        ShapeError, DTypeError: for an array of another shape or dtype; for a tensor of numbers.

    >>> import miniflow as flow
    >>> x = flow.tensor_list_to_tensor_buffer([np.ones(3), np.zeros(3)])
    >>> flow.tensor_buffer_to_tensor(x, dtype=flow.float64, instance_shape=(3,)).tolist()
    [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]

    Source: `oneflow.tensor_buffer_to_tensor`.
    """
    arrays, element_dtype, shape = elements_of(x, "tensor_buffer_to_tensor"), as_dtype(dtype), tuple(instance_shape)
    for i, array in enumerate(arrays):
        _check("tensor_buffer_to_tensor", i, array, element_dtype, array.shape == shape, f"shape {shape}")
    return from_numpy(np.array(arrays, element_dtype.numpy).reshape(*x.shape, *shape))


def tensor_buffer_to_list_of_tensors(
    tensor: Tensor, out_shapes: Sequence[Sequence[int]] | None = None, out_dtypes: Sequence[dtype] | None = None
) -> list[Tensor]:
    """A tensor for each array, in row-major order, as copies.

    Args:
        tensor: dtype `tensor_buffer`.
        out_shapes, out_dtypes: what the arrays have to be, if given; shapes may be others of as many elements.

    Raises:
        ShapeError, DTypeError: for an array of another size or dtype, or another number of arrays.

    >>> import miniflow as flow
    >>> x = flow.gen_tensor_buffer((2,), [(1,), (2,)], [5.0, 7.0])
    >>> [y.tolist() for y in flow.tensor_buffer_to_list_of_tensors(x)]
    [[5.0], [7.0, 7.0]]

    Source: `oneflow.tensor_buffer_to_list_of_tensors`.
    """
    op = "tensor_buffer_to_list_of_tensors"
    arrays = elements_of(tensor, op)
    shapes = [array.shape for array in arrays] if out_shapes is None else [tuple(shape) for shape in out_shapes]
    dtypes = [array.dtype for array in arrays] if out_dtypes is None else out_dtypes
    if not len(arrays) == len(shapes) == len(dtypes):
        raise ShapeError(f"{op}: got {len(shapes)} shapes and {len(dtypes)} dtypes; expected {len(arrays)} of both")
    for i, (array, shape, element_dtype) in enumerate(zip(arrays, shapes, dtypes, strict=True)):
        _check(op, i, array, as_dtype(element_dtype), array.size == math.prod(shape), f"as many elements as {shape}")
    return [from_numpy(array.copy().reshape(shape)) for array, shape in zip(arrays, shapes, strict=True)]


def gen_tensor_buffer(
    shape: Sequence[int],
    shape_list: Sequence[Sequence[int]],
    value_list: Sequence[float],
    data_type: dtype = float32,
    dynamic_out: bool = False,
) -> Tensor:
    """A tensor buffer whose arrays are filled with one value each.

    Args:
        shape: of the tensor.
        shape_list, value_list: of each array, in row-major order.
        data_type: of all arrays.
        dynamic_out: accepted as in OneFlow; it has no effect.

    Raises:
        ShapeError: if there are not as many shapes and values as elements.

    >>> import miniflow as flow
    >>> flow.gen_tensor_buffer((2,), [(2, 1), (3,)], [0.0, 1.0])
    tensor([float32 (2, 1), float32 (3,)], dtype=miniflow.tensor_buffer)

    Source: `oneflow.gen_tensor_buffer`.
    """
    count, data_type = math.prod(shape), as_dtype(data_type)
    if not count == len(shape_list) == len(value_list):
        raise ShapeError(
            f"gen_tensor_buffer: got {len(shape_list)} shapes and {len(value_list)} values for shape {tuple(shape)}; "
            f"expected {count} of both"
        )
    values = [fitting("gen_tensor_buffer", value, data_type) for value in value_list]
    pairs = zip(shape_list, values, strict=True)
    return buffer_of([np.full(tuple(size), value, data_type.numpy) for size, value in pairs], shape)


def tensor_list_to_tensor_buffer(input: Tensor | Sequence[Any]) -> Tensor:
    """A tensor buffer, whose arrays have memory of their own, from a tensor list, or from a list of arrays or tensors.

    As the `collate_fn` of a DataLoader it makes a batch of samples that differ in shape.

    >>> import miniflow as flow
    >>> x = flow.tensor_list_to_tensor_buffer([np.zeros((2, 3)), flow.ones(4)])
    >>> x.tolist()
    [[[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]], [1.0, 1.0, 1.0, 1.0]]

    Source: `oneflow.tensor_list_to_tensor_buffer` of OneFlow 0.5.
    """
    if isinstance(input, Tensor):
        return buffer_of([array.copy() for array in elements_of(input, "tensor_list_to_tensor_buffer")], input.shape)
    arrays = []
    for x in input:
        if not isinstance(x, Tensor | np.ndarray):
            refuse_operand(x, "tensor_list_to_tensor_buffer", "a Tensor or a NumPy array", "an element")
        array = x._host_array() if isinstance(x, Tensor) else x
        as_dtype(array.dtype)
        arrays.append(array.copy())
    return buffer_of(arrays)


def tensor_buffer_to_tensor_list(
    input: Tensor, shape: Sequence[int] | None = None, dtype: dtype | None = None
) -> Tensor:
    """The tensor list with copies of the arrays of a tensor buffer: one after the other in one memory.

    Args:
        input: dtype `tensor_buffer`, with arrays of one dtype.
        shape: if given, no array may be larger in any dim, or have another number of dims.
        dtype: if given, that of the arrays.

    Raises:
        ShapeError, DTypeError: for arrays that are larger, or of several dtypes.

    >>> import miniflow as flow
    >>> x = flow.tensor_buffer_to_tensor_list(flow.gen_tensor_buffer((2,), [(2, 1), (3,)], [0.0, 1.0]))
    >>> x.is_contiguous(), x.tolist()
    (True, [[[0.0], [0.0]], [1.0, 1.0, 1.0]])

    Source: `oneflow.tensor_buffer_to_tensor_list` of OneFlow 0.5.
    """
    arrays = elements_of(input, "tensor_buffer_to_tensor_list")
    element_dtype = as_dtype(dtype or (arrays[0].dtype if arrays else float32))
    for i, array in enumerate(arrays):
        fits = (
            shape is None or len(shape) == array.ndim and all(n <= m for n, m in zip(array.shape, shape, strict=True))
        )
        _check("tensor_buffer_to_tensor_list", i, array, element_dtype, fits, f"at most {shape and tuple(shape)}")
    memory = np.concatenate([np.empty(0, element_dtype.numpy), *[array.reshape(-1) for array in arrays]])
    parts = np.split(memory, np.cumsum([array.size for array in arrays])[:-1])
    return buffer_of([part.reshape(a.shape) for part, a in zip(parts, arrays, strict=False)], input.shape)


def _check(op: str, i: int, array: np.ndarray, element_dtype: dtype, fits: bool, expected: str) -> None:
    """Refuse the array at position i of another dtype, or one that does not fit."""
    if array.dtype != element_dtype.numpy:
        raise DTypeError(f"{op}: got array {i} of {array.dtype}; expected {element_dtype}")
    if not fits:
        raise ShapeError(f"{op}: got array {i} of shape {array.shape}; expected {expected}")
