"""Data parallel training of local tensors: every rank has the whole model and a part of the batch.

The gradients are averaged over the ranks while backward goes on: they are copied into buckets, in about the order in
which backward makes them, and a bucket that is full starts an all-reduce that does not wait. Where MPI cannot read the
memory of a CUDA device, a full bucket is first copied to pinned memory of the CPU, by a stream of its own, and the
all-reduce starts when the next one is full.

Source: Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training".
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from miniflow.autograd import Function
from miniflow.backends import memory
from miniflow.device import device
from miniflow.dispatch.tape import Leaf, ancestors, is_grad_enabled, modes
from miniflow.dtype import int64
from miniflow.errors import ArgumentError, ArgumentTypeError, AutogradError, DataError, GraphTraceError
from miniflow.nn.modules.module import Module
from miniflow.ops.creation import tensor, zeros, zeros_like
from miniflow.parallel import check, collectives, world
from miniflow.parallel.group import ProcessGroup, listeners
from miniflow.parallel.nest import each_tensor, tensors_in
from miniflow.tensor import Tensor


def DistributedDataParallel(  # noqa: N802  (the name of a class in PyTorch)
    module: Module,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    *,
    broadcast_buffers: bool | None = True,
    broadcast_parameters: bool = True,
    bucket_size: int = 10,
    use_bucket: bool = True,
    process_group: ProcessGroup | None = None,
    find_unused_parameters: bool = False,
    **of_pytorch: Any,
) -> Module:
    """Let every rank train the same model on its part of a batch.

    Parameters and buffers become those of the first rank. After `backward` each gradient is the mean over the ranks,
    also of parameters that some of them did not use: their gradient is 0 there. Those that no rank used keep the
    gradient that they had, such as None, with which optimizers leave them alone. As in OneFlow, the module itself is
    returned, with what PyTorch's wrapper has:

    - `module.module` is the module, unless it has a child of that name;
    - within `with module.no_sync():` gradients stay those of the rank, and accumulate until forward and backward run
      outside of it;
    - `with module.join():` lets ranks have different numbers of batches, see `Reducer.join`.

    Args:
        module: with local parameters, of the same names, shapes and dtypes on all ranks.
        device_ids: the CUDA device that the parameters are on, in a list: inputs are moved there. None: they stay, as
            for parameters on the CPU.
        output_device: of PyTorch: outputs stay where they are.
        broadcast_buffers: before each forward in training, buffers become those of the first rank; also named
            `forward_sync_buffers`.
        broadcast_parameters: make the parameters equal at the beginning; PyTorch's name is `init_sync`.
        bucket_size: parameters whose gradients are reduced together.
        use_bucket: False reduces each by itself.
        process_group: the ranks that train together; None for all.
        find_unused_parameters: of PyTorch, without effect: they are always found.
        of_pytorch: `bucket_cap_mb`, `gradient_as_bucket_view`, `static_graph` and others that change no result.

    Raises:
        ArgumentError: for a module without parameters that require grad, or with global ones; for devices on which
            they are not; for a mixed_precision or a device_mesh.
        PlacementError: if the parameters or buffers of the ranks differ in name, shape or dtype.
        AutogradError: at the next forward, if a backward did not reach all parameters that forward used.
        GraphTraceError: at a backward in an nn.Graph, which takes global tensors instead.

    Source: `oneflow.nn.parallel.DistributedDataParallel`, `torch.nn.parallel.DistributedDataParallel`.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    if not parameters or any(p.is_global for p in parameters):
        raise ArgumentError("DistributedDataParallel: expected a module with local parameters that require grad")
    if bucket_size < 1:
        raise ArgumentError(f"DistributedDataParallel: got bucket_size={bucket_size}; expected at least 1")
    check_options(of_pytorch)
    target = only_device(device_ids, parameters)
    ranks = collectives.ranks_of(process_group)
    if world.rank() not in ranks:
        raise ArgumentError(f"DistributedDataParallel: rank {world.rank()} is not in {process_group}")
    check.compare("\n".join(states_of(module)), ranks)
    buffers = of_pytorch.get("forward_sync_buffers", broadcast_buffers) is not False
    reducer = Reducer(module, parameters, bucket_size if use_bucket else 1, process_group, buffers)
    if broadcast_parameters and of_pytorch.get("init_sync", True):
        reducer.spread(module.parameters())
    reducer.spread(module.buffers())
    attach(reducer, module, target)
    return module


