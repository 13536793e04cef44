"""Dropout as a mask and a scaling that fuses with its neighbours; no mask at all behind ReLU.

    y, keep = dropout(x)                              -> keep = dropout_mask();  y = dropout_grad(x, keep, scale)
    relu_grad(dropout_grad(dy, keep, scale), relu(x)) -> relu_grad(dy, y) * scale      with y = dropout(relu(x))

`dropout_grad(x, keep, scale)` is x scale where kept, else 0: just what forward computes. As an elementwise op it
becomes part of the loop that adds the bias and the residual around it, and so one read and one write of the whole array
are saved. It is done only where there is such a neighbour, since the mask is then written and read once more.

In the second rule y > 0 is where x was positive and kept, and y is there anyway for the next layer's gradient. So
neither the mask nor relu(x) has to live until backward: 5 of 9 bytes an element. To draw the mask again in backward
would save one byte, but costs ten times the reading of it; so masks that are needed are kept.

Source: OneFlow's `fused_bias_add_mask_scale` and `random_mask_like`; the second rule follows from y = 0 where dropped.
"""

from __future__ import annotations

from miniflow.backends.registry import kernel_of
from miniflow.graph.codegen.expressions import is_fusible
from miniflow.graph.ir import Instruction, Program
from miniflow.graph.readers import Readers
from miniflow.ops.activation import Relu, ReluGrad
from miniflow.ops.arithmetic import Mul
from miniflow.ops.dropout import Dropout, DropoutGrad, DropoutMask
from miniflow.ops.matmul import Linear

SMALLEST = 1024  # elements: smaller arrays are not fused


def run(program: Program) -> Program:
    """The program with masks only where they are needed, and drawn for themselves where that lets loops fuse."""
    return split(without_masks(program))


def without_masks(program: Program) -> Program:
    """The second rule."""
    readers = Readers(program)
    new: dict[Instruction, Instruction] = {}
    for instruction in program.instructions:
        relu_grad = readers.only_reader(instruction.outputs[0])
        if relu_grad is None or not is_behind_relu(instruction, relu_grad, readers):
            continue
        dy, keep = instruction.inputs
        y = readers.made[keep].outputs[0]
        masked, scale = instruction.output, instruction.attrs["scale"]
        new[instruction] = relu_grad.with_(inputs=[dy, y], outputs=[masked])
        new[relu_grad] = relu_grad.with_(op=Mul, inputs=[masked, scale])
    return program.with_(instructions=[new.get(i, i) for i in program.instructions]) if new else program


def is_behind_relu(dropout_grad: Instruction, relu_grad: Instruction, readers: Readers) -> bool:
    """Whether these two differentiate dropout(relu(x)), in single or double precision: a scale is not rounded twice."""
    if dropout_grad.op is not DropoutGrad or relu_grad.op is not ReluGrad or dropout_grad.output.dtype.char not in "fd":
        return False
    dropout = readers.made.get(dropout_grad.inputs[1])
    relu = None if dropout is None or dropout.op is not Dropout else readers.made.get(dropout.inputs[0])
    if relu is None or relu.op is not Relu or dropout.outputs[0].dtype != dropout_grad.output.dtype:
        return False
    scale = 1 / (1 - dropout.attrs["p"]) if dropout.attrs["p"] != 1 else 0.0
    same = relu_grad.inputs == [dropout_grad.output, relu.output] and dropout_grad.attrs["scale"] == scale
    return same and dropout_grad.after is relu_grad.after


def split(program: Program) -> Program:
    """The first rule."""
    readers = Readers(program)
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        if instruction.op is Dropout and has_neighbours(instruction, readers):
            instructions += mask_and_scaling(instruction)
        else:
            instructions.append(instruction)
    return program.with_(instructions=instructions) if len(instructions) > len(program.instructions) else program


def has_neighbours(dropout: Instruction, readers: Readers) -> bool:
    """Whether the op before or behind it can be fused with the scaling."""
    x, (y, _) = dropout.inputs[0], dropout.outputs
    if y.size < SMALLEST or kernel_of(y.device.type, "DropoutMask") is None:
        return False
    before = readers.made.get(x)
    if before is not None and readers.only_reader(x) is dropout and (before.op is Linear or is_fusible(before)):
        return True
    return any(is_fusible(reader) and reader.outputs[0].shape == y.shape for reader in readers.consumers.get(y, []))


def mask_and_scaling(dropout: Instruction) -> list[Instruction]:
    """The two instructions in place of one."""
    (x,), (y, keep), attrs = dropout.inputs, dropout.outputs, dropout.attrs
    name = {"seed": attrs["seed"], "offset": attrs["offset"]}
    drawn = {"shape": y.shape, "p": attrs["p"], **name, "device": y.device}
    scale = 0.0 if attrs["p"] == 1 else 1 / (1 - attrs["p"])
    return [
        dropout.with_(op=DropoutMask, inputs=[], outputs=[keep], attrs=drawn),
        dropout.with_(op=DropoutGrad, inputs=[x, keep], outputs=[y], attrs={"scale": scale}),
    ]
