"""Fusion and memory planning. Fill in what raises Todo, then run: python -m tutorials check 13"""

import math
import re
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np

from tutorials import Todo, programs  # noqa: F401

# what the pointwise ops compute for one element
FORMULAS = {"add": "{} + {}", "mul": "{} * {}", "exp": "math.exp({})", "relu": "max({}, 0.0)"}
FORMULAS["sigmoid"] = "1 / (1 + math.exp(-{}))"


class Instruction(NamedTuple):
    """One step: the name of its result, the name of an op, and the names of the values that it reads."""

    output: str
    op: str
    inputs: tuple


class Program(NamedTuple):
    """A recorded function of float32 arrays. There is no dead code in it.

    Attributes:
        inputs: the names of the values that are given.
        instructions: in an order in which they can run; the first is number 0.
        outputs: the names of the results.
        shapes: name of each value -> its shape. The operands of a pointwise op have the shape of its result.
    """

    inputs: list
    instructions: list
    outputs: list
    shapes: dict


def program(text, outputs, **shapes):
    """The program of steps such as "c = add(a, b)".

    Args:
        text: the steps, on lines or with ";" between.
        outputs: the names of the outputs, with spaces between.
        shapes: of the inputs.
    """
    inputs, instructions = list(shapes), []
    for output, op, names in re.findall(r"(\w+) = (\w+)\(([^)]*)\)", text):
        operands = tuple(names.split(", "))
        instructions.append(Instruction(output, op, operands))
        shapes[output] = programs.OPS[op](*[np.zeros(shapes[name], np.float32) for name in operands]).shape
    return Program(inputs, instructions, outputs.split(), shapes)


def nbytes(program, name):
    """How many bytes a value of float32 takes."""
    return 4 * math.prod(program.shapes[name])


def compiled(source):
    """The function `loop` of a source text, compiled by numba, with checked indices."""
    names = {"math": math}
    exec(source, names)
    return numba.njit(boundscheck=True)(names["loop"])


def schedule(program, groups):
    """The groups in an order in which they can run; None if there is no such order.

    Args:
        program: a Program.
        groups: lists of numbers of instructions; each instruction is in one of them.

    Returns:
        a list of the same groups, each after those whose results it reads. A group runs as a whole.
    """
    # task 13.1: put groups in order
    known, order = set(program.inputs), []
    for group in groups * len(groups):  # each time through the list, at least one of those that are left can run
        steps = [program.instructions[number] for number in group]
        made = known | {step.output for step in steps}
        if group not in order and all(made.issuperset(step.inputs) for step in steps):
            order.append(group)
            known = made
    return order if len(order) == len(groups) else None
    # end


def fuse(program):
    """Groups of pointwise instructions, each to become one loop.

    Returns:
        a list of groups in an order in which they can run. A group is a list of numbers of instructions, the smallest
        first. Each instruction is in one group; what is not pointwise is alone in its group.
    """
    # task 13.2: which instructions become one loop
    made = {step.output: number for number, step in enumerate(program.instructions) if step.op in FORMULAS}
    readers = [step for step in program.instructions if step.output in made]
    pairs = [(made[name], made[step.output]) for step in readers for name in step.inputs if name in made]
    groups = [[number] for number in range(len(program.instructions))]
    for pair in pairs * len(pairs):  # a merger may allow one that failed before
        first, second = [next(group for group in groups if number in group) for number in pair]
        merged = [group for group in groups if group not in (first, second)] + [sorted(first + second)]
        if first != second and schedule(program, merged):
            groups = merged
    return schedule(program, groups)
    # end


def arrays(program, group):
    """Which arrays a group reads from memory, and which it writes.

    Returns:
        two lists of names. Reads: values that are not made in the group, each once, in the order in which its
        instructions name them. Writes: its results that another group reads or that are outputs of the program, in the
        order of its instructions.
    """
    # task 13.3: count the bytes that move
    steps = [program.instructions[number] for number in group]
    made = [step.output for step in steps]
    reads = dict.fromkeys(name for step in steps for name in step.inputs if name not in made)
    needed = {name for step in program.instructions if step.output not in made for name in step.inputs}
    return list(reads), [name for name in made if name in needed or name in program.outputs]
    # end


