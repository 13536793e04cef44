"""Positions count within the window.

rejected by: test_max_pool
message: row * W + column in the plane of x
"""


def max_pool2d(x, kernel, stride):
    shape = output_shape(x.shape[2:], kernel, stride, 0)
    windows = np.stack([window(x, i, j, shape, stride) for i, j in np.ndindex(*kernel)])
    return windows.max(axis=0), windows.argmax(axis=0)
