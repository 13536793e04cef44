"""Pointwise loops on the CPU, of single operators and of fused regions: compiled, vectorized, shared among threads.

The generated function takes arrays by their `id` and finds the address of their elements itself: so the arguments of a
call are integers, and a launch costs a microsecond.

    kernel(first, last, table, numbers, y0, ..., x0, ...)

    table     int64, made once for each geometry: n1, n2, columns, whether first and last count columns instead of rows,
              then three steps for each array
    numbers   float64: the Python numbers among the operands; the bits of integers

An output may be written over an input of the same shape and dtype that it is computed from: then the input is read
before the output is written, for each element. No other memory may overlap, which LLVM is told (see `scalars.store`),
so that it vectorizes without testing for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import ml_dtypes  # noqa: F401  (gives NumPy the name bfloat16)
import numpy as np

from miniflow.backends.body import Bodies, Body
from miniflow.backends.cpu.rows import walk
from miniflow.backends.cpu.threads import SHARED_FROM, share
from miniflow.backends.registry import EVERY, Kernel, kernel, pointwise_kernels
from miniflow.backends.source import converted, module_of

HEAD = '''"""{text}

Generated. Rows {first_form}; along them v: an element for each column, s: one for the row.
"""

import math

import numpy as np

from miniflow.backends.cpu.scalars import *


@njit("void({types})", cache=True, nogil=True, no_cfunc_wrapper=True, error_model="numpy")
def kernel(first, last, table, numbers, {arrays}):
    table, numbers = data_of(table), data_of(numbers)
    columns, flat = load(table, 2, "int64", "t"), load(table, 3, "int64", "t")
    begin, end = (first, last) if flat else (0, columns)
    start, stop = (0, 1) if flat else (first, last)
'''


SHARED_COST = 3_000_000  # additions: about 100 microseconds; see backends.cpu.threads for what sharing costs


@dataclass
class Launch:
    """What a call of a compiled loop needs beside the arrays.

    Attributes:
        kernel: the loop; None if there is nothing to compute.
        items: how many rows, or columns of the only row, there are to share.
        shared: whether it is worth several threads.
        table: see the head of this file.
    """

    kernel: Callable | None
    items: int
    shared: bool
    table: np.ndarray


class Launcher:
    """Runs a body on NumPy arrays."""

    def __init__(self, body: Body):
        self.body = body
        self.dtypes = [np.dtype(kind) for kind in body.output_dtypes]
        self.numbers = number_table(body, [value for value, _ in body.numbers])
        self.launches: dict[tuple, Launch | None] = {}

    def run(self, outs: Sequence[np.ndarray], inputs: Sequence[np.ndarray], numbers: np.ndarray | None = None) -> None:
        """Compute all elements of `outs`, which are C-contiguous, from `inputs`, which are broadcast to their shape.

        Args:
            numbers: a table of them, in place of those of the body.
        """
        launch = self.launch(outs, inputs)
        if numbers is None:
            numbers = self.numbers
        if launch is None:
            self.run(outs, whole(inputs, outs[0].shape), numbers)
        elif launch.shared:
            share(launch.kernel, launch.items, SHARED_FROM, *map(id, (launch.table, numbers, *outs, *inputs)))
        elif launch.kernel is not None:
            launch.kernel(0, launch.items, *map(id, (launch.table, numbers, *outs, *inputs)))

    def bound(self, outs: Sequence[np.ndarray], inputs: Sequence[np.ndarray]) -> Callable[[], None]:
        """A function that runs on these very arrays, again and again, at a third of the cost of a launch."""
        launch = self.launch(outs, inputs)
        if launch is None or launch.kernel is None:
            return partial(self.run, tuple(outs), tuple(inputs))
        arrays = (launch.table, self.numbers, *outs, *inputs)
        work = partial(share, launch.kernel) if launch.shared else partial(launch.kernel, 0)
        counts = (launch.items, SHARED_FROM) if launch.shared else (launch.items,)
        call = partial(work, *counts, *map(id, arrays))
        call.arrays = arrays  # which live as long as the function does
        call.__name__ = "fused_elementwise"
        return call

    def launch(self, outs: Sequence[np.ndarray], inputs: Sequence[np.ndarray]) -> Launch | None:
        """The launch for arrays of this geometry, from the table or made now; None if they have to be copied first."""
        key = (outs[0].shape, *[(x.shape, x.strides) for x in inputs])
        try:
            return self.launches[key]
        except KeyError:
            launch = self.launches[key] = self.prepared(outs, inputs)
            return launch

    def prepared(self, outs: Sequence[np.ndarray], inputs: Sequence[np.ndarray]) -> Launch | None:
        """The launch for arrays of this geometry, or None."""
        shape, size = outs[0].shape, outs[0].size
        if size == 0:
            return Launch(None, 0, False, np.zeros(0, np.int64))
        way = walk(shape, [*outs, *inputs])
        if way is None:
            return None
        flat = way.rows == 1
        table = np.array([*way.sizes[1:], flat, *[s for steps in way.steps for s in steps]], np.int64)
        forms = way.forms[len(outs) :] if way.sizes[3] > 1 else "v" * len(inputs)
        shared = size * self.body.cost >= SHARED_COST
        return Launch(kernel_of(self.body, forms), way.sizes[3] if flat else way.rows, shared, table)


def number_table(body: Body, values: Sequence[float]) -> np.ndarray:
    """The numbers that a loop takes, as float64."""
    if not values:
        return np.zeros(1)
    kind = np.int64 if body.numbers[0][1] == "int64" else np.float64
    return np.array(values, kind).view(np.float64)


def whole(inputs: Sequence[np.ndarray], shape: tuple[int, ...]) -> list[np.ndarray]:
    """Contiguous copies of this shape."""
    return [np.ascontiguousarray(np.broadcast_to(x, shape)) for x in inputs]


def launcher(body: Body) -> Launcher:
    """What runs this body; made when first needed."""
    found = body.launchers.get("cpu")
    if found is None:
        found = body.launchers["cpu"] = Launcher(body)
    return found


def computed_from(k: int, *, body: Body) -> set[int]:
    """The positions of inputs that output k may be written over."""
    return body.dependencies()[k]


def bind_fused(out: Any, *inputs: np.ndarray, body: Body) -> Callable[[], None]:
    """A function without arguments that does what `fused_elementwise` does, for arrays that stay."""
    return launcher(body).bound(out if type(out) is tuple else (out,), inputs)


@kernel("cpu", in_place=computed_from, half="native", bind=bind_fused)
def fused_elementwise(out: np.ndarray | tuple[np.ndarray, ...], *inputs: np.ndarray, body: Body) -> None:
    launcher(body).run(out if type(out) is tuple else (out,), inputs)


@pointwise_kernels("cpu")
def kernel_for(name: str) -> Kernel:
    """The kernel of a pointwise operator."""
    bodies = Bodies(name, lambda x: isinstance(x, np.ndarray))

    def run(out: np.ndarray, *operands: Any, **attrs: Any) -> None:
        body, arrays, numbers = bodies.of(out.dtype, operands, attrs)
        launcher(body).run((out,), arrays, number_table(body, numbers))

    run.__name__ = name
    return Kernel(run, EVERY, eager=lambda compute: eager(compute, bodies))


def eager(compute: Callable, bodies: Bodies) -> Callable[..., np.ndarray]:
    """What dispatch calls in place of `infer`, an allocation and `run`: all that is the same for operands of one
    geometry is looked up at once."""
    known: dict[tuple, tuple] = {}

    def run(*operands: Any, **attrs: Any) -> np.ndarray:
        if len(operands) == 1 and not attrs:  # the most common case
            (x,) = arrays = operands
            numbers, key = (), (x.shape, x.strides, x.dtype)
        else:
            arrays, numbers, key = sorted_out(operands, attrs)
        found = known.get(key)
        if found is None:  # the first time
            out = compute(*operands, **attrs)
            body, arrays, values = bodies.of(out.dtype, operands, attrs)
            launch = launcher(body).launch((out,), arrays)
            if launch is not None and launch.kernel is not None and not launch.shared:
                table = number_table(body, values)
                start = launch.kernel, launch.items, id(launch.table)
                known[key] = out.shape, out.dtype, *start, table, body, values[len(numbers) :], launch
            return out
        shape, dtype, compiled_loop, items, geometry, table, body, values, _ = found  # the launch holds `geometry`
        out = np.empty(shape, dtype)
        if numbers:
            table = number_table(body, [*numbers, *values])
        compiled_loop(0, items, geometry, id(table), id(out), *map(id, arrays))
        return out

    return run


def sorted_out(operands: Sequence[Any], attrs: dict[str, Any]) -> tuple[list, list, tuple]:
    """The arrays and the numbers among operands, and what is the same for all operands of one geometry."""
    arrays, numbers, key = [], [], [*attrs.values()]
    for x in operands:
        if x.__class__ is np.ndarray:
            arrays.append(x)
            key.append((x.shape, x.strides, x.dtype))
        elif x is None:
            key.append(None)
        else:
            numbers.append(x)
            key.append(float)
    return arrays, numbers, tuple(key)


def kernel_of(body: Body, forms: str) -> Callable:
    """The compiled loop for inputs of these forms; bodies of one structure share it."""
    return compiled(source_of(body, forms), f"{body.digest}_{forms}")


@cache
def compiled(text: str, name: str) -> Callable:
    """The function `kernel` of a generated module: its machine code, since there are only integers to be unpacked."""
    (made,) = module_of(name, text).kernel.overloads.values()
    return made.entry_point


def source_of(body: Body, forms: str) -> str:
    """The text of the module for inputs of these forms."""
    outputs = [f"y{k}" for k in range(len(body.outputs))]
    inputs = [f"x{i}" for i in range(len(body.inputs))]
    arrays = [*outputs, *inputs]
    text = HEAD.format(
        text=body.structure_text,
        first_form=" ".join(f"{x}:{form}" for x, form in zip(inputs, forms, strict=True)),
        types=", ".join(["int64"] * (4 + len(arrays))),
        arrays=", ".join(arrays),
    )
    lines = []
    for i, (_, kind) in enumerate(body.numbers):
        stored = "int64" if kind == "int64" else "float64"
        lines.append(f'    n{i} = np.{kind}(load(numbers, {i}, "{stored}", "n"))')
    lines += [f"    {a} = data_of({a})" for a in arrays]
    lines += ["    for row in range(start, stop):"]
    lines += [f"        {a}_row = row_of({a}, row, table, {4 + 3 * k})" for k, a in enumerate(arrays)]
    loads = [f'{x}_here = load({x}_row, {{}}, "{kind}", "{x}")' for x, kind in zip(inputs, body.inputs, strict=True)]
    lines += ["        " + load.format(0) for load, form in zip(loads, forms, strict=True) if form == "s"]
    lines += ["        for j in range(begin, end):"]
    lines += ["            " + load.format("j") for load, form in zip(loads, forms, strict=True) if form == "v"]
    lines += ["            " + line for line in body.lines({x: f"{x}_here" for x in inputs}, converted)]
    lines += ["            " + line for line in stores(body, arrays)]
    return text + "\n".join(lines) + "\n"


def stores(body: Body, arrays: Sequence[str]) -> list[str]:
    """The statements that write the outputs."""
    lines = []
    for k, (value, kind) in enumerate(zip(body.outputs, body.output_dtypes, strict=True)):
        others = ",".join(name for name in arrays if name != f"y{k}")
        lines.append(f'store(y{k}_row, j, {value}, "{kind}", "y{k}", "{others}")')
    return lines