def moved(program, groups):
    """How many bytes all groups together read and write; what is read by two groups counts twice."""
    # task 13.3: count the bytes that move
    return sum(nbytes(program, name) for group in groups for names in arrays(program, group) for name in names)
    # end


def source(program, group):
    """The source of a function `loop` that computes a group of pointwise instructions.

    Returns:
        a text. The arguments of `loop` are the arrays that the group reads and then those that it writes, as `arrays`
        orders them. All of them have one dimension and the same size, `x.size`.
    """
    # task 13.4: write a loop
    reads, writes = arrays(program, group)
    lines = [f"def loop({', '.join([f'in_{name}' for name in reads] + [f'out_{name}' for name in writes])}):"]
    lines.append(f"    for i in range(out_{writes[0]}.size):")
    lines += [f"        {name} = in_{name}[i]" for name in reads]
    for output, op, inputs in [program.instructions[number] for number in group]:
        lines.append(f"        {output} = {FORMULAS[op].format(*inputs)}")
    lines += [f"        out_{name}[i] = {name}" for name in writes]
    return "\n".join(lines)
    # end


@dataclass
class Block:
    """Memory that holds one value after the other.

    Attributes:
        nbytes: its size.
        first: the position of the group that writes its first value.
        last: the position of the group that reads its last value last; of an output, the number of groups.
        names: its values, in the order in which they are written.
    """

    nbytes: int
    first: int
    last: int
    names: list


def blocks(program, groups):
    """The blocks for all values that groups write, in the order in which these are written.

    Args:
        program: a Program.
        groups: in the order in which they run; positions count from 0.
    """
    # task 13.5: lifetimes and blocks
    last = {name: position for position, group in enumerate(groups) for name in arrays(program, group)[0]}
    last.update(dict.fromkeys(program.outputs, len(groups)))
    found, block_of = [], {}
    for position, group in enumerate(groups):
        reads, writes = arrays(program, group)
        in_place = program.instructions[group[0]].op in FORMULAS
        free = [block_of[name] for name in reads if name in block_of and last[name] == position and in_place]
        for name in writes:
            if not free:
                found.append(Block(nbytes(program, name), position, position, []))
                free = found[-1:]
            block = block_of[name] = free.pop()
            block.names.append(name)
            block.last = last[name]
    return found
    # end


def bound(found):
    """The most bytes of blocks that are in use at one position: no arena is smaller."""
    # task 13.6: offsets in one arena
    positions = [block.first for block in found]
    return max(sum(b.nbytes for b in found if b.first <= position <= b.last) for position in positions)
    # end


def place(found):
    """The offset of each block in one arena, in bytes, as a list in the order of the blocks."""
    # task 13.6: offsets in one arena
    offsets = {}
    for k in sorted(range(len(found)), key=lambda k: -found[k].nbytes):
        block, offset = found[k], 0
        beside = [j for j in offsets if found[j].first <= block.last and block.first <= found[j].last]
        for j in sorted(beside, key=offsets.get):
            if offset + block.nbytes <= offsets[j]:
                break
            offset = max(offset, offsets[j] + found[j].nbytes)
        offsets[k] = offset
    return [offsets[k] for k in range(len(found))]
    # end


def arena(found, offsets):
    """The size of the arena in bytes."""
    return max(block.nbytes + offset for block, offset in zip(found, offsets))


def network():
    """Two branches of a network and what follows them, as a recorder writes them down."""
    lines = """
        u = matmul(x, w1); v = matmul(x, w2); s = sigmoid(u); g = mul(u, s); r = relu(v)
        a = matmul(g, w3); b = matmul(r, w4); c = add(a, b); y = add(x, c); e = exp(y)
        k = matmul(e, w5); t = relu(k); p = matmul(t, w6); q = mul(e, p); z = add(q, y)
    """
    shapes = {"x": (128, 64), "w1": (64, 192), "w2": (64, 192), "w3": (192, 64), "w4": (192, 64), "w5": (64, 96)}
    return program(lines, "z e", **shapes, w6=(96, 64))
