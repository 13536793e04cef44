"""Nested tensors made global or local, and a mode in which new tensors are global. As `oneflow.utils.global_view`."""

from __future__ import annotations

from typing import Any

from miniflow.dispatch.tape import modes
from miniflow.nn.modules.module import Module
from miniflow.parallel.nest import each_tensor
from miniflow.parallel.placement import placement as Placement
from miniflow.parallel.tensors import global_mode
from miniflow.sbp import as_nd_sbp
from miniflow.tensor import Tensor

__all__ = ["current_global_mode", "global_mode", "to_global", "to_local"]


class current_global_mode:
    """The global mode that is on where this is called.

    Attributes:
        is_enabled: whether one is.
        placement, sbp: of new tensors, the latter as a tuple; None if none is.

    >>> import miniflow as flow
    >>> with flow.utils.global_view.global_mode(placement=flow.placement.all("cpu"), sbp=flow.sbp.split(0)):
    ...     flow.utils.global_view.current_global_mode().sbp
    (miniflow.sbp.split(dim=0),)

    Source: `oneflow.utils.global_view.current_global_mode`.
    """

    def __init__(self) -> None:
        self.is_enabled = modes.global_layout is not None
        self.placement, self.sbp = modes.global_layout or (None, None)
        if self.is_enabled:
            self.sbp = as_nd_sbp(self.sbp, len(self.placement.shape), "current_global_mode")


def to_global(value: Any, placement: Placement | None = None, sbp: Any = None, **options: Any) -> Any:
    """The value with every tensor in it as a global one; a module is changed itself.

    Args:
        value: a tensor, a module, or nested lists, tuples and dicts of tensors and anything else.
        placement: for all tensors.
        sbp: for all tensors, or a function of the value and a tensor that returns it.
        options: of `Tensor.to_global`.

    Source: `oneflow.utils.global_view.to_global`.
    """

    def convert(x: Tensor) -> Tensor:
        return x.to_global(placement, sbp(value, x) if callable(sbp) and not hasattr(sbp, "kind") else sbp, **options)

    return value.to_global(placement, sbp) if isinstance(value, Module) else each_tensor(value, convert)


def to_local(value: Any) -> Any:
    """The value with the local part of every tensor in it.

    Source: `oneflow.utils.global_view.to_local`.
    """
    return each_tensor(value, lambda x: x.to_local())
