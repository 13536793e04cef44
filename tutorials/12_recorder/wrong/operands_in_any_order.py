"""Takes a @ b and b @ a for equal.

rejected by: test_common_subexpressions
message: %2 = matmul(%0, %1); %3 = matmul(%1, %0)
"""


def merge(program):
    first, new, constants, kept = {}, {}, {}, []
    for n, array in program.constants.items():
        new[n] = first.setdefault((array.shape, array.tobytes()), n)
        if new[n] == n:
            constants[n] = array
    for op, inputs, output in program.instructions:
        inputs = tuple(new.get(n, n) for n in inputs)
        new[output] = first.setdefault((op, *sorted(inputs)), output)
        if new[output] == output:
            kept.append(Instruction(op, inputs, output))
    return Program(program.inputs, constants, kept, [new.get(n, n) for n in program.outputs])
