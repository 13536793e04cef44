"""Stops when no stage can go on, and returns the times so far.

rejected by: test_hang
message: expected a Hang
"""


def simulate(orders, forward=1.0, backward=2.0, message=0.0):
    times, stages, free, went_on = {}, len(orders), [0.0] * len(orders), True
    left = [list(order) for order in orders]
    while went_on:
        went_on = False
        for stage in range(stages):
            if left[stage] and all(need in times for need in needs(stage, *left[stage][0], stages)):
                phase, i = left[stage].pop(0)
                arrived = [times[need][1] + message * (need[0] != stage) for need in needs(stage, phase, i, stages)]
                start = max([free[stage], *arrived])
                free[stage] = start + (forward if phase == FORWARD else backward)
                times[stage, phase, i] = start, free[stage]
                went_on = True
    return times
