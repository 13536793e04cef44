"""Convolution and pooling with gradients. Fill in what raises Todo, then run: python -m tutorials check 9

Shapes: x (N, C, H, W), weight (O, C, KH, KW), bias (O,), results (N, O, OH, OW). `kernel` is the pair (KH, KW); stride
and padding are ints, the same for rows and columns.
"""

import math

import numpy as np

from tutorials import Todo  # noqa: F401


def padded(x, padding):
    """A copy of x with so many rows and columns of zeros on each side: (N, C, H + 2 padding, W + 2 padding)."""
    return np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))


def flatten(x, dims):
    """x, with all dims after the first `dims` as one: flatten(weight, 1) has shape (O, C * KH * KW)."""
    return x.reshape(*x.shape[:dims], math.prod(x.shape[dims:]))


def output_shape(size, kernel, stride, padding):
    """How often a kernel fits: the pair (OH, OW), for an image of size (H, W)."""
    # task 9.1: where the kernel stands
    return tuple((n + 2 * padding - k) // stride + 1 for n, k in zip(size, kernel))
    # end


def window(x, i, j, shape, stride):
    """What the element (i, j) of the kernel meets, for all outputs at once.

    Args:
        x: (N, C, H, W), padded already.
        i, j: row and column in the kernel.
        shape: (OH, OW).
        stride: the step of the kernel from one output to the next.

    Returns:
        a view of x, of shape (N, C, OH, OW): its element [n, c, r, s] is x[n, c, stride * r + i, stride * s + j].
    """
    # task 9.1: where the kernel stands
    rows, columns = shape
    return x[:, :, i : i + stride * rows : stride, j : j + stride * columns : stride]
    # end


def conv2d(x, weight, bias, stride, padding):
    """The convolution, without a large array: (N, O, OH, OW), of the dtype of x."""
    # task 9.2: direct convolution
    kernel = weight.shape[2:]
    shape = output_shape(x.shape[2:], kernel, stride, padding)
    x = padded(x, padding)
    y = np.zeros((len(x), len(weight), *shape), x.dtype)
    for i, j in np.ndindex(*kernel):
        y += np.einsum("oc,ncrs->nors", weight[:, :, i, j], window(x, i, j, shape, stride))
    return y + bias[:, None, None]
    # end


def unfold(x, kernel, stride, padding):
    """What the kernel meets, as columns: (N, C * KH * KW, OH * OW), in row-major order of (c, i, j) and of (r, s)."""
    # task 9.3: convolution as a matrix product
    shape = output_shape(x.shape[2:], kernel, stride, padding)
    x = padded(x, padding)
    columns = np.empty((*x.shape[:2], *kernel, *shape), x.dtype)
    for i, j in np.ndindex(*kernel):
        columns[:, :, i, j] = window(x, i, j, shape, stride)
    return columns.reshape(len(x), math.prod(columns.shape[1:4]), math.prod(shape))
    # end


def unfold_bytes(shape, kernel, stride, padding, itemsize):
    """The bytes of `unfold(x, kernel, stride, padding)`, for x of `shape` with elements of so many bytes: an int."""
    # task 9.3: convolution as a matrix product
    return math.prod((*shape[:2], *kernel, *output_shape(shape[2:], kernel, stride, padding), itemsize))
    # end


def conv2d_unfold(x, weight, bias, stride, padding):
    """As `conv2d`, by a matrix product with `unfold`."""
    # task 9.3: convolution as a matrix product
    shape = output_shape(x.shape[2:], weight.shape[2:], stride, padding)
    y = flatten(weight, 1) @ unfold(x, weight.shape[2:], stride, padding)
    return (y + bias[:, None]).reshape(len(x), len(weight), *shape)
    # end


def fold(columns, shape, kernel, stride, padding):
    """The gradient of `unfold` for x of `shape` (N, C, H, W), where `columns` is the gradient of its result."""
    # task 9.4: the gradient for the input
    size = output_shape(shape[2:], kernel, stride, padding)
    columns = columns.reshape(*shape[:2], *kernel, *size)
    x = padded(np.zeros(shape, columns.dtype), padding)
    for i, j in np.ndindex(*kernel):
        window(x, i, j, size, stride)[...] += columns[:, :, i, j]
    return x[:, :, padding : padding + shape[2], padding : padding + shape[3]]
    # end


def input_gradient(gradient, weight, shape, stride, padding):
    """The gradient of a convolution for x of `shape`.

    Args:
        gradient: of the result, (N, O, OH, OW).
        weight: (O, C, KH, KW).
        shape: of x, (N, C, H, W).
        stride, padding: of the convolution.
    """
    # task 9.4: the gradient for the input
    columns = flatten(weight, 1).T @ flatten(gradient, 2)
    return fold(columns, shape, weight.shape[2:], stride, padding)
    # end


def parameter_gradients(gradient, x, kernel, stride, padding):
    """The gradients of a convolution for weight and bias: a pair of arrays, (O, C, KH, KW) and (O,)."""
    # task 9.5: the gradients for weight and bias
    weight = np.einsum("nop,nkp->ok", flatten(gradient, 2), unfold(x, kernel, stride, padding))
    return weight.reshape(len(weight), x.shape[1], *kernel), gradient.sum(axis=(0, 2, 3))
    # end


def max_pool2d(x, kernel, stride):
    """The largest element of each window, without padding.

    Returns:
        the pair (y, positions), both of shape (N, C, OH, OW). A position is row * W + column of the largest element in
        its plane of x, as int64; of equal elements, the first in row-major order.
    """
    # task 9.6: max pooling
    shape = output_shape(x.shape[2:], kernel, stride, 0)
    windows = np.stack([window(x, i, j, shape, stride) for i, j in np.ndindex(*kernel)])
    first = windows.argmax(axis=0)
    rows = first // kernel[1] + stride * np.arange(shape[0])[:, None]
    columns = first % kernel[1] + stride * np.arange(shape[1])
    return windows.max(axis=0), rows * x.shape[3] + columns
    # end


def max_pool2d_gradient(gradient, positions, shape):
    """The gradient of `max_pool2d` for x of `shape` (N, C, H, W), from that of its result and the positions."""
    # task 9.6: max pooling
    result = np.zeros(shape, gradient.dtype)
    for n, c in np.ndindex(*shape[:2]):
        plane = result[n, c].ravel()  # a view
        np.add.at(plane, positions[n, c].ravel(), gradient[n, c].ravel())
    return result
    # end
