"""The error for an argument that is not a tensor, which names the function that was called and its parameter.

Tensors are not checked for being tensors. `dispatch.call` refuses operands that are neither tensors nor numbers, and
functions that look at a tensor's memory before they call an op, or call other functions, use `takes_tensors`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from miniflow.errors import ArgumentTypeError
from miniflow.tensor import Tensor

SYNONYMS = {
    "axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other", "reps": "dims",
}  # fmt: skip


def takes_names(function: Callable) -> Callable:
    """Decorate a function so that it takes NumPy's names of its parameters, and `size=(2, 3)` for `*size`."""

    @functools.wraps(function)
    def named(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:
            args, kwargs = renamed(function, args, kwargs)
            return function(*args, **kwargs)

    return named


def renamed(function: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Arguments under the function's own names; raises the TypeError again if they are under these already."""
    parameters = inspect.signature(function).parameters
    several = next((p.name for p in parameters.values() if p.kind is p.VAR_POSITIONAL), None)
    found = {name if name in parameters else SYNONYMS.get(name, name): value for name, value in kwargs.items()}
    if several in found:  # after the tensor, if there is one, which may have been named too
        before = [found.pop(name) for name in list(parameters)[len(args) :] if name == "input" and name in found]
        args = (*args, *before, found.pop(several))
    elif found.keys() == kwargs.keys():
        raise  # noqa: PLE0704  (within the handler of the caller)
    return args, found


def takes_tensors(function: Callable) -> Callable:
    """Decorate a function so that it says which of its arguments is not a tensor, and `takes_names`."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (AttributeError, TypeError) as error:
            if type(error) is TypeError:
                for p, value in zip(inspect.signature(function).parameters.values(), args, strict=False):
                    if p.annotation == "Tensor" and not isinstance(value, Tensor):
                        refuse_operand(value, function.__name__, parameter=p.name)
                args, kwargs = renamed(function, args, kwargs)
                return function(*args, **kwargs)
            if not isinstance(error, AttributeError | ArgumentTypeError):
                raise
            x = getattr(error, "operand", error.obj if hasattr(Tensor, getattr(error, "name", "")) else error)
            given = inspect.signature(function).bind(*args, **kwargs).arguments
            for name, value in given.items():
                if value is x and not isinstance(x, Tensor):
                    refuse_operand(x, function.__name__, getattr(error, "wanted", "a Tensor"), name)
            raise

    return guarded


def refuse_operand(x: Any, function: str, wanted: str = "a Tensor", parameter: str = "an operand") -> NoReturn:
    """Refuse an operand that is not a tensor.

    Args:
        x: the operand.
        function, parameter: what was called, and which of its parameters got `x`.
        wanted: what it takes, in words.

    Raises:
        ArgumentTypeError: naming them, and what it got.
    """
    kind = f"{type(x).__module__}.{type(x).__name__}".removeprefix("builtins.")
    error = ArgumentTypeError(f"{function}: got {parameter} of type {kind}; expected {wanted}{_remedy(x)}")
    error.operand, error.wanted = x, wanted
    raise error from None


def _remedy(x: Any) -> str:
    if isinstance(x, np.ndarray):
        return ": use flow.from_numpy(x)"
    if isinstance(x, list | tuple | bool | int | float | np.generic):
        return ": use flow.tensor(x)"
    return ": use flow.from_dlpack(x)" if hasattr(x, "__dlpack__") else ""
