"""Global tensors for users: making them, changing their layout, and taking the local part."""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import miniflow.parallel.check  # noqa: F401  (compares what MPI ranks run)
from miniflow.backends import memory
from miniflow.backends.registry import kernel
from miniflow.dispatch.dispatcher import Op, call
from miniflow.dispatch.tape import modes, no_grad
from miniflow.errors import ArgumentError, DTypeError, PlacementError, ShapeError
from miniflow.ops.creation import zeros
from miniflow.ops.method import METHODS
from miniflow.ops.views import input_shape
from miniflow.parallel import world
from miniflow.parallel.boxing import box
from miniflow.parallel.global_array import GlobalArray, GlobalMeta
from miniflow.parallel.nest import each_tensor, tensors_in
from miniflow.parallel.partition import check_axes, local_shape
from miniflow.parallel.placement import placement as Placement
from miniflow.sbp import B, NdSbp, P, as_nd_sbp, show
from miniflow.tensor import Tensor


class Boxing(Op):
    """The same tensor on another placement or in another layout. Its gradient is the cotangent, on the placement of
    the operand, in the layout `grad_sbp` if that is given."""

    def infer(x, *, placement, sbp, grad_sbp, source):
        return x.shape, x.dtype

    @staticmethod
    def show(attrs: dict[str, Any]) -> str:
        where, before = attrs["source"]
        moved = "" if attrs["placement"] == where else f" on {attrs['placement']}"
        return f"{show(before)} to {show(attrs['sbp'])}{moved}"

    def backward(ctx, dy):
        source, grad_sbp = ctx.attrs["source"], ctx.attrs["grad_sbp"]
        where, sbp = source[0], dy.sbp if grad_sbp is None else grad_sbp
        return to_global(dy, where, sbp if len(sbp) == len(where.shape) else source[1])


Boxing.kernels[GlobalArray] = lambda x, *, placement, sbp, grad_sbp, source: box(x, placement, sbp)


class LocalToGlobal(Op):
    """The local tensors of all ranks as the shards of a global one. The gradient is the local part of the cotangent,
    zero on ranks outside of the placement."""

    def infer(x, *, placement, sbp, shape):
        return shape, x.dtype

    def backward(ctx, dy):
        dual = tuple([B if entry is P else P if entry is B else entry for entry in ctx.attrs["sbp"]])
        where, rank = ctx.attrs["placement"], world.rank()
        dx = to_local(to_global(dy, where, dual))
        if rank in where.coordinates:
            return dx
        return zeros(*input_shape(ctx), dtype=dy.dtype, device=world.device(where.type, rank))


class GlobalToLocal(Op):
    """The shard of this rank. The gradient is the global tensor whose shards are the cotangents of all ranks."""

    def infer(x, *, layout):
        return local_shape(x.shape, x.placement, x.sbp, world.rank()), x.dtype

    def backward(ctx, dy):
        if len(world.owned()) > 1:
            raise PlacementError(
                "to_local: where ranks are simulated, only the local tensor of rank 0 is there, and no gradient goes "
                "back from it; use global tensors to the end, or run the script under mpiexec"
            )
        node, output = ctx.edges[0]
        where, sbp = ctx.attrs["layout"]
        dual = tuple([B if entry is P else P if entry is B else entry for entry in sbp])
        return call(LocalToGlobal, dy, placement=where, sbp=dual, shape=node.shapes[output])


GlobalToLocal.kernels[GlobalArray] = lambda x, *, layout: own_shard(x)


@kernel("cuda", returns=True)
def local_to_global(x: Any, *, placement: Placement, sbp: NdSbp, shape: tuple[int, ...]) -> GlobalArray:
    """The local array is the shard of every rank that this process owns; broadcast, that of the first rank counts."""
    shards = {r: memory.move(x.copy(), world.device(placement.type, r)) for r in placement.owned}
    return GlobalArray(GlobalMeta.of(placement, sbp, shape, x.dtype), shards)


LocalToGlobal.kernels[np.ndarray] = local_to_global


def own_shard(x: GlobalArray) -> Any:
    """The shard of this rank; of no elements outside of the placement."""
    rank = world.rank()
    return x.shards[rank] if rank in x.shards else np.empty((0,) * max(1, x.ndim), x.dtype)


