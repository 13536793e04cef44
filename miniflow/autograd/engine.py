"""Backward: visit the nodes of the tape newest first, and pass the gradients of each to the nodes of its inputs."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from miniflow.backends import memory
from miniflow.dispatch.call_errors import refuse_operand
from miniflow.dispatch.dispatcher import refuse_shared_elements
from miniflow.dispatch.tape import FREED, Leaf, Node, Version, ancestors, modes, profiled
from miniflow.errors import ArgumentError, AutogradError, DeviceError, ShapeError
from miniflow.ops.arithmetic import add
from miniflow.ops.creation import ones_like, zeros_like
from miniflow.ops.joining import stack
from miniflow.ops.promotion import cast
from miniflow.ops.shape import clone, sum_to_shape
from miniflow.tensor import Tensor

Edge = tuple[Node | Leaf, int]


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    *,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Add the gradients of `tensors` to the `.grad` of the leaves that they depend on. As `torch.autograd.backward`.

    Args:
        tensors: what to differentiate; a tensor with more than one element needs a cotangent in `grad_tensors`.
        grad_tensors: the cotangents, each of the shape of its tensor; None means 1, for tensors of one element.
        retain_graph: keep the saved tensors for another backward; by default, only with `create_graph`.
        create_graph: record the computation of the gradients, so that they can be differentiated again.
        inputs: the only tensors whose `.grad` is changed, leaves or not.

    Raises:
        AutogradError: for a tensor without a gradient, or empty inputs.
    """
    tensors = as_tuple("backward", tensors)
    if inputs is not None:
        inputs = as_tuple("backward", inputs)
        if not inputs:
            raise AutogradError("backward: got no inputs; expected at least one, or None for all leaves")
        for x in inputs:
            x.retain_grad()
    if modes.tracer is not None:
        tensors = modes.tracer.before_backward(tensors, grad_tensors)
        retain_graph = retain_graph is not False  # another loss of the build may share layers
    cotangents = _cotangents("backward", tensors, grad_tensors)
    BackwardPass(tensors, cotangents, retain_graph, create_graph, inputs, captures=False).run()


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
    *,
    only_inputs: bool = True,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of `outputs` with respect to `inputs`, without changing any `.grad`. As `torch.autograd.grad`.

    >>> import miniflow as flow
    >>> x = flow.tensor(3.0, requires_grad=True)
    >>> (slope,) = grad(x**2, x, create_graph=True)
    >>> slope.item(), grad(slope, x)[0].item()
    (6.0, 2.0)

    Args:
        outputs, inputs: what to differentiate, and by what.
        grad_outputs, retain_graph, create_graph: as of `backward`.
        is_grads_batched: `grad_outputs` have one more dim in front, and so have the gradients: one pass for each.

    Raises:
        AutogradError: for an input that was not used, unless `allow_unused` or `materialize_grads`; as `backward`.
        ShapeError: with `is_grads_batched`, for `grad_outputs` that are not batches of one size.

    Returns:
        one gradient for each input; for one that the outputs do not depend on, None if `allow_unused`, and zeros if
        `materialize_grads`.
    """
    if not only_inputs:
        raise ArgumentError("grad: got only_inputs=False; use backward, which accumulates into every leaf")
    outputs, inputs = as_tuple("grad", outputs), as_tuple("grad", inputs)
    if is_grads_batched:
        options = {"allow_unused": allow_unused, "materialize_grads": materialize_grads}
        return _batched(outputs, inputs, grad_outputs, retain_graph, create_graph, **options)
    for position, x in enumerate(inputs):
        if not x.requires_grad:
            raise AutogradError(
                f"grad: input {position} does not require grad; call requires_grad_() on it before using it"
            )
    backward_pass = BackwardPass(
        outputs, _cotangents("grad", outputs, grad_outputs), retain_graph, create_graph, inputs
    )
    backward_pass.run()
    results = tuple(backward_pass.captured[x._edge] for x in inputs)
    for position, result in enumerate(results):
        if result is None and not (allow_unused or materialize_grads):
            raise AutogradError(
                f"grad: input {position} of shape {tuple(inputs[position].shape)} was not used to compute the outputs; "
                "pass allow_unused=True to get None for it"
            )
    if materialize_grads:
        return tuple(zeros_like(x) if dx is None else dx for x, dx in zip(inputs, results, strict=True))
    return results


def _batched(
    outputs: tuple, inputs: tuple, cotangents: Any, retain_graph: bool | None, create_graph: bool, **options: bool
) -> tuple[Tensor | None, ...]:
    """The gradients for each of a batch of cotangents, stacked."""
    cotangents = cotangents if isinstance(cotangents, list | tuple) else [cotangents]
    counts = {dy.shape[0] if isinstance(dy, Tensor) and dy.ndim else 0 for dy in cotangents}
    if len(counts) != 1 or counts == {0}:
        shapes = [tuple(dy.shape) if isinstance(dy, Tensor) else type(dy).__name__ for dy in cotangents]
        raise ShapeError(
            f"grad: got grad_outputs {shapes}; expected for is_grads_batched a tensor for each output, with one more "
            "dim in front, of one size, at least 1"
        )
    (count,), rows = counts, []
    for i in range(count):
        retain = retain_graph if i == count - 1 else True
        rows.append(grad(outputs, inputs, [dy[i] for dy in cotangents], retain, create_graph, **options))
    return tuple([None if dx[0] is None else stack(dx) for dx in zip(*rows, strict=True)])


def as_tuple(name: str, tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """One tensor or several; `name` is the function that got them."""
    if isinstance(tensors, Tensor):
        return (tensors,)
    tensors = tuple(tensors) if isinstance(tensors, Iterable) else (tensors,)
    for x in tensors:
        if not isinstance(x, Tensor):
            refuse_operand(x, name, "a Tensor, or several")
    return tensors


def _cotangents(name: str, tensors: tuple, cotangents: Any) -> list[Tensor]:
    """One cotangent for each tensor; `name` is the function that got them."""
    if not isinstance(cotangents, list | tuple):
        cotangents = [cotangents] * len(tensors) if cotangents is None else [cotangents]
    if len(cotangents) != len(tensors):
        raise AutogradError(
            f"{name}: got {len(cotangents)} gradients for {len(tensors)} tensors; expected one for each"
        )
    return [_cotangent(name, tensor, cotangent) for tensor, cotangent in zip(tensors, cotangents, strict=True)]


def _cotangent(name: str, tensor: Tensor, cotangent: Tensor | None) -> Tensor:
    """A cotangent that fits a tensor: the one given, or 1."""
    if tensor._fresh_edge() is None:
        raise AutogradError(
            f"{name}: the tensor does not require grad and has no grad_fn; call requires_grad_() on a leaf that it is "
            "computed from, and leave no_grad"
        )
    if cotangent is None:
        if tensor._array.size != 1:
            raise AutogradError(
                f"{name}: grad can be implicitly created only for scalar outputs, got shape {tuple(tensor.shape)}; "
                "reduce it (y.sum()) or pass a gradient of its shape"
            )
        if type(tensor._array) is np.ndarray and modes.tracer is None:  # the most common case, at a third of the cost
            return Tensor._wrap(np.ones_like(tensor._array))
        return ones_like(tensor.detach())
    if not isinstance(cotangent, Tensor):
        raise AutogradError(
            f"{name}: got a gradient of type {type(cotangent).__name__}; expected a Tensor: flow.tensor(...)"
        )
    if cotangent.shape != tensor.shape:
        raise AutogradError(
            f"{name}: got a gradient of shape {tuple(cotangent.shape)} for a tensor of shape {tuple(tensor.shape)}"
        )
    if cotangent._device != tensor._device:
        raise DeviceError(
            f"{name}: got a gradient on {cotangent._device} for a tensor on {tensor._device}: use .to(device)"
        )
    share(cotangent)
    return cast(cotangent, tensor.dtype)


class BackwardPass:
    """One backward pass: nodes are visited newest first, each when the cotangents of all its outputs are complete.

    Attributes:
        pending: the cotangents that nodes have got so far, one for each output.
        queue: these nodes, a heap by how old they are.
        needed: the nodes that lead to `inputs`, if these were given: no others are visited.
        captured: for `grad`, the cotangents of `inputs` by their edges; None for `backward`, which adds to `.grad`.
        roots: the edges of the tensors to differentiate, and their cotangents.
    """

    def __init__(
        self,
        tensors: tuple[Tensor, ...],
        cotangents: list[Tensor],
        retain_graph: bool | None,
        create_graph: bool,
        inputs: tuple[Tensor, ...] | None = None,
        captures: bool = True,
    ):
        self.retain = create_graph if retain_graph is None else retain_graph
        self.create_graph = create_graph
        self.pending: dict[Node | Leaf, list[Tensor | None]] = {}
        self.queue: list[tuple[int, Node | Leaf]] = []
        self.captured: dict[Edge, Tensor | None] | None = None
        self.needed: set[Node | Leaf] | None = None
        if inputs is not None:
            edges = dict.fromkeys([x._edge for x in inputs])
            self.captured = edges if captures else None
            self.needed = _leading_to({edge[0] for edge in edges}, [t._edge[0] for t in tensors])
            for i, tensor in enumerate(tensors):
                if tensor._edge[0] not in self.needed:
                    cotangents[i] = None
        self.roots = [x._edge for x in tensors], cotangents

    @profiled(lambda self: "backward")
    def run(self) -> None:
        previous, modes.enabled = modes.enabled, self.create_graph
        autocast, modes.autocast = modes.autocast, None  # gradients have the dtypes of what they belong to
        tracer = modes.tracer
        try:
            self.deliver(*self.roots)
            self.roots[1].clear()
            while self.queue:
                node = heapq.heappop(self.queue)[1]
                if tracer is not None:
                    tracer.differentiate(node)
                self.visit(node, self.pending.pop(node))
        finally:
            modes.enabled, modes.autocast = previous, autocast
            if tracer is not None:
                tracer.leave_backward()

    def deliver(self, edges: Sequence[Edge | None], gradients: Sequence[Tensor | None]) -> None:
        """Add gradients to what is pending for the outputs of nodes that the edges lead to."""
        for edge, gradient in zip(edges, gradients, strict=True):
            if gradient is not None:
                node, index = edge
                slots = self.pending.get(node)
                if slots is None:
                    self.pending[node] = slots = [None] * len(node.shapes)
                    heapq.heappush(self.queue, (-node.sequence, node))
                slots[index] = gradient if slots[index] is None else add(slots[index], gradient)

    def visit(self, node: Node | Leaf, cotangents: list[Tensor | None]) -> None:
        if node.hooks:
            run_hooks(node, cotangents)
        if self.captured is not None:
            for index, cotangent in enumerate(cotangents):
                if (node, index) in self.captured:
                    self.captured[node, index] = cotangent
        if type(node) is Leaf:
            if self.captured is None:
                accumulate(node, cotangents[0], self.create_graph)
            return
        edges, needed = node.edges, self.needed
        node.needs = needs = edges if needed is None else [e is not None and e[0] in needed for e in edges]
        if needed is not None and not any(needs):
            return
        is_unshared = node.op.view and node.op.single and cotangents[0]._version is None and not self.create_graph
        gradients = node.op.backward(node, *cotangents)
        if is_unshared and gradients._view is not None and gradients._view[0] is cotangents[0]:
            gradients._view = gradients._version = None  # the cotangent, which nobody else has, ends here
        if not self.retain and node._saved:
            node._saved = FREED
        passed_on = set(map(id, cotangents))
        cotangents.clear()
        if type(gradients) is not tuple:
            gradients = (gradients,)
        if len(gradients) != len(edges):
            raise AutogradError(
                f"{node.op.function_name}: its backward returned {len(gradients)} gradients; expected {len(edges)}, "
                "one for each input (None for those that have none)"
            )
        to_deliver = [None] * len(edges)
        for position, gradient in enumerate(gradients):
            if gradient is not None and needs[position]:
                if id(gradient) in passed_on:
                    share(gradient)
                passed_on.add(id(gradient))
                source, index = edges[position]
                array = gradient._array
                if array.shape != source.shapes[index] or array.dtype != source.dtypes[index]:
                    gradient = unbroadcast(node, position, gradient, edges[position])
                to_deliver[position] = gradient
        gradients = gradient = None
        self.deliver(edges, to_deliver)


def _leading_to(targets: set[Node | Leaf], roots: list[Node | Leaf]) -> set[Node | Leaf]:
    """The ancestors of `roots` that have a target among theirs."""
    needed: set[Node | Leaf] = set()
    for node in reversed(ancestors(roots)):  # what a node leads to is older than itself
        if node in targets or any(edge is not None and edge[0] in needed for edge in node.edges):
            needed.add(node)
    return needed


def run_hooks(node: Node | Leaf, cotangents: list[Tensor | None]) -> None:
    """Call the hooks of a node's outputs; what a hook returns replaces the cotangent."""
    for index, hook in list(node.hooks):
        if cotangents[index] is not None:
            share(cotangents[index])
            replacement = hook(cotangents[index])
            if replacement is not None:
                share(replacement)
                got, expected = [(tuple(g.shape), g.dtype) for g in (replacement, cotangents[index])]
                if got != expected:
                    raise AutogradError(
                        f"hook: got a replacement of shape {got[0]} and {got[1]} for a gradient of shape {expected[0]} "
                        f"and {expected[1]}; return a gradient like the given one, or None"
                    )
                cotangents[index] = replacement


