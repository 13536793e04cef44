"""After x * x the buffer of x is twice in the list of free ones.

rejected by: test_buffers
message: are both in buffer
"""


def plan(program):
    last = last_reads(program)
    places, free, count = {}, [], 0
    for position, (_, inputs, output) in enumerate(program.instructions):
        if not free:
            free.append(count)
            count += 1
        places[output] = free.pop(0)
        free += [places[n] for n in (*inputs, output) if last.get(n) == position]
    return places
