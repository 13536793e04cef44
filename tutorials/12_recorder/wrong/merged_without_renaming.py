"""Compares the inputs as they were recorded: what is equal after an earlier merge is not found.

rejected by: test_common_subexpressions
message: after renaming
"""


def merge(program):
    first, new, constants, kept = {}, {}, {}, []
    for n, array in program.constants.items():
        new[n] = first.setdefault((array.shape, array.tobytes()), n)
        if new[n] == n:
            constants[n] = array
    for op, inputs, output in program.instructions:
        new[output] = first.setdefault((op, inputs), output)
        if new[output] == output:
            kept.append(Instruction(op, tuple(new.get(n, n) for n in inputs), output))
    return Program(program.inputs, constants, kept, [new.get(n, n) for n in program.outputs])
