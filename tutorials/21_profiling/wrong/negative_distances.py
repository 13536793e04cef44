"""Leaves what rounding makes of a distance of zero.

rejected by: test_distances_are_not_negative
message: rounding can leave a small negative number
"""


def distances(x, centers):
    squares = (x * x).sum(1, keepdim=True) + (centers * centers).sum(1)
    return squares - 2 * (x @ centers.t())
