"""Strides of a column-major array.

rejected by: test_strides
message: contiguous_strides((2, 3)): expected (3, 1), got (1, 2)
"""


def contiguous_strides(shape):
    strides, step = [], 1
    for size in shape:
        strides.append(step)
        step *= size
    return tuple(strides)
