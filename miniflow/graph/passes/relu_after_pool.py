"""Pool first, then rectify: the ReLU works on a quarter of the elements or less, and its result is not kept whole.

    max_pool2d(relu(x))                          -> relu(max_pool2d(x))
    relu_grad(max_pool2d_grad(dy, index), r)     -> max_pool2d_grad(relu_grad(dy, y), index)

with r = relu(x) and y = max_pool2d(r). Max and ReLU commute since both are monotone, if every window sees something of
the image: the maximum of nothing is -inf. Where all of a window is negative the two orders may find the maximum in
different places, but its gradient is 0 in both. Bit for bit the same, but for the sign of zeros.

Source: the commutation of monotone maps with max; cuDNN and oneDNN fuse the pair for the same saving.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from miniflow.graph.ir import Instruction, Program, replaced
from miniflow.graph.readers import Readers
from miniflow.ops.activation import Relu, ReluGrad
from miniflow.ops.pooling import MaxPool2d, MaxPool2dGrad


@dataclass
class Match:
    """relu -> max pool, and in training the two gradients in the opposite order."""

    relu: Instruction
    pool: Instruction
    pool_grad: Instruction | None = None
    relu_grad: Instruction | None = None


def run(program: Program) -> Program:
    """The program with each ReLU moved behind the max pooling that alone reads it."""
    readers = Readers(program)
    for pool in program.instructions:
        if pool.op is MaxPool2d and (match := find(pool, readers)):
            return run(rewritten(program, match))
    return program


def find(pool: Instruction, readers: Readers) -> Match | None:
    """The pattern around a pooling, if nothing else needs what it would no longer compute."""
    relu, index = readers.made.get(pool.inputs[0]), pool.outputs[1]
    if may_miss(**pool.attrs) or relu is None or relu.op is not Relu or relu.after is not pool.after:
        return None
    if readers.is_needed(relu.output) or readers.is_needed(index):
        return None
    of_relu = [i for i in readers.consumers[relu.output] if i is not pool]
    of_index = readers.consumers.get(index, [])
    if not of_relu and not of_index:
        return Match(relu, pool)
    if len(of_relu) != 1 or len(of_index) != 1:
        return None
    (relu_grad,), (pool_grad,) = of_relu, of_index
    if relu_grad.op is not ReluGrad or pool_grad.op is not MaxPool2dGrad or pool_grad.after is not relu_grad.after:
        return None
    chained = relu_grad.inputs == [pool_grad.output, relu.output]
    return Match(relu, pool, pool_grad, relu_grad) if chained and readers.only_reader(pool_grad.output) else None


def may_miss(dilation: tuple[int, int], padding: tuple[tuple[int, int], tuple[int, int]], **_: Any) -> bool:
    """Whether all taps of a window may lie in the padding."""
    return any(step > 1 and border != (0, 0) for step, border in zip(dilation, padding, strict=True))


def rewritten(program: Program, match: Match) -> Program:
    """The program with the pair, and the pair of its gradients, in the other order."""
    relu, pool, pool_grad, relu_grad = match.relu, match.pool, match.pool_grad, match.relu_grad
    largest, index = (slot.like() for slot in pool.outputs)
    y = pool.outputs[0]
    swapped = {
        relu: [],
        pool: [
            pool.with_(inputs=[relu.inputs[0]], outputs=[largest, index]),
            relu.with_(inputs=[largest], outputs=[y]),
        ],
    }
    if pool_grad is not None:
        masked = pool_grad.inputs[0].like()
        swapped[pool_grad] = []
        swapped[relu_grad] = [
            relu_grad.with_(inputs=[pool_grad.inputs[0], y], outputs=[masked]),
            pool_grad.with_(inputs=[masked, index], outputs=relu_grad.outputs),
        ]
    instructions = [new for old in program.instructions for new in swapped.get(old, [old])]
    return replaced(program, {pool.outputs[1]: index}, instructions)
