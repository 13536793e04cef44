"""Counts the waits between the first task of a stage and its last one only.

rejected by: test_bubble
message: a stage also waits before its first task
"""


def bubble(times):
    busy = span = 0.0
    for stage in {task[0] for task in times}:
        own = [time for task, time in times.items() if task[0] == stage]
        busy += sum(end - start for start, end in own)
        span += max(end for _, end in own) - min(start for start, _ in own)
    return 1 - busy / span
