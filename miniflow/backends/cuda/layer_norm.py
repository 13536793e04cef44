"""Layer norm: launches over rows."""

from __future__ import annotations

from math import prod

from miniflow.backends.cuda.array import DeviceArray, contiguous, empty, full
from miniflow.backends.cuda.driver import driver
from miniflow.backends.cuda.launch import launch
from miniflow.backends.cuda.pointwise import pointwise
from miniflow.backends.cuda.reduce import total
from miniflow.backends.cuda.softmax import threads_for
from miniflow.backends.registry import kernel
from miniflow.kernels import layer_norm as kernels
from miniflow.kernels.reduce import THREADS, WARP, WARPS
from miniflow.kernels.softmax import SHARED_BYTES

PART_ROWS, PARTS = 64, 256  # rows of a part at least, and parts at most, in the sums for the parameters' gradients


def parameter(values: DeviceArray | None, default: float, size: int, x: DeviceArray) -> DeviceArray:
    """A weight or bias as a contiguous vector in the dtype of x, filled with its neutral value if there is none."""
    if values is None:
        return full((size,), default, x.dtype, x.device_index)
    return contiguous(values, x.dtype).reshape((size,))


def as_rows(x: DeviceArray, dims: int) -> DeviceArray:
    """The last `dims` dimensions as one, all before them as another."""
    return contiguous(x).reshape((prod(x.shape[: x.ndim - dims]), prod(x.shape[x.ndim - dims :])))


def values_per_lane(width: int) -> int:
    """The power of two of values that each lane of a warp keeps of a row."""
    return 1 << max(-(-width // WARP) - 1, 0).bit_length()


def in_registers(width: int) -> bool:
    """Whether lanes keep their part of a row; an emulated device has no registers, but a cache to read it again."""
    return width <= WARP * kernels.LANE_VALUES and not driver().emulated


@kernel("cuda")
def layer_norm(out, x, weight, bias, *, dims, eps):
    y, mean, rstd = out
    if weight is not None and weight.ndim > dims:  # a number for each plane
        layer_norm(out, x, None, None, dims=dims, eps=eps)
        return pointwise("addcmul", y, 0 if bias is None else bias, y, weight, value=1)
    x = as_rows(x, dims)
    count, width = x.shape
    weight, bias = parameter(weight, 1, width, x), parameter(bias, 0, width, x)
    arguments = x, weight, bias, eps, y.reshape(x.shape), mean.reshape((count,)), rstd.reshape((count,))
    if in_registers(width):
        launch(kernels.warp_rows(values_per_lane(width)), -(-count // WARPS), THREADS, *arguments)
    elif width * x.itemsize <= SHARED_BYTES and not driver().emulated:
        launch(kernels.cached_rows, count, THREADS, *arguments, shared=width * x.itemsize)
    else:
        launch(kernels.long_rows, count, threads_for(width), *arguments)


@kernel("cuda")
def layer_norm_grad(out, dy, x, weight, mean, rstd, *, dims):
    dx, dweight, dbias = out
    last = dims if weight is None else weight.ndim  # dims that have parameters of their own
    arrays = [as_rows(a, last) for a in (dy, x)]
    if last > dims:  # a number for each plane
        product = empty(dy.shape, dy.dtype, dy.device_index)
        pointwise("mul", product, dy, weight)
        dy, weight = product, None
    dy, x = as_rows(dy, dims), as_rows(x, dims)
    count, width = x.shape
    mean, rstd = contiguous(mean).reshape((count,)), contiguous(rstd).reshape((count,))
    arguments = dy, x, parameter(weight, 1, width, x), mean, rstd, dx.reshape(x.shape)
    if in_registers(width):
        launch(kernels.warp_rows_grad(values_per_lane(width)), -(-count // WARPS), THREADS, *arguments)
    else:
        launch(kernels.long_rows_grad, count, threads_for(width), *arguments)
    parameter_gradients(dweight, dbias, *arrays, mean, rstd)


def parameter_gradients(dweight, dbias, dy, x, mean, rstd) -> None:
    """The sums of dy xhat and of dy over the rows and over planes: first over parts of the rows, then over the rest."""
    (count, width), length = x.shape, x.shape[1] // max(dweight.size, 1)
    chunk = max(PART_ROWS, -(-count // PARTS))
    parts = max(1, -(-count // chunk))
    products, sums = dweight.reshape((1, -1)), dbias.reshape((1, -1))
    if parts > 1 or length != 1:
        products, sums = (empty((parts, width), x.dtype, x.device_index) for _ in range(2))
    threads = min(THREADS, -(-width // WARP) * WARP)
    grid = (-(-width // max(threads, 1)), parts)
    launch(kernels.parameter_grad_parts, grid, threads, dy, x, mean, rstd, chunk, products, sums)
    if parts > 1 or length != 1:
        for y, result in ((dweight, products), (dbias, sums)):
            total(y, result.reshape((parts, y.size, length)), (0, 2) if length != 1 else 0)
