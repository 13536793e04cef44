"""Fused update: what multiplies a gradient just before its update is done by the update itself.

    %5 = unscale_gradient(%4, scale=<scale>)
    %6 = clip_grad_norm(%5, %9, max_norm=1.0)      ->      %7 = fused_sgd_update(%1, %4, None, %9,
    %7 = sgd_update(%1, %6, None)                              divide=(<scale>,), max_norm=1.0)

Folded in are the division by the loss scale, products and quotients with numbers, and the bound on the norm, if nobody
else reads the gradient in between: each saves a pass over all gradients. The weight decay is part of every rule anyway,
and a cast from half precision is left alone: the update would have to make the same wide copy. Gradients in half
precision keep their factors: each product is rounded to half precision, and the update would not round it.

The norm itself is taken of the gradients before the division, and then divided, where that is all that keeps the
division from being folded: the gradients of all parameters need not be written a second time. It is float64 until it
has been divided: the norm of scaled gradients may lie outside of float32 although that of the gradients does not.

Numbers change in the last digit: instead of one rounding after each number there is one, of their product. The bound is
a factor of its own, since its product with the others may lie outside of float32 although no gradient does; and a loss
scale that varies has no other number beside it, for the same reason. Where scales are powers of two, as `GradScaler`
has them by default, the division by them is exact. A division by 0 stays, and so does what brings the product of the
numbers out of the range of float32: step by step gradients would overflow.

Source: OneFlow's FuseUpdateOpsPass (`scale_by_tensor`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from miniflow.dispatch.dispatcher import Op
from miniflow.dtype import HALF
from miniflow.graph.ir import CONSTANT, Instruction, Program, Scalar, Slot
from miniflow.nn.utils.clip_grad import ClipGradNorm, TotalNorm
from miniflow.ops.arithmetic import Div, Mul
from miniflow.ops.creation import zeros
from miniflow.ops.loss_scale import UnscaleGradient
from miniflow.ops.promotion import Cast
from miniflow.optim.update import Update

SMALLEST, LARGEST = (float(x) for x in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))


def run(program: Program) -> Program:
    """The program with fused updates."""
    program = norms_before_unscaling(program)
    readers = Readers(program)
    fused: dict[int, Instruction] = {}
    folded: set[int] = set()
    for update in program.instructions:
        if fused_form(update.op) is not None and len(update.inputs) == update.op.groups:
            result, chain = fuse(update, readers)
            if chain:
                fused[id(update)] = result
                folded.update(map(id, chain))
    if not fused:
        return program
    instructions = [fused.get(id(i), i) for i in program.instructions if id(i) not in folded]
    return program.with_(instructions=instructions)


def fused_form(op: type[Op]) -> type[Op] | None:
    """The op of the same rule that scales the gradients too, if there is one."""
    return Op.by_name.get(f"Fused{op.__name__}") if issubclass(op, Update) else None


class Readers:
    """Who makes the slots of a program, and who reads them."""

    def __init__(self, program: Program):
        self.producers, self.consumers = program.producers(), program.consumers()
        self.results = set(program.results)
        self.awaited = {i.after for i in program.instructions}

    def source(self, slot: Slot, *readers: Instruction) -> Instruction | None:
        """What makes a slot that nobody but `readers` needs; None if others do."""
        found = self.consumers.get(slot, ())
        if slot in self.results or slot in self.awaited or any(all(r is not x for x in readers) for r in found):
            return None
        return self.producers.get(slot)


def fuse(update: Instruction, readers: Readers) -> tuple[Instruction, list[Instruction]]:
    """An update with the factors of its gradient, and the instructions that it takes the place of."""
    chain: list[Instruction] = []
    gradient, norm, max_norm = update.inputs[1], None, None
    multiply: list[Any] = []
    divide: list[Any] = []
    if gradient.dtype in HALF:
        return update, chain
    source = readers.source(gradient, update)
    if source is not None and is_clip_of(source, update):
        chain.append(source)
        (gradient, norm), max_norm = source.inputs, source.attrs["max_norm"]
        source = readers.source(gradient, source)
    products: list[float] = []  # of the numbers, in the order of the steps
    while source is not None and (factor := factor_of(source)) is not None:
        slot, number = factor
        varies = isinstance(number, Scalar)
        if varies and products:
            break
        if not varies:
            multiplier = number if source.op is Mul else 1 / number if number else math.inf
            products = [multiplier, *(multiplier * product for product in products)]
            if not all(map(is_normal, products)):
                break
        chain.append(source)
        gradient = slot
        (multiply if source.op is Mul else divide).append(number)
        source = None if varies else readers.source(gradient, source)
    inputs = [update.inputs[0], gradient, *update.inputs[2:], norm]
    factors = {"multiply": tuple(multiply), "divide": tuple(divide), "max_norm": max_norm}
    return update.with_(op=fused_form(update.op), inputs=inputs, attrs={**update.attrs, **factors}), chain


def is_clip_of(instruction: Instruction, update: Instruction) -> bool:
    """Whether it bounds the norm of one gradient, and is left out only when the update is."""
    alone = instruction.op is ClipGradNorm and len(instruction.inputs) == ClipGradNorm.groups
    return alone and instruction.unless in (None, update.unless) and instruction.after is None


def is_normal(factor: float) -> bool:
    """Whether float32 holds a factor with all its digits: the gradient times it is then as good as step by step."""
    return factor == 0 or SMALLEST <= abs(factor) <= LARGEST


def factor_of(instruction: Instruction) -> tuple[Slot, Any] | None:
    """The slot and the number of a product or quotient that keeps shape and dtype; None for anything else."""
    if instruction.op is UnscaleGradient:
        found = instruction.inputs[0], instruction.attrs["scale"]
    elif instruction.op in (Mul, Div):
        x, y = instruction.inputs
        if instruction.op is Mul and isinstance(y, Slot):
            x, y = y, x
        found = x, y
    else:
        return None
    slot, number = found
    if not isinstance(slot, Slot) or isinstance(number, Slot) or instruction.after is not None:
        return None
    return found if (slot.shape, slot.dtype) == (instruction.output.shape, instruction.output.dtype) else None


# norms of gradients that are divided by the loss scale


def norms_before_unscaling(program: Program) -> Program:
    """The program with norms of gradients that are divided later, if then their division can be folded."""
    readers = Readers(program)
    instructions: list[Instruction] = []
    constants = dict(program.constants)
    for instruction in program.instructions:
        if instruction.op is TotalNorm and is_of_unscaled(instruction, readers):
            instructions += divided_norm(instruction, readers, constants)
        else:
            instructions.append(instruction)
    if len(instructions) == len(program.instructions):
        return program
    return program.with_(instructions=instructions, constants=constants)


def divided_norm(norm: Instruction, readers: Readers, constants: dict[Slot, Any]) -> list[Instruction]:
    """The same norm, taken of the gradients before their division; a zero in float64 among them makes it float64."""
    sources = [readers.producers[slot] for slot in norm.inputs]
    wide = norm.output.like(dtype=np.dtype(np.float64))
    zero, divided = wide.like(kind=CONSTANT), wide.like()
    constants[zero] = zeros((), dtype=wide.dtype, device=wide.device)._array
    place = {"scope": norm.scope, "phase": norm.phase, "location": norm.location}
    return [
        norm.with_(inputs=[*[source.inputs[0] for source in sources], zero], outputs=[wide]),
        sources[0].with_(inputs=[wide], outputs=[divided], **place),
        Instruction(Cast, [divided], [norm.output], {"dtype": norm.output.dtype}, **place),
    ]


def is_of_unscaled(norm: Instruction, readers: Readers) -> bool:
    """Whether all inputs are divided by one loss scale, and are read else only to be clipped for one update."""
    scales = set()
    for slot in norm.inputs:
        clips = [reader for reader in readers.consumers[slot] if reader is not norm]
        source = readers.source(slot, norm, *clips)
        if source is None or source.op is not UnscaleGradient or source.after is not None or len(clips) != 1:
            return False
        if slot.dtype in HALF:
            return False
        if clips[0].op is not ClipGradNorm or len(clips[0].inputs) != ClipGradNorm.groups:
            return False
        updates = readers.consumers.get(clips[0].output, [])
        if len(updates) != 1 or fused_form(updates[0].op) is None or not is_clip_of(clips[0], updates[0]):
            return False
        if readers.source(clips[0].output, updates[0]) is None or len(updates[0].inputs) != updates[0].op.groups:
            return False
        scales.add(source.attrs["scale"])
    return len(scales) == 1
