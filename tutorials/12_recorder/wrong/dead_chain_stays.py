"""Drops what nobody reads, but not what only such instructions read.

rejected by: test_dead_code
message: begin at the end
"""


def eliminate(program):
    read = {n for instruction in program.instructions for n in instruction.inputs} | set(program.outputs)
    constants = {n: array for n, array in program.constants.items() if n in read}
    return program._replace(constants=constants, instructions=[i for i in program.instructions if i.output in read])
