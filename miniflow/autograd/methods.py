"""Attach the operations to Tensor: `x.relu()` and `flow.relu(x)` are one function object.

A method with a trailing underscore works in place: it computes as its namesake does and writes the result into the
memory.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from miniflow import ops
from miniflow.autograd import engine
from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dtype import bool_, fitting
from miniflow.errors import AutogradError
from miniflow.ops import indexing, matmul, permute, shape, special_functions
from miniflow.ops.creation import full
from miniflow.ops.inplace import set_item, write
from miniflow.ops.method import IN_PLACE, METHODS, method
from miniflow.ops.pointwise import OPERATORS
from miniflow.ops.printing import tensor_repr
from miniflow.ops.promotion import as_tensor_or_number, cast, device_and_dtype, to_device
from miniflow.ops.tensor_types import of_data_or_sizes
from miniflow.tensor import Tensor


@functools.cache
def in_place(function: Callable, put: Callable = write) -> Callable:
    """What computes as a function does, and writes the result into its first argument."""
    name = function.__name__ + "_"

    @functools.wraps(function)
    def method(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return put(input, name, lambda: function(input, *args, **kwargs))

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"`{function.__name__}` of the tensor itself, which is returned."
    return takes_tensors(method)


def _become(x: Tensor, name: str, compute: Callable[[], Tensor]) -> Tensor:
    """Make a tensor that does not require grad the view of itself that is computed; views of it stay as they are."""
    if x.requires_grad:
        raise AutogradError(f"{name}: got a tensor that requires grad; use x = x.{name[:-1]}(...)")
    view = compute()
    if x._view is not None:
        before = Tensor._wrap(x._array)
        before._view, before._version = x._view, x._version
        x._view = (before, *view._view[1:])
    x._array = view._array
    return x


def _reflected(function: Callable) -> Callable:
    def method(self: Tensor, other: Any) -> Tensor:
        return function(other, self)

    return method


def _comparison(function: Callable) -> Callable:
    def method(self: Tensor, other: Any) -> Any:
        is_comparable = isinstance(other, Tensor | bool | int | float | np.ndarray | np.generic)
        return function(self, other) if is_comparable else NotImplemented

    return method


@method(checked=False)
def to(
    self: Tensor, *args: Any, dtype: Any = None, device: Any = None, copy: bool = False, non_blocking: bool = False,
    memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """The tensor with another dtype and/or on another device; the tensor itself if nothing changes and `copy` is False.

    Args:
        args: a dtype, a device, both, or another tensor whose dtype and device to take.
        copy: make a copy even if nothing changes.
        non_blocking, memory_format: accepted as in PyTorch; they have no effect: memory is always row-major, and images
            of `channels_last` are as those of `contiguous_format`.

    >>> import miniflow as flow
    >>> flow.ones(2).to("cuda", flow.float64).tolist()
    [1.0, 1.0]

    Source: `torch.Tensor.to`.
    """
    device, dtype = device_and_dtype(args, device, dtype)
    result = self if dtype is None else cast(self, dtype)
    if device is not None:
        result = to_device(result, device)
    return shape.clone(result) if copy and result is self else result


@method(checked=False)
def cpu(self: Tensor) -> Tensor:
    """The tensor on the CPU."""
    return to(self, device="cpu")


@method(checked=False)
def cuda(self: Tensor, device: Any = "cuda", non_blocking: bool = False) -> Tensor:
    """The tensor on a CUDA device: the current one, or that of a number, name or `flow.device`."""
    return to_device(self, "cuda" if device is None else device)


@method(checked=False)
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """The values in the dtype of `other`."""
    return cast(self, other.dtype)


@method
def copy_(self: Tensor, src: Tensor | np.ndarray | bool | int | float, non_blocking: bool = False) -> Tensor:
    """Write the values of `src`, broadcast and cast, into the tensor; `non_blocking` changes nothing on the CPU."""
    values = as_tensor_or_number(src, "copy_")
    if not isinstance(values, Tensor):
        return fill_(self, values)
    if self.is_local or values.is_global:
        values = to_device(values, self._device)
    values = cast(values, self.dtype)
    return write(self, "copy_", lambda: shape.broadcast_to(values, self.shape))


@method
def fill_(self: Tensor, value: Tensor | bool | int | float) -> Tensor:
    """Write one number into every element."""
    if isinstance(value, Tensor):
        return copy_(self, value)
    value = fitting("fill_", value, self.dtype)
    return write(self, "fill_", lambda: full(self.shape, value, self.dtype, device=self._device))


@method(checked=False, aliases=["zeros_"])
def zero_(self: Tensor) -> Tensor:
    """Write zero into every element."""
    return fill_(self, 0)


@method(checked=False)
def new(self: Tensor, *data: Any) -> Tensor:
    """What `Tensor(...)` makes of sizes or data, in the dtype and on the device of this tensor. Of old PyTorch."""
    return of_data_or_sizes(data, self.dtype, self._device)


@method(checked=False)
def backward(
    self: Tensor, gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:  # fmt: skip
    """Add the gradients of this tensor to the `.grad` of the leaves that it depends on; see `autograd.backward`."""
    engine.backward(self, gradient, retain_graph, create_graph, inputs=inputs)


def _where(self: Tensor, condition: Any = None, other: Any = None) -> Tensor | tuple:
    """The tensor where a bool condition holds, else `other`, as in PyTorch.

    A bool tensor is itself the condition, as in OneFlow: `mask.where(x, y)` is `flow.where(mask, x, y)`.
    """
    choose = OPERATORS["where"]
    if self.dtype is not bool_ and isinstance(condition, Tensor) and condition.dtype is bool_:
        return choose(condition, self, other)
    return choose(self, condition, other)


def polygamma(input: Tensor, n: int) -> Tensor:
    """`flow.polygamma(n, input)`. `torch.Tensor.polygamma`."""
    return special_functions.polygamma(n, input)


def _attach_operator(operator: str, function: Callable) -> None:
    """Make `function` what Python's operator of that name calls."""
    if function.op.predicate:
        setattr(Tensor, f"__{operator}__", _comparison(function))
        return
    setattr(Tensor, f"__{operator}__", function)
    setattr(Tensor, f"__r{operator}__", _reflected(function))
    setattr(Tensor, f"__i{operator}__", getattr(Tensor, function.__name__ + "_"))


