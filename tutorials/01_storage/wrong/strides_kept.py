"""Keeps the strides of dims of size 1: reads the neighbours in place of repeating.

rejected by: test_broadcast_strides
message: a step of 0 stays at the same element
"""


def broadcast_strides(shape, strides, target):
    return (0,) * (len(target) - len(shape)) + tuple(strides)
