"""Collectives of local tensors, in all ranks at once. As `oneflow.comm`.

Each rank passes a tensor of its own, and all have to call the same function. Where ranks are simulated, the local
tensor stands for equal ones on all of them: an all-reduce multiplies it by the number of ranks.

Every collective takes two arguments of PyTorch: `group`, the ranks that take part (None: all; `src` and `dst` are
numbers in the world all the same), and `async_op`; if that is true, what is returned waits for the end: `Work`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from miniflow.backends import memory
from miniflow.device import of_array
from miniflow.errors import ArgumentError, DTypeError, ShapeError
from miniflow.parallel import world
from miniflow.parallel.comm.counted import ReduceOp, cut, joined, reduced
from miniflow.parallel.group import ProcessGroup, Work, ranks_of, run
from miniflow.parallel.messages import check_like, check_rank, described, values_of, write
from miniflow.parallel.messages import irecv as irecv
from miniflow.parallel.messages import isend as isend
from miniflow.parallel.messages import recv as recv
from miniflow.parallel.messages import send as send
from miniflow.tensor import Tensor


def all_reduce(
    tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Replace the tensor by the sum of those of all ranks.

    Args:
        tensor: of equal shapes and dtypes.
        op: SUM, or AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR of `flow.distributed.ReduceOp`.
        group, async_op: see above.

    Raises:
        ArgumentError: for another op.
        DTypeError: for the AVG of integers or bool, and bitwise operations of other dtypes.
        PlacementError: if the tensors of other ranks have other sizes.

    >>> import miniflow as flow
    >>> flow.parallel.simulate(3)
    >>> x = flow.ones(2)
    >>> work = flow.comm.all_reduce(x, async_op=True)
    >>> work.wait()
    True
    >>> x.tolist()
    [3.0, 3.0]
    >>> flow.parallel.simulate(1)

    Source: `oneflow.comm.all_reduce`, `torch.distributed.all_reduce`.
    """
    ranks, x = ranks_of(group), values_of("all_reduce", tensor)
    parts, by = _by_rank(x, ranks), _by("all_reduce", op, x)
    call = f"all_reduce of {described(x)} by {op.name}"
    return _run(call, ranks, lambda c: c.all_reduce(parts, ranks, by), tensor, async_op, op)


