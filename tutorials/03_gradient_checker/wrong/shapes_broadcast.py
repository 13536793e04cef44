"""The difference broadcasts, as in NumPy's allclose.

rejected by: test_close
message: close([[1.0, 1.0]], [1.0, 1.0]): expected False
"""


def close(got, expected, rtol=1e-5, atol=1e-7):
    return bool((np.abs(got - expected) <= atol + rtol * np.abs(expected)).all())
