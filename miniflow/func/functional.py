"""The older forms of the transforms, which take the inputs beside the function. As `torch.autograd.functional`.

With `create_graph` the results can be differentiated by the inputs that require grad. `strict` has no effect: the
derivative by an input that is not used is zero. A `v` may be left out where the result is one number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from miniflow.func import transforms
from miniflow.ops.creation import ones_like
from miniflow.tape import is_grad_enabled, set_grad_enabled
from miniflow.tensor import Tensor

Tensors = Tensor | tuple[Tensor, ...]


def _tuple(x: Tensors) -> tuple[Tensor, ...]:
    return (x,) if isinstance(x, Tensor) else tuple(x)


def _like(inputs: Tensors, values: tuple) -> Any:
    return values[0] if isinstance(inputs, Tensor) else values


def _recorded(create_graph: bool) -> set_grad_enabled:
    return set_grad_enabled(create_graph and is_grad_enabled())


def vjp(
    func: Callable, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """What `func` returns, and v^T J. `torch.autograd.functional.vjp`."""
    with _recorded(create_graph):
        y, pull = transforms.vjp(func, *_tuple(inputs))
        return y, _like(inputs, pull(ones_like(y) if v is None else v))


def jvp(
    func: Callable, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """What `func` returns, and J v. `torch.autograd.functional.jvp`."""
    with _recorded(create_graph):
        given = _tuple(inputs)
        return transforms.jvp(func, given, tuple(map(ones_like, given)) if v is None else _tuple(v))


def jacobian(
    func: Callable, inputs: Tensors, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The Jacobian: for several results a tuple, for several inputs a tuple in each.

    Args:
        vectorize: has no effect.
        strategy: "reverse-mode", by rows, or "forward-mode", by columns.

    Source: `torch.autograd.functional.jacobian`.
    """
    transform = transforms.jacfwd if strategy == "forward-mode" else transforms.jacrev
    with _recorded(create_graph):
        given = _tuple(inputs)
        return transform(func, 0 if isinstance(inputs, Tensor) else tuple(range(len(given))))(*given)


def hessian(
    func: Callable, inputs: Tensors, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The second derivatives of a function with one number as result. `torch.autograd.functional.hessian`."""
    argnums = 0 if isinstance(inputs, Tensor) else tuple(range(len(inputs)))
    return jacobian(transforms.grad(func, argnums), inputs, create_graph, strategy=outer_jacobian_strategy)


def vhp(
    func: Callable, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """What `func` returns, and v^T H. `torch.autograd.functional.vhp`."""
    given = _tuple(inputs)
    gradient = transforms.grad_and_value(func, tuple(range(len(given))))
    with _recorded(create_graph):
        _, pull, y = transforms.vjp(gradient, *given, has_aux=True)
        return y, _like(inputs, pull(tuple(map(ones_like, given)) if v is None else _tuple(v)))


def hvp(
    func: Callable, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """What `func` returns, and H v, which is v^T H: H is symmetric. `torch.autograd.functional.hvp`."""
    return vhp(func, inputs, v, create_graph, strict)
