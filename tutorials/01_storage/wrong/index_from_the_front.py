"""Divides by the first size first.

rejected by: test_index_at
message: divide by the sizes, the last first
"""


def index_at(position, shape):
    index = []
    for size in shape:
        index.append(position % size)
        position //= size
    return tuple(index)
