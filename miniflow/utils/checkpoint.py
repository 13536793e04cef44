"""Activation checkpointing: less memory for more time.

Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016; `torch.utils.checkpoint`.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from miniflow.dispatch.tape import Node, enable_grad, is_grad_enabled, modes, sequence
from miniflow.errors import AutogradError
from miniflow.ops.generator import get_rng_state, set_rng_state
from miniflow.tensor import Tensor


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    determinism_check: str = "default",
    debug: bool = False,
    **kwargs: Any,
) -> Any:
    """Call `function(*args, **kwargs)` without keeping what its backward needs: that computes it all again.

    A graph records the function as it is: there, `module.config.activation_checkpointing = True` does this.

    Args:
        function: returns tensors, alone or in tuples, lists and dicts, and gives the same when it is called again.
        args, kwargs: gradients reach all tensors that the function uses, parameters and those of closures too.
        use_reentrant, determinism_check, debug: accepted as in PyTorch; here it is always `use_reentrant=False`, and
            always checked that the same operators are called again.
        preserve_rng_state: draw the same random numbers when it is computed again, for dropout.

    Raises:
        AutogradError: in backward, if the function calls other operators than before, or an argument was changed in
            place in between.

    >>> import miniflow as flow
    >>> x = flow.ones(3, requires_grad=True)
    >>> flow.utils.checkpoint.checkpoint(lambda x: x.exp().sin(), x).sum().backward()
    >>> bool(flow.isclose(x.grad, flow.exp(flow.ones(3)) * flow.cos(flow.exp(flow.ones(3)))).all())
    True

    Source: `torch.utils.checkpoint.checkpoint`.
    """
    if not is_grad_enabled() or modes.tracer is not None:
        return function(*args, **kwargs)
    recomputation = _Recomputation(lambda: function(*args, **kwargs), (args, kwargs), preserve_rng_state)
    outputs, nodes = recomputation.record()
    recomputation.nodes = [weakref.ref(node) for node in nodes]  # which hold this recomputation in turn
    for node in nodes:
        if node._saved:
            node._saved = recomputation
    return outputs


class _Recomputation:
    """Stands for what some nodes saved, until one of them needs it: then it is computed again for all of them."""

    def __init__(self, function: Callable[[], Any], arguments: Any, preserve_rng_state: bool):
        self.function, self.autocast = function, modes.autocast
        self.state = get_rng_state() if preserve_rng_state else None
        self.versions = [(x, x.version) for x in _tensors(arguments)]
        self.nodes: list[weakref.ref[Node]] = []

    def record(self) -> tuple[Any, list[Node]]:
        """Call the function; its result, and the nodes that it left on the tape, oldest first.

        Casts that others made of its parameters under autocast are not used, nor are its own left to them: so it leaves
        the same nodes each time.
        """
        start, autocast = sequence(), modes.autocast
        modes.autocast = self.autocast and self.autocast.with_own_cache()
        try:
            outputs = self.function()
        finally:
            modes.autocast = autocast
        nodes, waiting = set(), [x._edge for x in _tensors(outputs) if x.requires_grad]
        while waiting:
            edge = waiting.pop()
            if edge is not None and edge[0].sequence > start and edge[0] not in nodes:
                nodes.add(edge[0])
                waiting += edge[0].edges
        return outputs, sorted([node for node in nodes if isinstance(node, Node)], key=lambda node: node.sequence)

    def __call__(self) -> None:
        """Compute again what the nodes saved, and put it back into them."""
        if any(x.version != version for x, version in self.versions):
            raise AutogradError(
                "checkpoint: an argument was changed in place before backward; change a copy (x.clone())"
            )
        state = get_rng_state()
        if self.state is not None:
            set_rng_state(self.state)
        try:
            with enable_grad():
                _, nodes = self.record()
        finally:
            set_rng_state(state)
        originals = [node() for node in self.nodes]  # None for those that nothing needs any more
        if len(originals) != len(nodes) or any(
            a is not None and _signature(a) != _signature(b) for a, b in zip(originals, nodes, strict=True)
        ):
            raise AutogradError("checkpoint: the function calls other operators when it is computed again in backward")
        original, references = dict(zip(nodes, originals, strict=True)), dict(zip(nodes, self.nodes, strict=True))
        for inner in {node._saved for node in nodes if isinstance(node._saved, _Recomputation)}:  # a checkpoint inside
            inner.nodes = [references.get(node(), node) for node in inner.nodes]
        for node, target in original.items():
            for value, *_ in node._saved if isinstance(node._saved, list) else ():
                if isinstance(value, Tensor) and value._edge is not None and original.get(value._edge[0]) is not None:
                    value._edge = original[value._edge[0]], value._edge[1]
            if target is not None and target._saved is self:
                target._saved = node._saved


def _signature(node: Node) -> tuple:
    return node.op.function_name, node.shapes


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in nested tuples, lists and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list | dict):
        for x in value.values() if isinstance(value, dict) else value:
            yield from _tensors(x)


def checkpoint_sequential(functions: Sequence[Callable], segments: int, input: Any, **options: Any) -> Any:
    """The functions one after the other, in `segments` parts of which only the inputs are kept.

    Source: `torch.utils.checkpoint.checkpoint_sequential`.
    """
    functions = list(functions)
    size = -(-len(functions) // segments)

    def run(part: list[Callable]) -> Callable:
        return lambda x: functools.reduce(lambda y, function: function(y), part, x)

    for first in range(0, len(functions), size):
        input = checkpoint(run(functions[first : first + size]), input, **options)
    return input
