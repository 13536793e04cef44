"""Rounds up: the last kernel hangs over the edge.

rejected by: test_output_shape
message: the last kernel must end within the padded image
"""


def output_shape(size, kernel, stride, padding):
    return tuple(-(-(n + 2 * padding - k) // stride) + 1 for n, k in zip(size, kernel))
