"""Adds only one of several gradients of the same element.

rejected by: test_max_pool_gradient
message: the largest of several windows gets the sum
"""


def max_pool2d_gradient(gradient, positions, shape):
    result = np.zeros(shape, gradient.dtype)
    for n, c in np.ndindex(*shape[:2]):
        result[n, c].ravel()[positions[n, c].ravel()] += gradient[n, c].ravel()
    return result