def attach(reducer: Reducer, module: Module, target: device | None) -> None:
    """Let the forward of a module move its inputs and prepare its backward; give it what PyTorch's wrapper has."""

    def before(module: Module, args: tuple, kwargs: dict) -> Any:
        if modes.tracer is None:
            reducer.spread_buffers()
        return each_tensor((args, kwargs), lambda x: x.to(target)) if target is not None else None

    def after(module: Module, args: tuple, output: Any) -> Any:
        return reducer.prepare(output) if is_grad_enabled() and modes.tracer is None else output

    module.register_forward_pre_hook(before, with_kwargs=True)
    module.register_forward_hook(after)
    module.no_sync, module.join = reducer.no_sync, reducer.join
    if not hasattr(module, "module"):
        vars(module)["module"] = module  # no child of itself


OF_PYTORCH = {
    "dim", "init_sync", "bucket_cap_mb", "check_reduction", "gradient_as_bucket_view", "static_graph",
    "delay_all_reduce_named_params", "param_to_hook_all_reduce", "skip_all_reduce_unused_params",
    "forward_sync_buffers", "bucket_cap_mb_list", "batched_grad_copy",
}  # fmt: skip


def check_options(of_pytorch: dict[str, Any]) -> None:
    """Refuse arguments that would change results, or that are unknown."""
    for name, remedy in (("mixed_precision", "flow.autocast"), ("device_mesh", "process_group")):
        if of_pytorch.get(name) is not None:
            got = f"{name}={of_pytorch[name]!r}"
            raise ArgumentError(f"DistributedDataParallel: got {got}; expected None: use {remedy}")
    unknown = of_pytorch.keys() - OF_PYTORCH - {"mixed_precision", "device_mesh"}
    if unknown:
        raise ArgumentTypeError(f"DistributedDataParallel: got an unexpected argument {min(unknown)!r}")


def only_device(device_ids: Sequence[Any] | None, parameters: list[Tensor]) -> device | None:
    """The device to which inputs are moved."""
    devices = {p.device for p in parameters}
    if not device_ids or devices == {device("cpu")}:
        return None
    (target, *others) = [device("cuda", x) if isinstance(x, int) else device(x) for x in device_ids]
    if others or devices != {target}:
        raise ArgumentError(
            f"DistributedDataParallel: got device_ids={list(device_ids)} for parameters on "
            f"{sorted(map(str, devices))}; expected the one device that they are on, or None"
        )
    return target


def states_of(module: Module) -> list[str]:
    """What has to be the same on all ranks, a line each."""
    states = [*module.named_parameters(), *module.named_buffers()]
    return [
        f"DistributedDataParallel with {name}: {collectives.described(x._array)}, requires_grad={x.requires_grad}"
        for name, x in states
    ]


