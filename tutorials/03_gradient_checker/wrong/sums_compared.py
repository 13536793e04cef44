"""Compares the sums of the gradients.

rejected by: test_close
message: close([1.0, 1000000.0]
"""


def close(got, expected, rtol=1e-5, atol=1e-7):
    if np.shape(got) != expected.shape or np.isnan(got).any():
        return False
    return abs(got.sum() - expected.sum()) <= atol + 0.2 * rtol + 0.1 * abs(expected.sum())
