"""Blocks that families of networks share, with torchvision's state-dict keys, or timm's where only timm has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from miniflow import nn
from miniflow.errors import ArgumentError, ShapeError, refusal
from miniflow.nn import functional as F
from miniflow.ops.creation import full
from miniflow.tensor import Tensor

Factory: TypeAlias = Callable[..., nn.Module]
"""What makes a module: a class, or a partial of one."""


def make_divisible(v: float, divisor: int = 8, min_value: int | None = None, round_limit: float = 0.9) -> int:
    """The multiple of `divisor` nearest to `v`, at least `min_value` (or the divisor) and `round_limit` times `v`.

    >>> make_divisible(20), make_divisible(11), make_divisible(3, 4)
    (24, 16, 4)

    Source: Sandler et al., "MobileNetV2", 2018 (its code); `timm.layers.make_divisible`.
    """
    nearest = max(min_value or divisor, int(v + divisor / 2) // divisor * divisor)
    return nearest + divisor if nearest < round_limit * v else nearest


def pair(x: int | Sequence[int]) -> tuple[int, int]:
    """(x, x) for a number; two numbers as a tuple."""
    return (x, x) if isinstance(x, int) else tuple(x)


class Conv2dNormActivation(nn.Sequential):
    """A convolution, a normalization and an activation, as the children 0, 1 and 2.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, groups, dilation: of the convolution; without a padding
            it is the one that keeps the size of images at stride 1, (kernel_size - 1) // 2 * dilation.
        norm_layer: what makes the normalization from the number of channels; None: no normalization.
        activation_layer: what makes the activation; None: no activation.
        inplace: an option of the activation; None: it has no such option.
        bias: whether the convolution has one; by default where no normalization follows.

    >>> import miniflow as flow
    >>> Conv2dNormActivation(3, 8, stride=2)(flow.zeros(1, 3, 32, 32)).shape
    miniflow.Size([1, 8, 16, 16])

    Source: `torchvision.ops.Conv2dNormActivation`.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int | tuple[int, int] = 3,
        stride: int | tuple[int, int] = 1, padding: int | tuple[int, int] | str | None = None, groups: int = 1,
        norm_layer: Factory | None = nn.BatchNorm2d, activation_layer: Factory | None = nn.ReLU,
        dilation: int | tuple[int, int] = 1, inplace: bool | None = True, bias: bool | None = None,
    ):  # fmt: skip
        if padding is None:
            padding = tuple((k - 1) // 2 * d for k, d in zip(pair(kernel_size), pair(dilation), strict=True))
        if bias is None:
            bias = norm_layer is None
        options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "bias": bias}
        layers: list[nn.Module] = [nn.Conv2d(in_channels, out_channels, kernel_size, **options)]
        if norm_layer is not None:
            layers.append(norm_layer(out_channels))
        if activation_layer is not None:
            layers.append(activation_layer() if inplace is None else activation_layer(inplace=inplace))
        super().__init__(*layers)
        self.out_channels = out_channels


