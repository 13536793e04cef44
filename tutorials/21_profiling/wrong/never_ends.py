"""Does not notice that an event has ended when the next one begins.

rejected by: test_self_times
message: of an event, the time of those directly within it
"""


def self_times(events):
    totals, running = {}, []
    for name, start, end in events:
        while running and running[-1][1] < start:
            running.pop()
        totals[name] = totals.get(name, 0) + end - start
        if running:
            totals[running[-1][0]] -= end - start
        running.append((name, end))
    return totals
