"""Forgets that an output has to live to the end.

rejected by: test_last_reads
message: an output is read at the end
"""


def last_reads(program):
    last = {}
    for position, (_, inputs, output) in enumerate(program.instructions):
        last[output] = position
        last.update((n, position) for n in inputs if n in last)
    return last
