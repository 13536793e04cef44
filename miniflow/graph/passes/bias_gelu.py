"""Bias and activation as one: what a linear layer adds at its end is added by the loop that reads its result.

    %3 = linear(%0, %1, %2)       %4 = matmul(%0, %1, transpose_x=False, transpose_y=True)
    %5 = gelu(%3)                 %3, %5 = fused_elementwise(%4, %2, body={v0 = add(x0, x1); v1 = gelu(v0) -> v0, v1})

The product is then read and written once less. It is done for whatever pointwise op comes next, gelu, relu or the
addition of a residual, also across the view that gives rows back their batch dims. On cuda devices the kernel of
`linear` adds the bias itself, at no cost, and in half precision the sum would be rounded twice: nothing is done there.

Source: OneFlow, `fused_bias_add_gelu`, used by its GPT and BERT layers.
"""

from __future__ import annotations

import numpy as np

from miniflow.graph.codegen.expressions import is_fusible
from miniflow.graph.codegen.regions import Contraction
from miniflow.graph.ir import Instruction, Program
from miniflow.graph.readers import Readers
from miniflow.ops.elementwise import Add
from miniflow.ops.matmul import Matmul

SMALLEST = 1024  # elements: see `elementwise_fusion`


def run(program: Program) -> Program:
    """The program with biases added by the next pointwise op."""
    refused: set[Instruction] = set()
    while True:
        result, failed = joined(program, refused)
        if not failed:
            return result
        refused |= failed


def joined(program: Program, refused: set[Instruction]) -> tuple[Program, set[Instruction]]:
    """The program with all layers but these joined with what follows them, and the layers for which that is not
    possible: they would have to come before and behind another."""
    readers = Readers(program)
    replaced: dict[Instruction, list[Instruction]] = {}
    pairs: list[tuple[Instruction, Instruction, Instruction]] = []
    for linear in program.instructions:
        if linear.op.__name__ != "Linear" or not is_worth_it(linear) or linear in refused:
            continue
        last = viewed(linear, readers)
        follower = next((r for r in readers.consumers.get(last.output, ()) if follows(last, r)), None)
        if follower is not None:
            product, view, addition = split(linear, last)
            replaced[linear] = [product] if view is not None else [product, addition]
            if view is not None:
                replaced[last] = [view, addition]
            pairs.append((linear, addition, follower))
    if not pairs:
        return program, set()
    instructions = [new for old in program.instructions for new in replaced.get(old, [old])]
    result = program.with_(instructions=instructions)
    at = {instruction: i for i, instruction in enumerate(instructions)}
    contraction = Contraction(result)
    failed = {linear for linear, a, b in pairs if not contraction.merge(at[a], at[b])}
    return (program, failed) if failed else (contraction.fused(), failed)


def is_worth_it(linear: Instruction) -> bool:
    """Whether there is a bias, an output of some size, and nothing that speaks against it; see the head."""
    output = linear.output
    return (
        linear.inputs[2] is not None
        and output.device.type == "cpu"
        and output.dtype in (np.float32, np.float64)
        and output.size >= SMALLEST
    )


def viewed(linear: Instruction, readers: Readers) -> Instruction:
    """The view of the result with other rows that alone is used, or else the instruction itself."""
    view = readers.only_reader(linear.output)
    if view is None or view.op.__name__ != "View" or view.output.shape[-1:] != linear.output.shape[-1:]:
        return linear
    return view if (view.phase, view.after) == (linear.phase, linear.after) else linear


def follows(last: Instruction, reader: Instruction) -> bool:
    """Whether `reader` is a pointwise op on the result of `last` that can be done together with the addition."""
    output = last.output
    if not is_fusible(reader) or reader.outputs[0].shape != output.shape:
        return False
    return (reader.phase, reader.after) == (last.phase, last.after)


def split(linear: Instruction, last: Instruction) -> tuple[Instruction, Instruction | None, Instruction]:
    """The product, its view if `last` is one, and the addition of the bias, whose result is that of `last`."""
    x, weight, bias = linear.inputs
    attrs = {"transpose_x": False, "transpose_y": True}
    product = linear.with_(op=Matmul, inputs=[x, weight], attrs=attrs, outputs=[linear.output.like()])
    if last is linear:
        return product, None, linear.with_(op=Add, inputs=[product.output, bias], attrs={}, outputs=[last.output])
    view = last.with_(inputs=[product.output], outputs=[last.output.like()])
    return product, view, linear.with_(op=Add, inputs=[view.output, bias], attrs={}, outputs=[last.output])
