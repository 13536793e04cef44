"""A tolerance of a tenth.

rejected by: test_wrong_operators_are_rejected
message: a factor of 1.01
"""


def close(got, expected, rtol=0.1, atol=1e-7):
    got = np.asarray(got)
    return got.shape == expected.shape and bool((np.abs(got - expected) <= atol + rtol * np.abs(expected)).all())
