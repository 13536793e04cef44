"""Data parallel training of local tensors: every rank has the whole model and a part of the batch.

The gradients are averaged over the ranks while backward goes on: they are copied into buckets, in about the order in
which backward makes them, and a bucket that is full starts an all-reduce that does not wait.

Source: Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training".
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from miniflow.autograd import Function
from miniflow.backends import memory
from miniflow.errors import ArgumentError, AutogradError, GraphTraceError
from miniflow.nn.modules.module import Module
from miniflow.ops.creation import zeros_like
from miniflow.parallel import collectives, world
from miniflow.parallel.nest import each_tensor, tensors_in
from miniflow.tape import Leaf, ancestors, is_grad_enabled, modes
from miniflow.tensor import Tensor


def DistributedDataParallel(  # noqa: N802  (the name of a class in PyTorch)
    module: Module,
    *,
    broadcast_buffers: bool = True,
    broadcast_parameters: bool = True,
    bucket_size: int = 10,
    use_bucket: bool = True,
) -> Module:
    """Let every rank train the same model on its part of a batch.

    Parameters and buffers become those of rank 0. After `backward` each gradient is the mean over the ranks, also of
    parameters that some of them did not use: their gradient is 0 there. As in OneFlow, the module itself is returned,
    with a method `no_sync`: within `with module.no_sync():` gradients stay those of the rank, and accumulate until
    forward and backward run outside of it.

    Args:
        module: with local parameters.
        broadcast_buffers: before each forward in training, buffers become those of rank 0.
        broadcast_parameters: make the parameters equal at the beginning.
        bucket_size: parameters whose gradients are reduced together.
        use_bucket: False reduces each by itself.

    Raises:
        ArgumentError: for a module without parameters that require grad, or with global ones.
        AutogradError: at the next forward, if a backward did not reach all parameters that forward used.
        GraphTraceError: at a backward in an nn.Graph, which takes global tensors instead.

    Source: `oneflow.nn.parallel.DistributedDataParallel`, `torch.nn.parallel.DistributedDataParallel`.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    if not parameters or any(p.is_global for p in parameters):
        raise ArgumentError("DistributedDataParallel: expected a module with local parameters that require grad")
    if bucket_size < 1:
        raise ArgumentError(f"DistributedDataParallel: got bucket_size={bucket_size}; expected at least 1")
    for value in [*(module.parameters() if broadcast_parameters else ()), *module.buffers()]:
        collectives.broadcast(value, 0)
    reducer = Reducer(parameters, bucket_size if use_bucket else 1)

    def before(module: Module, args: tuple) -> None:
        if broadcast_buffers and module.training and modes.tracer is None:
            for value in module.buffers():
                collectives.broadcast(value, 0)

    def after(module: Module, args: tuple, output: Any) -> Any:
        return reducer.prepare(output) if is_grad_enabled() and modes.tracer is None else output

    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)
    module.no_sync = reducer.no_sync
    return module


class Bucket:
    """The gradients of some parameters of one dtype and device, one after the other.

    Attributes:
        parameters: in order.
        flat: their gradients, then the sums over the ranks; half precision is summed in float32.
        parts: the part of each parameter, in its shape.
        ready: how many of them are there.
        wait: ends the all-reduce, once it runs.
    """

    def __init__(self, parameters: list[Tensor]):
        self.parameters = parameters
        dtype = np.result_type(parameters[0]._array.dtype, np.float32)
        self.device = world.receiving(parameters[0].device)
        self.flat = memory.full((sum(p.numel() for p in parameters),), 0, dtype, self.device)
        ends = itertools.accumulate([p.numel() for p in parameters])
        self.parts = [self.flat[i - p.numel() : i].reshape(p.shape) for p, i in zip(parameters, ends, strict=True)]
        self.ready = 0
        self.wait: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin to add up over the ranks."""
        parts = dict.fromkeys(world.owned(), self.flat)
        self.wait = world.communicator().start_all_reduce(parts, range(world.size()))

    def finish(self) -> None:
        """Wait for the sums, and write the means into the gradients."""
        self.wait()
        Tensor._wrap(self.flat).div_(world.size())
        for p, mean in zip(self.parameters, self.parts, strict=True):
            if p._edge is None:  # frozen since
                continue
            memory.copy_into(p._grad._array, memory.move(mean, p.device))
            p._grad._written()
        self.ready, self.wait = 0, None


class Reducer:
    """Averages gradients over the ranks, bucket after bucket: in the same order on all of them."""

    def __init__(self, parameters: list[Tensor], bucket_size: int):
        self.parameters = parameters[::-1]  # backward comes to the last ones first
        self.places: dict[int, tuple[Bucket, int]] = {}
        self.buckets: list[Bucket] = []
        groups: dict[Any, list[Tensor]] = {}
        for p in self.parameters:
            groups.setdefault((p.dtype, p.device), []).append(p)
        for some in groups.values():
            for i in range(0, len(some), bucket_size):
                self.buckets.append(Bucket(some[i : i + bucket_size]))
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
        for i, p in enumerate(self.parameters):
            leaf = p._edge[0] if p._edge is not None else None
            if leaf in last:  # visited as soon as its gradient is complete
                position = last[leaf] - (i + 1) / (len(self.parameters) + 1)
                leaf.sequence = min(leaf.sequence, position) if self.pending and id(p) not in self.unused else position
        unused = {id(p): p for p in self.parameters if p._edge is None or p._edge[0] not in last}
        self.unused = {k: p for k, p in unused.items() if not self.pending or k in self.unused}
        self.pending = True
        return output

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
            if other._grad is None and other._edge is not None:
                other._grad = zeros_like(other.detach())
            self.fill(other)
        self.fill(p)
        while self.started < len(self.buckets):
            bucket = self.buckets[self.started]
            if bucket.ready < len(bucket.parameters):
                break
            bucket.start()
            self.started += 1
        if self.started == len(self.buckets):
            for bucket in self.buckets:
                bucket.finish()
            self.started, self.pending = 0, False

    def fill(self, p: Tensor) -> None:
        """Copy a gradient into its bucket."""
        bucket, k = self.places[id(p)]
        bucket.ready += 1
        if p._edge is None:
            Tensor._wrap(bucket.parts[k]).zero_()
            return
        memory.copy_into(bucket.parts[k], memory.move(p._grad._array, bucket.device))


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
    found: dict[Leaf, int] = {}
    for node in ancestors([x._edge[0] for x in tensors if x._edge is not None]):
        if type(node) is Leaf:
            found.setdefault(node, node.sequence)  # one of the tensors
        found.update({edge[0]: node.sequence for edge in node.edges if edge is not None and type(edge[0]) is Leaf})
    return found
