"""A table of vectors."""

from __future__ import annotations

from typing import Any, TypeVar

from miniflow.dispatch.tape import no_grad
from miniflow.errors import ArgumentError, IndexRangeError, ShapeError
from miniflow.nn import functional as F
from miniflow.nn import init
from miniflow.nn.arguments import check_choice
from miniflow.nn.modules.layer import Layer
from miniflow.nn.parameter import Parameter
from miniflow.tensor import Tensor

Table = TypeVar("Table", bound="Embedding")


class Embedding(Layer):
    """A learnable lookup table: row i for every index i.

    Args:
        num_embeddings: the number of rows.
        embedding_dim: the length of a row.
        padding_idx: a row that is initialized to zero and not updated; counted from the end if negative.
        max_norm, norm_type: of PyTorch; only their defaults are accepted.
        scale_grad_by_freq: divide the gradient of each row by how often it is looked up.
        sparse: accepted as in PyTorch; gradients are dense, and optimizers in nn.Graph update only the rows used.
        device, dtype: of the table.

    Attributes:
        weight: (num_embeddings, embedding_dim), drawn from the standard normal distribution.

    Shapes: integers (*) -> (*, embedding_dim).

    Raises:
        ArgumentError: for a `max_norm`.
        IndexRangeError: for a padding_idx, or an index in the input, that is not a row.

    >>> import miniflow as flow
    >>> flow.nn.Embedding(10, 3)(flow.tensor([[1, 2], [4, 9]])).shape
    miniflow.Size([2, 2, 3])

    Source: `torch.nn.Embedding`.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, device: Any = None,
        dtype: Any = None,
    ):  # fmt: skip
        super().__init__()
        rows, name = num_embeddings, self._get_name()
        if max_norm is not None:
            raise ArgumentError(f"{name}: got max_norm={max_norm}; expected None")
        if padding_idx is not None and not -rows <= padding_idx < rows:
            raise IndexRangeError(f"{name}: got padding_idx={padding_idx}; expected {-rows} to {rows - 1}")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % rows
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self.add_parameters(device, dtype, weight=(num_embeddings, embedding_dim))
        self.reset_parameters()

    @classmethod
    def from_pretrained(
        cls: type[Table], embeddings: Tensor, freeze: bool = True, *options: Any, **named: Any
    ) -> Table:
        """A layer around a pretrained table, whose memory is shared.

        Args:
            embeddings: (num_embeddings, embedding_dim).
            freeze: whether the table is excluded from training.
            options, named: the other arguments of the layer, in their order; a row `padding_idx` is not set to zero.

        Raises:
            ShapeError: unless `embeddings` has two dims.
        """
        if embeddings.ndim != 2:
            raise ShapeError(f"{cls.__name__}.from_pretrained: got shape {tuple(embeddings.shape)}; expected two dims")
        layer = cls(*embeddings.shape, *options, **named)
        layer.weight = Parameter(embeddings, requires_grad=not freeze)
        return layer

    def reset_parameters(self) -> None:
        """Initialize the table again, at random."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].zero_()

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(input, self.weight, self.padding_idx, scale_grad_by_freq=self.scale_grad_by_freq)

    def extra_repr(self) -> str:
        return self._described(padding_idx=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False)

    def _described(self, **defaults: Any) -> str:
        """The sizes, and the options that differ from their defaults."""
        values = {name: getattr(self, name) for name in defaults}
        changed = [f"{name}={value!r}" for name, value in values.items() if value != defaults[name]]
        return ", ".join([str(self.num_embeddings), str(self.embedding_dim), *changed])


class EmbeddingBag(Embedding):
    """The sum, the mean or the largest of the rows that each bag of indices looks up; see `embedding_bag`.

    Args:
        num_embeddings, embedding_dim, max_norm, norm_type, scale_grad_by_freq, sparse: as of `Embedding`.
        mode: "sum", "mean" or "max".
        include_last_offset: whether offsets have one more entry, the end of the last bag.
        padding_idx: a row that no bag counts; it is initialized to zero.
        device, dtype: of the table.

    Shapes: integers (B, N), or (n,) with offsets (B,) -> (B, embedding_dim).

    >>> import miniflow as flow
    >>> flow.nn.EmbeddingBag(10, 3, mode="max")(flow.tensor([1, 2, 4, 9]), flow.tensor([0, 3])).shape
    miniflow.Size([2, 3])

    Source: `torch.nn.EmbeddingBag`.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, include_last_offset: bool = False,
        padding_idx: int | None = None, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        options = padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, device, dtype
        super().__init__(num_embeddings, embedding_dim, *options)
        check_choice(self, ["sum", "mean", "max"], mode=mode)
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input, self.weight, offsets, None, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse,
            per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return self._described(norm_type=2.0, scale_grad_by_freq=False, mode=None, padding_idx=None)
