"""Sorts the groups by their first instructions, and does not notice that two groups need each other.

rejected by: test_order
message: expected None
"""


def schedule(program, groups):
    return sorted(groups)
