"""Pointwise loops on the CPU, of single operators and of fused regions: the inner loops of NumPy ufuncs, compiled.

NumPy broadcasts the operands and walks through their strides; it calls the loop once where all arrays lie in one order
without gaps, and else for rows, or for copies of some thousand elements in a row. LLVM makes vector instructions of the
loop where the elements of a row are neighbours; it tests that, and that no output overlaps an input, when the loop
begins. Inputs that would fail the test are told to it, in the `forms` of the inputs:

    v      any elements
    s      one element for all
    y0     what lies in the memory of output 0, over which the result is written
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
from miniflow.backends.registry import EVERY, Kernel, kernel, pointwise_kernels
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
SMALL = 4096  # elements: NumPy allocates, and it does not matter whether there are vector instructions
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)  # of which NumPy has no ufuncs: they get its bits
NUMBERS = {"float32": np.float64, "float64": np.float64, "int64": np.int64}  # what numbers are passed as
STORED = {"bool": "uint8", "float16": "uint16"}  # what a loop reads and writes
Arrays = Sequence[np.ndarray]
Forms = tuple[str, ...]


class Loops:
    """Runs a body on NumPy arrays."""

    def __init__(self, body: Body):
        self.body = body
        self.ufuncs: dict[Forms, np.ufunc] = {}
        self.plain: np.ufunc | None = None  # that of any inputs
        self.numbers = [NUMBERS[kind] for _, kind in body.numbers]
        self.shared_from = SHARED_COST / body.cost  # elements
        self.has_bfloat16 = "bfloat16" in (*body.inputs, *body.output_dtypes)

    def run(self, outs: Arrays, inputs: Arrays, numbers: Sequence[float]) -> None:
        """Compute all elements of `outs`, which are C-contiguous, from `inputs`, which are broadcast to their shape."""
        if outs[0].size:
            function, arguments = self.call(forms_of(outs[0], inputs), outs, inputs, numbers)
            function(*arguments)

    def call(self, forms: Forms, outs: Arrays, inputs: Arrays, numbers: Sequence[float]) -> tuple[Callable, Sequence]:
        """The function to call, and its arguments: the ufunc, or what shares its work among threads."""
        ufunc = self.ufuncs.get(forms)
        if ufunc is None:
            ufunc = self.ufuncs[forms] = ufunc_of(self.body, forms)
            if set(forms) == {"v"} and not self.has_bfloat16:
                self.plain = ufunc
        numbers = self.converted(numbers)
        if self.has_bfloat16:
            inputs, outs = ([x.view(np.uint16) if x.dtype == BFLOAT16 else x for x in some] for some in (inputs, outs))
        if outs[0].size < self.shared_from:
            return ufunc, (*inputs, *numbers, *outs)
        shape = outs[0].shape
        dim = shape.index(max(shape))
        arrays = [np.moveaxis(np.broadcast_to(x, shape), dim, 0) for x in inputs]
        results = [np.moveaxis(y, dim, 0) for y in outs]

        def part(start: int, stop: int) -> None:
            ufunc(*[x[start:stop] for x in arrays], *numbers, *[y[start:stop] for y in results])

        return share, (part, shape[dim], SHARED_FROM)

    def converted(self, numbers: Sequence[float]) -> Sequence[float]:
        """The numbers in the dtypes that the loop takes: NumPy would refuse a float for an int64."""
        return [convert(value) for convert, value in zip(self.numbers, numbers, strict=True)] if self.numbers else ()


def loops(body: Body) -> Loops:
    """What runs this body; made when first needed."""
    result = body.launchers.get("cpu")
    if result is None:
        result = body.launchers["cpu"] = Loops(body)
    return result


def forms_of(out: np.ndarray, inputs: Arrays) -> Forms:
    """How a loop reads its inputs, see the head of this file; of small arrays one loop reads all."""
    if out.size < SMALL:
        return ("v",) * len(inputs)
    return tuple(["v" if x.size != 1 and any(x.strides) else "s" for x in inputs])


def computed_from(k: int, *, body: Body) -> set[int]:
    """The positions of inputs that output k may be written over."""
    return body.dependencies()[k]


def bind(out: Any, *inputs: np.ndarray, body: Body) -> Callable[[], None]:
    """A function without arguments that does what `fused_elementwise` does, for arrays that stay."""
    outs = out if type(out) is tuple else (out,)
    outputs = {layout(y): f"y{k}" for k, y in enumerate(outs)}
    forms = tuple([outputs.get(layout(x), form) for x, form in zip(inputs, forms_of(outs[0], inputs), strict=True)])
    others = [x for x, form in zip(inputs, forms, strict=True) if form[0] != "y"]
    function, arguments = loops(body).call(forms, outs, others, [value for value, _ in body.numbers])
    call = partial(function, *arguments)
    call.__name__ = "fused_elementwise"
    return call


def layout(x: np.ndarray) -> tuple:
    """What two arrays have in common whose elements are the same."""
    return x.__array_interface__["data"], x.shape, x.strides, x.dtype


@kernel("cpu", in_place=computed_from, half="native", bind=bind)
def fused_elementwise(out: np.ndarray | tuple[np.ndarray, ...], *inputs: np.ndarray, body: Body) -> None:
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
                return ufunc(*arrays, *runs.converted(numbers), order="C")
            except ValueError:
                return compute(*operands, **attrs)  # says more than NumPy

        return of_small

    run.__name__ = name
    return Kernel(run, EVERY, allocating=allocating)


def ufunc_of(body: Body, forms: Forms) -> np.ufunc:
    """The ufunc for inputs of these forms; bodies of one structure share it."""
    dtypes = tuple([np.dtype(kind).num for kind in operands_of(body, forms).values()])
    return compiled(source_of(body, forms), f"{body.digest}_{'_'.join(forms)}", dtypes, len(body.outputs))


@cache
def compiled(text: str, name: str, dtypes: tuple[int, ...], outputs: int) -> np.ufunc:
    """The ufunc of a generated module, made as numba makes those of `vectorize`, which have but one output.

    Args:
        dtypes: NumPy's numbers for them.
    """
    loop = module_of(name, text).loop
    inputs, none = len(dtypes) - outputs, _internal.PyUFunc_None  # it has no identity
    return _internal.fromfunc(name, "", [loop.address], [list(dtypes)], inputs, outputs, [None], loop, none)


def operands_of(body: Body, forms: Forms) -> dict[str, str]:
    """The names and dtypes of what a loop is called with: inputs, numbers and outputs."""
    names = {f"x{i}": kind for i, (kind, form) in enumerate(zip(body.inputs, forms, strict=True)) if form[0] != "y"}
    names |= {f"n{i}": NUMBERS[kind].__name__ for i, (_, kind) in enumerate(body.numbers)}
    names |= {f"y{k}": kind for k, kind in enumerate(body.output_dtypes)}
    return {name: "uint16" if kind == "bfloat16" else kind for name, kind in names.items()}


def source_of(body: Body, forms: Forms) -> str:
    """The text of the module for inputs of these forms."""
    operands = {name: STORED.get(kind, kind) for name, kind in operands_of(body, forms).items()}
    text = HEAD.format(
        text=body.structure_text,
        forms=" ".join(f"x{i}:{form}" for i, form in enumerate(forms)),
        pointers=", ".join(f"CPointer({kind})" for kind in operands.values()),
        count=len(operands),
        arrays=", ".join(operands),
        steps=", ".join(f"{name}_step" for name in operands),
    )
    lines = [f"n{i} = np.{kind}(n{i}[0])" for i, (_, kind) in enumerate(body.numbers)]
    lines += [f"{x}_step //= {np.dtype(kind).itemsize}" for x, kind in operands.items() if x[0] != "n"]
    places = {x: f"{x}[i * {x}_step]" for x in operands}
    for i, form in enumerate(forms):
        if form == "s":
            lines.append(f"x{i}_first = x{i}[0]")
            places[f"x{i}"] = f"x{i}_first"
        elif form != "v":
            places[f"x{i}"] = places[form]
    lines += ["for i in range(sizes[0]):", *["    " + line for line in body.lines(places)], "clear_flags(-1)"]
    return text + "\n".join("    " + line for line in lines) + "\n"
