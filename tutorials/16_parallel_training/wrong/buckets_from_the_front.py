"""Begins with the first layer, whose gradients come last.

rejected by: test_buckets
message: backward begins with the last layer
"""


def buckets(sizes, limit):
    groups, room = [], 0
    for position, size in enumerate(sizes):
        if not groups or size > room:
            groups.append([])
            room = limit
        groups[-1].append(position)
        room -= size
    return groups
