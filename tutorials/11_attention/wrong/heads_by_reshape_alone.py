"""Splits heads by a reshape without a transpose.

rejected by: test_split_and_join
message: a reshape alone mixes positions and heads
"""


def split(x, heads):
    batch, length, width = x.shape
    return x.reshape(batch, heads, length, width // heads)
