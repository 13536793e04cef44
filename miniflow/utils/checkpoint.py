"""Activation checkpointing: less memory for more time.

Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016; `torch.utils.checkpoint`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from miniflow.autograd import Function, backward
from miniflow.ops.creation import zeros
from miniflow.ops.generator import get_rng_state, set_rng_state
from miniflow.tape import enable_grad, is_grad_enabled, modes
from miniflow.tensor import Tensor

TENSOR = object()  # stands among the arguments where a tensor was


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Call `function(*args, **kwargs)` without keeping what its backward needs: that computes it all again.

    Args:
        function: returns a tensor or a tuple of tensors, and gives the same when it is called again.
        args, kwargs: gradients reach tensors among `args`, and the parameters that the function uses.
        use_reentrant: accepted as in PyTorch; both ways are the same here.
        preserve_rng_state: draw the same random numbers when it is computed again, for dropout.

    >>> import miniflow as flow
    >>> x = flow.ones(3, requires_grad=True)
    >>> flow.utils.checkpoint.checkpoint(lambda x: x.exp().sin(), x).sum().backward()
    >>> bool(flow.isclose(x.grad, flow.exp(flow.ones(3)) * flow.cos(flow.exp(flow.ones(3)))).all())
    True

    Source: `torch.utils.checkpoint.checkpoint`.
    """
    if not is_grad_enabled():
        return function(*args, **kwargs)
    state = get_rng_state() if preserve_rng_state else None
    return _Recomputed.apply(lambda *args: function(*args, **kwargs), state, zeros(0, requires_grad=True), *args)


class _Recomputed(Function):
    """A function whose forward is run again by its backward. `anchor` requires grad, even if no argument does."""

    @staticmethod
    def forward(ctx: Any, function: Callable, state: Tensor | None, anchor: Tensor, *args: Any) -> Any:
        ctx.function, ctx.state, ctx.autocast = function, state, modes.autocast
        ctx.args = [TENSOR if isinstance(x, Tensor) else x for x in args]
        ctx.save_for_backward(*[x for x in args if isinstance(x, Tensor)])
        ctx.set_materialize_grads(False)
        return function(*args)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple:
        needs, saved = ctx.needs_input_grad[3:], iter(ctx.saved_tensors)
        args = [
            next(saved).detach().requires_grad_(need) if x is TENSOR else x
            for x, need in zip(ctx.args, needs, strict=True)
        ]
        state, autocast = get_rng_state(), modes.autocast
        if ctx.state is not None:
            set_rng_state(ctx.state)
        modes.autocast = ctx.autocast
        try:
            with enable_grad():
                outputs = ctx.function(*args)
        finally:
            modes.autocast = autocast
            set_rng_state(state)
        outputs = [y for y in (outputs if isinstance(outputs, tuple) else (outputs,)) if isinstance(y, Tensor)]
        pairs = [(y, dy) for y, dy in zip(outputs, cotangents, strict=True) if dy is not None and y.requires_grad]
        backward([y for y, _ in pairs], [dy for _, dy in pairs])
        return None, None, None, *[x.grad if need else None for x, need in zip(args, needs, strict=True)]


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
