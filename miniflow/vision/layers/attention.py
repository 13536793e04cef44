"""Attention for images: modules that weigh the channels or the places of a feature map, of any shape (N, C, H, W)."""

from __future__ import annotations

import math
from functools import partial

from miniflow import nn
from miniflow.nn import functional as F
from miniflow.ops.creation import full
from miniflow.ops.joining import cat
from miniflow.tensor import Tensor
from miniflow.vision.layers.blocks import ConvBnAct, ConvMlp, Factory, LayerNorm2d, make_divisible
from miniflow.vision.layers.weight_init import init_convolutions


class SqueezeExcitation(nn.Module):
    """Squeeze and excitation: y = x * sigma(W2 delta(W1 mean(x))), a weight for each channel from the means of all.

    Args:
        input_channels, squeeze_channels: of `x`, and between W1 and W2.
        activation, scale_activation: make delta and sigma.
        bias: of W1 and W2, which are 1x1 convolutions, `fc1` and `fc2`.

    Source: Hu et al., "Squeeze-and-Excitation Networks", 2018; `torchvision.ops.SqueezeExcitation`.
    """

    def __init__(
        self, input_channels: int, squeeze_channels: int, activation: Factory = nn.ReLU,
        scale_activation: Factory = nn.Sigmoid, bias: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.fc1 = nn.Conv2d(input_channels, squeeze_channels, 1, bias=bias)
        self.fc2 = nn.Conv2d(squeeze_channels, input_channels, 1, bias=bias)
        self.activation, self.scale_activation = activation(), scale_activation()

    def forward(self, input: Tensor) -> Tensor:
        mean = input.mean((2, 3), keepdim=True)  # (N, C, 1, 1)
        return input * self.scale_activation(self.fc2(self.activation(self.fc1(mean))))


class SEModule(SqueezeExcitation):
    """`SqueezeExcitation` with the options of `timm.layers.SEModule`: rd_ratio of the channels is the inner width."""

    def __init__(
        self, channels: int, rd_ratio: float = 1 / 16, rd_channels: int | None = None, rd_divisor: int = 8,
        bias: bool = True, act_layer: Factory = nn.ReLU,
        gate_layer: Factory = nn.Sigmoid,
    ):  # fmt: skip
        squeezed = rd_channels or make_divisible(channels * rd_ratio, rd_divisor, round_limit=0.0)
        super().__init__(channels, squeezed, act_layer, gate_layer, bias)


SE = SEModule


class ECA(nn.Module):
    """Efficient channel attention: y = x * sigma(conv(mean(x))), a convolution over the channels, without a bias.

    The window is the odd number near (log2(channels) + 1) / 2, at least 3.

    Source: Wang et al., "ECA-Net", 2020; `timm.layers.EcaModule`.
    """

    def __init__(self, channels: int):
        super().__init__()
        size = int((math.log2(channels) + 1) / 2)
        size = max(size + 1 - size % 2, 3)
        self.conv = nn.Conv1d(1, 1, size, padding=size // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.conv(x.mean((2, 3)).unsqueeze(1)).sigmoid()  # (N, 1, C)
        return x * weight.transpose(1, 2).unsqueeze(-1)


class ChannelAttention(nn.Module):
    """CBAM's attention to channels: y = x * sigma(W2 relu(W1 mean(x)) + W2 relu(W1 max(x)))."""

    def __init__(self, channels: int, rd_channels: int):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, rd_channels, 1, bias=False)
        self.fc2 = nn.Conv2d(rd_channels, channels, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        mean, largest = (self.fc2(self.fc1(s((2, 3), keepdim=True)).relu()) for s in (x.mean, x.amax))
        return x * (mean + largest).sigmoid()


class SpatialAttention(nn.Module):
    """CBAM's attention to places: y = x * sigma(conv([mean, max])), both over the channels."""

    def __init__(self, kernel_size: int):
        super().__init__()
        self.conv = ConvBnAct(2, 1, kernel_size, act_layer=None)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.conv(cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], dim=1)).sigmoid()


class CBAM(nn.Sequential):
    """Convolutional block attention: to channels, with rd_ratio of them inside, and then to places.

    Source: Woo et al., "CBAM", 2018; `timm.layers.CbamModule`.
    """

    def __init__(self, channels: int, rd_ratio: float = 1 / 16, spatial_kernel_size: int = 7):
        super().__init__()
        self.channel = ChannelAttention(channels, make_divisible(channels * rd_ratio, 1, round_limit=0.0))
        self.spatial = SpatialAttention(spatial_kernel_size)


