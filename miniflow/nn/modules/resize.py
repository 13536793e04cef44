"""Images and sequences in other sizes, and windows as columns."""

from __future__ import annotations

from collections.abc import Sequence

from miniflow.errors import ArgumentError, refusal
from miniflow.nn import functional as F
from miniflow.nn.modules.layer import FunctionModule
from miniflow.ops.vision import shuffle_pixels
from miniflow.tensor import Tensor

Size = int | Sequence[int]
Factor = float | Sequence[float]


class Upsample(FunctionModule):
    """The input in another size; the options are those of `nn.functional.interpolate`. `torch.nn.Upsample`."""

    def __init__(
        self, size: Size | None = None, scale_factor: Factor | None = None, mode: str = "nearest",
        align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    ):  # fmt: skip
        super().__init__()
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners, self.recompute_scale_factor = align_corners, recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        options = self.mode, self.align_corners, self.recompute_scale_factor
        return F.interpolate(input, self.size, self.scale_factor, *options)


class UpsamplingNearest2d(FunctionModule):
    """Images in another size by the nearest neighbour. `torch.nn.UpsamplingNearest2d`."""

    def __init__(self, size: Size | None = None, scale_factor: Factor | None = None):
        super().__init__()
        self.size, self.scale_factor = size, scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(input, self.size, self.scale_factor, "nearest")


class UpsamplingBilinear2d(UpsamplingNearest2d):
    """Images in another size by bilinear interpolation; the corners stay. `torch.nn.UpsamplingBilinear2d`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(input, self.size, self.scale_factor, "bilinear", True)


class Unfold(FunctionModule):
    """The windows of images as columns: (N, C, H, W) -> (N, C * KH * KW, L). `torch.nn.Unfold`."""

    def __init__(self, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1):
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(Unfold):
    """Columns added to where their windows lie on images, the adjoint of `Unfold`. `torch.nn.Fold`."""

    def __init__(self, output_size: Size, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1):
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)


class PixelShuffle(FunctionModule):
    """Channels become pixels: (*, C r^2, H, W) -> (*, C, H r, W r). `torch.nn.PixelShuffle`.

    In place of one factor there may be one for the height and one for the width: `oneflow.nn.PixelShuffle`.
    """

    def __init__(
        self,
        upscale_factor: int | None = None,
        h_upscale_factor: int | None = None,
        w_upscale_factor: int | None = None,
    ):
        super().__init__()
        options = {"h_upscale_factor": h_upscale_factor, "w_upscale_factor": w_upscale_factor}
        if [value is not None for value in options.values()] != [upscale_factor is None] * 2:
            options = {"upscale_factor": upscale_factor, **options}
            raise refusal(ArgumentError, "PixelShuffle", "upscale_factor, or h_ and w_upscale_factor", **options)
        self.upscale_factor = tuple(options.values()) if upscale_factor is None else upscale_factor
        self.h_upscale_factor, self.w_upscale_factor = h_upscale_factor, w_upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        factor = self.upscale_factor
        return shuffle_pixels(input, *factor) if isinstance(factor, tuple) else F.pixel_shuffle(input, factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor!r}"


class PixelUnshuffle(FunctionModule):
    """Pixels become channels: (*, C, H r, W r) -> (*, C r^2, H, W). `torch.nn.PixelUnshuffle`."""

    def __init__(self, downscale_factor: int):
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)


class ChannelShuffle(FunctionModule):
    """Channels of several groups take turns. `torch.nn.ChannelShuffle`."""

    def __init__(self, groups: int):
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)
