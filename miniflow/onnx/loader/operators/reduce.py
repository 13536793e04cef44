"""Reductions and scans along dims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

import miniflow as flow
from miniflow.onnx.loader.registry import Ints, operator
from miniflow.tensor import Tensor


def product(x: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
    for dim in dims:
        x = flow.prod(x, dim, keepdim=True)
    return x if keepdim else x.squeeze(dims)


def extreme_or(least: float, function: Callable) -> Callable:
    """A maximum or a minimum that is infinite, or False or True, where there are no elements."""

    def reduced(x: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
        if x.numel() or not (x.is_floating_point() or x.dtype is flow.bool):
            return function(x, dims, keepdim)
        empty = flow.sum(x, dims, keepdim)
        return flow.full_like(empty, least if x.is_floating_point() else least > 0)

    return reduced


REDUCTIONS = {
    "ReduceSum": flow.sum,
    "ReduceMean": flow.mean,
    "ReduceProd": product,
    "ReduceMax": extreme_or(-inf, flow.amax),
    "ReduceMin": extreme_or(inf, flow.amin),
    "ReduceL1": lambda x, dims, keepdim: flow.sum(x.abs(), dims, keepdim),
    "ReduceL2": lambda x, dims, keepdim: flow.sum(x * x, dims, keepdim).sqrt(),
    "ReduceSumSquare": lambda x, dims, keepdim: flow.sum(x * x, dims, keepdim),
    "ReduceLogSum": lambda x, dims, keepdim: flow.sum(x, dims, keepdim).log(),
    "ReduceLogSumExp": flow.logsumexp,
}


def register_reduction(name: str, function: Callable) -> None:
    @operator(name)
    def reduced(data, axes: Ints = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Tensor:
        if not axes and not noop_with_empty_axes:
            axes = range(data.ndim)
        if not axes:  # the reduction of single elements
            return function(data.unsqueeze(0), (0,), False).to(data.dtype)
        return function(data, tuple(axes), bool(keepdims)).to(data.dtype)


for name, function in REDUCTIONS.items():
    register_reduction(name, function)


def register_arg(name: str, function: Callable) -> None:
    @operator(name)
    def position(data, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        if select_last_index:
            return data.shape[axis] - 1 - function(data.flip(axis), axis, bool(keepdims))
        return function(data, axis, bool(keepdims))


register_arg("ArgMax", flow.argmax)
register_arg("ArgMin", flow.argmin)


def register_scan(name: str, function: Callable, first: int) -> None:
    """Register a scan; `first` is the first result of an exclusive one."""

    @operator(name)
    def scan(x, axis: Ints, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
        (dim,) = axis
        x = x.flip(dim) if reverse else x
        if exclusive and x.shape[dim]:
            x = flow.cat([flow.full_like(x.narrow(dim, 0, 1), first), x.narrow(dim, 0, x.shape[dim] - 1)], dim)
        result = function(x, dim).to(x.dtype)
        return result.flip(dim) if reverse else result


register_scan("CumSum", flow.cumsum, 0)
register_scan("CumProd", flow.cumprod, 1)
