"""Writes where it has to add: right only if windows do not overlap.

rejected by: test_fold
message: where windows overlap, gradients add up
"""


def fold(columns, shape, kernel, stride, padding):
    size = output_shape(shape[2:], kernel, stride, padding)
    columns = columns.reshape(*shape[:2], *kernel, *size)
    x = padded(np.zeros(shape, columns.dtype), padding)
    for i, j in np.ndindex(*kernel):
        window(x, i, j, size, stride)[...] = columns[:, :, i, j]
    return x[:, :, padding : padding + shape[2], padding : padding + shape[3]]
