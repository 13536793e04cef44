"""The rows of the columns are in the order of (i, j, c).

rejected by: test_unfold
message: in the order of (c, i, j)
"""


def unfold(x, kernel, stride, padding):
    shape = output_shape(x.shape[2:], kernel, stride, padding)
    x = padded(x, padding)
    parts = [window(x, i, j, shape, stride) for i, j in np.ndindex(*kernel)]
    return np.concatenate(parts, axis=1).reshape(len(x), -1, math.prod(shape))
