"""Products of matrices, convolutions, transposed ones, and windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import miniflow as flow
import miniflow.nn.functional as F
from miniflow.errors import OnnxError
from miniflow.onnx.loader.registry import Ints, operator
from miniflow.tensor import Tensor

CONVOLUTIONS = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
TRANSPOSED = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}
operator("MatMul")(flow.matmul)


@operator("Gemm")
def gemm(a, b, c=None, *, alpha: float, beta: float, transA: int = 0, transB: int = 0) -> Tensor:
    a = a.t() if transA else a
    if transB and alpha == beta == 1 and (c is None or c.shape == b.shape[:1]):
        return F.linear(a, b, c)
    y = flow.matmul(a, b.t() if transB else b)
    y = y if alpha == 1 else y * alpha
    return y if c is None else y + (c if beta == 1 else c * beta)


@dataclass
class Windows:
    """Windows that move over the last dims; each field has one entry for a dim.

    Attributes:
        size: of the input.
        kernel, strides, dilations: of the windows.
        before, after: the widths of the border.
    """

    size: list[int]
    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[int]
    after: list[int]

    @property
    def extent(self) -> list[int]:
        """How far a window reaches."""
        return [d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    def padded(self, x: Tensor, value: float = 0.0) -> Tensor:
        """The input with the border around it."""
        widths = [n for pair in zip(self.before[::-1], self.after[::-1], strict=True) for n in pair]
        return F.pad(x, widths, value=value) if any(widths) else x


def windows(
    x: Tensor, kernel_shape: Ints, strides: Ints = None, dilations: Ints = None, pads: Ints = None,
    auto_pad: str = "NOTSET",
) -> Windows:  # fmt: skip
    """The windows of a convolution or a pool, from its attributes.

    Raises:
        OnnxError: for numbers of dims that do not fit.
    """
    size, dims = list(x.shape[2:]), x.ndim - 2
    strides, dilations, pads = strides or [1] * dims, dilations or [1] * dims, pads or [0] * (2 * dims)
    if not 1 <= dims <= 3 or {len(kernel_shape), len(strides), len(dilations), len(pads) // 2} != {dims}:
        raise OnnxError(f"got x {tuple(x.shape)}, kernel {tuple(kernel_shape)}, strides {strides}, pads {pads}; "
                        "expected (N, C, L), (N, C, H, W) or (N, C, D, H, W), and one entry a dim")  # fmt: skip
    result = Windows(size, list(kernel_shape), strides, dilations, pads[:dims], pads[dims:])
    if auto_pad != "NOTSET":
        along = zip(size, strides, result.extent, strict=True)
        total = [max((-(-n // s) - 1) * s + extent - n, 0) for n, s, extent in along]
        result.before, result.after = halves([0] * dims if auto_pad == "VALID" else total, auto_pad)
    return result


def halves(total: list[int], auto_pad: str) -> tuple[list[int], list[int]]:
    """Borders of a total width; an odd one goes to the end, or to the beginning for SAME_LOWER."""
    less, more = [n // 2 for n in total], [n - n // 2 for n in total]
    return (more, less) if auto_pad == "SAME_LOWER" else (less, more)


@operator("Conv")
def conv(x, w, b=None, *, group: int = 1, kernel_shape: Ints = None, **window: Any) -> Tensor:
    v = windows(x, w.shape[2:], **window)
    x, border = (x, v.before) if v.before == v.after else (v.padded(x), 0)
    return CONVOLUTIONS[x.ndim](x, w, b, v.strides, border, v.dilations, group)


def channels(x: Any, ndim: int) -> Any:
    """One value for each channel of `ndim` dims, or one for all."""
    return x.reshape([-1] + [1] * (ndim - 1)) if x is not None and x.ndim else x


@operator("ConvTranspose")
def conv_transpose(
    x, w, b=None, *, auto_pad: str, group: int = 1, kernel_shape: Ints = None, output_padding: Ints = None,
    output_shape: Ints = None, **window: Any,
) -> Tensor:  # fmt: skip
    """The transposed convolution of all elements that the windows reach, with the border cut off."""
    v = windows(x, w.shape[2:], **window)
    more = output_padding or [0] * len(v.size)
    if auto_pad.startswith("SAME") and not output_shape:
        output_shape = [n * s for n, s in zip(v.size, v.strides, strict=True)]
    if output_shape:
        reached = [(n - 1) * s + extent for n, s, extent in zip(v.size, v.strides, v.extent, strict=True)]
        total = [n + m - size for n, m, size in zip(reached, more, output_shape[-len(more) :], strict=True)]
        v.before, _ = halves([max(n, 0) for n in total], auto_pad if auto_pad == "SAME_UPPER" else "SAME_LOWER")
        v.after = [n - before for n, before in zip(total, v.before, strict=True)]
    if v.before == v.after and min(v.before) >= 0:
        return TRANSPOSED[x.ndim](x, w, b, v.strides, v.before, more, group, v.dilations)
    y = TRANSPOSED[x.ndim](x, w, None, v.strides, 0, 0, group, v.dilations)
    v.before, v.after = [-n for n in v.before], [m - n for n, m in zip(v.after, more, strict=True)]
    return v.padded(y) if b is None else v.padded(y) + channels(b, y.ndim - 1)


@operator("Col2Im")
def col2im(input, image_shape: Ints, block_shape: Ints, *, dilations=(1, 1), pads=(0,) * 4, strides=(1, 1)) -> Tensor:
    if len(image_shape) != 2:
        raise OnnxError(f"got images of shape {image_shape}; expected two dims")
    (height, width), (top, left, bottom, right) = image_shape, pads
    y = F.fold(input, (height + top + bottom, width + left + right), block_shape, dilations, 0, strides)
    return F.pad(y, (-left, -right, -top, -bottom))
