"""Right, but copies all windows into one array.

rejected by: test_memory_of_the_convolution
message: one element of the kernel at a time
"""


def conv2d(x, weight, bias, stride, padding):
    kernel = weight.shape[2:]
    shape = output_shape(x.shape[2:], kernel, stride, padding)
    x = padded(x, padding)
    windows = np.stack([window(x, i, j, shape, stride) for i, j in np.ndindex(*kernel)])
    y = np.einsum("ock,kncrs->nors", weight.reshape(*weight.shape[:2], -1), windows)
    return y + bias[:, None, None]
