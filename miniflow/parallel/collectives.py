"""Collectives of local tensors, in all ranks at once. As `oneflow.comm`.

Each rank passes a tensor of its own, and all have to call the same function. Where ranks are simulated, the local
tensor stands for equal ones on all of them: an all-reduce multiplies it by the number of ranks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from miniflow.backends import memory
from miniflow.device import CPU, of_array
from miniflow.dtype import ALL, dtype
from miniflow.errors import ArgumentError, DTypeError, PlacementError, ShapeError
from miniflow.ops.creation import empty
from miniflow.parallel import world
from miniflow.parallel.comm.counted import ReduceOp, reduced
from miniflow.tape import no_grad
from miniflow.tensor import Tensor

MAX_DIMS = 16  # of a tensor whose shape `recv` learns


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM) -> None:
    """Replace the tensor by the sum of those of all ranks.

    Args:
        tensor: of equal shapes and dtypes.
        op: SUM, or AVG, PRODUCT, MIN, MAX of `flow.distributed.ReduceOp`.

    Raises:
        ArgumentError: for another op.
        DTypeError: for the AVG of integers or bool.

    Source: `oneflow.comm.all_reduce`, `torch.distributed.all_reduce`.
    """
    x = _values("all_reduce", tensor)
    _write(tensor, world.communicator().all_reduce(_each(x), _everyone(), _by(op, x))[world.rank()], op)


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor) -> None:
    """Write the tensors of all ranks, of one shape, into the list.

    Raises:
        ArgumentError: for a list of another length than the number of ranks.

    Source: `oneflow.comm.all_gather`.
    """
    _check_list("all_gather", tensor_list)
    x = _values("all_gather", tensor)
    counts = [x.size] * world.size()
    flat = world.communicator().all_gather(_each(x.reshape(-1)), _everyone(), counts)[world.rank()]
    parts = flat.reshape(world.size(), *x.shape)
    for i, out in enumerate(tensor_list):
        _write(out, parts[i, ...])


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor) -> None:
    """Write the tensors of all ranks into one, along dim 0.

    Source: `torch.distributed.all_gather_into_tensor`.
    """
    x = _values("all_gather_into_tensor", input_tensor)
    counts = [x.size] * world.size()
    flat = world.communicator().all_gather(_each(x.reshape(-1)), _everyone(), counts)[world.rank()]
    _write(output_tensor, flat.reshape(-1, *x.shape[1:]))


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: ReduceOp = ReduceOp.SUM) -> None:
    """Write the sum over ranks of the entry of their lists that stands for this rank; `op` as for `all_reduce`.

    Source: `oneflow.comm.reduce_scatter`.
    """
    _check_list("reduce_scatter", input_list)
    parts = [_values("reduce_scatter", x) for x in input_list]
    if any(x.shape != output.shape for x in parts):
        raise ShapeError(
            f"reduce_scatter: got a list of tensors of shapes {[x.shape for x in parts]}; expected "
            f"{tuple(output.shape)}, the shape of output"
        )
    _reduce_scatter(output, _joined("reduce_scatter", parts), op)


def reduce_scatter_tensor(output_tensor: Tensor, input_tensor: Tensor, op: ReduceOp = ReduceOp.SUM) -> None:
    """Write this rank's part along dim 0 of the sum over ranks; `op` as for `all_reduce`.

    Raises:
        ShapeError: if the ranks do not divide dim 0.

    Source: `torch.distributed.reduce_scatter_tensor`.
    """
    x = _values("reduce_scatter_tensor", input_tensor)
    if x.ndim == 0 or x.shape[0] % world.size():
        raise ShapeError(f"reduce_scatter_tensor: got shape {x.shape}; expected dim 0 to be divided by {world.size()}")
    _reduce_scatter(output_tensor, x, op)


def _reduce_scatter(output: Tensor, x: Any, op: ReduceOp) -> None:
    counts = [x.size // world.size()] * world.size()
    parts = _each(x.reshape(-1))
    flat = world.communicator().reduce_scatter(parts, _everyone(), counts, _by(op, x))[world.rank()]
    _write(output, flat.reshape(output.shape), op)


def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor]) -> None:
    """Send the i-th tensor of a list to rank i, and write what rank i sends into the i-th of the other.

    Source: `oneflow.comm.all_to_all`.
    """
    _check_list("all_to_all", output_tensor_list)
    _check_list("all_to_all", input_tensor_list)
    sent = [_values("all_to_all", x) for x in input_tensor_list]
    sizes, expected = [x.size for x in sent], [x.numel() for x in output_tensor_list]
    flat = _joined("all_to_all", sent)
    got = world.communicator().all_to_all(_each(flat), _everyone(), _each(sizes), _each(expected))[world.rank()]
    for out, end in zip(output_tensor_list, itertools.accumulate(expected), strict=True):
        _write(out, got[end - out.numel() : end].reshape(out.shape))


def broadcast(tensor: Tensor, src: int) -> None:
    """Replace the tensor by that of rank `src`.

    Source: `oneflow.comm.broadcast`.
    """
    _check_rank("broadcast", "src", src)
    x = _values("broadcast", tensor)
    _write(tensor, _deliver({(src, r): x for r in _everyone()}, x))


def scatter(tensor: Tensor, scatter_list: Sequence[Tensor] | None = None, src: int = 0) -> None:
    """Replace the tensor by the entry for this rank of the list that rank `src` passes.

    Source: `oneflow.comm.scatter`.
    """
    _check_rank("scatter", "src", src)
    mine = src in world.owned()
    if mine:
        _check_list("scatter", scatter_list)
    parts = {(src, r): _values("scatter", scatter_list[r]) if mine else None for r in _everyone()}
    _write(tensor, _deliver(parts, _values("scatter", tensor)))


def reduce(tensor: Tensor, dst: int, op: ReduceOp = ReduceOp.SUM) -> None:
    """Replace the tensor on rank `dst` by the sum of those of all ranks; elsewhere it does not change.

    `op` as for `all_reduce`.

    Source: `oneflow.comm.reduce`.
    """
    _check_rank("reduce", "dst", dst)
    x = _values("reduce", tensor)
    by, parts = _by(op, x), _collect(x, dst)
    if parts:
        _write(tensor, reduced(parts, None, by), op)


def gather(tensor: Tensor, gather_list: Sequence[Tensor] | None = None, dst: int = 0) -> None:
    """Write the tensors of all ranks into the list that rank `dst` passes.

    Source: `oneflow.comm.gather`.
    """
    _check_rank("gather", "dst", dst)
    if dst in world.owned():
        _check_list("gather", gather_list)
    for out, part in zip(gather_list or (), _collect(_values("gather", tensor), dst), strict=True):
        _write(out, part)


def send(tensor: Tensor, dst: int, send_meta: bool = True) -> None:
    """Send a tensor to another rank, which calls `recv`.

    Args:
        tensor: of at most 16 dims.
        send_meta: send shape and dtype first; without it `recv` has to be told.

    Raises:
        PlacementError: where ranks are simulated.

    Source: `oneflow.comm.send`.
    """
    _check_processes("send")
    _check_rank("send", "dst", dst)
    x = _values("send", tensor)
    if send_meta:
        meta = np.zeros(MAX_DIMS + 2, np.int64)
        meta[:2] = x.ndim, [t.numpy for t in ALL].index(x.dtype)
        meta[2 : 2 + x.ndim] = x.shape
        world.communicator().exchange({(world.rank(), dst): meta}, {})
    world.communicator().exchange({(world.rank(), dst): x}, {})


def recv(
    src: int, shape: Sequence[int] | None = None, dtype: dtype | None = None, device: str | None = None,
    *, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The tensor that rank `src` sends.

    Args:
        src: the sender.
        shape, dtype: of the tensor, if it was sent with `send_meta=False`; otherwise None.
        device: where to put it; None for the CPU.
        out: a tensor to write it to.

    Raises:
        PlacementError: where ranks are simulated.

    Source: `oneflow.comm.recv`.
    """
    _check_processes("recv")
    _check_rank("recv", "src", src)
    key = src, world.rank()
    if (shape is None) != (dtype is None):
        raise ArgumentError("recv: expected shape and dtype together, or neither")
    if shape is None:
        meta = world.communicator().exchange({}, {key: ((MAX_DIMS + 2,), np.int64, CPU)})[key].tolist()
        shape, dtype = tuple(meta[2 : 2 + meta[0]]), ALL[meta[1]]
    result = empty(shape, dtype=dtype, device=device) if out is None else out
    kind = tuple(shape), dtype.numpy, world.receiving(result.device)
    _write(result, world.communicator().exchange({}, {key: kind})[key])
    return result