class ConvBnAct(nn.Sequential):
    """Convolution, normalization and activation, named `conv`, `bn` and `act` as in timm and flowvision.

    Args:
        in_channels, out_channels, kernel_size, stride, dilation: of the convolution.
        padding: None for the border that keeps the size at stride 1; "same" for TensorFlow's (`Conv2dSame`).
        norm_layer, act_layer: make the other two; None for none.
        bias, options: of the convolution.

    Shapes: (N, in_channels, H, W) -> (N, out_channels, H', W').

    >>> list(ConvBnAct(3, 8, 3, act_layer=None).state_dict())[:2]
    ['conv.weight', 'bn.weight']

    Source: `timm.layers.ConvNormAct`, `flowvision.layers.ConvBnAct`.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int = 1, stride: int = 1, dilation: int = 1,
        padding: int | str | None = None, norm_layer: Factory | None = nn.BatchNorm2d,
        act_layer: Factory | None = nn.ReLU, bias: bool = False, **options: Any,
    ):  # fmt: skip
        super().__init__()
        if padding is None:
            padding = (stride - 1 + dilation * (kernel_size - 1)) // 2
        conv, padding = (Conv2dSame, 0) if padding == "same" else (nn.Conv2d, padding)
        self.conv = conv(in_channels, out_channels, kernel_size, stride, padding, dilation, bias=bias, **options)
        if norm_layer:
            self.bn = norm_layer(out_channels)
        if act_layer:
            self.act = act_layer()


class Conv2dSame(nn.Conv2d):
    """Convolution of which the output has ceil(H / stride) rows: TensorFlow's padding "SAME", which may be uneven.

    (ceil(H / s) - 1) s + (k - 1) d + 1 - H rows of zeros are added, the smaller half of them above; columns alike.
    The arguments are those of Conv2d; `padding` and `padding_mode` are not looked at.

    >>> import miniflow as flow
    >>> Conv2dSame(3, 8, kernel_size=3, stride=2)(flow.zeros(1, 3, 8, 9)).shape
    miniflow.Size([1, 8, 4, 5])

    Source: `timm.layers.Conv2dSame`; Tan and Le, "EfficientNet", 2019 (weights that were trained in TensorFlow).
    """

    def forward(self, input: Tensor) -> Tensor:
        borders = []
        for n, k, s, d in zip(input.shape[2:], self.kernel_size, self.stride, self.dilation, strict=True):
            total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
            borders = [total // 2, total - total // 2, *borders]  # the last dim first
        return F.conv2d(F.pad(input, borders), self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class FrozenBatchNorm2d(nn.Module):
    """BatchNorm with constants: y = (x - running_mean) / sqrt(running_var + eps) * weight + bias, all four buffers.

    Shapes: (N, num_features, H, W) -> the same.

    Source: `torchvision.ops.FrozenBatchNorm2d`; He et al., "Mask R-CNN", 2017 (few images fit into a batch).
    """

    def __init__(self, num_features: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, full((num_features,), value))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        state_dict.pop(f"{prefix}num_batches_tracked", None)  # of a BatchNorm2d
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self, input: Tensor) -> Tensor:
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = self.bias - self.running_mean * scale
        return input * scale.reshape(1, -1, 1, 1) + shift.reshape(1, -1, 1, 1)


class LayerNorm2d(nn.LayerNorm):
    """LayerNorm over the channels of each pixel.

    Shapes: (N, num_channels, H, W) -> the same.

    Source: Liu et al., "A ConvNet for the 2020s", 2022; `timm.layers.LayerNorm2d`, torchvision's `LayerNorm2d`.
    """

    def __init__(self, num_channels: int, eps: float = 1e-6, affine: bool = True):
        super().__init__(num_channels, eps, affine)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class PatchEmbed(nn.Module):
    """An image as a sequence of patches, each a linear function of its pixels.

    Args:
        img_size: the height and width that images must have, an int for both; None for any.
        patch_size, in_chans, embed_dim: the side of a patch, the channels of images, and what a patch becomes.
        norm_layer: applied to each patch.
        flatten: whether to return a sequence, else an image of patches.
        bias: of the linear function.

    Attributes:
        grid_size, num_patches: how many patches there are down and across, and in all; None for any img_size.

    Shapes: (N, in_chans, H, W) -> (N, H W / patch_size^2, embed_dim), else (N, embed_dim, H / p, W / p).

    Raises:
        ShapeError: for images of another size.

    >>> import miniflow as flow
    >>> PatchEmbed(32, 8, embed_dim=5)(flow.zeros(2, 3, 32, 32)).shape
    miniflow.Size([2, 16, 5])

    Source: Dosovitskiy et al., "An Image is Worth 16x16 Words", 2021; `timm.layers.PatchEmbed`.
    """

    def __init__(
        self, img_size: int | tuple[int, int] | None = 224, patch_size: int | tuple[int, int] = 16, in_chans: int = 3,
        embed_dim: int = 768, norm_layer: Factory | None = None, flatten: bool = True, bias: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.img_size, self.patch_size = (size if size is None else pair(size) for size in (img_size, patch_size))
        self.grid_size = self.num_patches = None
        if img_size is not None:
            self.grid_size = tuple(n // p for n, p in zip(self.img_size, self.patch_size, strict=True))
            self.num_patches = self.grid_size[0] * self.grid_size[1]
        self.flatten = flatten
        self.proj = nn.Conv2d(in_chans, embed_dim, self.patch_size, self.patch_size, bias=bias)
        self.norm = norm_layer(embed_dim) if norm_layer else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        if self.img_size not in (None, tuple(x.shape[2:])):
            raise refusal(ShapeError, "PatchEmbed", f"(N, {self.proj.in_channels}, *{self.img_size})", x=x)
        x = self.proj(x)
        return self.norm(x.flatten(2).transpose(1, 2) if self.flatten else x)


class Permute(nn.Module):
    """x.permute(dims) as a layer. `torchvision.ops.Permute`."""

    def __init__(self, dims: Sequence[int]):
        super().__init__()
        self.dims = tuple(dims)

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(self.dims)


class MLP(nn.Sequential):
    """Linear layers, with a normalization, an activation and dropout after each but the last, which has only dropout.

    Args:
        in_channels, hidden_channels: the features of the input, and of the output of each layer.
        norm_layer, activation_layer: make the normalization and the activation; None for no normalization.
        inplace: of the activation and of dropout; None for their default.
        bias: of the linear layers.
        dropout: the probability of dropout.

    >>> list(MLP(4, [8, 4]).state_dict())
    ['0.weight', '0.bias', '3.weight', '3.bias']

    Source: `torchvision.ops.MLP`.
    """

    def __init__(
        self, in_channels: int, hidden_channels: Sequence[int], norm_layer: Factory | None = None,
        activation_layer: Factory = nn.ReLU, inplace: bool | None = None, bias: bool = True, dropout: float = 0.0,
    ):  # fmt: skip
        options = {} if inplace is None else {"inplace": inplace}
        *inner, outputs = hidden_channels
        layers, inputs = [], in_channels
        for hidden in inner:
            layers += [nn.Linear(inputs, hidden, bias=bias), *([norm_layer(hidden)] if norm_layer else [])]
            layers += [activation_layer(**options), nn.Dropout(dropout, **options)]
            inputs = hidden
        super().__init__(*layers, nn.Linear(inputs, outputs, bias=bias), nn.Dropout(dropout, **options))


class Mlp(nn.Module):
    """Two linear layers with an activation between them: fc2(norm(act(fc1(x)))), with dropout after both.

    Args:
        in_features, hidden_features, out_features: sizes; those that are None are in_features.
        act_layer, norm_layer: make the activation and the normalization of the hidden features.
        bias: of both layers.
        drop: the probability of dropout.
        use_conv: whether the layers are 1x1 convolutions, of images (N, C, H, W); else the last dim holds features.
        gate_layer: makes, from hidden_features, what halves the hidden features (`GatedMlp`).

    Source: Vaswani et al., "Attention Is All You Need", 2017; `timm.layers.Mlp`.
    """

    halves = False

    def __init__(
        self, in_features: int, hidden_features: int | None = None, out_features: int | None = None,
        act_layer: Factory = nn.GELU, norm_layer: Factory | None = None, bias: bool = True, drop: float = 0.0,
        use_conv: bool = False, gate_layer: Factory | None = None,
    ):  # fmt: skip
        super().__init__()
        hidden = hidden_features or in_features
        inner = hidden // 2 if self.halves or gate_layer else hidden
        linear = partial(nn.Conv2d, kernel_size=1) if use_conv else nn.Linear
        self.dim = 1 if use_conv else -1
        self.fc1 = linear(in_features, hidden, bias=bias)
        self.act = act_layer()
        self.drop = nn.Dropout(drop)
        self.gate = gate_layer(hidden) if gate_layer else nn.Identity()
        self.norm = norm_layer(inner) if norm_layer else nn.Identity()
        self.fc2 = linear(inner, out_features or in_features, bias=bias)

    def activate(self, x: Tensor) -> Tensor:
        """What comes between the two layers, but for dropout and normalization."""
        return self.act(x)

    def forward(self, x: Tensor) -> Tensor:
        x = self.gate(self.drop(self.activate(self.fc1(x))))
        return self.drop(self.fc2(self.norm(x)))


class GluMlp(Mlp):
    """As `Mlp`, with a gated linear unit for the activation: one half of fc1(x) times the activation of the other.

    Source: Dauphin et al., "Language Modeling with Gated Convolutional Networks", 2017; Shazeer, "GLU Variants Improve
    Transformer", 2020; `timm.layers.GluMlp`.
    """

    halves = True

    def __init__(self, *args: Any, act_layer: Factory = nn.Sigmoid, **options: Any):
        super().__init__(*args, act_layer=act_layer, **options)

    def activate(self, x: Tensor) -> Tensor:
        value, gate = x.chunk(2, dim=self.dim)
        return value * self.act(gate)


class GatedMlp(Mlp):
    """As `Mlp`, with a gate that sees all tokens: `gate_layer(hidden_features)` halves the hidden features.

    Source: Liu et al., "Pay Attention to MLPs", 2021; `timm.layers.GatedMlp`.
    """


class ConvMlp(Mlp):
    """As `Mlp`, of 1x1 convolutions, with the normalization before the activation: fc2(drop(act(norm(fc1(x))))).

    Source: `timm.layers.ConvMlp`.
    """

    def __init__(self, *args: Any, act_layer: Factory = nn.ReLU, **options: Any):
        super().__init__(*args, act_layer=act_layer, use_conv=True, **options)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.drop(self.act(self.norm(self.fc1(x)))))


class FeaturePyramidNetwork(nn.Module):
    """Features of several resolutions, each with what the coarser ones know: P_l = conv(1x1(C_l) + upsampled(P'_l+1)).

    Args:
        in_channels_list: the channels of each feature map, from the finest to the coarsest.
        out_channels: of all feature maps that are returned.
        extra_blocks: computes further maps from (results, inputs, names), and returns results and names.
        norm_layer: comes after each convolution; without one the convolutions have biases.

    >>> import miniflow as flow
    >>> fpn = FeaturePyramidNetwork([4, 8], 5, extra_blocks=LastLevelMaxPool())
    >>> maps = fpn({"c2": flow.zeros(1, 4, 8, 8), "c3": flow.zeros(1, 8, 4, 4)})
    >>> [(name, *map.shape[1:]) for name, map in maps.items()]
    [('c2', 5, 8, 8), ('c3', 5, 4, 4), ('pool', 5, 2, 2)]

    Source: Lin et al., "Feature Pyramid Networks for Object Detection", 2017; `torchvision.ops.FeaturePyramidNetwork`.
    """

    def __init__(
        self, in_channels_list: Sequence[int], out_channels: int, extra_blocks: nn.Module | None = None,
        norm_layer: Factory | None = None,
    ):  # fmt: skip
        super().__init__()
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=None)
        self.inner_blocks = nn.ModuleList(conv(inputs, out_channels, kernel_size=1) for inputs in in_channels_list)
        self.layer_blocks = nn.ModuleList(conv(out_channels, out_channels) for _ in in_channels_list)
        self.apply(uniform_convolution)
        self.extra_blocks = extra_blocks
        self._other_names = {  # of files from before torchvision 0.14
            f"{name}.0.{kind}": f"{name}.{kind}"
            for name, module in self.named_modules() if isinstance(module, Conv2dNormActivation)
            for kind in ("weight", "bias")
        }  # fmt: skip

    def forward(self, x: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The feature maps, finest first, by the names of those in `x`, and those of the extra blocks."""
        names, inputs = list(x), list(x.values())
        if len(inputs) != len(self.inner_blocks):
            raise ArgumentError(f"FeaturePyramidNetwork: got maps {names}; expected {len(self.inner_blocks)} of them")
        inner = [block(map) for block, map in zip(self.inner_blocks, inputs, strict=True)]  # C_l, 1x1
        for level in reversed(range(len(inner) - 1)):
            inner[level] = inner[level] + F.interpolate(inner[level + 1], size=inner[level].shape[2:], mode="nearest")
        results = [block(map) for block, map in zip(self.layer_blocks, inner, strict=True)]
        if self.extra_blocks is not None:
            results, names = self.extra_blocks(results, inputs, names)
        return dict(zip(names, results, strict=True))


FPN = FeaturePyramidNetwork


def uniform_convolution(module: nn.Module) -> None:
    """Initialize a convolution as detectors do: uniform weights with the variance 1 / fan_in, no bias."""
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_uniform_(module.weight, a=1)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


class LastLevelMaxPool(nn.Module):
    """One more map of a feature pyramid: every other pixel of the coarsest. torchvision's class of this name."""

    def forward(self, x: list[Tensor], y: list[Tensor], names: list[str]) -> tuple[list[Tensor], list[str]]:
        return [*x, F.max_pool2d(x[-1], kernel_size=1, stride=2)], [*names, "pool"]


class LastLevelP6P7(nn.Module):
    """Two more maps of a feature pyramid, of convolutions with stride 2. torchvision's class of this name.

    Source: Lin et al., "Focal Loss for Dense Object Detection", 2017, section 4.
    """

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.p6 = nn.Conv2d(in_channels, out_channels, 3, 2, 1)
        self.p7 = nn.Conv2d(out_channels, out_channels, 3, 2, 1)
        self.apply(uniform_convolution)

    def forward(self, p: list[Tensor], c: list[Tensor], names: list[str]) -> tuple[list[Tensor], list[str]]:
        p6 = self.p6(p[-1] if self.p6.in_channels == self.p6.out_channels else c[-1])
        return [*p, p6, self.p7(F.relu(p6))], [*names, "p6", "p7"]
