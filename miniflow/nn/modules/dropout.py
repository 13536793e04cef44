"""Dropout."""

from __future__ import annotations

from miniflow.nn.modules.function_module import FunctionModule
from miniflow.ops.dropout import alpha_dropout, dropout, dropout1d, dropout2d, dropout3d, feature_alpha_dropout
from miniflow.tensor import Tensor


class Dropout(FunctionModule, function=dropout, p=0.5, inplace=False):
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

    limits = {"p": (0, 1)}

    def forward(self, input: Tensor) -> Tensor:
        return self.function(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout1d(Dropout, function=dropout1d):
    """`Dropout` of whole channels of inputs (N, C, L) or (C, L). `torch.nn.Dropout1d`."""


class Dropout2d(Dropout, function=dropout2d):
    """`Dropout` of whole channels of inputs (N, C, H, W) or (N, C, L). `torch.nn.Dropout2d`."""


class Dropout3d(Dropout, function=dropout3d):
    """`Dropout` of whole channels of inputs (N, C, D, H, W) or (C, D, H, W). `torch.nn.Dropout3d`."""


class AlphaDropout(Dropout, function=alpha_dropout):
    """Dropout that keeps mean 0 and variance 1, for networks of `SELU`. `torch.nn.AlphaDropout`."""


class FeatureAlphaDropout(Dropout, function=feature_alpha_dropout):
    """`AlphaDropout` of whole channels of inputs (N, C, ...). `torch.nn.FeatureAlphaDropout`."""
