"""`autograd.Function`: an operation whose gradient the user writes."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from miniflow.dispatch.tape import Node, enable_grad, is_grad_enabled, no_grad
from miniflow.errors import AutogradError
from miniflow.ops.creation import new_zeros
from miniflow.ops.inplace import refuse_leaf, rewrite_history
from miniflow.tensor import Tensor


class Context:
    """What `forward` keeps for `backward`: any attributes, and the tensors given to `save_for_backward`."""

    def __init__(self):
        self._to_save: tuple = ()
        self._nondifferentiable: set[int] = set()
        self._dirty: tuple[Tensor, ...] = ()
        self._materialize = True
        # for each output: its number among the differentiable ones or None, its shape and dtype or None
        self._outputs: list[tuple[int | None, tuple | None]] = []
        self.needs_input_grad: tuple[bool, ...] = ()  # whether `backward` has to return it, for each argument
        self._node: weakref.ref[Node] | None = None  # the node holds the context: a strong reference would be a cycle

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep inputs or outputs of `forward` for `backward`; changing them in place afterwards is an error."""
        self._to_save = tensors

    @property
    def saved_tensors(self) -> tuple:
        """The tensors given to `save_for_backward`."""
        return self._node().saved

    def mark_non_differentiable(self, *outputs: Tensor) -> None:
        """Declare outputs that have no gradient."""
        self._nondifferentiable.update(id(y) for y in outputs)

    def mark_dirty(self, *inputs: Tensor) -> None:
        """Declare inputs that `forward` changes in place and returns; call it before changing them."""
        with enable_grad():
            for x in inputs:
                refuse_leaf("mark_dirty", x)
        self._dirty = inputs

    def set_materialize_grads(self, value: bool) -> None:
        """Whether missing cotangents arrive as zeros (the default) or as None."""
        self._materialize = value


class _FunctionOp:
    """Takes the place of the op class in a Node: it passes the cotangents to the user's `backward`."""

    broadcasts = view = False

    def __init__(self, function: type[Function], context: Context):
        self.function = function
        self.context = context
        self.function_name = function.__name__

    def backward(self, node: Node, *cotangents: Tensor | None) -> tuple:
        self.context.needs_input_grad = tuple([bool(needed) for needed in node.needs])
        some_cotangent = next(dy for dy in cotangents if dy is not None)
        materialized = []
        for index, like in self.context._outputs:
            dy = None if index is None else cotangents[index]
            if dy is None and like is not None and self.context._materialize:
                dy = new_zeros(some_cotangent, like[0], dtype=like[1])
            materialized.append(dy)
        gradients = self.function.backward(self.context, *materialized)
        gradients = gradients if isinstance(gradients, tuple | list) else (gradients,)
        if len(gradients) < len(node.edges) or any(g is not None for g in gradients[len(node.edges) :]):
            raise AutogradError(
                f"{self.function_name}.backward returned {len(gradients)} gradients; expected {len(node.edges)}, one "
                "for each argument of forward (None for those that have none)"
            )
        for gradient in gradients:
            if not isinstance(gradient, Tensor | None):
                raise AutogradError(
                    f"{self.function_name}.backward returned a {type(gradient).__name__}; expected a tensor or None "
                    "for each argument of forward: use flow.tensor(...)"
                )
            if gradient is not None:
                gradient._shared_version()  # it may be kept by whoever wrote the function, see `engine.accumulate`
        return tuple(gradients[: len(node.edges)])


