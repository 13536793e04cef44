"""Starts a task when its results are there, though its stage is still busy.

rejected by: test_simulate
message: a task waits for the one before it in its stage
"""


def simulate(orders, forward=1.0, backward=2.0, message=0.0):
    times, stages = {}, len(orders)
    tasks = [(stage, *task) for stage, order in enumerate(orders) for task in order]
    while len(times) < len(tasks):
        ready = [t for t in tasks if t not in times and all(need in times for need in needs(*t, stages))]
        if not ready:
            raise Hang(str(tasks))
        for stage, phase, i in ready:
            arrived = [times[need][1] + message * (need[0] != stage) for need in needs(stage, phase, i, stages)]
            start = max(arrived, default=0.0)
            times[stage, phase, i] = start, start + (forward if phase == FORWARD else backward)
    return times
