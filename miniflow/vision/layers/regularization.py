"""Regularization that drops whole parts: residual branches, or blocks of a feature map."""

from __future__ import annotations

from miniflow import nn
from miniflow.errors import ArgumentError, ShapeError, refusal
from miniflow.nn import functional as F
from miniflow.ops.random import bernoulli
from miniflow.tensor import Tensor


def stochastic_depth(input: Tensor, p: float, mode: str, training: bool = True) -> Tensor:
    """Zero the output of a residual branch with probability `p`, and divide it by 1 - p otherwise.

    Args:
        input: shape (N, ...).
        p: from 0 to 1.
        mode: "batch" for all samples or none, "row" for each sample by itself.
        training: whether to do anything.

    Raises:
        ArgumentError: for another probability or mode.

    >>> import miniflow as flow
    >>> rows = stochastic_depth(flow.ones(100, 2), 0.5, "row")
    >>> bool((rows[:, 0] == rows[:, 1]).all() and ((rows == 0) | (rows == 2)).all())
    True

    Source: Huang et al., "Deep Networks with Stochastic Depth", 2016; `torchvision.ops.stochastic_depth`.
    """
    if not 0 <= p <= 1 or mode not in ("batch", "row"):
        raise ArgumentError(f'stochastic_depth: got p={p}, mode={mode!r}; expected 0 <= p <= 1 and "batch" or "row"')
    if not training or p == 0:
        return input
    size = (len(input) if mode == "row" else 1,) + (1,) * (input.ndim - 1)
    return input * F.dropout(input.new_ones(size), p)


class StochasticDepth(nn.Module):
    """`stochastic_depth` while training. `torchvision.ops.StochasticDepth`."""

    def __init__(self, p: float, mode: str):
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, input: Tensor) -> Tensor:
        return stochastic_depth(input, self.p, self.mode, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}, mode={self.mode}"


def drop_path(x: Tensor, drop_prob: float = 0.0, training: bool = False, scale_by_keep: bool = True) -> Tensor:
    """Stochastic depth of each sample by itself; without `scale_by_keep` what is left is not divided by 1 - drop_prob.

    Source: `timm.layers.drop_path`.
    """
    x = stochastic_depth(x, drop_prob, "row", training)
    return x if scale_by_keep or not training else x * (1 - drop_prob)


class DropPath(nn.Module):
    """`drop_path` while training. `timm.layers.DropPath`."""

    def __init__(self, drop_prob: float = 0.0, scale_by_keep: bool = True):
        super().__init__()
        self.drop_prob, self.scale_by_keep = drop_prob, scale_by_keep

    def forward(self, x: Tensor) -> Tensor:
        return drop_path(x, self.drop_prob, self.training, self.scale_by_keep)

    def extra_repr(self) -> str:
        return f"drop_prob={self.drop_prob:.3f}"


def drop_block2d(
    input: Tensor, p: float, block_size: int, inplace: bool = False, eps: float = 1e-6, training: bool = True
) -> Tensor:
    """Zero square blocks of a feature map, and scale the rest by the share of what is left.

    Centres of blocks are drawn with probability gamma, by which about p of all pixels are covered.

    Args:
        input: shape (N, C, H, W), H and W at least block_size (else the blocks are as large as the smaller of them).
        p: the probability of a pixel to be dropped, from 0 to 1.
        block_size: the side of a block, odd.
        inplace: whether to overwrite `input`.
        eps: added to the number of pixels that are left.
        training: whether to do anything.

    Raises:
        ShapeError: if `input` is no batch of images.
        ArgumentError: for another probability or an even block.

    Source: Ghiasi et al., "DropBlock: A regularization method for convolutional networks", 2018;
    `torchvision.ops.drop_block2d`.
    """
    if input.ndim != 4:
        raise refusal(ShapeError, "drop_block2d", "(N, C, H, W)", input=input)
    n, c, h, w = input.shape
    side = min(block_size, h, w)
    if not 0 <= p <= 1 or side % 2 == 0:
        raise ArgumentError(f"drop_block2d: got p={p}, block_size={side}; expected 0 <= p <= 1 and an odd size")
    if not training or p == 0:
        return input
    centres = (n, c, h - side + 1, w - side + 1)
    gamma = p * h * w / (side**2 * centres[2] * centres[3])
    blocks = F.pad(bernoulli(input.new_empty(centres), min(gamma, 1.0)), [side // 2] * 4)
    kept = 1 - F.max_pool2d(blocks, side, stride=1, padding=side // 2)
    scale = kept * (kept.numel() / (eps + kept.sum()))
    return input.mul_(scale) if inplace else input * scale


class DropBlock2d(nn.Module):
    """`drop_block2d` while training. `torchvision.ops.DropBlock2d`."""

    def __init__(self, p: float, block_size: int, inplace: bool = False, eps: float = 1e-6):
        super().__init__()
        self.p, self.block_size, self.inplace, self.eps = p, block_size, inplace, eps

    def forward(self, input: Tensor) -> Tensor:
        return drop_block2d(input, self.p, self.block_size, self.inplace, self.eps, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}, block_size={self.block_size}, inplace={self.inplace}"


DropBlock = DropBlock2d
