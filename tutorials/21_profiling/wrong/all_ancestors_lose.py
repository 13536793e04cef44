"""Takes the time of an event from all that hold it: that of a grandchild counts twice.

rejected by: test_self_times
message: those directly within it
"""


def self_times(events):
    totals, running = {}, []
    for name, start, end in events:
        running = [(other, stop) for other, stop in running if stop > start]
        totals[name] = totals.get(name, 0) + end - start
        for other, _ in running:
            totals[other] -= end - start
        running.append((name, end))
    return totals
