"""Collectives of Python objects: what `flow.save` writes, as bytes. Nothing is pickled."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from miniflow.errors import ArgumentError, ArgumentTypeError, CheckpointError
from miniflow.ops.creation import tensor, zeros
from miniflow.parallel import world
from miniflow.parallel.collectives import all_gather, all_gather_into_tensor, broadcast, check_rank, gather
from miniflow.parallel.group import ProcessGroup, ranks_of
from miniflow.serialization.states import load, save


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
    objects = _gathered("all_gather_object", obj, group)
    _fill("all_gather_object", object_list, objects)


def gather_object(
    obj: Any, object_gather_list: list[Any] | None = None, dst: int = 0, group: ProcessGroup | None = None
) -> None:
    """Fill the list that rank `dst` passes with the objects of all ranks.

    Args:
        obj: as for `all_gather_object`.
        object_gather_list: on rank `dst`, as long as there are ranks.
        dst: the number of the rank in the world.
        group: the ranks that take part; None for all.

    Raises:
        ArgumentTypeError: for other objects, see `all_gather_object`.
        ArgumentError: for a list of another length, or a rank that is not in the group.

    Source: `torch.distributed.gather_object`.
    """
    check_rank("gather_object", "dst", dst, ranks_of(group))
    objects = _gathered("gather_object", obj, group, dst)
    if dst in world.owned():
        _fill("gather_object", object_gather_list or [], objects)


def broadcast_object_list(object_list: list[Any], src: int = 0, group: ProcessGroup | None = None) -> None:
    """Replace the objects of a list by those of rank `src`.

    Args:
        object_list: of the same length on all ranks; objects as for `all_gather_object`.
        src: the number of the rank in the world.
        group: the ranks that take part; None for all.

    Raises:
        ArgumentTypeError: for other objects, see `all_gather_object`.
        ArgumentError: for a list of another length than that of `src`, or a rank that is not in the group.

    Source: `torch.distributed.broadcast_object_list`.
    """
    check_rank("broadcast_object_list", "src", src, ranks_of(group))
    data = _written("broadcast_object_list", object_list) if src in world.owned() else None
    size = tensor([0 if data is None else data.size])
    broadcast(size, src, group)
    if world.rank() not in ranks_of(group):
        return
    sent = tensor(np.zeros(size.item(), np.uint8) if data is None else data)
    broadcast(sent, src, group)
    _fill("broadcast_object_list", object_list, load(io.BytesIO(sent.numpy().tobytes())))


def _written(name: str, obj: Any) -> np.ndarray:
    """What `flow.save` writes, as bytes."""
    stream = io.BytesIO()
    try:
        save(obj, stream)
    except CheckpointError as error:
        raise ArgumentTypeError(
            f"{name}: {error}. Objects are sent as flow.save writes them, and never pickled: send a dict of their parts"
        ) from None
    return np.frombuffer(stream.getvalue(), np.uint8)


def _gathered(name: str, obj: Any, group: ProcessGroup | None, dst: int | None = None) -> list[Any]:
    """The objects of all ranks of a group, on all of them or on one; on others nothing."""
    data, ranks = _written(name, obj), ranks_of(group)
    sizes = zeros(len(ranks), dtype=tensor([0]).dtype)
    all_gather_into_tensor(sizes, tensor([data.size]), group)
    if world.rank() not in ranks:
        return []
    padded = np.zeros(max(sizes.tolist()), np.uint8)
    padded[: data.size] = data
    rows = [tensor(padded) for _ in ranks] if dst is None or dst in world.owned() else []
    if dst is None:
        all_gather(rows, tensor(padded), group)
    else:
        gather(tensor(padded), rows, dst, group)
    return [load(io.BytesIO(row.numpy()[:size].tobytes())) for row, size in zip(rows, sizes.tolist(), strict=False)]


def _fill(name: str, objects: list[Any], gathered: list[Any]) -> None:
    if gathered and len(objects) != len(gathered):
        raise ArgumentError(f"{name}: got a list of {len(objects)} objects; expected {len(gathered)}")
    objects[:] = gathered or objects
