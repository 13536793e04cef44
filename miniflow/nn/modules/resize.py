"""Images and sequences in other sizes, and windows as columns."""

from __future__ import annotations

from miniflow.errors import ArgumentError, refusal
from miniflow.nn.modules.function_module import FunctionModule
from miniflow.ops.fold import channel_shuffle, fold, pixel_shuffle, pixel_unshuffle, shuffle_pixels, unfold
from miniflow.ops.interpolate import interpolate


class Upsample(
    FunctionModule,
    function=interpolate, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None,
):  # fmt: skip
    """The input in another size; the options are those of `nn.functional.interpolate`. `torch.nn.Upsample`."""


class UpsamplingNearest2d(FunctionModule, function=interpolate, size=None, scale_factor=None):
    """Images in another size by the nearest neighbour. `torch.nn.UpsamplingNearest2d`."""


class UpsamplingBilinear2d(FunctionModule, function=interpolate, size=None, scale_factor=None):
    """Images in another size by bilinear interpolation; the corners stay. `torch.nn.UpsamplingBilinear2d`."""

    def forward(self, input):
        return interpolate(input, self.size, self.scale_factor, "bilinear", True)


class Unfold(FunctionModule, function=unfold, kernel_size=..., dilation=1, padding=0, stride=1):
    """The windows of images as columns: (N, C, H, W) -> (N, C * KH * KW, L). `torch.nn.Unfold`."""


class Fold(FunctionModule, function=fold, output_size=..., kernel_size=..., dilation=1, padding=0, stride=1):
    """Columns added to where their windows lie on images, the adjoint of `Unfold`. `torch.nn.Fold`."""


class PixelShuffle(
    FunctionModule, function=pixel_shuffle, upscale_factor=None, h_upscale_factor=None, w_upscale_factor=None
):
    """Channels become pixels: (*, C r^2, H, W) -> (*, C, H r, W r). `torch.nn.PixelShuffle`.

    In place of one factor there may be one for the height and one for the width: `oneflow.nn.PixelShuffle`.
    """

    shown = ("upscale_factor",)

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        if self.upscale_factor is None:
            self.upscale_factor = self.h_upscale_factor, self.w_upscale_factor

    def check_options(self, options):
        factor, *pair = options.values()
        if (factor is None) is (None in pair):
            raise refusal(ArgumentError, "PixelShuffle", "upscale_factor, or h_ and w_upscale_factor", **options)

    def forward(self, input):
        factor = self.upscale_factor
        return shuffle_pixels(input, *factor) if isinstance(factor, tuple) else pixel_shuffle(input, factor)


class PixelUnshuffle(FunctionModule, function=pixel_unshuffle, downscale_factor=...):
    """Pixels become channels: (*, C, H r, W r) -> (*, C r^2, H, W). `torch.nn.PixelUnshuffle`."""


class ChannelShuffle(FunctionModule, function=channel_shuffle, groups=...):
    """Channels of several groups take turns. `torch.nn.ChannelShuffle`."""
