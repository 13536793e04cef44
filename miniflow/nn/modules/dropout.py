"""Dropout."""

from __future__ import annotations

from miniflow.errors import ArgumentError
from miniflow.nn.modules.module import Module
from miniflow.ops.dropout import dropout
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

    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        if not 0 <= p <= 1:
            raise ArgumentError(f"Dropout: got p={p}; expected a probability from 0 to 1")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"
