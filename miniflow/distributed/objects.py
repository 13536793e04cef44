"""Collectives of Python objects: what `flow.save` writes, as bytes. Nothing is pickled."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from miniflow.errors import ArgumentError, ArgumentTypeError, CheckpointError
from miniflow.ops.creation import tensor, zeros
from miniflow.parallel import world
from miniflow.parallel.collectives import all_gather_into_tensor
from miniflow.parallel.group import ProcessGroup, ranks_of
from miniflow.serialization import load, save


def all_gather_object(object_list: list[Any], obj: Any, group: ProcessGroup | None = None) -> None:
    """Fill a list with the objects of all ranks.

    Args:
        object_list: as long as there are ranks.
        obj: tensors, NumPy arrays, numbers, strings, None, and dicts, lists and tuples of them, as `flow.save` takes.
        group: the ranks that take part; None for all.

    Raises:
        ArgumentTypeError: for other objects: `torch.distributed` pickles them, and reading a pickle can run code.
        ArgumentError: for a list of another length.

    >>> import miniflow as flow
    >>> flow.parallel.simulate(2)
    >>> found = [None, None]
    >>> flow.distributed.all_gather_object(found, {"loss": 0.5, "step": (3, "b")})
    >>> found
    [{'loss': 0.5, 'step': (3, 'b')}, {'loss': 0.5, 'step': (3, 'b')}]
    >>> flow.parallel.simulate(1)

    Source: `torch.distributed.all_gather_object`.
    """
    found = _gathered("all_gather_object", obj, group)
    _fill("all_gather_object", object_list, found)


def gather_object(
    obj: Any, object_gather_list: list[Any] | None = None, dst: int = 0, group: ProcessGroup | None = None
) -> None:
    """Fill the list that rank `dst` passes with the objects of all ranks; `obj` as for `all_gather_object`.

    Source: `torch.distributed.gather_object`.
    """
    found = _gathered("gather_object", obj, group)
    if dst in world.owned():
        _fill("gather_object", object_gather_list or [], found)


def broadcast_object_list(object_list: list[Any], src: int = 0, group: ProcessGroup | None = None) -> None:
    """Replace the objects of a list by those of rank `src`, of a list of the same length.

    Source: `torch.distributed.broadcast_object_list`.
    """
    found = _gathered("broadcast_object_list", object_list if src in world.owned() else None, group)
    if found:
        _fill("broadcast_object_list", object_list, found[ranks_of(group).index(src)])


def _gathered(name: str, obj: Any, group: ProcessGroup | None) -> list[Any]:
    """The objects of all ranks of a group; on others nothing."""
    stream, ranks = io.BytesIO(), ranks_of(group)
    try:
        save(obj, stream)
    except CheckpointError as error:
        raise ArgumentTypeError(
            f"{name}: {error}. Objects are sent as flow.save writes them, and never pickled: send a dict of their parts"
        ) from None
    data = np.frombuffer(stream.getvalue(), np.uint8)
    sizes = zeros(len(ranks), dtype=tensor([0]).dtype)
    all_gather_into_tensor(sizes, tensor([data.size]), group)
    if world.rank() not in ranks:
        return []
    padded = np.zeros(max(sizes.tolist()), np.uint8)
    padded[: data.size] = data
    everything = tensor(np.tile(padded, len(ranks)))
    all_gather_into_tensor(everything, tensor(padded), group)
    rows = everything.numpy().reshape(len(ranks), -1)
    return [load(io.BytesIO(row[:size].tobytes())) for row, size in zip(rows, sizes.tolist(), strict=True)]


def _fill(name: str, objects: list[Any], found: list[Any]) -> None:
    if found and len(objects) != len(found):
        raise ArgumentError(f"{name}: got a list of {len(objects)} objects; expected {len(found)}")
    objects[:] = found or objects
