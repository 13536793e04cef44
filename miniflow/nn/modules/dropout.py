"""Dropout."""

from __future__ import annotations

from miniflow.errors import ArgumentError
from miniflow.nn.modules.module import Module
from miniflow.ops.dropout import alpha_dropout, dropout, dropout1d, dropout2d, dropout3d, feature_alpha_dropout
from miniflow.tensor import Tensor


class Dropout(Module):
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

    function = staticmethod(dropout)

    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        if not 0 <= p <= 1:
            raise ArgumentError(f"{self._get_name()}: got p={p}; expected a probability from 0 to 1")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return self.function(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout1d(Dropout):
    """`Dropout` of whole channels of inputs (N, C, L) or (C, L). `torch.nn.Dropout1d`."""

    function = staticmethod(dropout1d)


class Dropout2d(Dropout):
    """`Dropout` of whole channels of inputs (N, C, H, W) or (N, C, L). `torch.nn.Dropout2d`."""

    function = staticmethod(dropout2d)


class Dropout3d(Dropout):
    """`Dropout` of whole channels of inputs (N, C, D, H, W) or (C, D, H, W). `torch.nn.Dropout3d`."""

    function = staticmethod(dropout3d)


class AlphaDropout(Dropout):
    """Dropout that keeps mean 0 and variance 1, for networks of `SELU`. `torch.nn.AlphaDropout`."""

    function = staticmethod(alpha_dropout)


class FeatureAlphaDropout(Dropout):
    """`AlphaDropout` of whole channels of inputs (N, C, ...). `torch.nn.FeatureAlphaDropout`."""

    function = staticmethod(feature_alpha_dropout)
