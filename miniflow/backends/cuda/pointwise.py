"""Pointwise loops on cuda devices, of single operators and of fused regions, and the layouts that they walk through.

    flat      thread i  ->  y0[i], ... of x0[i], ...; an input of one element serves all threads
    wide      thread t of block b  ->  the same for i, i + blockDim.x, i + 2 blockDim.x, i + 3 blockDim.x with
              i = 4 b blockDim.x + t
    spread    thread (i0, i1, i2, i3)  ->  the same for any layout and for broadcasting, by steps

Every thread reads each input once and writes each output once: an output may be written over an input. A GPU
hides the latency of memory by having many reads under way: `wide` has four times as many as `flat`, and reads before it
writes. On the host executor, where the threads of a block become the lanes of vector instructions, `flat` is faster.

Dimensions that all arrays step through as if they were one are merged first. What is left is rarely more than three
dimensions; beyond four, the outer ones become a loop of launches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from operator import mul
from typing import Any

import numpy as np

from miniflow.backends.body import Bodies, Body
from miniflow.backends.cuda.array import DeviceArray, bits
from miniflow.backends.cuda.driver import driver
from miniflow.backends.cuda.launch import GRID_LIMIT, each, launch
from miniflow.backends.cuda.rows import THREADS, power_of_two
from miniflow.backends.geometry import merged
from miniflow.backends.registry import Kernel, kernel, pointwise_kernels
from miniflow.backends.source import module_of
from miniflow.dtype import HALF
from miniflow.formulas.scalar import HALVES

RANK = 4
WIDE_FROM = 1 << 20  # elements, from which a GPU has no lack of threads

Shape = tuple[int, ...]
Steps = tuple[int, ...]

HEAD = '''"""{text}

