"""Pointwise loops on the CPU, of single operators and fused regions, compiled as the inner loops of NumPy ufuncs.

NumPy broadcasts the operands and walks through their strides. It calls the loop once if all arrays are contiguous in
the same order, and otherwise for each row, or for buffers of some thousand elements. The loop has a vectorized version
for contiguous elements; when it begins, it tests for them, and that no output overlaps an input. Inputs that would fail
the test get a loop of their own, by the `forms` of the inputs:

    v      any elements
    s      one element for all
    y0     the memory of output 0, which the result overwrites
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import ml_dtypes
import numpy as np
from numba.np.ufunc import _internal

from miniflow.backends.body import Bodies, Body
from miniflow.backends.cpu.threads import SHARED_FROM, share
from miniflow.backends.registry import Kernel, kernel, pointwise_kernels
from miniflow.backends.source import module_of

HEAD = '''"""{text}

Generated. {forms}
"""

import math

import numpy as np

from miniflow.backends.cpu.scalars import *


@cfunc(
    "void(CPointer(Tuple(({pointers},))), CPointer(int64), CPointer(UniTuple(int64, {count})), voidptr)",
    cache=True, error_model="numpy",
)
def loop(arrays, sizes, steps, data):
    {arrays}, = arrays[0]
    {steps}, = steps[0]
'''
SHARED_COST = 3_000_000  # additions: about 100 microseconds; see backends.cpu.threads for what sharing costs
SMALL = 4096  # elements: below, NumPy allocates, and it does not matter whether the loop is vectorized
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)  # NumPy's own ufuncs do not take it: loops read and write it as uint16
NUMBERS = {"float32": np.float64, "float64": np.float64, "int64": np.int64}  # the dtypes that numbers are passed in
STORED = {"bool": "uint8", "float16": "uint16"}  # the dtypes that a loop reads and writes
Arrays = Sequence[np.ndarray]
Forms = tuple[str, ...]


class Loops:
    """Runs a body on NumPy arrays."""

    def __init__(self, body: Body):
        self.body = body
        self.ufuncs: dict[Forms, np.ufunc] = {}
        self.plain: np.ufunc | None = None  # the one for any inputs
        self.numbers = [NUMBERS[dtype] for _, dtype in body.numbers]
        self.shared_from = SHARED_COST / body.cost  # elements
        self.returns_bfloat16 = "bfloat16" in body.output_dtypes
        self.has_bfloat16 = self.returns_bfloat16 or "bfloat16" in body.inputs

    def run(self, outs: Arrays, inputs: Arrays, numbers: Sequence[float]) -> None:
        """Compute all elements of `outs`, which are C-contiguous, from `inputs`, which are broadcast to their shape."""
        if outs[0].size:
            function, arguments = self.call(forms_of(outs[0], inputs), outs, inputs, numbers)
            function(*arguments)

    def call(self, forms: Forms, outs: Arrays, inputs: Arrays, numbers: Sequence[float]) -> tuple[Callable, Sequence]:
        """The function to call, and its arguments: the ufunc, or `share`, which splits the work among threads."""
        ufunc = self.ufuncs.get(forms)
        if ufunc is None:
            ufunc = self.ufuncs[forms] = ufunc_of(self.body, forms)
            if set(forms) == {"v"}:
                self.plain = ufunc
        numbers = self.converted(numbers)
        inputs, outs = self.stored(inputs), self.stored(outs)
        if outs[0].size < self.shared_from:
            return ufunc, (*inputs, *numbers, *outs)
        shape = outs[0].shape
        dim = shape.index(max(shape))
        arrays = [np.moveaxis(np.broadcast_to(x, shape), dim, 0) for x in inputs]
        results = [np.moveaxis(y, dim, 0) for y in outs]

        def part(start: int, stop: int) -> None:
            ufunc(*[x[start:stop] for x in arrays], *numbers, *[y[start:stop] for y in results])

        return share, (part, shape[dim], SHARED_FROM)

    def stored(self, arrays: Arrays) -> Arrays:
        """The arrays as the loops take them; those of bfloat16 as uint16."""
        return [x.view(np.uint16) if x.dtype == BFLOAT16 else x for x in arrays] if self.has_bfloat16 else arrays

    def converted(self, numbers: Sequence[float]) -> Sequence[float]:
        """The numbers in the dtypes of the loop: NumPy would refuse a float for an int64."""
        return [convert(value) for convert, value in zip(self.numbers, numbers, strict=True)] if self.numbers else ()


def loops(body: Body) -> Loops:
    """The `Loops` of a body, created on first use."""
    result = body.launchers.get("cpu")
    if result is None:
        result = body.launchers["cpu"] = Loops(body)
    return result


def forms_of(out: np.ndarray, inputs: Arrays) -> Forms:
    """The forms of the inputs, see the head of this file; small arrays have one loop for all forms."""
    if out.size < SMALL:
        return ("v",) * len(inputs)
    return tuple(["v" if x.size != 1 and any(x.strides) else "s" for x in inputs])


def computed_from(k: int, *, body: Body) -> set[int]:
    """The positions of inputs that output k may overwrite."""
    return body.dependencies()[k]


def bind(out: Any, *inputs: np.ndarray, body: Body) -> Callable[[], None]:
    """A function without arguments that does what `fused_elementwise` does, for arrays whose memory does not change."""
    outs = out if type(out) is tuple else (out,)
    outputs = {layout(y): f"y{k}" for k, y in enumerate(outs)}
    forms = tuple([outputs.get(layout(x), form) for x, form in zip(inputs, forms_of(outs[0], inputs), strict=True)])
    others = [x for x, form in zip(inputs, forms, strict=True) if form[0] != "y"]
    function, arguments = loops(body).call(forms, outs, others, [value for value, _ in body.numbers])
    call = partial(function, *arguments)
    call.__name__ = "fused_elementwise"
    return call


def layout(x: np.ndarray) -> tuple:
    """A key that is equal for arrays with the same elements in memory."""
    return x.__array_interface__["data"], x.shape, x.strides, x.dtype


@kernel("cpu", in_place=computed_from, half="native", bind=bind)
def fused_elementwise(out, *inputs, body):
    loops(body).run(out if type(out) is tuple else (out,), inputs, [value for value, _ in body.numbers])


@pointwise_kernels("cpu")
def kernel_for(name: str) -> Kernel:
    """The kernel of a pointwise operator."""
    bodies = Bodies(name, lambda x: isinstance(x, np.ndarray))

    def run(out: np.ndarray, *operands: Any, **attrs: Any) -> None:
        body, arrays, numbers = bodies.of(operands, attrs)
        loops(body).run((out,), arrays, numbers)

    def allocating(compute: Callable) -> Callable:
        def of_small(*operands: Any, **attrs: Any) -> np.ndarray:
            body, arrays, numbers = bodies.of(operands, attrs, compute)
            runs = loops(body)
            ufunc = runs.plain
            if ufunc is None or arrays[0].size >= SMALL:
                return compute(*operands, **attrs)
            try:
                if runs.has_bfloat16:
                    arrays = runs.stored(arrays)
                y = ufunc(*arrays, *runs.converted(numbers), order="C")
            except ValueError:
                return compute(*operands, **attrs)  # whose error says more than NumPy's
            return y.view(BFLOAT16) if runs.returns_bfloat16 else y

        return of_small

    run.__name__ = name
    return Kernel(run, "all", allocating=allocating)


def ufunc_of(body: Body, forms: Forms) -> np.ufunc:
    """The ufunc for inputs of these forms; bodies of one structure share it."""
    dtypes = tuple([np.dtype(dtype).num for dtype in operands_of(body, forms).values()])
    return compile_ufunc(source_of(body, forms), f"{body.digest}_{'_'.join(forms)}", dtypes, len(body.outputs))


@cache
def compile_ufunc(text: str, name: str, dtypes: tuple[int, ...], outputs: int) -> np.ufunc:
    """The ufunc of a generated module, created as numba's `vectorize` does it, but with several outputs.

    Args:
        dtypes: NumPy's numbers for them.
    """
    loop = module_of(name, text).loop
    inputs, none = len(dtypes) - outputs, _internal.PyUFunc_None  # no identity
    return _internal.fromfunc(name, "", [loop.address], [list(dtypes)], inputs, outputs, [None], loop, none)


def operands_of(body: Body, forms: Forms) -> dict[str, str]:
    """The names and dtypes of the operands of a loop: inputs, numbers and outputs."""
    names = {f"x{i}": dtype for i, (dtype, form) in enumerate(zip(body.inputs, forms, strict=True)) if form[0] != "y"}
    names |= {f"n{i}": NUMBERS[dtype].__name__ for i, (_, dtype) in enumerate(body.numbers)}
    names |= {f"y{k}": dtype for k, dtype in enumerate(body.output_dtypes)}
    return {name: "uint16" if dtype == "bfloat16" else dtype for name, dtype in names.items()}


def source_of(body: Body, forms: Forms) -> str:
    """The source text of the module for inputs of these forms."""
    operands = {name: STORED.get(dtype, dtype) for name, dtype in operands_of(body, forms).items()}
    text = HEAD.format(
        text=body.structure_text,
        forms=" ".join(f"x{i}:{form}" for i, form in enumerate(forms)),
        pointers=", ".join(f"CPointer({dtype})" for dtype in operands.values()),
        count=len(operands),
        arrays=", ".join(operands),
        steps=", ".join(f"{name}_step" for name in operands),
    )
    lines = [f"n{i} = np.{dtype}(n{i}[0])" for i, (_, dtype) in enumerate(body.numbers)]
    lines += [f"{x}_step //= {np.dtype(dtype).itemsize}" for x, dtype in operands.items() if x[0] != "n"]
    elements = {x: f"{x}[i * {x}_step]" for x in operands}
    for i, form in enumerate(forms):
        if form == "s":
            lines.append(f"x{i}_first = x{i}[0]")
            elements[f"x{i}"] = f"x{i}_first"
        elif form != "v":
            elements[f"x{i}"] = elements[form]
    lines += ["for i in range(sizes[0]):", *["    " + line for line in body.lines(elements)], "clear_flags(-1)"]
    return text + "\n".join("    " + line for line in lines) + "\n"
