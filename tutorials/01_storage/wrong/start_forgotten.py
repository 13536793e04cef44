"""An offset without the start: right for every array that is no view.

rejected by: test_offset
message: each index times its stride, and the start
"""


def offset(index, strides, start):
    return sum(i * step for i, step in zip(index, strides))
