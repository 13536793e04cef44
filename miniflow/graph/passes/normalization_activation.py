"""Batch norm, the sum with a shortcut, and ReLU as one instruction; so their gradients, but for the shortcut's.

    relu(batch_norm(x) + z)                    -> batch_norm_relu(x, z)          z may be absent
    batch_norm_grad(relu_grad(dy, y), x, ...)  -> batch_norm_relu_grad(dy, y, x, ...)

The normalized array, its sum with z and the masked gradient are then never written to memory. On a CPU the forward
takes a third to a half less time, the backward up to a third less. Where the masked gradient also goes back through a
shortcut it has to be written anyway, and nothing is won: that is left as it is. So is layer norm, which activations
seldom follow.

Source: OneFlow's CudnnFusedNormalizationAddReluPass; cuDNN's `cudnnBatchNormalizationForwardTrainingEx`.
"""

from __future__ import annotations

from miniflow.backends.registry import kernel_of
from miniflow.dispatch.dispatcher import Op
from miniflow.graph.ir import Instruction, Program, Slot
from miniflow.graph.readers import Readers
from miniflow.ops.activation import Relu, ReluGrad
from miniflow.ops.arithmetic import Add
from miniflow.ops.normalization import (
    BatchNorm,
    BatchNormGrad,
    BatchNormInference,
    BatchNormRelu,
    BatchNormReluGrad,
    BatchNormReluInference,
)

FUSED = {BatchNorm: BatchNormRelu, BatchNormInference: BatchNormReluInference}


def run(program: Program) -> Program:
    """The program with one instruction for each such group."""
    groups = groups_of(program)
    if not groups:
        return program
    instructions = fused(program, groups)
    if instructions is None:
        groups = possible(program, groups)
        instructions = fused(program, groups)
    return program.with_(instructions=instructions) if groups else program


def groups_of(program: Program) -> list[list[Instruction]]:
    """The groups, of which no two share an instruction."""
    readers = Readers(program)
    groups: list[list[Instruction]] = []
    taken: set[Instruction] = set()
    for instruction in program.instructions:
        group = forward_group(instruction, readers) or backward_group(instruction, readers)
        if group and taken.isdisjoint(group):
            taken.update(group)
            groups.append(group)
    return groups


def possible(program: Program, groups: list[list[Instruction]]) -> list[list[Instruction]]:
    """The groups without those whose shortcut waits for the statistics of the same batch norm."""
    kept: list[list[Instruction]] = []
    for group in groups:
        if fused(program, [*kept, group]) is not None:
            kept.append(group)
    return kept


def fused(program: Program, groups: list[list[Instruction]]) -> list[Instruction] | None:
    """The instructions of the program with one for each group; None if they then wait for each other."""
    new = {group[-1]: gradient(*group) if group[-1].op is BatchNormGrad else forward(*group) for group in groups}
    dropped = {instruction for group in groups for instruction in group[:-1]}
    return after_their_inputs([new.get(i, i) for i in program.instructions if i not in dropped])


def has_kernel(op: type[Op], instruction: Instruction) -> bool:
    """Whether the device of an instruction computes `op`."""
    return kernel_of(instruction.outputs[0].device.type, op.__name__) is not None


def forward_group(norm: Instruction, readers: Readers) -> list[Instruction]:
    """Batch norm, perhaps a sum, and ReLU, each read by the next alone."""
    if norm.op not in FUSED or not has_kernel(FUSED[norm.op], norm):
        return []
    group = [norm]
    following = readers.only_reader(norm.outputs[0])
    if following is not None and following.op is Add and is_shortcut(following, norm.outputs[0]):
        group.append(following)
        following = readers.only_reader(following.output)
    if following is None or following.op is not Relu or len({i.after for i in [*group, following]}) != 1:
        return []
    return [*group, following]


def is_shortcut(addition: Instruction, y: Slot) -> bool:
    """Whether a sum adds to y an array like it."""
    x, z = addition.inputs
    return x is not z and all(isinstance(s, Slot) and (s.shape, s.dtype) == (y.shape, y.dtype) for s in (x, z))


def forward(norm: Instruction, *following: Instruction) -> Instruction:
    """The one instruction for a group of forward."""
    *additions, relu = following
    y, *statistics = norm.outputs
    shortcut = next((x for i in additions for x in i.inputs if x is not y), None)
    outputs = [relu.output, *statistics]
    return norm.with_(op=FUSED[norm.op], inputs=[*norm.inputs, shortcut], outputs=outputs)


def backward_group(norm_grad: Instruction, readers: Readers) -> list[Instruction]:
    """The gradients of ReLU and of batch norm, the first read by the second alone."""
    relu_grad = readers.made.get(norm_grad.inputs[0]) if norm_grad.op is BatchNormGrad else None
    if relu_grad is None or relu_grad.op is not ReluGrad or relu_grad.after is not norm_grad.after:
        return []
    if any(getattr(x, "shape", None) != relu_grad.output.shape for x in relu_grad.inputs):  # a number, or broadcast
        return []
    if not has_kernel(BatchNormReluGrad, norm_grad):
        return []
    return [relu_grad, norm_grad] if readers.only_reader(relu_grad.output) is norm_grad else []


def gradient(relu_grad: Instruction, norm_grad: Instruction) -> Instruction:
    """The one instruction for a group of backward."""
    return norm_grad.with_(op=BatchNormReluGrad, inputs=[*relu_grad.inputs, *norm_grad.inputs[1:]])


def after_their_inputs(instructions: list[Instruction]) -> list[Instruction] | None:
    """The same instructions, those that come before what they read moved behind it: the updates of running statistics
    stand between batch norm and the ReLU that ends its group. None if some wait for each other."""
    missing = {slot for instruction in instructions for slot in instruction.outputs}
    result: list[Instruction] = []
    waiting: list[Instruction] = []
    for instruction in instructions:
        waiting.append(instruction)
        ready = True
        while ready:
            ready = [i for i in waiting if missing.isdisjoint(i.waits_for)]
            result += ready
            waiting = [i for i in waiting if i not in ready]
            missing.difference_update(slot for i in ready for slot in i.outputs)
    return None if waiting else result
