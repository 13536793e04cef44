"""No loop, but an array of all differences: as much memory is moved as before.

rejected by: test_distances_move_little_memory
message: bytes that distances moves
"""


def distances(x, centers):
    difference = x.unsqueeze(1) - centers
    return (difference * difference).sum(2)
