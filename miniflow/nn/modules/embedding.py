"""A table of vectors."""

from __future__ import annotations

from typing import Any

from miniflow.errors import ArgumentError, IndexRangeError, ShapeError
from miniflow.nn import init
from miniflow.nn.modules.layer import Layer
from miniflow.nn.parameter import Parameter
from miniflow.ops.embedding import embedding
from miniflow.tape import no_grad
from miniflow.tensor import Tensor


class Embedding(
    Layer, num_embeddings=..., embedding_dim=..., padding_idx=None, max_norm=None, norm_type=2.0,
    scale_grad_by_freq=False, sparse=False, device=None, dtype=None,
):  # fmt: skip
    """A learnable lookup table: row i for every index i.

    Args:
        num_embeddings: the number of rows.
        embedding_dim: the length of a row.
        padding_idx: a row that is initialized to zero and not updated; counted from the end if negative.
        max_norm, norm_type, scale_grad_by_freq: of PyTorch; only their defaults are accepted.
        sparse: accepted as in PyTorch; gradients are dense, and optimizers in nn.Graph update only the rows used.
        device, dtype: of the table.

    Attributes:
        weight: (num_embeddings, embedding_dim), drawn from the standard normal distribution.

    Shapes: integers (*) -> (*, embedding_dim).

    Raises:
        ArgumentError: for a `max_norm`, or `scale_grad_by_freq`.
        IndexRangeError: for a padding_idx, or an index in the input, that is not a row.

    >>> import miniflow as flow
    >>> flow.nn.Embedding(10, 3)(flow.tensor([[1, 2], [4, 9]])).shape
    miniflow.Size([2, 2, 3])

    Source: `torch.nn.Embedding`.
    """

    def set_up(self, bias: bool, place: dict[str, Any]) -> None:
        rows = self.num_embeddings
        if self.max_norm is not None or self.scale_grad_by_freq:
            raise ArgumentError("Embedding: got max_norm or scale_grad_by_freq=True; expected None and False")
        if self.padding_idx is not None:
            if not -rows <= self.padding_idx < rows:
                raise IndexRangeError(f"Embedding: got padding_idx={self.padding_idx}; expected {-rows} to {rows - 1}")
            self.padding_idx %= rows
        self.add_parameters(place, weight=(rows, self.embedding_dim))

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None) -> Embedding:
        """A layer around a pretrained table, whose memory is shared.

        Args:
            embeddings: (num_embeddings, embedding_dim).
            freeze: whether the table is excluded from training.
            padding_idx: as above, but the row is not set to zero.

        Raises:
            ShapeError: unless `embeddings` has two dims.
        """
        if embeddings.ndim != 2:
            raise ShapeError(f"Embedding.from_pretrained: got shape {tuple(embeddings.shape)}; expected two dims")
        layer = cls(*embeddings.shape, padding_idx=padding_idx)
        layer.weight = Parameter(embeddings, requires_grad=not freeze)
        return layer

    def reset_parameters(self) -> None:
        """Initialize the table again, at random."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].zero_()

    def forward(self, input: Tensor) -> Tensor:
        return embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"