def barrier() -> None:
    """Wait until every rank is here.

    Source: `oneflow.comm.barrier`.
    """
    world.communicator().barrier()


def _everyone() -> range:
    return range(world.size())


def _each(value: object) -> dict:
    """rank -> the value, for the ranks of this process."""
    return dict.fromkeys(world.owned(), value)


def _joined(name: str, parts: list[Any]) -> Any:
    """The values of contiguous arrays, flat and one after the other."""
    kinds = {(str(x.dtype), str(of_array(x))) for x in parts}
    if len(kinds) > 1:
        raise DTypeError(f"{name}: got a list of tensors of {sorted(kinds)}; expected one dtype and device")
    ends = list(itertools.accumulate([x.size for x in parts]))
    flat = memory.empty_like(parts[0], (ends[-1],))
    for x, end in zip(parts, ends, strict=True):
        flat[end - x.size : end] = x.reshape(-1)
    return flat


def _values(name: str, tensor: Tensor) -> Any:
    """The values, contiguous, where the communicator takes them."""
    if tensor.is_global:
        raise PlacementError(f"{name}: got a global tensor; expected a local one: x.to_local()")
    return memory.row_major(world.sendable(tensor._array))


def _by(op: ReduceOp, x: Any) -> str:
    """What the communicator does with the values: an average is a sum, which `_write` divides."""
    if not isinstance(op, ReduceOp):
        raise ArgumentError(f"comm: got op={op!r}; expected flow.distributed.ReduceOp.SUM, AVG, PRODUCT, MIN or MAX")
    if op is ReduceOp.AVG and x.dtype.kind in "biu":
        raise DTypeError(f"comm: got ReduceOp.AVG for a tensor of {x.dtype}; expected a floating dtype: use x.float()")
    return "add" if op is ReduceOp.AVG else op.value