def all_gather(
    tensor_list: Sequence[Tensor], tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Write the tensors of all ranks, of one shape, into the list.

    Raises:
        ArgumentError: for a list of another length than the number of ranks.
        ShapeError, DTypeError: if the list has tensors of another kind.

    Source: `oneflow.comm.all_gather`.
    """
    ranks, x = ranks_of(group), values_of("all_gather", tensor)
    _check_list("all_gather", tensor_list, ranks)

    def finish(gathered: dict) -> None:
        for out, part in zip(tensor_list, _split(gathered[world.rank()], [x.shape] * len(ranks)), strict=True):
            write("all_gather", out, part)

    return run(f"all_gather of {described(x)}", ranks, lambda c: _gathered(c, x, ranks), finish, async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Write the tensors of all ranks into one, along dim 0 or, if it has one dim more, stacked.

    Raises:
        ShapeError: if the output has another shape.

    Source: `torch.distributed.all_gather_into_tensor`.
    """
    ranks, x = ranks_of(group), values_of("all_gather_into_tensor", input_tensor)
    call = f"all_gather_into_tensor of {described(x)}"
    joined = [(len(ranks) * x.shape[0], *x.shape[1:])] if x.ndim else []
    shape = _checked_shape("all_gather_into_tensor", output_tensor, [*joined, (len(ranks), *x.shape)])
    return _run(call, ranks, lambda c: _gathered(c, x, ranks), output_tensor, async_op, shape=shape)


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: ReduceOp = ReduceOp.SUM,
    group: ProcessGroup | None = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Write the sum over ranks of the entry of their lists that stands for this rank; `op` as for `all_reduce`.

    Source: `oneflow.comm.reduce_scatter`.
    """
    ranks = ranks_of(group)
    _check_list("reduce_scatter", input_list, ranks)
    parts = [values_of("reduce_scatter", x) for x in input_list]
    if any(x.shape != output.shape for x in parts):
        raise ShapeError(
            f"reduce_scatter: got a list of tensors of shapes {[x.shape for x in parts]}; expected "
            f"{tuple(output.shape)}, the shape of output"
        )
    return _reduce_scatter("reduce_scatter", output, _joined("reduce_scatter", parts), op, ranks, async_op)


def reduce_scatter_tensor(
    output_tensor: Tensor, input_tensor: Tensor, op: ReduceOp = ReduceOp.SUM,
    group: ProcessGroup | None = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Write this rank's part along dim 0 of the sum over ranks, or its row if the output has one dim less; `op` as for
    `all_reduce`.

    Raises:
        ShapeError: if the ranks do not divide dim 0, or the output has another shape.

    Source: `torch.distributed.reduce_scatter_tensor`.
    """
    ranks, x = ranks_of(group), values_of("reduce_scatter_tensor", input_tensor)
    if x.ndim == 0 or x.shape[0] % len(ranks):
        raise ShapeError(f"reduce_scatter_tensor: got shape {x.shape}; expected dim 0 to be divided by {len(ranks)}")
    rows, *row_shape = x.shape
    stacked = [tuple(row_shape)] if rows == len(ranks) else []
    _checked_shape("reduce_scatter_tensor", output_tensor, [(rows // len(ranks), *row_shape), *stacked])
    return _reduce_scatter("reduce_scatter_tensor", output_tensor, x, op, ranks, async_op)


def _reduce_scatter(name: str, output: Tensor, x: Any, op: ReduceOp, ranks: tuple, async_op: bool) -> Work | None:
    counts = [x.size // len(ranks)] * len(ranks)
    parts, by = _by_rank(x.reshape(-1), ranks), _by(name, op, x)
    call = f"{name} of {described(x)} by {op.name}"
    collective = lambda c: c.reduce_scatter(parts, ranks, counts, by)  # noqa: E731
    return _run(call, ranks, collective, output, async_op, op, tuple(output.shape))


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor],
    group: ProcessGroup | None = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Send the i-th tensor of a list to rank i, and write what rank i sends into the i-th of the other.

    Source: `oneflow.comm.all_to_all`.
    """
    ranks = ranks_of(group)
    _check_list("all_to_all", output_tensor_list, ranks)
    _check_list("all_to_all", input_tensor_list, ranks)
    flat = _joined("all_to_all", [values_of("all_to_all", x) for x in input_tensor_list])
    sent, expected = (_by_rank([x.numel() for x in xs], ranks) for xs in (input_tensor_list, output_tensor_list))
    parts = _by_rank(flat, ranks)

    def finish(results: dict) -> None:
        shapes = [tuple(x.shape) for x in output_tensor_list]
        for out, part in zip(output_tensor_list, _split(results[world.rank()], shapes), strict=True):
            write("all_to_all", out, part)

    call = f"all_to_all of {flat.dtype}"  # sizes differ: each message is compared with what is expected
    return run(call, ranks, lambda c: c.all_to_all(parts, ranks, sent, expected), finish, async_op)


def broadcast(tensor: Tensor, src: int, group: ProcessGroup | None = None, async_op: bool = False) -> Work | None:
    """Replace the tensor by that of rank `src`.

    Source: `oneflow.comm.broadcast`.
    """
    ranks, x = ranks_of(group), values_of("broadcast", tensor)
    check_rank("broadcast", "src", src, ranks)
    call = f"broadcast of {described(x)} from rank {src}"
    return _deliver(call, dict.fromkeys(ranks, x), x, tensor, src, ranks, async_op)


def scatter(
    tensor: Tensor, scatter_list: Sequence[Tensor] | None = None, src: int = 0,
    group: ProcessGroup | None = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Replace the tensor by the entry for this rank of the list that rank `src` passes.

    Source: `oneflow.comm.scatter`.
    """
    ranks, x = ranks_of(group), values_of("scatter", tensor)
    check_rank("scatter", "src", src, ranks)
    parts: dict[int, Any] = {}
    if src in world.owned():
        _check_list("scatter", scatter_list, ranks)
        parts = {r: values_of("scatter", part) for r, part in zip(ranks, scatter_list, strict=True)}
        for part in parts.values():
            check_like("scatter", part, tensor)
    return _deliver(f"scatter of {described(x)} from rank {src}", parts, x, tensor, src, ranks, async_op)


def reduce(
    tensor: Tensor, dst: int, op: ReduceOp = ReduceOp.SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Replace the tensor on rank `dst` by the sum of those of all ranks; elsewhere it does not change.

    `op` as for `all_reduce`.

    Source: `oneflow.comm.reduce`.
    """
    ranks, x = ranks_of(group), values_of("reduce", tensor)
    check_rank("reduce", "dst", dst, ranks)
    by = _by("reduce", op, x)

    def finish(parts: list) -> None:
        if parts:
            write("reduce", tensor, reduced(parts, None, by), len(ranks) if op is ReduceOp.AVG else 1)

    call = f"reduce of {described(x)} by {op.name} to rank {dst}"
    return run(call, ranks, lambda c: _collected(c, x, dst, ranks), finish, async_op)


def gather(
    tensor: Tensor, gather_list: Sequence[Tensor] | None = None, dst: int = 0,
    group: ProcessGroup | None = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Write the tensors of all ranks into the list that rank `dst` passes.

    Source: `oneflow.comm.gather`.
    """
    ranks, x = ranks_of(group), values_of("gather", tensor)
    check_rank("gather", "dst", dst, ranks)
    if dst in world.owned():
        _check_list("gather", gather_list, ranks)

    def finish(parts: list) -> None:
        for out, part in zip(gather_list or (), parts, strict=True):
            write("gather", out, part)

    call = f"gather of {described(x)} to rank {dst}"
    return run(call, ranks, lambda c: _collected(c, x, dst, ranks), finish, async_op)


def barrier(group: ProcessGroup | None = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait until every rank is here.

    Args:
        group, async_op: see above.
        device_ids: of PyTorch, without effect.

    Source: `oneflow.comm.barrier`.
    """
    ranks = ranks_of(group)
    return run("barrier", ranks, lambda c: c.barrier(ranks), lambda _: None, async_op)


def _run(
    call: str, ranks: tuple[int, ...], collective: Any, out: Tensor, async_op: bool,
    op: ReduceOp = ReduceOp.SUM, shape: tuple[int, ...] | None = None,
) -> Work | None:  # fmt: skip
    """A collective whose result for this rank, in a shape, replaces a tensor."""

    def finish(results: dict) -> None:
        values = results[world.rank()]
        divisor = len(ranks) if op is ReduceOp.AVG else 1
        write(call.split()[0], out, values if shape is None else values.reshape(shape), divisor)

    return run(call, ranks, collective, finish, async_op)


def _deliver(
    call: str, parts: dict[int, Any], like: Any, out: Tensor, src: int, ranks: tuple[int, ...], async_op: bool
) -> Work | None:
    """Send one array from rank `src` to each rank of the group."""
    sent = {(src, r): x for r, x in parts.items()} if src in world.owned() else {}
    received = {(src, r): memory.empty_like(like, like.shape) for r in ranks if r in world.owned()}
    return run(
        call,
        ranks,
        lambda c: c.exchange(sent, received, ranks),
        lambda _: write(call.split()[0], out, received[src, world.rank()]),
        async_op,
    )


def _collected(communicator: Any, x: Any, dst: int, ranks: tuple[int, ...]) -> list[Any]:
    """The arrays of all ranks, on rank `dst`; elsewhere nothing."""
    received = {(r, dst): memory.empty_like(x, x.shape) for r in ranks if dst in world.owned()}
    communicator.exchange({(r, dst): x for r in _by_rank(x, ranks)}, received, ranks)
    return list(received.values())


def _gathered(communicator: Any, x: Any, ranks: tuple[int, ...]) -> dict:
    """The values of all ranks, one after the other."""
    return communicator.all_gather(_by_rank(x.reshape(-1), ranks), ranks, [x.size] * len(ranks))


def _checked_shape(name: str, output: Tensor, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape of an output, which has to be one of `shapes`."""
    shape = tuple(output.shape)
    if shape not in shapes:
        raise ShapeError(f"{name}: got a tensor of shape {shape} for values of shape {' or '.join(map(str, shapes))}")
    return shape


def _by_rank(value: object, ranks: Sequence[int]) -> dict:
    """rank -> the value, for those of the ranks that this process owns."""
    return {r: value for r in ranks if r in world.owned()}


def _split(flat: Any, shapes: list[tuple[int, ...]]) -> list[Any]:
    """A flat array cut into arrays of these shapes."""
    sizes = [math.prod(shape) for shape in shapes]
    return [part.reshape(shape) for part, shape in zip(cut(flat, sizes), shapes, strict=True)]


def _joined(name: str, parts: list[Any]) -> Any:
    """The values of contiguous arrays, flat and one after the other."""
    types = {(str(x.dtype), str(of_array(x))) for x in parts}
    if len(types) > 1:
        raise DTypeError(f"{name}: got a list of tensors of {sorted(types)}; expected one dtype and device")
    return joined([x.reshape(-1) for x in parts], parts[0])


def _by(name: str, op: ReduceOp, x: Any) -> str:
    """The key of `UFUNCS` that combines the values; an average is a sum that is divided at the end."""
    if not isinstance(op, ReduceOp):
        raise ArgumentError(f"{name}: got op={op!r}; expected one of flow.distributed.ReduceOp.SUM, AVG, PRODUCT ...")
    if op is ReduceOp.AVG and x.dtype.kind in "biu":
        raise DTypeError(
            f"{name}: got ReduceOp.AVG for a tensor of {x.dtype}; expected a floating dtype: use x.float()"
        )
    if op.value.startswith("bitwise") and x.dtype.kind not in "biu":
        raise DTypeError(f"{name}: got {op} for a tensor of {x.dtype}; expected integers or bool")
    return "add" if op is ReduceOp.AVG else op.value


def _check_list(name: str, tensors: Sequence[Tensor] | None, ranks: Sequence[int]) -> None:
    if tensors is None or len(tensors) != len(ranks):
        got = "no list" if tensors is None else f"a list of {len(tensors)} tensors"
        raise ArgumentError(f"{name}: got {got}; expected one for each of the {len(ranks)} ranks")
