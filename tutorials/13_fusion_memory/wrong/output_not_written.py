"""Writes only what another group reads, and forgets the outputs of the program.

rejected by: test_what_a_group_reads_and_writes
message: is an output, must be written
"""


def arrays(program, group):
    steps = [program.instructions[number] for number in group]
    made = [step.output for step in steps]
    reads = list(dict.fromkeys(n for step in steps for n in step.inputs if n not in made))
    outside = [n for step in program.instructions if step not in steps for n in step.inputs]
    return reads, [n for n in made if n in outside or n not in [m for step in steps for m in step.inputs]]
