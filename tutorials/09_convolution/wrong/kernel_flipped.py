"""Flips the kernel, as convolution is defined in signal processing.

rejected by: test_convolution
message: the kernel is not flipped
"""


def conv2d(x, weight, bias, stride, padding):
    kernel = weight.shape[2:]
    weight = weight[:, :, ::-1, ::-1]
    shape = output_shape(x.shape[2:], kernel, stride, padding)
    x = padded(x, padding)
    y = np.zeros((len(x), len(weight), *shape), x.dtype)
    for i, j in np.ndindex(*kernel):
        y += np.einsum("oc,ncrs->nors", weight[:, :, i, j], window(x, i, j, shape, stride))
    return y + bias[:, None, None]