class Function:
    """An operation with a user-defined gradient; call it with `apply`. As `torch.autograd.Function`.

    >>> import miniflow as flow
    >>> class Cube(Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x * x
    ...
    ...     @staticmethod
    ...     def backward(ctx, dy):
    ...         (x,) = ctx.saved_tensors
    ...         return dy * 3 * x * x
    >>> x = flow.tensor(2.0, requires_grad=True)
    >>> Cube.apply(x).backward()
    >>> x.grad.item()
    12.0
    """

    setup_context: Callable[[Context, tuple, Any], None] | None = None
    """Where a subclass has this static method, `forward` is without `ctx`: this is given it, the arguments and the
    result, and keeps what `backward` needs."""

    @staticmethod
    def forward(ctx: Context, *args: Any, **kwargs: Any) -> Any:
        """Compute the result; nothing inside is recorded."""
        raise NotImplementedError("Function: forward must be overridden by a static method forward(ctx, ...)")

    @staticmethod
    def backward(ctx: Context, *cotangents: Any) -> Any:
        """Return the gradient of every argument of `forward`; written in ops, it can be differentiated again.

        Args:
            cotangents: of every output of `forward`; zeros for those without a gradient, None for those not tensors.
        """
        raise NotImplementedError("Function: backward must be overridden by a static method backward(ctx, ...)")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run `forward` and record `backward` on the tape."""
        context = Context()
        edges = tuple(x._fresh_edge() if isinstance(x, Tensor) else None for x in args)
        context.needs_input_grad = tuple([edge is not None for edge in edges])
        with no_grad():
            if cls.setup_context is None:
                result = cls.forward(context, *args, **kwargs)
            else:
                result = cls.forward(*args, **kwargs)
                cls.setup_context(context, args, result)
        results = result if isinstance(result, tuple) else (result,)
        if any(not any(x is y for y in results) for x in context._dirty):
            raise AutogradError(f"{cls.__name__}.forward marked an input as dirty that it does not return; return it")
        if is_grad_enabled() and any(edges):
            outputs = tuple(_new_output(y, args, context) if isinstance(y, Tensor) else y for y in results)
            _record(cls, context, edges, args, results, outputs)
            result = outputs if isinstance(result, tuple) else outputs[0]
        return result

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.apply(*args, **kwargs)


def _new_output(output: Tensor, args: tuple, context: Context) -> Tensor:
    """An input that is returned unchanged becomes a new tensor, so that the node is not attached to the input."""
    if any(output is x for x in context._dirty):
        return output
    return output.detach() if any(output is x for x in args) or output._view is not None else output


def _record(cls: type, context: Context, edges: tuple, args: tuple, results: tuple, outputs: tuple) -> None:
    dirty, inputs = set(map(id, context._dirty)), set(map(id, args))
    differentiable, position = [], {}
    for r, y in zip(results, outputs, strict=True):
        index = None
        if isinstance(y, Tensor) and id(r) not in context._nondifferentiable and y.is_floating_point():
            index = position[id(r)] = position[id(y)] = len(differentiable)
            differentiable.append(y)
        context._outputs.append((index, (y.shape, y.dtype) if isinstance(y, Tensor) else None))
    node = Node(_FunctionOp(cls, context), edges, {}, differentiable)
    context._node = weakref.ref(node)
    node._saved = []
    for x in context._to_save:
        index = position.get(id(x)) if id(x) in dirty or id(x) not in inputs else None
        x = x if index is None else x.detach()
        node._saved.append((x, x.version if isinstance(x, Tensor) else None, index))
    context._to_save = ()
    for index, y in enumerate(differentiable):
        if id(y) in dirty:
            rewrite_history(y, (node, index))
        else:
            y._edge = (node, index)


class _Refusal(Function):
    """The identity on its first argument, whose gradient cannot be differentiated."""

    @staticmethod
    def forward(ctx: Context, gradient: Tensor, name: str, *_: Tensor) -> Tensor:
        ctx.name = name
        return gradient.detach()

    @staticmethod
    def backward(ctx: Context, *cotangents: Tensor) -> Any:
        raise AutogradError(
            f"{ctx.name}.backward is marked once_differentiable, so its gradient cannot be differentiated again; write "
            "it in ops without that mark"
        )


def once_differentiable(backward: Callable) -> Callable:
    """Decorate the `backward` of a Function that does not compute in ops (in NumPy, say): differentiating its result
    is an error instead of a wrong gradient. As `torch.autograd.function.once_differentiable`."""

    @functools.wraps(backward)
    def wrapped(ctx: Context, *cotangents: Any) -> Any:
        with no_grad():
            gradients = backward(ctx, *cotangents)
        if not is_grad_enabled():
            return gradients
        name = ctx._node().op.function_name
        sources = [t for t in (*cotangents, *ctx.saved_tensors) if isinstance(t, Tensor)]
        refuse = tuple(gradients) if isinstance(gradients, tuple | list) else (gradients,)
        return tuple(g if g is None else _Refusal.apply(g, name, *sources) for g in refuse)

    return wrapped
