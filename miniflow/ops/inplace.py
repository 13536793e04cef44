"""In-place operations: compute, write through the memory that views share, and rewrite the tape.

The result of `x.add_(y)` is computed like `x + y` and then written into the memory of `x`. On the tape `x` becomes
that result. If `x` is a view, the history of the tensor that owns the memory changes: it becomes "the old tensor with
the new values in that view" (`ViewScatter`), and each view regenerates its history from it when it is next used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy import ndarray

from miniflow.backends import memory
from miniflow.backends.registry import kernel_of
from miniflow.dispatch.dispatcher import Op, call, refuse_shared_elements
from miniflow.dispatch.tape import Leaf, Node, is_grad_enabled, modes
from miniflow.dtype import can_cast
from miniflow.errors import AutogradError, DeviceError, DTypeError, ShapeError
from miniflow.ops import indexing
from miniflow.ops.creation import zeros_like
from miniflow.ops.promotion import cast
from miniflow.ops.shape import View, reshape
from miniflow.sbp import signatures
from miniflow.tensor import Tensor


class ViewScatter(Op):
    """`x` with `values` in place of a view of it, to which `steps` lead.

    The gradient of `x` is zero there, and the gradient of `values` is the same view of the cotangent.
    """

    amp = "clear"
    computes_in_first = True

    def sbp(x, values, *, ranks, steps):
        return signatures([None, None], [""], linear=[[0, 1]])

    def backward(ctx, dy):
        steps = ctx.attrs["steps"]
        view = dy
        for op, attrs in steps:  # the strides of a cotangent need not allow the view
            view = reshape(view, attrs["shape"]) if op is View else call(op, view, **attrs)
        return call(ViewScatter, dy, zeros_like(view.detach()), steps=steps), view


class Overwrite(Op):
    """`x` with all values replaced by constants. As in PyTorch, it still requires grad; its gradient is zero."""

    def backward(ctx, dy):
        return zeros_like(dy.detach())


def write(x: Tensor, name: str, compute: Callable[[], Tensor]) -> Tensor:
    """Replace the values of `x` by those of `compute()`, a result computed from it.

    Raises:
        AutogradError: for a leaf that requires grad (or a view of one) while gradients are recorded.
        ShapeError, DTypeError: if the result does not fit into `x`.
    """
    refuse_leaf(name, x)
    refuse_shared_elements(name, x)
    result = compute()
    array, values = x._array, result._array
    if values.shape != array.shape:
        raise ShapeError(f"{name}: the result of shape {tuple(result.shape)} does not fit into {tuple(x.shape)}")
    edge = result._fresh_edge()
    if values.dtype != array.dtype:
        if not can_cast(result.dtype, x.dtype):
            raise DTypeError(
                f"{name}: the result of {result.dtype} cannot be written into {x.dtype}; use x.to(...) first"
            )
        edge = cast(result, x.dtype)._fresh_edge()
    if edge is not None:
        _keep_old_values(edge[0], x)
    if not type(array) is type(values) is ndarray and result._device != x._device:
        raise DeviceError(
            f"{name}: got values on {result._device} for a tensor on {x._device}; expected them there: use "
            ".to(device), or to_global"
        )
    if modes.tracer is None:
        memory.copy_into(array, values)
    else:
        modes.tracer.write(x, result)
    x._written()
    rewrite_history(x, edge)
    return x


def refuse_leaf(name: str, x: Tensor) -> None:
    """Raise AutogradError for a leaf that requires grad, or a view of one, while gradients are recorded."""
    root, _ = _root(x)
    if is_grad_enabled() and root.requires_grad and type(root._edge[0]) is Leaf:
        leaf = "a leaf tensor that requires grad" if root is x else "a view of a leaf tensor that requires grad"
        raise AutogradError(f"{name}: {leaf} is changed in place; use flow.no_grad(), or change a copy: x.clone()")


def _root(x: Tensor) -> tuple[Tensor, tuple]:
    """The tensor of which `x` is a view (of a view ...), and the steps from it to `x`."""
    steps = []
    while x._view is not None:
        parent, op, attrs, _ = x._view
        steps.append((op, attrs))
        x = parent
    return x, tuple(reversed(steps))


def _keep_old_values(node: Node, x: Tensor) -> None:
    """If the new node saved `x` itself, replace it there by a copy, before its values are overwritten."""
    if isinstance(node._saved, list):
        old = None
        for i, (value, _, index) in enumerate(node._saved):
            if value is x:
                if old is None:
                    array = x._array if modes.tracer is None else modes.tracer.symbol_of(x._array, x)
                    old = Tensor._wrap(array.copy())
                    old._edge = x._fresh_edge()
                node._saved[i] = (old, 0, index)


def rewrite_history(x: Tensor, edge: tuple | None) -> None:
    """Make `edge` the history of `x`, whose memory was just written; None means a constant."""
    root, steps = _root(x)
    if root is x:
        if edge is None and x._edge is not None and is_grad_enabled():
            edge = (Node(Overwrite, (x._edge,), {}, (x,)), 0)
        if edge is not None:
            x._edge = edge
        return
    root_edge = root._edge
    if is_grad_enabled() and (edge is not None or root_edge is not None):
        node = Node(ViewScatter, (root_edge, edge), {"steps": steps}, (root,))
        root._edge = (node, 0)


def set_item(x: Tensor, key: Any, value: Any) -> None:
    """`x[key] = value`; see `ops.indexing.locate`. If nothing is recorded, only the indexed elements are touched."""
    value, coordinates, attrs = indexing.locate("setitem", x, key, value)
    recorded = is_grad_enabled() and (x.requires_grad or value.requires_grad) or modes.tracer is not None
    if recorded or x.is_global:
        write(x, "setitem", lambda: call(indexing.SetItem, x, value, coordinates, **attrs))
        return
    refuse_shared_elements("setitem", x)
    if value._device != x._device:
        raise DeviceError(
            f"setitem: got a value on {value._device} for a tensor on {x._device}: use value.to(x.device)"
        )
    arrays = x._array, value._array, None if coordinates is None else coordinates._array
    indexing.SetItem.infer(*arrays, **attrs)
    kernel_of(x._device.type, "SetItem").run(x._array, *arrays, **attrs)
    x._written()
