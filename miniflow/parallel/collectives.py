"""Collectives of local tensors, in all ranks at once. As `oneflow.comm`.

Each rank passes a tensor of its own, and all have to call the same function. Where ranks are simulated, the local
tensor stands for equal ones on all of them: an all-reduce multiplies it by the number of ranks.

Every collective takes two arguments of PyTorch: `group`, the ranks that take part (None: all; `src` and `dst` are
numbers in the world all the same), and `async_op`; if that is true, what is returned waits for the end: `Work`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from miniflow.backends import memory
from miniflow.device import of_array
from miniflow.errors import ArgumentError, DTypeError, ShapeError
from miniflow.parallel import world
from miniflow.parallel.comm.counted import ReduceOp, reduced
from miniflow.parallel.group import ProcessGroup, Work, ranks_of, run
from miniflow.parallel.messages import check_like, check_rank, described, landing, values_of, write
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
    parts, by = {r: x for r in ranks if r in world.owned()}, _by("all_reduce", op, x)

    def finish(results: dict) -> None:
        write("all_reduce", tensor, results[world.rank()], _divisor(op, ranks))

    call = f"all_reduce of {described(x)} by {op.name}"
    return run(call, ranks, lambda c: c.all_reduce(parts, ranks, by), finish, async_op)


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

    call, n = f"all_gather of {described(x)}", len(ranks)
    return _exchange(call, ranks, [x] * n, [tensor] * n, _write_all("all_gather", tensor_list), async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Write the tensors of all ranks into one, along dim 0 or, if it has one dim more, stacked.

    Raises:
        ShapeError: if the output has another shape.

    Source: `torch.distributed.all_gather_into_tensor`.
    """
    ranks, x = ranks_of(group), values_of("all_gather_into_tensor", input_tensor)
    call, n = f"all_gather_into_tensor of {described(x)}", len(ranks)
    joined = [(n * x.shape[0], *x.shape[1:])] if x.ndim else []
    shape = _checked_shape("all_gather_into_tensor", output_tensor, [*joined, (n, *x.shape)])
    whole = memory.empty_like(x, (n, *x.shape))

    def finish(parts: list) -> None:
        for i, part in enumerate(parts):
            memory.copy_into(whole[i, ...], part)
        write("all_gather_into_tensor", output_tensor, whole.reshape(shape))

    return _exchange(call, ranks, [x] * n, [input_tensor] * n, finish, async_op, name="all_gather")


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
    _check_alike("reduce_scatter", parts)
    return _reduce_scatter("reduce_scatter", output, parts, op, ranks, async_op)


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
    parts = x.reshape(len(ranks), *output_tensor.shape)
    parts = [parts[i, ...] for i in range(len(ranks))]
    return _reduce_scatter("reduce_scatter_tensor", output_tensor, parts, op, ranks, async_op)


def _reduce_scatter(
    name: str, output: Tensor, parts: list[Any], op: ReduceOp, ranks: tuple[int, ...], async_op: bool
) -> Work | None:
    by = _by(name, op, parts[0])

    def finish(terms: list) -> None:
        write(name, output, reduced(terms, None, by), _divisor(op, ranks))

    call = f"{name} of {described(parts[0])} by {op.name}"
    return _exchange(call, ranks, parts, [output] * len(ranks), finish, async_op, name="reduce_scatter")


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
    parts = [values_of("all_to_all", x) for x in input_tensor_list]
    _check_alike("all_to_all", parts)
    call = f"all_to_all of {parts[0].dtype}"  # sizes differ: each message is compared with what is expected
    finish = _write_all("all_to_all", output_tensor_list)
    return _exchange(call, ranks, parts, output_tensor_list, finish, async_op)


def broadcast(tensor: Tensor, src: int, group: ProcessGroup | None = None, async_op: bool = False) -> Work | None:
    """Replace the tensor by that of rank `src`.

    Source: `oneflow.comm.broadcast`.
    """
    ranks, x = ranks_of(group), values_of("broadcast", tensor)
    check_rank("broadcast", "src", src, ranks)
    call = f"broadcast of {described(x)} from rank {src}"
    finish = _write_all("broadcast", [tensor])
    return _exchange(call, ranks, [x] * len(ranks), [tensor], finish, async_op, (src,), name="send")