def to_global(
    x: Tensor, placement: Placement | None = None, sbp: Any = None, *, grad_sbp: Any = None, check_meta: bool = True,
    copy: bool = False,
) -> Tensor:  # fmt: skip
    """A global tensor: from the local tensors of all ranks, or from a global tensor in another layout.

    A local tensor becomes the shard of its rank: dims that are split are put together, of a broadcast one the tensor of
    the first rank counts, and partial ones are added up.

    Args:
        x: local or global.
        placement, sbp: the new ones. Both for a local tensor; for a global one what is left out stays.
        grad_sbp: the layout of the gradient; by default it keeps that of its cotangent.
        check_meta: compare shapes and dtypes of all ranks; else every rank is taken to hold the shape of this one.
        copy: of a global tensor that does not change, a copy.

    Raises:
        ArgumentError: for a local tensor without placement or sbp, or a split dim that does not exist.
        ShapeError, DTypeError: if the parts of the ranks do not fit together.

    Source: `oneflow.Tensor.to_global`.
    """
    if not x.is_global:
        if modes.tracer is not None:
            modes.tracer.fail("local_tensor.to_global() is not supported within nn.Graph; do it before the call")
        if placement is None or sbp is None:
            raise ArgumentError(
                "to_global: Converting a local tensor to global tensor must have placement and sbp parameters."
            )
        sbp = as_nd_sbp(sbp, len(placement.shape), "to_global")
        check_axes(sbp, x.ndim)
        shape = logical_shape(x, placement, sbp, check_meta)
        y = call(LocalToGlobal, x, placement=placement, sbp=sbp, shape=shape)
        first = tuple([slice(0, 1) if entry is B else slice(None) for entry in sbp])
        if any(entry is B for entry in sbp):  # make it true: the first rank's values
            y._array = broadcast_from_first(y._array, first)
        return y
    where = x.placement if placement is None else placement
    layout = as_nd_sbp(x.sbp if sbp is None else sbp, len(where.shape), "to_global")
    check_axes(layout, x.ndim)
    if where == x.placement and layout == x.sbp and grad_sbp is None:
        return x.clone() if copy else x
    grad_sbp = None if grad_sbp is None else as_nd_sbp(grad_sbp, len(x.sbp), "to_global")
    return call(Boxing, x, placement=where, sbp=layout, grad_sbp=grad_sbp, source=(x.placement, x.sbp))


def broadcast_from_first(x: GlobalArray, first: tuple[slice, ...]) -> GlobalArray:
    """Along dimensions of the placement that are broadcast, the shard of the first rank for all of them."""
    owners = Placement(x.placement.type, x.placement.ranks[first])
    owner_shards = {r: a for r, a in x.shards.items() if r in owners.coordinates}
    return box(GlobalArray(GlobalMeta.of(owners, x.sbp, x.shape, x.dtype), owner_shards), x.placement, x.sbp)


def logical_shape(x: Tensor, where: Placement, sbp: NdSbp, check_meta: bool) -> tuple[int, ...]:
    """The shape of the whole whose shards are the local tensors.

    Raises:
        ShapeError, DTypeError: if they do not make up a tensor that is split as evenly as possible.
    """
    metas = [(tuple(x.shape), str(x.dtype))] * world.size()
    if check_meta:
        metas = world.communicator().all_gather_object(metas[0], range(world.size()))
    shape = list(metas[where.flat[0]][0])
    dtypes = {metas[r][1] for r in where.flat}
    if len(dtypes) > 1:
        raise DTypeError(f"to_global: got local tensors of {sorted(dtypes)}; expected one dtype on all ranks")
    for dim in {entry.dim for entry in sbp} - {None}:
        ranks_along = where.ranks[tuple([slice(None) if entry.dim == dim else 0 for entry in sbp])]
        shape[dim] = sum([metas[r][0][dim] for r in ranks_along.flat])
    logical = tuple(shape)
    for r in where.flat:
        if metas[r][0] != local_shape(logical, where, sbp, r):
            raise ShapeError(
                f"to_global: Sizes of tensors must match: got {metas[r][0]} on rank {r}; expected "
                f"{local_shape(logical, where, sbp, r)}, its part of {logical}, split as evenly as possible"
            )
    return logical


def to_local(x: Tensor) -> Tensor:
    """The shard of this rank; where ranks are simulated, that of rank 0 (see `shards`). It shares the memory.

    Raises:
        PlacementError: for a local tensor.

    Source: `oneflow.Tensor.to_local`.
    """
    if not x.is_global:
        raise PlacementError("to_local: Expected global tensor for to_local but got local tensor!")
    if modes.tracer is not None:
        modes.tracer.fail("global_tensor.to_local() is not supported within nn.Graph; do it after the call")
    y = call(GlobalToLocal, x, layout=(x.placement, x.sbp))
    y._version = x._shared_version()
    return y


@contextlib.contextmanager
def global_mode(enabled: bool = True, placement: Placement | None = None, sbp: Any = None) -> Iterator[None]:
    """Within the block, functions such as `flow.zeros` make global tensors of this layout, whatever their `device=`,
    and a global tensor has a `device`.

    Source: `oneflow.utils.global_view.global_mode`.
    """
    if enabled and (placement is None or sbp is None):
        raise ArgumentError("global_mode: expected placement and sbp")
    before, modes.global_layout = modes.global_layout, (placement, sbp) if enabled else None
    try:
        yield
    finally:
        modes.global_layout = before


