"""Frees the buffers of the operands before it places the result: a matrix product would read what it has just written.

rejected by: test_buffers
message: by the same one
"""


def plan(program):
    last = last_reads(program)
    places, free, count = {}, [], 0
    for position, (_, inputs, output) in enumerate(program.instructions):
        free += [places[n] for n in set(inputs) if last.get(n) == position]
        if not free:
            free.append(count)
            count += 1
        places[output] = free.pop(0)
        if last[output] == position:
            free.append(places[output])
    return places
