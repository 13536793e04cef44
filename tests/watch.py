"""Hold every dispatched op to what it declares: its shape rule, and which memory it touches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from compare import identical

from miniflow.backends.memory import fill, to_host
from miniflow.backends.registry import kernel_of
from miniflow.dispatch.dispatcher import Op, as_array, find_kernel, is_array, kernel_on


class _Watched(dict):
    """Stands in for an op's kernel table: every call of the kernel is checked."""

    def __init__(self, op: type[Op], ran: set):
        super().__init__()
        self.op, self.ran = op, ran

    def get(self, kind: type, default: Any = None) -> Callable | None:
        if kind not in self:
            if kind in (bool, int, float):
                return self._after_a_number
            if not (issubclass(kind, np.ndarray) or hasattr(kind, "device_index")):
                return None
            device = "cpu" if issubclass(kind, np.ndarray) else "cuda"
            if kernel_of(device, self.op.__name__) is None:
                return None
            kernel = filling(kernel_on(self.op, device), kernel_of(device, self.op.__name__))
            super().__setitem__(kind, _watched_kernel(self.op, kernel, self.ran))
        return self[kind]

    def _after_a_number(self, *arrays: Any, **attrs: Any) -> Any:
        kernel = self.get(next(type(x) for x in arrays if is_array(x))) or find_kernel(self.op, list(arrays))
        return kernel(*arrays, **attrs)

    def __setitem__(self, kind: type, kernel: Callable) -> None:
        """Dispatch found a kernel and keeps it; it is watched all the same."""
        device = "cpu" if issubclass(kind, np.ndarray) else "cuda"
        kernel = filling(kernel, kernel_of(device, self.op.__name__))
        super().__setitem__(kind, _watched_kernel(self.op, kernel, self.ran))


def filling(compute: Callable, kernel: Any) -> Callable:
    """Hand the kernel outputs full of NaN, or of bits that are an unlikely result: it has to write them all.

    What dispatch calls, which may be a shorter way, gives the same bits.
    """
    if kernel is None or kernel.returns or kernel.ufunc is not None:  # `Split` has the kernels of its views
        return compute

    def run(*arrays: Any, **attrs: Any) -> Any:
        found = compute(*arrays, **attrs)
        outputs = tuple([as_array(y) for y in (found if isinstance(found, tuple) else (found,))])
        before = [to_host(y).copy() for y in outputs]
        for y in outputs:
            fill(y, np.nan if y.dtype.kind in "fV" else y.dtype.kind != "b" and 77)
        kernel.run(outputs if isinstance(found, tuple) else outputs[0], *arrays, **attrs)
        if kernel.allocating is not None:
            for old, y in zip(before, outputs, strict=True):
                assert identical(old, to_host(y)).all(), f"{kernel.run.__name__}: its short way has another result"
        return outputs if isinstance(found, tuple) else outputs[0]

    return run


@contextmanager
def watching_ops() -> Iterator[set[type[Op]]]:
    """While the block runs, hold every dispatched op to its word; yields the set of op classes that ran.

    An op's `infer` must announce the shapes and dtypes that come out, its kernel must not write into its inputs, and
    its outputs must not share memory with them unless it is declared a view.
    """
    ran: set[type[Op]] = set()
    tables = {}
    for op in _op_classes(Op):
        tables[op] = op.kernels
        op.kernels = _Watched(op, ran)
    try:
        yield ran
    finally:
        for op, table in tables.items():
            op.kernels = table


def _op_classes(base: type[Op]) -> Iterator[type[Op]]:
    for op in base.__subclasses__():
        yield op
        yield from _op_classes(op)


def _watched_kernel(op: type[Op], kernel: Callable, ran: set) -> Callable:
    def watched(*arrays: Any, **attrs: Any) -> Any:
        before = [to_host(x).copy() if is_array(x) else x for x in arrays]
        results = kernel(*arrays, **attrs)
        ran.add(op)
        outputs = [as_array(y) for y in (results if isinstance(results, tuple | list) else (results,))]
        announced = op.infer(*before, **attrs)
        if announced is not None or not op.shape_depends_on_values:  # else only the kernel can know
            _check_infer(op, announced, outputs)
        for i, (x, old) in enumerate(zip(arrays, before, strict=True)):
            if is_array(x):
                assert identical(to_host(x), old).all(), f"{op.__name__}: its kernel wrote into its input {i}"
                shared = any(y.size and share_memory(x, y) for y in outputs)
                assert op.view or not shared, (
                    f"{op.__name__}: an output shares the memory of input {i}; declare `view = True`"
                )
        return results

    return watched


def share_memory(x: Any, y: Any) -> bool:
    """Whether two arrays may share memory; on a device, whether they are in the same block."""
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        return np.may_share_memory(x, y)
    return not isinstance(x, np.ndarray) and not isinstance(y, np.ndarray) and x.block is y.block


def _check_infer(op: type[Op], announced: Any, outputs: list[Any]) -> None:
    pairs = announced if isinstance(announced, list) else [announced]
    varies = op.view and not op.single
    assert len(pairs) == len(outputs) and (varies or len(outputs) == len(op.outputs)), (
        f"{op.__name__}: {len(outputs)} outputs, infer has {len(pairs)}"
    )
    for (shape, kind), y in zip(pairs, outputs, strict=True):
        assert tuple(shape) == y.shape and np.dtype(kind) == y.dtype, (
            f"{op.__name__}: infer announces {tuple(shape)} {np.dtype(kind)}, the kernel returned {y.shape} {y.dtype}"
        )
