"""The formula as it stands on paper: for large negative x the difference has no digits left.

rejected by: test_far_from_zero
message: loses all digits where x is negative
"""


def squareplus(x, b):
    return (x + sqrt(x * x + b)) / 2