def scatter(
    tensor: Tensor, scatter_list: Sequence[Tensor] | None = None, src: int = 0,
    group: ProcessGroup | None = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Replace the tensor by the entry for this rank of the list that rank `src` passes.

    Source: `oneflow.comm.scatter`.
    """
    ranks, x = ranks_of(group), values_of("scatter", tensor)
    check_rank("scatter", "src", src, ranks)
    parts: list[Any] = []
    if src in world.owned():
        _check_list("scatter", scatter_list, ranks)
        parts = [values_of("scatter", part) for part in scatter_list]
        for part in parts:
            check_like("scatter", part, tensor)
    call, finish = f"scatter of {described(x)} from rank {src}", _write_all("scatter", [tensor])
    return _exchange(call, ranks, parts, [tensor], finish, async_op, (src,), name="send")


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
            write("reduce", tensor, reduced(parts, None, by), _divisor(op, ranks))

    call = f"reduce of {described(x)} by {op.name} to rank {dst}"
    return _exchange(call, ranks, [x], [tensor] * len(ranks), finish, async_op, receivers=(dst,), name="send")


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

    call, finish = f"gather of {described(x)} to rank {dst}", _write_all("gather", gather_list or ())
    return _exchange(call, ranks, [x], [tensor] * len(ranks), finish, async_op, receivers=(dst,), name="send")


def barrier(group: ProcessGroup | None = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait until every rank is here.

    Args:
        group, async_op: see above.
        device_ids: of PyTorch, without effect.

    Source: `oneflow.comm.barrier`.
    """
    ranks = ranks_of(group)
    return run("barrier", ranks, lambda c: c.barrier(ranks), lambda _: None, async_op)


def _exchange(
    call: str, ranks: tuple[int, ...], sent: Sequence[Any], expected: Sequence[Tensor],
    finish: Callable[[list], None], async_op: bool, senders: Sequence[int] | None = None,
    receivers: Sequence[int] | None = None, name: str | None = None,
) -> Work | None:  # fmt: skip
    """Each of the senders sends one array to each of the receivers; by default both are all ranks.

    Args:
        call: what it is.
        sent: what this rank sends, by receiver.
        expected: tensors like those that it receives, by sender.
        finish: takes what came for this rank, by sender; an empty list if it is no receiver.
        name: of the count of bytes; by default what the call begins with.
    """
    senders, receivers, owned = senders or ranks, receivers or ranks, world.owned()
    messages = {(s, r): x for s in senders if s in owned for r, x in zip(receivers, sent, strict=True)}
    arrived = {(s, r): landing(x) for r in receivers if r in owned for s, x in zip(senders, expected, strict=True)}
    mine = list(arrived.values())[: len(senders)]  # where all ranks are here, of the first
    exchange = lambda c: c.exchange(messages, arrived, ranks, name or call.split()[0])  # noqa: E731
    return run(call, ranks, exchange, lambda _: finish(mine), async_op)


def _write_all(name: str, tensors: Sequence[Tensor]) -> Callable[[list], None]:
    """Write what came into tensors."""

    def finish(parts: list) -> None:
        for out, part in zip(tensors, parts, strict=False):
            write(name, out, part)

    return finish


def _checked_shape(name: str, output: Tensor, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape of an output, which has to be one of `shapes`."""
    shape = tuple(output.shape)
    if shape not in shapes:
        raise ShapeError(f"{name}: got a tensor of shape {shape} for values of shape {' or '.join(map(str, shapes))}")
    return shape


def _check_alike(name: str, parts: list[Any]) -> None:
    """Refuse arrays of several dtypes or devices."""
    types = {(str(x.dtype), str(of_array(x))) for x in parts}
    if len(types) > 1:
        raise DTypeError(f"{name}: got a list of tensors of {sorted(types)}; expected one dtype and device")


def _divisor(op: ReduceOp, ranks: tuple[int, ...]) -> int:
    """What the sum of an average is divided by."""
    return len(ranks) if op is ReduceOp.AVG else 1


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
