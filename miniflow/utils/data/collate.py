"""Collation: many samples become one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from miniflow.backends import memory
from miniflow.dtype import tensor_buffer
from miniflow.errors import DTypeError, ShapeError
from miniflow.ops.creation import from_numpy
from miniflow.ops.joining import stack
from miniflow.tensor import Tensor


def default_collate(batch: Sequence[Any]) -> Any:
    """Stack samples along a new dimension 0.

    Tensors and NumPy arrays are stacked; int, bool and NumPy scalars become a 1-d tensor of their dtype, and Python
    floats one of float64; strings and bytes stay a list. Dicts, named tuples, tuples and lists are collated item by
    item: dicts give dicts, named tuples named tuples, tuples and lists give lists.

    Args:
        batch: samples of one type and structure.

    Returns:
        the batch: tensors of shape (len(batch), *sample.shape), within the structure of a sample.

    Raises:
        ShapeError: if samples differ in shape or length, or there are none; as `collate_fn`,
            `flow.tensor_list_to_tensor_buffer` takes tensors and arrays of several shapes.
        DTypeError: for samples of other types.

    >>> import miniflow as flow
    >>> default_collate([{"x": 1, "name": "a"}, {"x": 2, "name": "b"}])
    {'x': tensor([1, 2], dtype=miniflow.int64), 'name': ['a', 'b']}
    >>> default_collate([(flow.zeros(3), 0.5), (flow.ones(3), 1.5)])[0].shape
    miniflow.Size([2, 3])

    Source: `torch.utils.data.default_collate`.
    """
    if not len(batch):
        raise ShapeError("default_collate: got an empty batch; expected at least one sample")
    first = batch[0]
    if isinstance(first, Tensor) and (
        first.is_global or first.dtype is tensor_buffer or not memory.is_host(first._array)
    ):
        return stack([sample.detach() for sample in batch])
    if isinstance(first, Tensor | np.ndarray):
        arrays = [sample.detach().numpy() if isinstance(sample, Tensor) else sample for sample in batch]
        _refuse_unequal("shapes", {array.shape for array in arrays}, "pad or crop them")
        return from_numpy(np.stack(arrays))
    if isinstance(first, bool | int | float | np.number | np.bool_):
        return from_numpy(np.array(batch))
    if isinstance(first, str | bytes):
        return list(batch)
    if isinstance(first, Mapping):
        return _like_mapping(first, {key: default_collate([sample[key] for sample in batch]) for key in first})
    if isinstance(first, Sequence):
        _refuse_unequal("lengths", {len(sample) for sample in batch}, "pad them")
        columns = [default_collate(column) for column in zip(*batch, strict=True)]
        return type(first)(*columns) if hasattr(first, "_fields") else columns
    raise DTypeError(
        f"default_collate: got samples of type {type(first).__name__}; expected tensors, arrays, numbers, strings, or "
        "dicts, tuples and lists of them: pass collate_fn to the DataLoader for others"
    )


def _refuse_unequal(noun: str, values: set, remedy: str) -> None:
    if len(values) > 1:
        raise ShapeError(
            f"default_collate: got samples of {noun} {sorted(values)}; expected equal {noun}: "
            f"{remedy} in the data set, or pass collate_fn to the DataLoader"
        )


def _like_mapping(original: Mapping, items: dict) -> Mapping:
    """The items in a mapping of the original's type, where that type can be made from a dict."""
    try:
        return items if type(original) is dict else type(original)(items)
    except TypeError:
        return items


def default_convert(sample: Any) -> Any:
    """Convert the NumPy arrays and scalars in one sample to tensors, and leave the rest as it is.

    A DataLoader with `batch_size=None` does this.

    Args:
        sample: anything; dicts, named tuples, tuples and lists are converted item by item.

    Returns:
        the converted sample; arrays share memory with their tensors.

    >>> import numpy as np
    >>> default_convert({"x": np.arange(2), "n": 1})
    {'x': tensor([0, 1], dtype=miniflow.int64), 'n': 1}

    Source: `torch.utils.data.default_convert`.
    """
    if isinstance(sample, np.ndarray | np.generic) and sample.dtype.kind not in "SUO":
        return from_numpy(np.asarray(sample))
    if isinstance(sample, Mapping):
        return _like_mapping(sample, {key: default_convert(value) for key, value in sample.items()})
    if isinstance(sample, tuple | list):
        items = [default_convert(item) for item in sample]
        return type(sample)(*items) if hasattr(sample, "_fields") else type(sample)(items)
    return sample
