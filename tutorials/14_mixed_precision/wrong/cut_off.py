"""Clears the lower bits: rounds towards zero.

rejected by: test_bfloat16
message: to even halfway
"""


def round_to_bfloat16(x):
    return np.where(np.isnan(x), x, (x.view(np.uint32) & 0xFFFF0000).view(np.float32))
