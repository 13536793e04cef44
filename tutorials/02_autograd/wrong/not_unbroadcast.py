"""Forgets that operands were broadcast.

rejected by: test_broadcast
message: expected shape (3,)
"""


def sum_to(array, shape):
    return array
