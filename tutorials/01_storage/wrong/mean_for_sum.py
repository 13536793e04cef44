"""Averages in place of adding up.

rejected by: test_sum_to
message: elements are wrong
"""


def sum_to(array, shape):
    array = array.mean(axis=tuple(range(array.ndim - len(shape))), dtype=array.dtype)
    repeated = tuple(d for d, size in enumerate(shape) if size == 1 and array.shape[d] != 1)
    return np.asarray(array.mean(axis=repeated, keepdims=True, dtype=array.dtype))
