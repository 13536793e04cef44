"""Reductions and scans along dims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod

import miniflow as flow
from miniflow.onnx.loader.registry import Ints, operators
from miniflow.tensor import Tensor


def product(x: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
    for dim in dims:
        x = flow.prod(x, dim, keepdim=True)
    return x if keepdim else x.squeeze(dims)


def mean(x: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
    """Of integers without the fraction."""
    if x.is_floating_point():
        return flow.mean(x, dims, keepdim)
    return flow.div(flow.sum(x, dims, keepdim), prod(x.shape[d] for d in dims), rounding_mode="trunc")


def reduction(function: Callable[[Tensor, Sequence[int], bool], Tensor]) -> Callable:
    def reduced(data, axes: Ints = None, *, keepdims: int, noop_with_empty_axes: int = 0) -> Tensor:
        if not axes and not noop_with_empty_axes:
            axes = range(data.ndim)
        if not axes:  # the reduction of single elements
            return function(data.unsqueeze(0), (0,), False).to(data.dtype)
        return function(data, tuple(axes), bool(keepdims)).to(data.dtype)

    return reduced


def extreme(function: Callable, least: float) -> Callable:
    """Of no elements it is infinite, or False or True."""

    def reduced(x: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
        if x.numel() or not (x.is_floating_point() or x.dtype is flow.bool):
            return function(x, dims, keepdim)
        return flow.full_like(flow.sum(x, dims, keepdim), least if x.is_floating_point() else least > 0)

    return reduction(reduced)


def position(function: Callable) -> Callable:
    def position_of(data, *, axis: int, keepdims: int, select_last_index: int = 0) -> Tensor:
        if select_last_index:
            return data.shape[axis] - 1 - function(data.flip(axis), axis, bool(keepdims))
        return function(data, axis, bool(keepdims))

    return position_of


def scan(function: Callable, first: int) -> Callable:
    """A scan; `first` is the first result of an exclusive one."""

    def scanned(x, axis: Ints, *, exclusive: int, reverse: int) -> Tensor:
        (dim,) = axis
        x = x.flip(dim) if reverse else x
        if exclusive and x.shape[dim]:
            x = flow.cat([flow.full_like(x.narrow(dim, 0, 1), first), x.narrow(dim, 0, x.shape[dim] - 1)], dim)
        result = function(x, dim).to(x.dtype)
        return result.flip(dim) if reverse else result

    return scanned


operators({
    "ReduceSum": reduction(flow.sum),
    "ReduceMean": reduction(mean),
    "ReduceProd": reduction(product),
    "ReduceMax": extreme(flow.amax, -inf),
    "ReduceMin": extreme(flow.amin, inf),
    "ReduceL1": reduction(lambda x, dims, keepdim: flow.sum(x.abs(), dims, keepdim)),
    "ReduceL2": reduction(lambda x, dims, keepdim: flow.sum(x * x, dims, keepdim).sqrt()),
    "ReduceSumSquare": reduction(lambda x, dims, keepdim: flow.sum(x * x, dims, keepdim)),
    "ReduceLogSum": reduction(lambda x, dims, keepdim: flow.sum(x, dims, keepdim).log()),
    "ReduceLogSumExp": reduction(flow.logsumexp),
    "ArgMax": position(flow.argmax),
    "ArgMin": position(flow.argmin),
    "CumSum": scan(flow.cumsum, 0),
    "CumProd": scan(flow.cumprod, 1),
})  # fmt: skip