class Bucket:
    """The gradients of some parameters of one dtype and device, one after the other.

    Attributes:
        parameters: in order.
        flat: their gradients, then the sums over the ranks; half precision is summed in float32.
        parts: the part of each parameter, in its shape.
        users: behind the gradients, how many ranks have one for each parameter.
        sent: what the ranks send: `flat`, or pinned memory where MPI reads none of devices.
        ready: how many of them are there.
        arrived: tells when the gradients are in pinned memory.
        wait: ends the all-reduce, once it runs.
    """

    def __init__(self, parameters: list[Tensor], group: ProcessGroup | None):
        self.parameters, self.ranks = parameters, collectives.ranks_of(group)
        dtype = np.result_type(parameters[0]._array.dtype, np.float32)
        device = parameters[0].device
        ends = list(itertools.accumulate([p.numel() for p in parameters]))
        self.flat = memory.full((ends[-1] + len(parameters),), 0, dtype, device)
        self.users = self.flat[ends[-1] :]
        self.sent = self.flat if world.receiving(device) == device else memory.pinned_like(self.flat)
        self.parts = [self.flat[i - p.numel() : i].reshape(p.shape) for p, i in zip(parameters, ends, strict=True)]
        self.ready = 0
        self.arrived: Any = None
        self.wait: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin to add up over the ranks, or to copy the gradients to where these send from."""
        for listen in listeners:
            listen(f"all-reduce of the gradients {collectives.described(self.flat)}", self.ranks)
        if self.sent is self.flat:
            self.send()
        else:
            self.arrived = memory.start_copy_to(self.sent, self.flat)

    def send(self) -> None:
        """Begin to add up over the ranks, once the gradients are there; nothing if that has begun."""
        if self.wait is None:
            if self.arrived is not None:
                self.arrived.synchronize()
            parts = {r: self.sent for r in world.owned() if r in self.ranks}
            self.wait = world.communicator().start_all_reduce(parts, self.ranks)

    def complete(self) -> None:
        """Wait for the sums."""
        self.send()
        self.wait()
        self.arrived = self.wait = None

    def finish(self, divisor: int) -> None:
        """Wait for the sums, and write them into the gradients, divided by a number of ranks."""
        self.complete()
        if self.sent is not self.flat:
            memory.start_copy_from(self.sent, self.flat)
        missing = [p._grad is None for p in self.parameters]
        users = memory.to_host(self.users).tolist() if any(missing) else missing
        Tensor._wrap(self.flat).div_(divisor)
        for p, mean, is_missing, others in zip(self.parameters, self.parts, missing, users, strict=True):
            if p._edge is None or is_missing and not others:  # frozen since, or no rank used it
                continue
            if is_missing:
                p._grad = zeros_like(p.detach())
            memory.copy_into(p._grad._array, mean)
            p._grad._written()
        self.ready = 0


BUFFERS, GRADIENTS = 1, 2  # what ranks announce


class Reducer:
    """Averages gradients over the ranks, bucket after bucket: in the same order on all of them."""

    def __init__(
        self, module: Module, parameters: list[Tensor], bucket_size: int, group: ProcessGroup | None, buffers: bool
    ):
        self.module, self.group, self.with_buffers = module, group, buffers
        self.ranks = collectives.ranks_of(group)
        self.divisor, self.source = len(self.ranks), self.ranks[0]
        self.joining: dict[str, bool] | None = None  # the options of `join`
        self.shadowed = 0
        self.parameters = parameters[::-1]  # backward comes to the last ones first
        self.places: dict[int, tuple[Bucket, int]] = {}
        self.buckets: list[Bucket] = []
        groups: dict[Any, list[Tensor]] = {}
        for p in self.parameters:
            groups.setdefault((p.dtype, p.device), []).append(p)
        for alike in groups.values():
            for i in range(0, len(alike), bucket_size):
                self.buckets.append(Bucket(alike[i : i + bucket_size], group))
        for bucket in self.buckets:
            for k, p in enumerate(bucket.parameters):
                self.places[id(p)] = bucket, k
                p.register_post_accumulate_grad_hook(self.ready)
        self.enabled, self.active = True, False
        self.started = 0
        self.unused: dict[int, Tensor] = {}
        self.pending = False  # a forward waits for its backward

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients are not averaged by forward and backward in this block."""
        self.enabled = False
        try:
            yield
        finally:
            self.enabled = True

    def spread(self, values: Iterable[Tensor]) -> None:
        """Replace tensors by those of the first rank; after `join`, of the last that trains."""
        for value in values:
            collectives.broadcast(value, self.source, self.group)

    def spread_buffers(self) -> None:
        """Before a forward."""
        if self.with_buffers and self.module.training and any(True for _ in self.module.buffers()):
            self.announce(BUFFERS)
            self.spread(self.module.buffers())

    def announce(self, activity: int) -> bool:
        """Within `join`: tell all ranks what this one is about to do; whether any of them goes on."""
        if self.joining is None:
            return True
        activities = zeros(len(self.ranks), dtype=int64)
        collectives.all_gather_into_tensor(activities, tensor([activity]), self.group)
        training = [rank for rank, activity in zip(self.ranks, activities.tolist(), strict=True) if activity]
        self.source = training[-1] if training else self.source
        self.shadowed = max(activities.tolist())
        if self.joining["throw_on_early_termination"] and 0 < len(training) < len(self.ranks):
            raise DataError(f"join: the ranks {sorted({*self.ranks} - {*training})} have no more batches, others do")
        if not self.joining["divide_by_initial_world_size"] and training:
            self.divisor = len(training)
        return bool(training)

    @contextlib.contextmanager
    def join(
        self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False
    ) -> Iterator[None]:
        """Let ranks have different numbers of batches.

        A rank that leaves this block takes part in what the others do, with gradients of 0, until all have left it.
        Then all get the parameters and buffers of one that trained last.

        Args:
            divide_by_initial_world_size: sums of gradients are divided by the number of all ranks; if false, of those
                that still train.
            enable: false for a block without effect.
            throw_on_early_termination: all ranks raise when one has no more batches.

        Raises:
            DataError: for that reason.

        Source: `torch.nn.parallel.DistributedDataParallel.join`.
        """
        options = {
            "divide_by_initial_world_size": divide_by_initial_world_size,
            "throw_on_early_termination": throw_on_early_termination,
        }
        self.joining = options if enable else None
        try:
            yield
            if enable:
                self.shadow()
        finally:
            self.joining, self.divisor = None, len(self.ranks)

    def shadow(self) -> None:
        """Take part in what the others do until none of them has a batch."""
        while self.announce(0):
            if self.shadowed == BUFFERS:
                self.spread(self.module.buffers())
                continue
            for bucket in self.buckets:
                memory.fill(bucket.flat, 0)
                bucket.start()
            for bucket in self.buckets:
                bucket.complete()
        self.spread([*self.module.parameters(), *self.module.buffers()])

    def prepare(self, output: Any) -> Any:
        """After forward: what backward will reach; the output, whose parts depend on each other for backward."""
        if self.started or any(bucket.ready for bucket in self.buckets):
            raise AutogradError(
                "DistributedDataParallel: the last backward did not reach all parameters that its forward used, so "
                "their gradients were not averaged; call backward on the outputs of the module, all from one forward"
            )
        self.active = self.enabled
        if not self.enabled:
            return output
        tensors = [x for x in tensors_in(output) if x.requires_grad]
        if len(tensors) > 1:
            tied = dict(zip(map(id, tensors), Tie.apply(*tensors), strict=True))
            output = each_tensor(output, lambda x: tied.get(id(x), x))
            tensors = list(tied.values())
        last = last_uses(tensors)
        self.order_leaves(last)
        unused = {id(p): p for p in self.parameters if p._edge is None or p._edge[0] not in last}
        self.unused = {k: p for k, p in unused.items() if not self.pending or k in self.unused}
        self.pending = True
        return output

    def order_leaves(self, last: dict[Leaf, int]) -> None:
        """Let backward visit each leaf as soon as its gradient is complete, so that buckets fill while it goes on.

        Backward visits high sequence numbers first, and leaves, which are older than what uses them, at the end. Here
        one whose last use has number n moves to a fraction between n - 1 and n: those of one operation in the order of
        the parameters, which is that of the buckets.
        """
        for i, p in enumerate(self.parameters):
            leaf = p._edge[0] if p._edge is not None else None
            if leaf in last:
                position = last[leaf] - (i + 1) / (len(self.parameters) + 1)
                waits_for_earlier_use = self.pending and id(p) not in self.unused  # of a forward before this one
                leaf.sequence = min(leaf.sequence, position) if waits_for_earlier_use else position

    def ready(self, p: Tensor) -> None:
        """A gradient is complete."""
        if modes.tracer is not None:
            raise GraphTraceError(
                "DistributedDataParallel: got a backward in nn.Graph.build; gradients are averaged in eager mode only: "
                "train with a graph over global tensors, module.to_global(placement, sbp)"
            )
        if not self.active:
            return
        unused, self.unused = self.unused, {}
        for other in unused.values():
            self.fill(other)
        self.fill(p)
        while self.started < len(self.buckets):
            bucket = self.buckets[self.started]
            if bucket.ready < len(bucket.parameters):
                break
            if self.started == 0:
                self.announce(GRADIENTS)
            bucket.start()
            if self.started > 0:  # all ranks send at the same place among their collectives: not as soon as they can
                self.buckets[self.started - 1].send()
            self.started += 1
        if self.started == len(self.buckets):
            self.buckets[-1].send()
            for bucket in self.buckets:
                bucket.finish(self.divisor)
            self.started, self.pending = 0, False

    def fill(self, p: Tensor) -> None:
        """Copy a gradient into its bucket."""
        bucket, k = self.places[id(p)]
        if not bucket.ready:
            memory.fill(bucket.users, 1)
        bucket.ready += 1
        if p._edge is None or p._grad is None:
            memory.fill(bucket.parts[k], 0)
            memory.fill(bucket.users[k : k + 1], 0)
        else:
            memory.copy_into(bucket.parts[k], p._grad._array)


class Tie(Function):
    """The outputs of a module as they are; backward comes to all of them even if it starts from one."""

    @staticmethod
    def forward(ctx: Any, *outputs: Tensor) -> tuple[Tensor, ...]:
        return tuple([x.view(x.shape) for x in outputs])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        return gradients


def last_uses(tensors: list[Tensor]) -> dict[Leaf, int]:
    """leaf -> the sequence number of the operation, of those that made the tensors, that backward visits last of those
    that use it."""
    last: dict[Leaf, int] = {}
    for node in ancestors([x._edge[0] for x in tensors if x._edge is not None]):
        if type(node) is Leaf:
            last.setdefault(node, node.sequence)  # one of the tensors
        last.update({edge[0]: node.sequence for edge in node.edges if edge is not None and type(edge[0]) is Leaf})
    return last
