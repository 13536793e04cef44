"""Parameters: the tensors that training changes."""

from __future__ import annotations

from collections.abc import Callable

from miniflow.dispatch.tape import modes
from miniflow.errors import ArgumentTypeError
from miniflow.ops.creation import zeros
from miniflow.tensor import Tensor


class Parameter(Tensor):
    """A tensor that becomes a parameter of the module it is assigned to, and requires grad.

    Args:
        data: the values, whose memory is shared; an empty tensor if left out.
        requires_grad: whether `backward` computes a gradient for it.

    Raises:
        ArgumentTypeError: if `data` is not a tensor.

    >>> import miniflow as flow
    >>> flow.nn.Parameter(flow.zeros(2)).requires_grad
    True

    Source: `torch.nn.Parameter`.
    """

    __slots__ = ()

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True):
        if data is None:
            data = zeros(0)
        if not isinstance(data, Tensor):
            raise ArgumentTypeError(f"Parameter: got a {type(data).__name__}; expected a Tensor: use flow.tensor")
        self._array = data._array
        self._edge = None
        self._version = data._shared_version()
        self._view = None
        self._grad = None
        self.requires_grad_(requires_grad)

    def __deepcopy__(self, memo: dict) -> Tensor:
        result = super().__deepcopy__(memo)
        result._grad = None
        return result

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


def convert_in_place(tensor: Tensor, convert: Callable[[Tensor], Tensor]) -> None:
    """Replace the memory of `tensor`, a leaf, and of its gradient: by another dtype or on another device.

    The tensor stays the same object, so that modules that share it and optimizers that hold it see the change.
    """
    converted = convert(tensor.detach())
    if converted._array is not tensor._array:
        if modes.tracer is not None:
            modes.tracer.refuse_other_memory(tensor, "a conversion such as module.double()")
        edge = tensor._edge
        tensor._array = converted._array
        tensor._edge = tensor._view = None
        tensor._written()
        if edge is not None:
            tensor.requires_grad_()
            tensor._edge[0].hooks, tensor._edge[0].after = edge[0].hooks, edge[0].after
    if tensor._grad is not None:
        convert_in_place(tensor._grad, convert)
