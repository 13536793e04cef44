"""Fused regions on cuda devices: one kernel each, `flat` or `spread` as in `kernels.pointwise`.

    flat      thread i  ->  y0[i], ... of x0[i], ...; an input of one element serves all threads
    spread    thread (i0, i1, i2, i3)  ->  the same for any layout and for broadcasting, by steps

Every thread reads each input once and writes each output once, so that an output may be written over an input.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from miniflow.backends.cuda.array import DeviceArray, bits, empty
from miniflow.backends.cuda.launch import each, launch
from miniflow.backends.cuda.pointwise import broadcast, cover, parts
from miniflow.dtype import HALF
from miniflow.graph.codegen.body import HALVES, Body
from miniflow.graph.codegen.cpu import structure_text
from miniflow.graph.codegen.source import lines_of, module_of

HEAD = '''"""{text}

Generated.
"""

import numpy as np

from miniflow.hostcuda import cuda
{imports}


@cuda.jit
def {name}({parameters}):
'''
FLAT = ["    i = cuda.grid(1)", "    if i < y0.size:"]
SPREAD = [
    "    i2 = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y",
    "    i3 = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x",
    "    if i2 < shape[2] and i3 < shape[3]:",
    "        i0 = cuda.blockIdx.z // shape[1]",
    "        i1 = cuda.blockIdx.z - i0 * shape[1]",
]
LIBRARY = {
    "kernels.activation": {
        "erf", "erf_grad", "gelu", "gelu_grad", "gelu_tanh", "gelu_tanh_grad", "relu", "relu_grad", "sigmoid",
        "sigmoid_grad", "silu", "silu_grad", "softplus", "softplus_grad",
    },
    "kernels.elementwise": {
        "absolute", "clamp", "exp", "isfinite", "isinf", "isnan", "log", "maximum", "minimum", "rsqrt", "sign", "sqrt",
        "tanh", "where",
    },
    "kernels.half": {f"{verb}_{kind}" for verb in ("narrow", "round", "widen") for kind in HALVES},
    "kernels.pointwise": {"place"},
}  # fmt: skip


def fused_elementwise(*inputs: DeviceArray, body: Body) -> tuple[DeviceArray, ...]:
    """Kernel of `FusedElementwise`."""
    shape = np.broadcast_shapes(*[x.shape for x in inputs])
    outs = tuple([empty(shape, kind, inputs[0].device_index) for kind in body.output_dtypes])
    run(body, outs, inputs)
    return outs


def run(body: Body, outs: Sequence[DeviceArray], inputs: Sequence[DeviceArray]) -> None:
    """Compute all elements of `outs`, which are C-contiguous, from `inputs`, which are broadcast to their shape."""
    shape, size = outs[0].shape, outs[0].size
    if size == 0:
        return
    arrays = [bits(x) if x.dtype in HALF or x.dtype == np.bool_ else x for x in (*outs, *inputs)]
    numbers = [np.float64(v) if kind == "float64" else np.float32(v) for v, kind in body.numbers]
    if all(x.size == 1 or (x.shape == shape and x.flags.c_contiguous) for x in inputs):
        forms = "".join("v" if x.size == size else "s" for x in inputs)
        each(kernel_of(body, forms), size, *[x.reshape(-1) for x in arrays], *numbers)
        return
    placed = [broadcast(x, shape) for x in arrays]
    storages = [x.storage for x in placed]
    for part, steps in parts(placed):
        pairs = [argument for pair in zip(storages, steps, strict=True) for argument in pair]
        launch(kernel_of(body, ""), *cover(part), part, *pairs, *numbers)


def kernel_of(body: Body, forms: str) -> Any:
    """The kernel for these forms of inputs, "v" or "s" each, or for any layout; bodies of one structure share it."""
    kernels = body.launchers.setdefault("cuda", {})
    if forms not in kernels:
        name = "flat" if forms else "spread"
        kernels[forms] = compiled(source_of(body, forms), f"{body.digest}_{forms}", name)
    return kernels[forms]


@cache
def compiled(text: str, name: str, kernel: str) -> Any:
    """A kernel of a generated module."""
    return getattr(module_of(f"cuda_{name}", text), kernel)


def source_of(body: Body, forms: str) -> str:
    """The text of the module with the flat kernel for these forms of inputs, or with the spread kernel."""
    outputs, inputs = [f"y{k}" for k in range(len(body.outputs))], [f"x{i}" for i in range(len(body.inputs))]
    arrays, numbers = [*outputs, *inputs], [f"n{i}" for i in range(len(body.numbers))]
    indent = "        "
    lines = list(FLAT) if forms else list(SPREAD)
    if not forms:
        lines += [f"{indent}{a}_at = place(i0, i1, i2, i3, {a}_steps)" for a in arrays]
    for i, (x, kind) in enumerate(zip(inputs, body.inputs, strict=True)):
        index = f"{x}_at" if not forms else "i" if forms[i] == "v" else "0"
        lines.append(f"{indent}{x}_here = {read(f'{x}[{index}]', kind)}")
    lines += [indent + line for line in lines_of(body, "cuda", {x: f"{x}_here" for x in inputs})]
    for y, value, kind in zip(outputs, body.outputs, body.output_dtypes, strict=True):
        place = "i" if forms else f"{y}_at"
        lines.append(f"{indent}{y}[{place}] = {f'narrow_{kind}({value})' if kind in HALVES else value}")
    spread = ["shape", *[name for a in arrays for name in (a, f"{a}_steps")]]
    head = HEAD.format(
        text=structure_text(body),
        imports=imports("\n".join(lines)),
        name="flat" if forms else "spread",
        parameters=", ".join([*(arrays if forms else spread), *numbers]),
    )
    return head + "\n".join(lines) + "\n"


def read(element: str, kind: str) -> str:
    """The text of an element as it is computed with."""
    return f"widen_{kind}({element})" if kind in HALVES else f"({element} != 0)" if kind == "bool" else element


def imports(text: str) -> str:
    """The import statements for the device functions that occur in a text."""
    lines = []
    for module, names in LIBRARY.items():
        used = sorted(name for name in names if re.search(rf"\b{name}\(", text))
        if used:
            lines.append(f"from miniflow.{module} import {', '.join(used)}")
    return "\n".join(lines)
