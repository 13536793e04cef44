"""Sequences of different lengths: padded to one length, or packed without padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from miniflow.errors import ArgumentError, ShapeError
from miniflow.ops.creation import as_tensor, full
from miniflow.ops.gather import index_select
from miniflow.ops.indexing import narrow
from miniflow.ops.joining import cat
from miniflow.ops.permute import transpose
from miniflow.ops.shape import reshape
from miniflow.tensor import Tensor


class PackedSequence(NamedTuple):
    """Sequences without padding, sorted by length: all first elements, then all second ones, and so on.

    Attributes:
        data: (sum of batch_sizes, *).
        batch_sizes: int64 on the CPU: how many sequences have an element number t.
        sorted_indices: which sequence stands at each place, the longest first; None if they were sorted.
        unsorted_indices: the reverse of it.

    Source: `torch.nn.utils.rnn.PackedSequence`.
    """

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Converted like a tensor."""
        return self._replace(data=self.data.to(*args, **kwargs))


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack padded sequences (T, N, *), or (N, T, *) with `batch_first`.

    Args:
        input: the sequences, padded to the same length.
        lengths: of the sequences, each at least 1.
        batch_first: whether the batch is dim 0.
        enforce_sorted: the lengths must not increase; otherwise the sequences are sorted, and their order is noted.

    Raises:
        ArgumentError: for lengths that increase, or are not 1 .. T.

    >>> import miniflow as flow
    >>> packed = pack_padded_sequence(flow.tensor([[1, 2, 3], [4, 0, 0]]), [3, 1], batch_first=True)
    >>> packed.data.tolist(), packed.batch_sizes.tolist()
    ([1, 4, 2, 3], [2, 1, 1])

    Source: `torch.nn.utils.rnn.pack_padded_sequence`.
    """
    counts = np.asarray(lengths.cpu().numpy() if isinstance(lengths, Tensor) else lengths, np.int64)
    if input.ndim < 2:
        raise ShapeError(f"pack_padded_sequence: got input {tuple(input.shape)}; expected (T, N, *) or (N, T, *)")
    time, batch = (input.shape[1], input.shape[0]) if batch_first else input.shape[:2]
    if counts.shape != (batch,) or not batch or counts.min() < 1 or counts.max() > time:
        raise ArgumentError(f"pack_padded_sequence: got lengths {counts.tolist()}; expected {batch} from 1 to {time}")
    order = np.argsort(-counts, kind="stable")
    if enforce_sorted and np.any(np.diff(counts) > 0):
        raise ArgumentError(
            f"pack_padded_sequence: got lengths {counts.tolist()}, which increase; sort them, or enforce_sorted=False"
        )
    steps, rows = np.nonzero(np.arange(counts.max())[:, None] < counts[order])
    indices = order[rows] * time + steps if batch_first else steps * batch + order[rows]
    data = index_select(reshape(input, (time * batch, *input.shape[2:])), 0, as_tensor(indices, device=input._device))
    sizes = as_tensor(np.bincount(steps), device="cpu")
    if enforce_sorted:
        return PackedSequence(data, sizes)
    orders = [as_tensor(x, device=input._device) for x in (order, np.argsort(order))]
    return PackedSequence(data, sizes, *orders)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Padded sequences (T, N, *), or (N, T, *) with `batch_first`, and their lengths.

    Args:
        sequence: packed.
        batch_first: whether the batch becomes dim 0.
        padding_value: what is put after the end of a sequence.
        total_length: T; the largest length if None.

    Raises:
        ArgumentError: if T is below the largest length.

    Source: `torch.nn.utils.rnn.pad_packed_sequence`.
    """
    data, sizes = sequence.data, sequence.batch_sizes.numpy()
    time = len(sizes) if total_length is None else total_length
    if time < len(sizes):
        raise ArgumentError(f"pad_packed_sequence: got total_length={time}; expected at least {len(sizes)}")
    order = np.arange(sizes[0])
    if sequence.unsorted_indices is not None:
        order = sequence.unsorted_indices.cpu().numpy()
    steps = np.arange(time)[:, None]
    running = order < np.pad(sizes, (0, time - len(sizes)))[:, None]
    starts = np.pad(np.cumsum(sizes) - sizes, (0, time - len(sizes)))
    indices = np.where(running, starts[steps] + order, len(data))  # the last row is the padding
    padding = full((1, *data.shape[1:]), padding_value, dtype=data.dtype, device=data._device)
    indices = indices.T if batch_first else indices
    padded = index_select(cat([data, padding]), 0, as_tensor(indices.reshape(-1).copy(), device=data._device))
    return reshape(padded, (*indices.shape, *data.shape[1:])), as_tensor(running.sum(0), device="cpu")


def pad_sequence(
    sequences: Iterable[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Sequences (L_i, *) in one tensor (T, N, *), or (N, T, *) with `batch_first`, T being the largest length.

    Args:
        sequences: of equal sizes but for dim 0.
        batch_first: whether the batch becomes dim 0.
        padding_value: what fills the shorter ones.
        padding_side: "right", or "left": where it is put.

    Raises:
        ArgumentError: for no sequences, or another side.

    >>> import miniflow as flow
    >>> pad_sequence([flow.ones(2), flow.ones(1)], batch_first=True).tolist()
    [[1.0, 1.0], [1.0, 0.0]]

    Source: `torch.nn.utils.rnn.pad_sequence`.
    """
    sequences = list(sequences)
    if not sequences or padding_side not in ("right", "left"):
        raise ArgumentError(
            f"pad_sequence: got {len(sequences)} sequences and padding_side={padding_side!r}; "
            "expected at least one, and 'right' or 'left'"
        )
    longest, rows = max(len(x) for x in sequences), []
    for x in sequences:
        missing = full((longest - len(x), *x.shape[1:]), padding_value, dtype=x.dtype, device=x._device)
        rows.append(cat([x, missing] if padding_side == "right" else [missing, x]))
    padded = reshape(cat(rows), (len(rows), longest, *sequences[0].shape[1:]))
    return padded if batch_first else transpose(padded, 0, 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences that `pad_sequence` padded, (L_i, *) each. `torch.nn.utils.rnn.unpad_sequence`."""
    rows = padded_sequences if batch_first else transpose(padded_sequences, 0, 1)
    return [narrow(x, 0, 0, int(length)) for x, length in zip(rows, lengths, strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences (L_i, *). `torch.nn.utils.rnn.pack_sequence`."""
    return pack_padded_sequence(pad_sequence(sequences), [len(x) for x in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that were packed, (L_i, *) each. `torch.nn.utils.rnn.unpack_sequence`."""
    return unpad_sequence(*pad_packed_sequence(packed_sequences))


def check_state(op: str, state: Sequence[Tensor], *shapes: tuple[int, ...]) -> None:
    """Refuse another number of states, or states of other shapes."""
    if len(state) != len(shapes):
        raise ArgumentError(f"{op}: got {len(state)} states; expected {len(shapes)}, as in (h, c)")
    for x, shape in zip(state, shapes, strict=True):
        if tuple(x.shape) != shape:
            raise ShapeError(f"{op}: got a state of shape {tuple(x.shape)}; expected {shape}")
