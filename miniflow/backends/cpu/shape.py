"""Shape kernels: the views return NumPy views of their input; the others move each element once.

The views serve every device: a `DeviceArray` applies them to its layout. So do the copies that only use `x[key]`.
"""

from __future__ import annotations

import numpy as np

from miniflow.backends import memory
from miniflow.backends.registry import kernel


@kernel("cpu", returns=True)
def view(x, *, shape):
    for size in shape:
        if size < -1:  # NumPy takes any negative size as unknown
            raise ValueError("negative size")
    return x.reshape(shape) if x.flags.c_contiguous else x.reshape(shape, copy=False)


@kernel("cpu", returns=True)
def amp_black_identity(x):
    return x.view()


@kernel("cpu", returns=True)
def transpose(x, *, dim0, dim1):
    return x.swapaxes(dim0, dim1) if x.ndim else x.view()


@kernel("cpu", returns=True)
def permute(x, *, dims):
    return x.transpose(dims)


@kernel("cpu", returns=True)
def expand(x, *, shape):
    if x.shape == shape:
        return x.view()
    if (
        x.size == 1 and len(shape) >= x.ndim and not x.dtype.hasobject
    ):  # such as the gradient of a loss; broadcast_to takes ten times as long
        y = np.ndarray(shape, x.dtype, x, 0, (0,) * len(shape))
    else:
        y = np.broadcast_to(x, shape, subok=True)
    y.flags.writeable = y.size == x.size and x.flags.writeable  # else several elements share one place in memory
    return y


@kernel("cpu", returns=True)
def slice_(x, *, index):
    return x[index]  # `index` holds an Ellipsis, so that even a single element comes back as a view


@kernel("cpu", returns=True)
def diagonal(x, *, offset, dim1, dim2):
    y = np.diagonal(x, offset, dim1, dim2)  # read-only in NumPy
    y.flags.writeable = x.flags.writeable
    return y


@kernel("cpu", returns=True)
def unfold(x, *, dim, size, step):
    if step < 1:  # NumPy would step backward
        raise ValueError("negative step")
    disjoint = step >= size
    writeable = disjoint and x.flags.writeable
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis=dim, writeable=writeable, subok=True)
    return windows[(slice(None),) * dim + (slice(None, None, step),)]


VIEWS = (view, amp_black_identity, transpose, permute, expand, slice_, diagonal, unfold)


def start_from(y: np.ndarray, x: np.ndarray) -> None:
    """Copy `x`, broadcast, to `y`, unless they share memory."""
    if y is not x and not np.may_share_memory(y, x):
        np.copyto(y, x)


@kernel("cpu", in_place=(0,), half="native")
def view_scatter(y, x, values, *, steps):
    start_from(y, x)
    memory.write_through(y, values, steps)


@kernel("cpu", half="native")
def slice_into_zeros(dx, y, *, shape, index):
    dx[...] = 0
    dx[index] = y


@kernel("cpu", half="native")
def diagonal_into_zeros(dx, y, *, shape, offset, dim1, dim2):
    dx[...] = 0
    diagonal(dx, offset=offset, dim1=dim1, dim2=dim2)[...] = y


@kernel("cpu")
def fold_add(dx, y, *, shape, dim, size, step):
    dx[...] = 0
    count = y.shape[dim]
    lead = (slice(None),) * dim
    for k in range(size):  # element k of each window lies at k, k + step, k + 2 step ...
        dx[lead + (slice(k, k + (count - 1) * step + 1, step),)] += y[..., k]


@kernel("cpu", half="native")
def clone(y, x):
    y[...] = x


@kernel("cpu", half="native")
def flip(y, x, *, dims):
    y[...] = np.flip(x, dims)


@kernel("cpu", half="native")
def pad(y, x, *, widths, value):
    y[...] = value
    inside = tuple([slice(max(b, 0), n - max(a, 0)) for n, (b, a) in zip(y.shape, widths, strict=True)])
    source = tuple([slice(max(-b, 0), n - max(-a, 0)) for n, (b, a) in zip(x.shape, widths, strict=True)])
    y[inside] = x[source]


COPIES = (slice_into_zeros, clone, flip, pad)


@kernel("cpu", half="native")
def one_hot(y, x, *, num_classes):
    y[...] = 0
    y.reshape(x.size, num_classes)[np.arange(x.size), x.reshape(-1)] = 1
