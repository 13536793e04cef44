"""The older forms of the transforms, which take the inputs beside the function. As `torch.autograd.functional`.

With `create_graph` the results can be differentiated by the inputs that require grad. `strict` has no effect: the
derivative by an input that is not used is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from miniflow.autograd.engine import as_tuple
from miniflow.dispatch.tape import is_grad_enabled, set_grad_enabled
from miniflow.errors import ArgumentError, ShapeError
from miniflow.func import transforms
from miniflow.ops.creation import ones_like
from miniflow.tensor import Tensor

Tensors = Tensor | tuple[Tensor, ...]
STRATEGIES = {"reverse-mode": transforms.jacrev, "forward-mode": transforms.jacfwd}


def _vector(name: str, like: Any, v: Tensors | None) -> tuple[Tensor, ...]:
    """`v` as a tuple; None stands for 1 where `like` is one tensor of one element."""
    if v is not None:
        return as_tuple(name, v)
    if not isinstance(like, Tensor) or like.numel() != 1:
        side = "results" if name == "vjp" else "inputs"
        expected = f"tensors of the shapes of the {side}; it may be left out for one of one element"
        raise ArgumentError(f"{name}: got v=None; expected {expected}")
    return (ones_like(like),)


def _like(value: Any, values: tuple) -> Any:
    """One tensor where `value` is one."""
    return values[0] if isinstance(value, Tensor) and len(values) == 1 else values


def _argnums(name: str, inputs: Tensors) -> transforms.ArgNums:
    return 0 if isinstance(inputs, Tensor) else tuple(range(len(as_tuple(name, inputs))))


def _recorded(create_graph: bool) -> set_grad_enabled:
    return set_grad_enabled(create_graph and is_grad_enabled())


def _number(name: str, func: Callable) -> Callable:
    """What `grad` with `has_aux` takes: the one element that `func` returns as a number, and as it is."""

    def run(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        y = func(*inputs)
        if not isinstance(y, Tensor) or y.numel() != 1:
            got = f"shape {tuple(y.shape)}" if isinstance(y, Tensor) else f"type {type(y).__name__}"
            raise ShapeError(f"{name}: got a function with a result of {got}; expected one element: use y.sum()")
        return y.reshape(()), y

    return run


def vjp(
    func: Callable, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """What `func` returns, and v^T J.

    Args:
        v: of the shapes of the results; may be left out for one result of one element.

    Raises:
        ArgumentError: where `v` is left out and is needed.
        ShapeError, ArgumentTypeError: as of `func.vjp`.

    Source: `torch.autograd.functional.vjp`.
    """
    with _recorded(create_graph):
        y, pull = transforms.vjp(func, *as_tuple("vjp", inputs))
        return y, _like(inputs, pull(_like(y, _vector("vjp", y, v))))


def jvp(
    func: Callable, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """What `func` returns, and J v.

    Args:
        v: of the shapes of the inputs; may be left out for one input of one element.

    Raises:
        ArgumentError: where `v` is left out and is needed.
        ShapeError, ArgumentTypeError: as of `func.jvp`.

    Source: `torch.autograd.functional.jvp`.
    """
    with _recorded(create_graph):
        return transforms.jvp(func, as_tuple("jvp", inputs), _vector("jvp", inputs, v))


def jacobian(
    func: Callable, inputs: Tensors, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The Jacobian: for several results a tuple, for several inputs a tuple in each.

    Args:
        vectorize: has no effect.
        strategy: "reverse-mode", by rows, or "forward-mode", by columns.

    Raises:
        ArgumentError: for another strategy.
        ArgumentTypeError: for inputs or results that are not tensors.

    Source: `torch.autograd.functional.jacobian`.
    """
    if strategy not in STRATEGIES:
        raise ArgumentError(f"jacobian: got strategy={strategy!r}; expected 'reverse-mode' or 'forward-mode'")
    with _recorded(create_graph):
        return STRATEGIES[strategy](func, _argnums("jacobian", inputs))(*as_tuple("jacobian", inputs))


def hessian(
    func: Callable, inputs: Tensors, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The second derivatives of a function with one element as result.

    Args:
        vectorize: has no effect.
        outer_jacobian_strategy: of `jacobian`, for the derivatives of the gradient.

    Raises:
        ShapeError: for a result of another number of elements.
        ArgumentError, ArgumentTypeError: as of `jacobian`.

    Source: `torch.autograd.functional.hessian`.
    """
    gradient = transforms.grad(_number("hessian", func), _argnums("hessian", inputs), has_aux=True)
    return jacobian(lambda *xs: gradient(*xs)[0], inputs, create_graph, strategy=outer_jacobian_strategy)


def vhp(
    func: Callable, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """What `func` returns, which is one element, and v^T H.

    Args, Raises: as of `jvp`; and ShapeError for a result of another number of elements.

    Source: `torch.autograd.functional.vhp`.
    """
    return _products("vhp", func, inputs, v, create_graph)


def hvp(
    func: Callable, inputs: Tensors, v: Tensors | None = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """What `func` returns, and H v, which is v^T H: H is symmetric. As `vhp`. `torch.autograd.functional.hvp`."""
    return _products("hvp", func, inputs, v, create_graph)


def _products(name: str, func: Callable, inputs: Tensors, v: Tensors | None, create_graph: bool) -> tuple:
    primals, vector = as_tuple(name, inputs), _vector(name, inputs, v)
    gradient = transforms.grad(_number(name, func), tuple(range(len(primals))), has_aux=True)
    with _recorded(create_graph):
        _, pull, y = transforms.vjp(gradient, *primals, has_aux=True)
        return y, _like(inputs, pull(vector))