def unbroadcast(node: Node, position: int, gradient: Tensor, edge: Edge) -> Tensor:
    """Sum the gradient of a broadcast input to its shape and cast it to its dtype; any other mismatch is an error."""
    shape, dtype = edge[0].shapes[edge[1]], edge[0].dtypes[edge[1]]
    if gradient._array.shape != shape:
        if not node.op.broadcasts:
            raise AutogradError(
                f"{node.op.function_name}: its backward returned a gradient of shape {tuple(gradient.shape)} for input "
                f"{position}; expected {tuple(shape)}, the shape of that input"
            )
        gradient = sum_to_shape(gradient, shape)
    return gradient if gradient._array.dtype == dtype else cast(gradient, dtype)


def accumulate(leaf: Leaf, gradient: Tensor, create_graph: bool) -> None:
    """Add `gradient` to `.grad` of the leaf's tensor, and call the hooks that wait for it.

    A first gradient is taken as it is if nobody else has its memory (PyTorch's AccumulateGrad "steals" it likewise):
    that has a version from the moment on when a view of it is taken, or when `share` notes another holder.
    """
    tensor = leaf.tensor()
    if tensor is None:
        return
    if type(gradient._array) is not np.ndarray or type(tensor._array) is not np.ndarray:
        gradient = _placed_as(tensor, gradient)
    tracer, total = modes.tracer, tensor._grad
    if tracer is not None:
        tracer.keep_gradient(tensor)
        if not create_graph:  # several leaves may get one gradient: each has its own to clip and unscale
            gradient = Tensor._wrap(tracer.symbol_of(gradient._array).copy())
        total = tensor._grad
    if create_graph or tracer is not None:
        tensor._grad = add(total, gradient) if total is not None else clone(gradient) if create_graph else gradient
    elif total is not None:
        refuse_shared_elements("backward", total)
        memory.add_into(total._array, gradient._array)
        total._written()
    elif gradient._version is None and gradient._view is None and memory.is_whole(gradient._array):
        gradient._edge, gradient._version = None, Version()
        tensor._grad = gradient
    else:
        tensor._grad = Tensor._wrap(gradient._array.copy()) if gradient.is_global else clone(gradient)
    for _, hook in leaf.after or ():
        hook(tensor)


def share(gradient: Tensor) -> None:
    """Note that more than one may see the memory of a gradient: it is not the leaf's alone, see `accumulate`."""
    gradient._shared_version()


def _placed_as(tensor: Tensor, gradient: Tensor) -> Tensor:
    """The gradient, in the layout of a global leaf; refuses one from another device."""
    if gradient._device != tensor._device:
        raise DeviceError(
            f"backward: a gradient on {gradient._device} reached a leaf on {tensor._device}; expected it there: has "
            "the leaf been moved since it was used, or does an autograd.Function return gradients of another device?"
        )
    return gradient.to_global(sbp=tensor.sbp) if tensor.is_global else gradient