def with_placement(factory: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function that makes tensors, with the keyword arguments `placement` and `sbp` for global ones.

    The values are those of the local tensor with the same arguments, random numbers too.
    """

    name = factory.__name__

    @functools.wraps(factory)
    def make(*args: Any, placement: Placement | None = None, sbp: Any = None, **options: Any) -> Tensor:
        takes_tensors = name == "bernoulli" or name == "normal" and tensors_in([args, options])
        if placement is None and sbp is None:
            if modes.global_layout is None or takes_tensors or name.endswith("_like"):  # these stay where tensors are
                return factory(*args, **options)
            placement, sbp = modes.global_layout
            options.pop("device", None)
        if placement is None or sbp is None:
            raise ArgumentError(f"{name}: expected placement and sbp together; got only one of them")
        if options.get("device") is not None:
            raise ArgumentError(f"{name}: got device= together with placement=; expected one of them")
        requires_grad = options.pop("requires_grad", False)
        layout = as_nd_sbp(sbp, len(placement.shape), name)
        if P in layout and name.startswith(("rand", "normal", "bernoulli")):
            raise ArgumentError(f"{name}: random source op only support broadcast or split, got {sbp}")
        if args and name in ("tensor", "Tensor"):
            refuse_other_data(args[0])
        if takes_tensors:
            everywhere = lambda x: x if x.is_global else Tensor._wrap(memory.move(x._array, placement))  # noqa: E731
            args, options = each_tensor((args, options), everywhere)
        else:
            options["device"] = placement.with_sbp(tuple([B if entry is P else entry for entry in layout]))
        x = factory(*args, **options)
        with no_grad():
            return to_global(x, placement, layout).requires_grad_(requires_grad)

    signature = inspect.signature(factory)
    added = [inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None) for key in ("placement", "sbp")]
    parameters = sorted([*signature.parameters.values(), *added], key=lambda parameter: parameter.kind)
    make.__signature__ = signature.replace(parameters=parameters)
    return make


def refuse_other_data(data: Any) -> None:
    """Raise ArgumentError unless all MPI ranks pass the same numbers; a tensor is compared where it becomes global."""
    if len(world.owned()) == world.size() or isinstance(data, Tensor):
        return
    checksums = world.communicator().all_gather_object(zlib.crc32(np.asarray(data).tobytes()), range(world.size()))
    if len(set(checksums)) > 1:
        raise ArgumentError("tensor: Each rank must have same input sequence or numpy array; to_global takes others")


def _placement(x: Tensor) -> Placement:
    """The ranks of a global tensor."""
    if x.is_local:
        raise PlacementError("placement: Only global tensors have 'placement'. Please use '.device' for local tensors.")
    return x._array.placement


def _sbp(x: Tensor) -> NdSbp:
    """How each dimension of the placement divides a global tensor."""
    if x.is_local:
        raise PlacementError("sbp: Only global tensors have 'sbp'; the tensor is local: x.to_global(placement, sbp)")
    return x._array.sbp


def _shards(x: Tensor) -> dict[int, Tensor]:
    """rank -> the shard, for the ranks of this process."""
    return {r: Tensor._wrap(array) for r, array in x._array.shards.items()}


def _local_to_global(
    x: Tensor, placement: Placement, sbp: Any, *, grad_sbp: Any = None, check_meta: bool = True, copy: bool = False
) -> Tensor:
    """`to_global` of a local tensor."""
    if x.is_global:
        raise PlacementError("local_to_global: expected a local tensor, got a global one: use to_global")
    return to_global(x, placement, sbp, grad_sbp=grad_sbp, check_meta=check_meta, copy=copy)


def _global_to_global(
    x: Tensor, placement: Placement | None = None, sbp: Any = None, *, grad_sbp: Any = None, check_meta: bool = True,
    copy: bool = False,
) -> Tensor:  # fmt: skip
    """`to_global` of a global tensor."""
    if x.is_local:
        raise PlacementError("global_to_global: expected a global tensor, got a local one: use to_global")
    return to_global(x, placement, sbp, grad_sbp=grad_sbp, check_meta=check_meta, copy=copy)


def _to_consistent(x: Tensor, placement: Placement | None = None, sbp: Any = None) -> Tensor:
    """The name of `to_global` in OneFlow 0.6."""
    warnings.warn("to_consistent is an older name: use to_global", DeprecationWarning, stacklevel=2)
    return to_global(x, placement, sbp)


def _is_consistent(x: Tensor) -> bool:
    """The name of `is_global` in OneFlow 0.6."""
    warnings.warn("is_consistent is an older name: use is_global", DeprecationWarning, stacklevel=2)
    return x.is_global


METHODS.update(
    placement=property(_placement), sbp=property(_sbp), shards=property(_shards), to_global=to_global,
    to_local=to_local, local_to_global=_local_to_global, global_to_global=_global_to_global,
    to_consistent=_to_consistent, is_consistent=property(_is_consistent),
)  # fmt: skip
