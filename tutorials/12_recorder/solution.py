"""A recorder, a replay and three passes. Fill in what raises Todo, then run: python -m tutorials check 12"""

from typing import NamedTuple

import numpy as np

from tutorials import Todo  # noqa: F401

OPS = {"add": np.add, "mul": np.multiply, "matmul": np.matmul, "exp": np.exp, "relu": lambda x: np.maximum(x, 0)}


class Instruction(NamedTuple):
    """One step: the name of an op, the numbers of the values that it reads, and the number of its result."""

    op: str
    inputs: tuple
    output: int


class Program(NamedTuple):
    """A record. Its values are numbered 0, 1, 2, ... in the order in which they came up.

    Attributes:
        inputs: the numbers of the values that are given at each replay.
        constants: number of a value -> its array of float32.
        instructions: in the order in which they were recorded.
        outputs: the numbers of the results.
    """

    inputs: list
    constants: dict
    instructions: list
    outputs: list

    @property
    def size(self):
        """How many values there are so far: the number of the next one."""
        return len(self.inputs) + len(self.constants) + len(self.instructions)

    def __str__(self):
        lines = [f"%{n} = constant of shape {array.shape}" for n, array in self.constants.items()]
        for op, inputs, output in self.instructions:
            lines.append(f"%{output} = {op}({', '.join(f'%{n}' for n in inputs)})")
        return "\n".join([*lines, f"return {', '.join(f'%{n}' for n in self.outputs)}"])


class Symbol:
    """A value of a program that is being recorded: it has a number, and no elements."""

    __array_ufunc__ = None  # so that `array + symbol` calls our __radd__, and not NumPy's loop over elements

    def __init__(self, program, number):
        self.program = program
        self.number = number

    def __bool__(self):
        raise TypeError("a symbol has no value: the program cannot depend on it")

    def __add__(self, other):
        # task 12.1: record in place of computing
        return apply("add", self, other)
        # end

    def __radd__(self, other):
        # task 12.1: record in place of computing
        return apply("add", other, self)
        # end

    def __mul__(self, other):
        # task 12.1: record in place of computing
        return apply("mul", self, other)
        # end

    def __rmul__(self, other):
        # task 12.1: record in place of computing
        return apply("mul", other, self)
        # end


def apply(op, *operands):
    """Compute at once, as in eager mode; but if an operand is a symbol, record."""
    for x in operands:
        if isinstance(x, Symbol):
            return append(x.program, op, operands)
    return OPS[op](*operands)


def exp(x):
    """e to the power of x"""
    return apply("exp", x)


def relu(x):
    """x where it is positive, else 0"""
    return apply("relu", x)


def matmul(a, b):
    """The product of two matrices."""
    return apply("matmul", a, b)


def number_of(program, operand):
    """The number of a symbol; whatever else is copied, as float32, to a new constant of the program."""
    # task 12.1: record in place of computing
    if isinstance(operand, Symbol):
        return operand.number
    number = program.size
    program.constants[number] = np.array(operand, np.float32)
    return number
    # end


def append(program, op, operands):
    """Append an instruction to a program, and return the symbol of its result."""
    # task 12.1: record in place of computing
    inputs = tuple(number_of(program, x) for x in operands)
    result = Symbol(program, program.size)
    program.instructions.append(Instruction(op, inputs, result.number))
    return result
    # end


def record(function, count):
    """The program of a function of `count` arrays, which returns one result or a tuple; it runs once, on symbols."""
    # task 12.2: record a function
    program = Program(list(range(count)), {}, [], [])
    results = function(*[Symbol(program, number) for number in range(count)])
    if not isinstance(results, tuple):
        results = (results,)
    program.outputs.extend(number_of(program, x) for x in results)
    return program
    # end


def replay(program, arrays):
    """The list of outputs for other inputs; raises ValueError if there are too few or too many of these."""
    # task 12.3: replay a program
    if len(arrays) != len(program.inputs):
        raise ValueError(f"expected {len(program.inputs)} inputs, got {len(arrays)}")
    values = {**program.constants, **dict(zip(program.inputs, arrays))}
    for op, inputs, output in program.instructions:
        values[output] = OPS[op](*[values[number] for number in inputs])
    return [values[number] for number in program.outputs]
    # end


def eliminate(program):
    """The program without the instructions and constants on which no output depends; the numbers stay."""
    # task 12.4: dead code elimination
    needed = set(program.outputs)
    living = []
    for instruction in reversed(program.instructions):
        if instruction.output in needed:
            living.append(instruction)
            needed.update(instruction.inputs)
    constants = {number: array for number, array in program.constants.items() if number in needed}
    return Program(program.inputs, constants, living[::-1], program.outputs)
    # end


def merge(program):
    """The program with one instruction, the first, in place of several of equal op and inputs; constants too."""
    # task 12.5: common subexpressions
    first, new, constants, instructions = {}, {}, {}, []
    for number, array in program.constants.items():
        new[number] = first.setdefault((array.shape, array.tobytes()), number)
        if new[number] == number:
            constants[number] = array
    for op, inputs, output in program.instructions:
        inputs = tuple(new.get(number, number) for number in inputs)
        new[output] = first.setdefault((op, inputs), output)
        if new[output] == output:
            instructions.append(Instruction(op, inputs, output))
    return Program(program.inputs, constants, instructions, [new.get(number, number) for number in program.outputs])
    # end


def last_reads(program):
    """For each result of an instruction: at which instruction, counted from 0, it is read last.

    Of an output this is the number of instructions, the end; of a result that nobody reads, its own instruction.
    """
    # task 12.6: memory planning
    last = {}
    for position, (_, inputs, output) in enumerate(program.instructions):
        last[output] = position
        for number in inputs:
            if number in last:
                last[number] = position
    last.update(dict.fromkeys(last.keys() & set(program.outputs), len(program.instructions)))
    return last
    # end


def plan(program):
    """For each result of an instruction: the number of its buffer, 0, 1, 2, ...; as few buffers as possible.

    A buffer takes a new value after the instruction that reads its old value last.
    """
    # task 12.6: memory planning
    last = last_reads(program)
    places, free, count = {}, [], 0
    for position, (_, inputs, output) in enumerate(program.instructions):
        if not free:
            free.append(count)
            count += 1
        places[output] = free.pop(0)
        for number in {*inputs, output}:
            if last.get(number) == position:
                free.append(places[number])
    return places
    # end


def network(x, w1, b1, w2, b2, w3, w4):
    """A small network, written with waste: its first layer is computed twice, and nobody reads `norm`."""
    norm = x * x + 1e-5
    hidden = relu(matmul(x, w1) + b1)
    gate = exp(-1.0 * relu(matmul(x, w1) + b1))
    for _ in range(2):
        norm = norm * norm
        hidden = hidden + gate * matmul(relu(matmul(hidden, w2) + b2), w3)
    return matmul(hidden, w4), -1.0 * hidden
