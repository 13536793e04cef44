"""A constant is the array of the caller, who may change it later.

rejected by: test_constants_are_copied
message: a record keeps a copy
"""


def number_of(program, operand):
    if isinstance(operand, Symbol):
        return operand.number
    number = program.size
    program.constants[number] = np.asarray(operand, np.float32)
    return number
