"""Hooks of modules: functions that run before and after forward, and when gradients pass through the module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from miniflow.autograd.function import Function
from miniflow.dispatch.tape import is_grad_enabled
from miniflow.errors import ArgumentTypeError, AutogradError
from miniflow.ops.creation import zeros
from miniflow.tensor import Tensor

if TYPE_CHECKING:
    from miniflow.nn.modules.module import Module


def call_with_hooks(module: Module, args: tuple, kwargs: dict[str, Any]) -> Any:
    """The result of a module and of its hooks, if it has any."""
    for hook, with_kwargs in list(module._forward_pre_hooks):
        args, kwargs = _run_pre_hook(module, hook, with_kwargs, args, kwargs)
    backward_hooks = None
    if is_grad_enabled() and (module._backward_hooks or module._backward_pre_hooks):
        backward_hooks = _BackwardHooks(module)
        args = backward_hooks.enter(args)
    result = module.forward(*args, **kwargs)
    for hook, with_kwargs in list(module._forward_hooks):
        changed = hook(module, args, kwargs, result) if with_kwargs else hook(module, args, result)
        result = result if changed is None else changed
    return result if backward_hooks is None else backward_hooks.leave(result)


def _run_pre_hook(module: Module, hook: Callable, with_kwargs: bool, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    changed = hook(module, args, kwargs) if with_kwargs else hook(module, args)
    if changed is None:
        return args, kwargs
    if not with_kwargs:
        return changed if isinstance(changed, tuple) else (changed,), kwargs
    if not (isinstance(changed, tuple) and len(changed) == 2):
        raise ArgumentTypeError(
            f"{type(module).__name__}: a forward pre-hook with kwargs returned a {type(changed).__name__}; "
            "expected None or a pair (args, kwargs)"
        )
    return changed


class _BackwardHookFunction(Function):
    """The identity on several tensors; its backward passes all their gradients to a function that may replace them."""

    @staticmethod
    def forward(ctx: Any, on_gradients: Callable, fill: bool, *tensors: Tensor) -> tuple:
        ctx.on_gradients = on_gradients
        ctx.set_materialize_grads(fill)
        return tensors

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple:
        return (None, None, *ctx.on_gradients(gradients))


def _hook_gradients(values: Sequence[Any], on_gradients: Callable, fill: bool) -> tuple[tuple[Any, ...], list[int]]:
    """Apply `_BackwardHookFunction` to those of `values` that require grad; also returns their positions."""
    positions = [i for i, value in enumerate(values) if isinstance(value, Tensor) and value.requires_grad]
    results = _BackwardHookFunction.apply(on_gradients, fill, *[values[i] for i in positions]) if positions else ()
    return _replaced(values, positions, results), positions


def _replaced(values: Sequence[Any], positions: Sequence[int], replacements: Sequence[Any]) -> tuple[Any, ...]:
    """`values` with those at `positions` replaced by `replacements`."""
    changed = dict(zip(positions, replacements, strict=True))
    return tuple([changed.get(i, value) for i, value in enumerate(values)])


class _BackwardHooks:
    """Collects the gradients of a module's outputs and inputs during one backward, for its backward hooks.

    Inputs and outputs each pass through one node of the tape. Backward reaches that of the outputs first.
    """

    def __init__(self, module: Module):
        self.module = module
        self.pre_hooks = [hook for hook, _ in module._backward_pre_hooks]
        self.hooks = [hook for hook, _ in module._backward_hooks]
        self.grad_output: tuple | None = None

    def enter(self, args: tuple) -> tuple:
        self.inputs = [(x.shape, x.dtype, x._device) if isinstance(x, Tensor) else None for x in args]
        values, self.input_positions = _hook_gradients(args, self._on_input_gradients, fill=True)
        return values

    def leave(self, result: Any) -> Any:
        single = not isinstance(result, tuple | list)
        results = [result] if single else result
        values, self.output_positions = _hook_gradients(results, self._on_output_gradients, fill=False)
        self.output_count = len(values)
        if single:
            return values[0]
        return type(result)(*values) if hasattr(result, "_fields") else type(result)(values)  # named tuples too

    def _on_output_gradients(self, gradients: tuple) -> list[Any]:
        grad_output = _replaced([None] * self.output_count, self.output_positions, gradients)
        self.grad_output = grad_output = self._run(self.pre_hooks, grad_output, "grad_output")
        if not self.input_positions and any(g is not None for g in self._run_hooks((None,) * len(self.inputs))):
            raise AutogradError(
                f"{type(self.module).__name__}: a backward hook returned gradients, but no input of the module "
                "requires grad; return None"
            )
        return [grad_output[i] for i in self.output_positions]

    def _on_input_gradients(self, gradients: tuple) -> list[Any]:
        if self.grad_output is None:  # reached without passing the outputs, as a second-order gradient may
            return list(gradients)
        missing = [None if meta is None else zeros(meta[0], dtype=meta[1], device=meta[2]) for meta in self.inputs]
        changed = self._run_hooks(_replaced(missing, self.input_positions, gradients))
        return [changed[i] for i in self.input_positions]

    def _run_hooks(self, grad_input: tuple) -> tuple:
        grad_output, self.grad_output = self.grad_output, None
        return self._run(self.hooks, grad_input, "grad_input", grad_output)

    def _run(self, hooks: list[Callable], gradients: tuple, name: str, *grad_output: tuple) -> tuple:
        """Call the hooks one after the other; each may replace `gradients`."""
        for hook in hooks:
            returned = hook(self.module, gradients, *grad_output)
            if returned is not None:
                returned = (returned,) if isinstance(returned, Tensor) else tuple(returned)
                if len(returned) != len(gradients):
                    raise AutogradError(
                        f"{type(self.module).__name__}: a backward hook returned {len(returned)} values for {name}; "
                        f"expected {len(gradients)}, or None to change nothing"
                    )
                gradients = returned
        return gradients
