"""Starts an all-reduce when the first gradient of its group is ready, not the last one.

rejected by: test_finish_time
message: a group starts when its gradients are ready
"""


def finish_time(ready, sizes, groups, latency, rate):
    end = 0.0
    for group in groups:
        start = max(end, min(ready[position] for position in group))
        end = start + latency + sum(sizes[position] for position in group) / rate
    return end
