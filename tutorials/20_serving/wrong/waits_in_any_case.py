"""Lets full batches wait for the delay, too.

rejected by: test_full_batches_do_not_wait
message: it is full
"""


def schedule(arrivals, seconds, most, delay):
    found, free, first = [], -math.inf, 0
    while first < len(arrivals):
        begin = max(free, arrivals[first] + delay)
        rows = sum(time <= begin for time in arrivals[first : first + most])
        free = begin + seconds(rows)
        found.append((begin, free, rows))
        first += rows
    return found