class BAM(nn.Module):
    """Bottleneck attention: y = x (1 + sigma(M_c + M_s)), of channels and of places.

    M_c = BN(W2 relu(BN(W1 mean(x)))) has the shape (N, C, 1, 1); M_s (N, 1, H, W) is a bottleneck of dilated 3x3
    convolutions.

    Args:
        channels, reduction: C, and by how much the channels inside are fewer.
        dilation: of the 3x3 convolutions.

    Source: Park et al., "BAM", 2018, equations 1 to 5.
    """

    def __init__(self, channels: int, reduction: int = 16, dilation: int = 4):
        super().__init__()
        inner = channels // reduction
        conv = partial(ConvBnAct, bias=True)
        self.channel = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), conv(channels, inner), conv(inner, channels, act_layer=None)
        )
        self.spatial = nn.Sequential(
            conv(channels, inner), conv(inner, inner, 3, dilation=dilation), conv(inner, inner, 3, dilation=dilation),
            conv(inner, 1, act_layer=None),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x * (1 + (self.channel(x) + self.spatial(x)).sigmoid())


class GCT(nn.Module):
    """Gated channel transformation: y = x (1 + tanh(gamma s / rms(s) + beta)), s = alpha |x|, the norm of a channel.

    Attributes:
        alpha, gamma, beta: (1, C, 1, 1), initialized to 1, 0 and 0: y = x.

    Source: Yang et al., "Gated Channel Transformation for Visual Recognition", 2020; `flowvision.layers.GCTModule`.
    """

    def __init__(self, channels: int, epsilon: float = 1e-5):
        super().__init__()
        self.epsilon = epsilon
        self.alpha, self.gamma, self.beta = (nn.Parameter(full((1, channels, 1, 1), v)) for v in (1.0, 0.0, 0.0))

    def forward(self, x: Tensor) -> Tensor:
        s = self.alpha * (x.square().sum((2, 3), keepdim=True) + self.epsilon).sqrt()
        rms = (s.square().mean(1, keepdim=True) + self.epsilon).sqrt()
        return x * (1 + (self.gamma * s / rms + self.beta).tanh())


class CoordAtt(nn.Module):
    """Coordinate attention: y = x * sigma(f_h) * sigma(f_w), weights for the rows and columns of each channel.

    Both come from the means over columns (N, C, H) and over rows (N, C, W), through a bottleneck that they share.

    Args:
        channels: C.
        rd_ratio, se_factor: rd_ratio * se_factor of the channels, a multiple of 8, are inside.

    Source: Hou et al., "Coordinate Attention for Efficient Mobile Network Design", 2021; `timm.layers.CoordAttn`.
    """

    def __init__(self, channels: int, rd_ratio: float = 1 / 16, se_factor: float = 2 / 3):
        super().__init__()
        inner = make_divisible(channels * rd_ratio * se_factor, round_limit=0.0)
        self.conv1, self.bn1 = nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv_h, self.conv_w = (nn.Conv2d(inner, channels, 1, bias=False) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        h, w = x.shape[2:]
        strips = cat([x.mean(3, keepdim=True), x.mean(2, keepdim=True).transpose(2, 3)], dim=2)  # (N, C, H + W, 1)
        rows, columns = F.hardswish(self.bn1(self.conv1(strips))).split([h, w], dim=2)
        return x * self.conv_w(columns.transpose(2, 3)).sigmoid() * self.conv_h(rows).sigmoid()


class GlobalContext(nn.Module):
    """Global context: y = x * sigma(f(c)) + g(c), c = sum of the pixels, weighed by a softmax over all places.

    Args:
        channels, rd_ratio: C, and which part of them is inside f and g, each a `ConvMlp`.
        fuse_add, fuse_scale: whether there are g and f.

    Source: Cao et al., "GCNet", 2019; `timm.layers.GlobalContext`.
    """

    def __init__(self, channels: int, rd_ratio: float = 1 / 8, fuse_add: bool = False, fuse_scale: bool = True):
        super().__init__()
        mlp = partial(
            ConvMlp, channels, make_divisible(channels * rd_ratio, 1, round_limit=0.0), norm_layer=LayerNorm2d
        )
        self.conv_attn = nn.Conv2d(channels, 1, 1)
        nn.init.kaiming_normal_(self.conv_attn.weight, nonlinearity="relu")
        self.mlp_add, self.mlp_scale = (mlp() if is_there else None for is_there in (fuse_add, fuse_scale))
        if fuse_add:
            nn.init.zeros_(self.mlp_add.fc2.weight)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.conv_attn(x).flatten(2).softmax(-1)  # (N, 1, H W)
        context = (x.flatten(2) @ weight.transpose(1, 2)).unsqueeze(-1)  # (N, C, 1, 1)
        if self.mlp_scale is not None:
            x = x * self.mlp_scale(context).sigmoid()
        return x if self.mlp_add is None else x + self.mlp_add(context)


class NonLocal(nn.Module):
    """A non-local block: y = x + BN(Wz softmax(theta(x)^T phi(x) / sqrt(C)) g(x)), each place from all places.

    Args:
        in_channels: C.
        use_scale: whether to divide by sqrt(C).
        rd_ratio: which part of the channels theta, phi and g have, rounded to a multiple of 8.

    Source: Wang et al., "Non-local Neural Networks", 2018; `timm.layers.NonLocalAttn`.
    """

    def __init__(self, in_channels: int, use_scale: bool = True, rd_ratio: float = 1 / 8):
        super().__init__()
        inner = make_divisible(in_channels * rd_ratio)
        self.scale = in_channels**-0.5 if use_scale else 1.0
        self.t, self.p, self.g = (nn.Conv2d(in_channels, inner, 1) for _ in range(3))
        self.z, self.norm = nn.Conv2d(inner, in_channels, 1), nn.BatchNorm2d(in_channels)
        init_convolutions(self)
        nn.init.zeros_(self.norm.weight)  # y = x at first

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (conv(x).flatten(2).transpose(1, 2) for conv in (self.t, self.p, self.g))  # (N, H W, C')
        y = F.scaled_dot_product_attention(query, key, value, scale=self.scale)
        return x + self.norm(self.z(y.transpose(1, 2).unflatten(2, x.shape[2:])))


class Attention(nn.Module):
    """Attention of several heads among tokens: softmax(Q K^T / sqrt(d)) V, of one linear layer each for the three.

    Args:
        dim, num_heads: features of a token, which the heads divide among them.
        qkv_bias: whether queries, keys and values, which one layer computes, have biases.
        attn_drop, proj_drop: dropout of the weights and of the result.

    Shapes: (N, tokens, dim) -> the same.

    Source: Vaswani et al., "Attention Is All You Need", 2017; `timm.layers.Attention`.
    """

    def __init__(
        self, dim: int, num_heads: int = 8, qkv_bias: bool = False, attn_drop: float = 0.0, proj_drop: float = 0.0
    ):
        super().__init__()
        self.num_heads, self.attn_drop = num_heads, attn_drop
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.proj, self.proj_drop = nn.Linear(dim, dim), nn.Dropout(proj_drop)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(2, (self.num_heads, -1)).transpose(1, 2)  # (N, heads, tokens, dim / heads)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        dropout = self.attn_drop if self.training else 0.0
        y = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        return self.proj_drop(self.proj(y.transpose(1, 2).flatten(2)))


class SRAttention(nn.Module):
    """Attention with spatial reduction: keys and values come from an image that is sr_ratio times smaller.

    Args:
        dim, num_heads: features of a token, which the heads divide among them.
        sr_ratio: the stride of the convolution that makes the image smaller; 1 for usual attention.
        qkv_bias: whether queries, keys and values have biases.
        attn_drop, proj_drop: dropout of the weights and of the result.

    Source: Wang et al., "Pyramid Vision Transformer", 2021; `flowvision.layers.SR_Attention`, timm's `pvt_v2`.
    """

    def __init__(
        self, dim: int, num_heads: int = 8, sr_ratio: int = 1, qkv_bias: bool = True, attn_drop: float = 0.0,
        proj_drop: float = 0.0,
    ):  # fmt: skip
        super().__init__()
        self.num_heads, self.attn_drop = num_heads, attn_drop
        self.q, self.kv = nn.Linear(dim, dim, bias=qkv_bias), nn.Linear(dim, 2 * dim, bias=qkv_bias)
        self.proj, self.proj_drop = nn.Linear(dim, dim), nn.Dropout(proj_drop)
        self.sr = nn.Conv2d(dim, dim, sr_ratio, sr_ratio) if sr_ratio > 1 else None
        self.norm = nn.LayerNorm(dim) if sr_ratio > 1 else None

    def forward(self, x: Tensor, feat_size: tuple[int, int]) -> Tensor:
        """Tokens (N, H W, dim) of tokens in the same shape; feat_size is (H, W)."""
        tokens = x
        if self.sr is not None:
            tokens = self.norm(self.sr(x.transpose(1, 2).unflatten(2, feat_size)).flatten(2).transpose(1, 2))
        query, key, value = (
            part.unflatten(2, (self.num_heads, -1)).transpose(1, 2)  # (N, heads, tokens, dim / heads)
            for part in (self.q(x), *self.kv(tokens).chunk(2, dim=-1))
        )
        dropout = self.attn_drop if self.training else 0.0
        y = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        return self.proj_drop(self.proj(y.transpose(1, 2).flatten(2)))
