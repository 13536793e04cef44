"""Run an op's kernel on the cpu and on the cuda device: the results have to agree."""

from __future__ import annotations

from typing import Any

import compare
import numpy as np

import miniflow.backends.cpu  # noqa: F401  (registers the kernels, as does the next)
import miniflow.backends.cuda  # noqa: F401
from miniflow.backends.cuda.array import DeviceArray, from_host
from miniflow.backends.registry import KERNELS
from miniflow.dispatch.dispatcher import Op, kernel_on

LAYOUTS = ("contiguous", "transposed", "strided", "reversed")


def on_device(array: np.ndarray, layout: str = "contiguous") -> DeviceArray:
    """The values of `array` on device 0, in a memory layout."""
    if array.ndim == 0 or layout == "contiguous":
        return from_host(array, 0)
    if layout == "transposed":
        return from_host(np.ascontiguousarray(array.T), 0).view(lambda a: a.T)
    if layout == "strided":
        room = np.full([2 * n + 1 for n in array.shape], 77, array.dtype)
        inside = tuple([slice(1, 2 * n + 1, 2) for n in array.shape])
        room[inside] = array
        return from_host(room, 0).view(lambda a: a[inside])
    back = (slice(None, None, -1),) * array.ndim
    return from_host(np.ascontiguousarray(array[back]), 0).view(lambda a: a[back])


def agree(op: str, *inputs: Any, layouts: tuple[str, ...] = LAYOUTS, exact: bool = True, **attrs: Any) -> None:
    """The kernel of `op` gives on the cuda device, for every layout of its inputs, what it gives on the cpu."""
    wanted = results(run_kernel("cpu", op, *inputs, **attrs))
    for layout in layouts:
        placed = [on_device(x, layout) if isinstance(x, np.ndarray) else x for x in inputs]
        found = results(run_kernel("cuda", op, *placed, **attrs))
        for got, want in zip(found, wanted, strict=True):
            check = compare.assert_same if exact else compare.assert_close
            check(got.numpy(), np.asarray(want), what=f"{op}, {layout}")


def run_kernel(device: str, name: str, *inputs: Any, **attrs: Any) -> Any:
    """What the kernel of the op of that name computes; updates change their operands."""
    op = Op.by_name[name]
    return KERNELS[device][name].run(*inputs, **attrs) if op.groups else kernel_on(op, device)(*inputs, **attrs)


def results(value: Any) -> tuple:
    """One result, or several."""
    return value if isinstance(value, tuple) else (value,)


def numbers_of(dtype: Any, *shape: int, seed: int = 0) -> np.ndarray:
    """Random values that fill the range of a narrow dtype: bools of both kinds, bytes that wrap around when added."""
    values = np.random.default_rng(seed).integers(0, 100, shape)
    return np.asarray(values % 2 == 0 if dtype == np.bool_ else values, dtype)
