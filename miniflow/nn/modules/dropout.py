"""Dropout."""

from __future__ import annotations

from miniflow.nn import functional as F
from miniflow.nn.arguments import check_range
from miniflow.nn.modules.layer import FunctionModule
from miniflow.tensor import Tensor


class Dropout(FunctionModule):
    """In training, every element becomes 0 with probability p, and the others are divided by 1 - p.

    Args:
        p: from 0 to 1.
        inplace: write the result into the memory of the input.

    Raises:
        ArgumentError: if p is not a probability.

    >>> import miniflow as flow
    >>> flow.nn.Dropout(0.5).eval()(flow.ones(3)).tolist()
    [1.0, 1.0, 1.0]

    Source: `torch.nn.Dropout`; Hinton et al. 2012.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        check_range(self, (0, 1), p=p)
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout1d(Dropout):
    """`Dropout` of whole channels of inputs (N, C, L) or (C, L). `torch.nn.Dropout1d`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(Dropout):
    """`Dropout` of whole channels of inputs (N, C, H, W) or (N, C, L). `torch.nn.Dropout2d`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(Dropout):
    """`Dropout` of whole channels of inputs (N, C, D, H, W) or (C, D, H, W). `torch.nn.Dropout3d`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(Dropout):
    """Dropout that keeps mean 0 and variance 1, for networks of `SELU`. `torch.nn.AlphaDropout`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training, self.inplace)


class FeatureAlphaDropout(Dropout):
    """`AlphaDropout` of whole channels of inputs (N, C, ...). `torch.nn.FeatureAlphaDropout`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training, self.inplace)
