"""Treats NaN like a number: the carry makes infinity of it, or 0.

rejected by: test_bfloat16
message: NaN apart
"""


def round_to_bfloat16(x):
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)