@no_grad
def _write(tensor: Tensor, values: Any, op: ReduceOp = ReduceOp.SUM) -> None:
    if tuple(tensor.shape) != values.shape:
        raise ShapeError(f"comm: got a tensor of shape {tuple(tensor.shape)} for values of shape {values.shape}")
    if tensor._array.dtype != values.dtype:
        raise DTypeError(f"comm: got a tensor of {tensor.dtype} for values of {values.dtype}")
    tensor.copy_(Tensor._wrap(values).to(tensor.device))
    if op is ReduceOp.AVG:
        tensor.div_(world.size())


def _deliver(messages: dict, like: Any) -> Any:
    """What this rank gets of messages from one sender to everyone."""
    mine = {key: x for key, x in messages.items() if key[0] in world.owned()}
    expected = {key: (like.shape, like.dtype, of_array(like)) for key in messages if key[1] in world.owned()}
    got = world.communicator().exchange(mine, expected)
    return next(x for (_, receiver), x in got.items() if receiver == world.rank())


def _collect(x: Any, dst: int) -> list[Any]:
    """The arrays of all ranks, on rank `dst`; elsewhere nothing."""
    expected = {(r, dst): (x.shape, x.dtype, of_array(x)) for r in _everyone() if dst in world.owned()}
    return list(world.communicator().exchange({(r, dst): x for r in world.owned()}, expected).values())


def _check_list(name: str, tensors: Sequence[Tensor] | None) -> None:
    if tensors is None or len(tensors) != world.size():
        got = "no list" if tensors is None else f"a list of {len(tensors)} tensors"
        raise ArgumentError(f"{name}: got {got}; expected one for each of the {world.size()} ranks")


def _check_rank(name: str, argument: str, rank: int) -> None:
    if not isinstance(rank, int) or not 0 <= rank < world.size():
        raise ArgumentError(f"{name}: got {argument}={rank!r}; expected a rank below {world.size()}")


def _check_processes(name: str) -> None:
    if len(world.owned()) > 1:
        raise PlacementError(
            f"{name}: the ranks are simulated, and run one script line by line together; start it as MPI ranks: "
            "python -m miniflow.distributed.launch --nproc_per_node 2 script.py"
        )
