"""Bias and activation as one: what a linear layer or a convolution adds at its end is added by the loop that reads its
result.

    %3 = linear(%0, %1, %2)       %4 = matmul(%0, %1, transpose_x=False, transpose_y=True)
    %5 = gelu(%3)                 %3, %5 = fused_elementwise(%4, %2, body={v0 = add(x0, x1); v1 = gelu(v0) -> v0, v1})

The result is then read and written once less. It is done for whatever pointwise op comes next, gelu, relu or the
addition of a residual. On cuda devices the kernel of the layer adds the bias itself, at no cost, and in half precision
the sum would be rounded twice: nothing is done there.

Source: OneFlow, `fused_bias_add_gelu`, used by its GPT and BERT layers.
"""

from __future__ import annotations

import numpy as np

from miniflow.graph.codegen.expressions import is_fusible
from miniflow.graph.codegen.regions import Contraction
from miniflow.graph.ir import Instruction, Program, Slot
from miniflow.graph.readers import Readers
from miniflow.ops.arithmetic import Add
from miniflow.ops.convolution import Conv2d
from miniflow.ops.matmul import Linear, Matmul
from miniflow.ops.shape import View

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
    for layer in program.instructions:
        if layer.op not in (Linear, Conv2d) or not is_worth_it(layer) or layer in refused:
            continue
        follower = next((r for r in readers.consumers.get(layer.output, ()) if follows(layer, r)), None)
        if follower is not None:
            replaced[layer] = split(layer)
            pairs.append((layer, replaced[layer][-1], follower))
    if not pairs:
        return program, set()
    instructions = [new for old in program.instructions for new in replaced.get(old, [old])]
    result = program.with_(instructions=instructions)
    at = {instruction: i for i, instruction in enumerate(instructions)}
    contraction = Contraction(result)
    failed = {layer for layer, a, b in pairs if not contraction.merge(at[a], at[b])}
    return (program, failed) if failed else (contraction.fused(), failed)


def is_worth_it(layer: Instruction) -> bool:
    """Whether there is a bias, an output of some size, and nothing that speaks against it; see the head."""
    output = layer.output
    return (
        layer.inputs[2] is not None
        and output.device.type == "cpu"
        and output.dtype in (np.float32, np.float64)
        and output.size >= SMALLEST
    )


def follows(layer: Instruction, reader: Instruction) -> bool:
    """Whether `reader` is a pointwise op on the result that can be done together with the addition."""
    output = layer.output
    if not is_fusible(reader) or reader.outputs[0].shape != output.shape:
        return False
    return (reader.phase, reader.after) == (layer.phase, layer.after)


def split(layer: Instruction) -> list[Instruction]:
    """The layer without its bias, the view of the bias that a convolution needs, and the addition."""
    x, weight, bias = layer.inputs
    views = []
    if layer.op is Conv2d:
        shaped = Slot((*bias.shape, 1, 1), bias.dtype, bias.device)
        views.append(layer.with_(op=View, inputs=[bias], attrs={"shape": shaped.shape}, outputs=[shaped]))
        bias = shaped
        product = layer.with_(inputs=[x, weight, None], outputs=[layer.output.like()])
    else:
        attrs = {"transpose_x": False, "transpose_y": True}
        product = layer.with_(op=Matmul, inputs=[x, weight], attrs=attrs, outputs=[layer.output.like()])
    return [product, *views, layer.with_(op=Add, inputs=[product.output, bias], attrs={}, outputs=[layer.output])]
