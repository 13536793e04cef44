"""Adds the two times, as if a processor could not compute while data is on its way.

rejected by: test_roofline
message: happen at the same time
"""


def roofline(operations, moved, peak, bandwidth):
    computing, moving = operations / peak, moved / bandwidth
    return computing + moving, "compute" if computing >= moving else "memory"
