"""The larger of two sizes: no error where they do not fit, and wrong for sizes of zero.

rejected by: test_shapes_that_do_not_fit
message: expected a ValueError
"""


def broadcast_shape(a, b):
    length = max(len(a), len(b))
    a, b = ((1,) * (length - len(shape)) + tuple(shape) for shape in (a, b))
    return tuple(min(m, n) if 0 in (m, n) else max(m, n) for m, n in zip(a, b))