Generated.
"""

import math

import numpy as np

from miniflow.hostcuda import cuda
{imports}


@cuda.jit
def {name}({parameters}):
'''
FLAT = ["    i = cuda.grid(1)", "    if i < y0.size:"]
WIDE = [
    "    step = cuda.blockDim.x",
    "    i0 = 4 * cuda.blockIdx.x * step + cuda.threadIdx.x",
    "    i1, i2, i3 = i0 + step, i0 + 2 * step, i0 + 3 * step",
    "    if i3 < y0.size:",
]
SPREAD = [
    "    i2 = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y",
    "    i3 = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x",
    "    if i2 < shape[2] and i3 < shape[3]:",
    "        i0 = cuda.blockIdx.z // shape[1]",
    "        i1 = cuda.blockIdx.z - i0 * shape[1]",
]
LIBRARY = {
    "kernels.scalars": {
        "ceil", "digamma", "erf", "exp", "expm1", "floor", "floor_divide", "floor_divide_integers", "left_shift", "log",
        "log1p", "power", "power_integers", "remainder", "remainder_integers", "right_shift", "rint", "tanh", "trunc",
        "trunc_divide_integers", "where", "zeta",
    },
    "kernels.half": {"narrow_float16_once", *[f"{verb}_{k}" for verb in ("narrow", "round", "widen") for k in HALVES]},
    "kernels.pointwise": {"place"},
}  # fmt: skip


@kernel("cuda", in_place="all", half="native")
def fused_elementwise(out, *inputs, body):
    run(body, out if type(out) is tuple else (out,), inputs, [value for value, _ in body.numbers])


@pointwise_kernels("cuda")
@cache
def kernel_for(name: str) -> Kernel:
    """The kernel of a pointwise operator."""
    bodies = Bodies(name, lambda x: type(x) is DeviceArray)

    def compute(out: DeviceArray, *operands: Any, **attrs: Any) -> None:
        body, arrays, numbers = bodies.of(operands, attrs)
        run(body, (out,), arrays, numbers)

    compute.__name__ = name
    return Kernel(compute, "all")


def pointwise(name: str, out: DeviceArray, *operands: Any, **attrs: Any) -> None:
    """Compute a pointwise operator: for other kernels that need one."""
    kernel_for(name).run(out, *operands, **attrs)


def run(body: Body, outs: Sequence[DeviceArray], inputs: Sequence[DeviceArray], numbers: Sequence[float]) -> None:
    """Compute all elements of `outs`, of any layout, from `inputs`, which are broadcast to their shape."""
    shape, size = outs[0].shape, outs[0].size
    if size == 0:
        return
    arrays = [bits(x) if x.dtype in HALF or x.dtype == np.bool_ else x for x in (*outs, *inputs)]
    numbers = [NUMBERS[dtype](value) for value, (_, dtype) in zip(numbers, body.numbers, strict=True)]
    lines = as_lines(arrays, shape)
    if lines is not None:
        forms = "".join("v" if x.size == size else "s" for x in inputs)
        if size >= WIDE_FROM and len(outs) == 1 and not driver().emulated:
            launch(launcher_of(body, forms, "wide"), -(-size // (4 * THREADS)), THREADS, *lines, *numbers)
        else:
            each(launcher_of(body, forms, "flat"), size, *lines, *numbers)
        return
    placed = [broadcast(x, shape) for x in arrays]
    storages = [x.storage for x in placed]
    for part, steps in parts(placed):
        pairs = [argument for pair in zip(storages, steps, strict=True) for argument in pair]
        launch(launcher_of(body, "", "spread"), *cover(part), part, *pairs, *numbers)


NUMBERS = {"float32": np.float32, "float64": np.float64, "int64": np.int64}


def launcher_of(body: Body, forms: str, name: str) -> Any:
    """The kernel for these forms of inputs, "v" or "s" each, or for any layout; bodies of one structure share it."""
    kernels = body.launchers.setdefault("cuda", {})
    if (forms, name) not in kernels:
        kernels[forms, name] = compile_kernel(source_of(body, forms, name), f"{body.digest}_{name}_{forms}", name)
    return kernels[forms, name]


@cache
def compile_kernel(text: str, module: str, name: str) -> Any:
    """A kernel of a generated module."""
    return getattr(module_of(f"cuda_{module}", text), name)


def source_of(body: Body, forms: str, name: str) -> str:
    """The text of the module with the kernel `name` for these forms of inputs."""
    outputs, inputs = [f"y{k}" for k in range(len(body.outputs))], [f"x{i}" for i in range(len(body.inputs))]
    arrays, numbers = [*outputs, *inputs], [f"n{i}" for i in range(len(body.numbers))]
    indent = " " * 8
    if name == "spread":
        indices = [f"{indent}{a}_at = place(i0, i1, i2, i3, {a}_steps)" for a in arrays]
        lines = [*SPREAD, *indices, *element(body, forms, "{array}_at", indent)]
        parameters = ["shape", *[part for a in arrays for part in (a, f"{a}_steps")]]
    elif name == "wide":
        four = [element(body, forms, f"i{k}", indent) for k in range(4)]
        reads = [line.replace("_here", f"_{k}") for k, lines in enumerate(four) for line in lines[: len(inputs)]]
        statements = [line.replace("_here", f"_{k}") for k, lines in enumerate(four) for line in lines[len(inputs) :]]
        single = [" " * 4 + line for line in element(body, forms, "i", indent)]
        lines = [*WIDE, *reads, *statements, "    else:", f"{indent}for i in range(i0, y0.size, step):", *single]
        parameters = arrays
    else:
        lines, parameters = [*FLAT, *element(body, forms, "i", indent)], arrays
    text = "\n".join(lines)
    head = HEAD.format(
        text=body.structure_text, imports=imports(text), name=name, parameters=", ".join([*parameters, *numbers])
    )
    return f"{head}{text}\n"


def element(body: Body, forms: str, index: str, indent: str) -> list[str]:
    """The statements that read, compute and write one element: first a line for each input."""
    arrays = [*[f"x{i}" for i in range(len(body.inputs))], *[f"y{k}" for k in range(len(body.outputs))]]
    lone = {f"x{i}" for i, form in enumerate(forms) if form == "s"}
    elements = {a: f"{a}[{'0' if a in lone else index.format(array=a)}]" for a in arrays}
    return [indent + line for line in body.lines(elements)]


def imports(text: str) -> str:
    """The import statements for the device functions that occur in a text."""
    lines = []
    for module, names in LIBRARY.items():
        used = sorted(name for name in names if re.search(rf"(?<!\.)\b{name}\(", text))
        if used:
            lines.append(f"from miniflow.{module} import {', '.join(used)}")
    return "\n".join(lines)


def as_lines(arrays: Sequence[DeviceArray], shape: Shape) -> list[DeviceArray] | None:
    """The arrays as 1-D ones, if those of more than one element lie in one order, without gaps; else None."""
    if any(x.shape != shape and x.size != 1 for x in arrays):
        return None
    if not all(x.flags.c_contiguous for x in arrays):
        strides = arrays[0].strides
        order = sorted(range(len(shape)), key=lambda d: -strides[d])
        arrays = [x if x.size == 1 else x.view(lambda a: a.transpose(order)) for x in arrays]
        if not all(x.flags.c_contiguous for x in arrays):
            return None
    return [x.reshape(-1) for x in arrays]


def broadcast(x: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
    """`x` seen under a shape to which it broadcasts."""
    return x if x.shape == shape else x.view(lambda a: np.broadcast_to(a, shape))


def parts(arrays: Sequence[DeviceArray]) -> Iterator[tuple[Shape, list[Steps]]]:
    """What the `spread` kernels are told, launch by launch.

    Args:
        arrays: of one shape.

    Returns:
        for each launch the shape (n0, n1, n2, n3), and the steps (offset, s0, s1, s2, s3) of each array.
    """
    shape, strides = merged(arrays[0].shape, [x.element_strides for x in arrays])
    missing = max(RANK - len(shape), 0)
    shape, strides = (1,) * missing + shape, [(0,) * missing + s for s in strides]
    outer = len(shape) - RANK
    for index in np.ndindex(shape[:outer]):
        starts = [x.offset + sum(map(mul, index, steps)) for x, steps in zip(arrays, strides, strict=True)]
        yield from halved(shape[outer:], [(at, *s[outer:]) for at, s in zip(starts, strides, strict=True)])


def halved(shape: Shape, steps: list[Steps]) -> Iterator[tuple[Shape, list[Steps]]]:
    """A launch, cut into halves until CUDA can number the blocks of each."""
    (_, y, z), _ = cover(shape)
    if max(y, z) <= GRID_LIMIT:
        yield shape, steps
        return
    dim = 2 if y > GRID_LIMIT else 0 if shape[0] > 1 else 1
    half = shape[dim] // 2
    yield from halved((*shape[:dim], half, *shape[dim + 1 :]), steps)
    moved = [(s[0] + half * s[dim + 1], *s[1:]) for s in steps]
    yield from halved((*shape[:dim], shape[dim] - half, *shape[dim + 1 :]), moved)


def cover(shape: Shape) -> tuple[tuple[int, int, int], tuple[int, int]]:
    """The grid and the block of a `spread` kernel: a block is as wide as the columns, up to 256 threads.

    >>> cover((2, 3, 100, 5))
    ((1, 4, 6), (8, 32))
    """
    planes, planes_too, rows, columns = shape
    width = min(THREADS, power_of_two(columns))
    height = min(THREADS // width, power_of_two(rows))
    return (-(-columns // width), -(-rows // height), planes * planes_too), (width, height)
