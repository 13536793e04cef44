"""Shape kernels: the views return NumPy views of their input; the others move each element once."""

from __future__ import annotations

import numpy as np

from miniflow.backends.registry import register, register_into


@register("cpu", "View", half="native")
def view(x: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
    for size in shape:
        if size < -1:  # NumPy takes any negative size as unknown
            raise ValueError("negative size")
    return x.reshape(shape) if x.flags.c_contiguous else x.reshape(shape, copy=False)


@register("cpu", "AmpBlackIdentity", half="native")
def identity(x: np.ndarray) -> np.ndarray:
    return x.view()


@register("cpu", "Transpose", half="native")
def transpose(x: np.ndarray, *, dim0: int, dim1: int) -> np.ndarray:
    if x.ndim == 0 and {dim0, dim1} <= {0, -1}:
        return x.view()
    return x.swapaxes(dim0, dim1)


@register("cpu", "Permute", half="native")
def permute(x: np.ndarray, *, dims: tuple[int, ...]) -> np.ndarray:
    return x.transpose(dims)


@register("cpu", "Expand", half="native")
def expand(x: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
    if x.shape == shape:
        return x.view()
    if x.size == 1 and len(shape) >= x.ndim:  # as the gradient of a loss; broadcast_to takes ten times as long
        y = np.ndarray(shape, x.dtype, x, 0, (0,) * len(shape))
        y.flags.writeable = False
        return y
    return np.broadcast_to(x, shape)  # read-only: several elements share one place in memory


@register("cpu", "Slice", half="native")
def basic_slice(x: np.ndarray, *, index: tuple) -> np.ndarray:
    return x[index]  # `index` holds an Ellipsis, so that even a single element comes back as a view


@register("cpu", "SliceIntoZeros", half="native")
def slice_into_zeros(y: np.ndarray, *, shape: tuple[int, ...], index: tuple) -> np.ndarray:
    out = np.zeros(shape, y.dtype)
    out[index] = y
    return out


@register_into("cpu", "SliceIntoZeros", half="native")
def slice_into_zeros_into(out: np.ndarray, y: np.ndarray, *, shape: tuple[int, ...], index: tuple) -> None:
    out[...] = 0
    out[index] = y


@register("cpu", "Diagonal", half="native")
def diagonal(x: np.ndarray, *, offset: int, dim1: int, dim2: int) -> np.ndarray:
    y = np.diagonal(x, offset, dim1, dim2)  # NumPy hands it out read-only
    y.flags.writeable = x.flags.writeable
    return y


@register("cpu", "DiagonalIntoZeros", half="native")
def diagonal_into_zeros(y: np.ndarray, *, shape: tuple[int, ...], offset: int, dim1: int, dim2: int) -> np.ndarray:
    out = np.zeros(shape, y.dtype)
    diagonal(out, offset=offset, dim1=dim1, dim2=dim2)[...] = y
    return out


@register("cpu", "Unfold", half="native")
def unfold(x: np.ndarray, *, dim: int, size: int, step: int) -> np.ndarray:
    if x.ndim == 0:
        return np.lib.stride_tricks.as_strided(x, (size,), (x.itemsize,))
    disjoint = step >= size
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis=dim, writeable=disjoint and x.flags.writeable)
    return windows[(slice(None),) * dim + (slice(None, None, step),)]


@register("cpu", "FoldAdd")
def fold_add(y: np.ndarray, *, shape: tuple[int, ...], dim: int, size: int, step: int) -> np.ndarray:
    out = np.zeros(shape, y.dtype)
    if not shape:
        out[...] = y.sum()
        return out
    count = y.shape[dim]
    lead = (slice(None),) * dim
    for k in range(size):  # element k of each window lies at k, k + step, k + 2 step ...
        out[lead + (slice(k, k + (count - 1) * step + 1, step),)] += y[..., k]
    return out


@register("cpu", "Clone", half="native")
def clone(x: np.ndarray) -> np.ndarray:
    return x.copy(order="K")


@register("cpu", "Contiguous", half="native")
def contiguous(x: np.ndarray) -> np.ndarray:
    return x.copy()


@register_into("cpu", "Clone", half="native")
@register_into("cpu", "Contiguous", half="native")
def copy_into(out: np.ndarray, x: np.ndarray) -> None:
    np.copyto(out, x)


@register("cpu", "Flip", half="native")
def flip(x: np.ndarray, *, dims: tuple[int, ...]) -> np.ndarray:
    return np.flip(x, dims).copy()


@register_into("cpu", "Flip", half="native")
def flip_into(out: np.ndarray, x: np.ndarray, *, dims: tuple[int, ...]) -> None:
    np.copyto(out, np.flip(x, dims))


@register("cpu", "Pad", half="native")
def pad(x: np.ndarray, *, widths: tuple[tuple[int, int], ...], value: float) -> np.ndarray:
    shape = [n + before + after for n, (before, after) in zip(x.shape, widths, strict=True)]
    out = np.zeros(shape, x.dtype) if value == 0 else np.full(shape, value, x.dtype)
    inside = tuple([slice(max(b, 0), n - max(a, 0)) for n, (b, a) in zip(shape, widths, strict=True)])
    kept = tuple([slice(max(-b, 0), n - max(-a, 0)) for n, (b, a) in zip(x.shape, widths, strict=True)])
    out[inside] = x[kept]
    return out


@register("cpu", "OneHot", half="native")
def one_hot(x: np.ndarray, *, num_classes: int) -> np.ndarray:
    if num_classes == -1:
        num_classes = int(x.max()) + 1
    out = np.zeros((x.size, num_classes), np.int64)
    out[np.arange(x.size), x.ravel()] = 1
    return out.reshape(*x.shape, num_classes)
