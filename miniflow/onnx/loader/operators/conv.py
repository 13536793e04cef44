"""Convolutions, transposed ones, and windows."""

from __future__ import annotations

from dataclasses import dataclass

import miniflow.nn.functional as F
from miniflow.errors import OnnxError
from miniflow.onnx.loader.operators.quantize import centred, quantized
from miniflow.onnx.loader.registry import Buffer, Ints, Value, operator
from miniflow.tensor import Tensor

CONVOLUTIONS = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
TRANSPOSED = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}


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


def windows(x: Tensor, kernel: Ints, strides: Ints, dilations: Ints, pads: Ints, auto_pad: str) -> Windows:
    """The windows of a convolution or a pool, with the border that `auto_pad` asks for.

    Raises:
        OnnxError: for numbers of dims that do not fit.
    """
    size, dims = list(x.shape[2:]), x.ndim - 2
    strides, dilations, pads = strides or [1] * dims, dilations or [1] * dims, pads or [0] * (2 * dims)
    if not 1 <= dims <= 3 or {len(kernel), len(strides), len(dilations), len(pads) // 2} != {dims}:
        raise OnnxError(f"got x {tuple(x.shape)}, kernel {tuple(kernel)}, strides {strides}, pads {pads}; "
                        "expected (N, C, L), (N, C, H, W) or (N, C, D, H, W), and one entry a dim")  # fmt: skip
    found = Windows(size, list(kernel), strides, dilations, pads[:dims], pads[dims:])
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        along = zip(size, strides, found.extent, strict=True)
        total = [max((-(-n // s) - 1) * s + extent - n, 0) for n, s, extent in along]
        found.before, found.after = halves(total, auto_pad)
    elif auto_pad == "VALID":
        found.before = found.after = [0] * dims
    return found


def halves(total: list[int], auto_pad: str) -> tuple[list[int], list[int]]:
    """Borders of a total width; an odd one goes to the end, or to the beginning for SAME_LOWER."""
    less, more = [n // 2 for n in total], [n - n // 2 for n in total]
    return (more, less) if auto_pad == "SAME_LOWER" else (less, more)


@operator("Conv")
def conv(
    x, w, b=None, *, auto_pad: str = "NOTSET", dilations: Ints = None, group: int = 1, kernel_shape: Ints = None,
    pads: Ints = None, strides: Ints = None,
) -> Tensor:  # fmt: skip
    v = windows(x, w.shape[2:], strides, dilations, pads, auto_pad)
    x, border = (x, v.before) if v.before == v.after else (v.padded(x), 0)
    return CONVOLUTIONS[x.ndim](x, w, b, v.strides, border, v.dilations, group)


@operator("ConvInteger")
def conv_integer(
    x, w, x_zero_point: Value = None, w_zero_point: Value = None, *, auto_pad: str = "NOTSET", dilations: Ints = None,
    group: int = 1, kernel_shape: Ints = None, pads: Ints = None, strides: Ints = None,
) -> Tensor:  # fmt: skip
    """The border is of zero points."""
    x, w = centred(x, x_zero_point), centred(w, channels(w_zero_point, w.ndim))
    y = conv(x, w, auto_pad=auto_pad, dilations=dilations, group=group, pads=pads, strides=strides)
    return y.round().int()


@operator("QLinearConv")
def q_linear_conv(
    x, x_scale: Buffer, x_zero_point: Value, w, w_scale: Buffer, w_zero_point: Value,
    y_scale: Buffer, y_zero_point: Value, b=None, *, auto_pad: str = "NOTSET", dilations: Ints = None,
    group: int = 1, kernel_shape: Ints = None, pads: Ints = None, strides: Ints = None,
) -> Value:  # fmt: skip
    x, w = centred(x, x_zero_point), centred(w, channels(w_zero_point, w.ndim))
    b = None if b is None else b.double()
    y = conv(x, w, b, auto_pad=auto_pad, dilations=dilations, group=group, pads=pads, strides=strides)
    return quantized(y * (x_scale * channels(w_scale, w.ndim - 1) / y_scale), y_zero_point)


def channels(x: Value | None, ndim: int) -> Value | None:
    """One value for each channel of `ndim` dims, or one for all."""
    return x.reshape([-1] + [1] * (ndim - 1)) if x is not None and x.ndim else x


@operator("ConvTranspose")
def conv_transpose(
    x, w, b=None, *, auto_pad: str = "NOTSET", dilations: Ints = None, group: int = 1, kernel_shape: Ints = None,
    output_padding: Ints = None, output_shape: Ints = None, pads: Ints = None, strides: Ints = None,
) -> Tensor:  # fmt: skip
    """Of all that the windows reach, the border is cut off."""
    v = windows(x, w.shape[2:], strides, dilations, pads, "NOTSET")
    more = output_padding or [0] * len(v.size)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER") and not output_shape:
        output_shape = [n * s for n, s in zip(v.size, v.strides, strict=True)]
    if output_shape:
        along = zip(v.size, v.strides, v.extent, more, strict=True)
        reached = [(n - 1) * s + extent + m for n, s, extent, m in along]
        total = [n - wanted for n, wanted in zip(reached, output_shape[-len(reached) :], strict=True)]
        v.before, _ = halves([max(n, 0) for n in total], auto_pad if auto_pad == "SAME_UPPER" else "SAME_LOWER")
        v.after = [n - before for n, before in zip(total, v.before, strict=True)]
    if v.before == v.after and min(v.before) >= 0:
        return TRANSPOSED[x.ndim](x, w, b, v.strides, v.before, more, group, v.dilations)
    y = TRANSPOSED[x.ndim](x, w, None, v.strides, 0, 0, group, v.dilations)
    v.before, v.after = [-n for n in v.before], [m - n for n, m in zip(v.after, more, strict=True)]
    y = v.padded(y)
    return y if b is None else y + channels(b, y.ndim - 1)


@operator("Col2Im")
def col2im(
    input, image_shape: Ints, block_shape: Ints, *, dilations: Ints = None, pads: Ints = None, strides: Ints = None
) -> Tensor:
    if len(image_shape) != 2:
        raise OnnxError(f"got images of shape {image_shape}; expected two dims")
    top, left, bottom, right = pads or [0] * 4
    padded = image_shape[0] + top + bottom, image_shape[1] + left + right
    y = F.fold(input, padded, tuple(block_shape), tuple(dilations or (1, 1)), 0, tuple(strides or (1, 1)))
    return F.pad(y, (-left, -right, -top, -bottom))
