"""Puts the values of a replay among the constants of the program.

rejected by: test_replay
message: it stays as it was
"""


def replay(program, arrays):
    if len(arrays) != len(program.inputs):
        raise ValueError("another number of inputs")
    values = program.constants
    values.update(zip(program.inputs, arrays))
    for instruction in program.instructions:
        values[instruction.output] = OPS[instruction.op](*[values[n] for n in instruction.inputs])
    return [values[n] for n in program.outputs]
