"""Aligns shapes at the left.

rejected by: test_broadcast_shape
message: right-aligned
"""


def broadcast_shape(a, b):
    length = max(len(a), len(b))
    a, b = (tuple(shape) + (1,) * (length - len(shape)) for shape in (a, b))
    return tuple(n if m == 1 else m for m, n in zip(a, b))