def attach() -> None:
    """Give Tensor its methods, after all modules that have some were imported."""
    for module in pkgutil.iter_modules(ops.__path__):  # they name their methods when they are imported
        if module.name != "__main__":
            importlib.import_module(f"{ops.__name__}.{module.name}")
    for name, function in METHODS.items():
        setattr(Tensor, name, function)
    for name in ("squeeze", "unsqueeze", "t", "transpose", "swapaxes", "swapdims"):
        setattr(Tensor, name + "_", in_place(METHODS[name], _become))
    for name in IN_PLACE:
        setattr(Tensor, name + "_", in_place(METHODS[name]))
    for name, function in OPERATORS.items():
        setattr(Tensor, name, function)
        if function.op.in_place:
            setattr(Tensor, name + "_", in_place(function))
    for function in OPERATORS.values():
        if operator := function.op.operator:
            _attach_operator(operator, function)
    Tensor.__matmul__, Tensor.__rmatmul__ = matmul.matmul, _reflected(matmul.matmul)
    Tensor.where = _where
    Tensor.polygamma, Tensor.polygamma_ = polygamma, in_place(polygamma)
    Tensor.__pos__ = lambda self: self
    Tensor.__neg__ = OPERATORS["neg"]
    Tensor.__abs__ = OPERATORS["abs"]
    Tensor.__invert__ = OPERATORS["bitwise_not"]
    Tensor.__getitem__ = indexing.get_item
    Tensor.__setitem__ = set_item
    Tensor.__repr__ = tensor_repr
    Tensor.T, Tensor.mT = property(permute.T), property(permute.mT)
