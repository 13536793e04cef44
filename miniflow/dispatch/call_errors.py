"""Errors name the function that was called and its arguments, not the operator inside it that failed.

Tensors are not checked for being tensors. `dispatcher.call` refuses operands that are neither tensors nor numbers, and
functions that look at a tensor's memory before they call an op, or call other functions, use `takes_tensors`: it acts
on errors only, and costs nothing where there is none.
"""

from __future__ import annotations

import functools
import inspect
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from miniflow import errors
from miniflow.errors import ArgumentTypeError, DeviceError, refusal
from miniflow.tensor import Tensor

SYNONYMS = {
    "axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other", "reps": "dims",
}  # fmt: skip
SHAPE = r"\((?:\d+, (?:\d+, )*(?:\d+)?|\d+,)?\)"
OF_OPERANDS = (AttributeError, TypeError, ValueError, IndexError, ZeroDivisionError, DeviceError)
OF_PYTHON = {  # what Python and NumPy raise, and the error that stands for it
    TypeError: errors.ArgumentTypeError,
    ValueError: errors.ArgumentError,
    IndexError: errors.IndexRangeError,
    ZeroDivisionError: errors.DivisionByZeroError,
}


def takes_tensors(function: Callable) -> Callable:
    """Decorate a function: its errors name the function and the argument that is not a tensor. It also accepts NumPy's
    names of its parameters, and `size=(2, 3)` for `*size`."""
    parameters = inspect.signature(function).parameters
    several = {p.name for p in parameters.values() if p.kind is p.VAR_POSITIONAL}
    others = several | {name for name, ours in SYNONYMS.items() if name not in parameters and ours in parameters}

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        if kwargs and not others.isdisjoint(kwargs):
            args, kwargs = renamed(parameters, args, kwargs)
        try:
            return function(*args, **kwargs)
        except OF_OPERANDS as error:
            refuse_argument(error, function, args, kwargs)
            explain(error, function, args, kwargs)
            raise

    return guarded


def renamed(
    parameters: Mapping[str, inspect.Parameter], args: tuple, kwargs: dict[str, Any]
) -> tuple[tuple, dict[str, Any]]:
    """Arguments under the function's own names."""
    several = next((p.name for p in parameters.values() if p.kind is p.VAR_POSITIONAL), None)
    names = {name: name if name in parameters else SYNONYMS.get(name, name) for name in kwargs}
    kwargs = {names[name] if names[name] in parameters else name: value for name, value in kwargs.items()}
    if several in kwargs:  # after the tensor, if there is one, which may have been named too
        tensor = [kwargs.pop(name) for name in list(parameters)[len(args) :] if name == "input" and name in kwargs]
        args = (*args, *tensor, kwargs.pop(several))
    return args, kwargs


def refuse_argument(error: Exception, function: Callable, args: tuple, kwargs: dict[str, Any]) -> None:
    """Raise ArgumentTypeError if `function` failed because an argument is not a tensor."""
    if type(error) is TypeError:
        for p, value in zip(inspect.signature(function).parameters.values(), args, strict=False):
            if p.annotation == "Tensor" and not isinstance(value, Tensor):
                refuse_operand(value, function.__name__, parameter=p.name)
    if isinstance(error, AttributeError | ArgumentTypeError):
        x = getattr(error, "operand", error.obj if hasattr(Tensor, getattr(error, "name", "")) else error)
        for name, value in (*zip(inspect.signature(function).parameters, args, strict=False), *kwargs.items()):
            if not isinstance(x, Tensor) and _holds(value, x):
                refuse_operand(x, function.__name__, getattr(error, "expected", "a Tensor"), name)


def _holds(value: Any, x: Any) -> bool:
    """Whether an argument is `x`, or a list that it is in."""
    return value is x or isinstance(value, list | tuple) and any(_holds(element, x) for element in value)


def explain(error: Exception, function: Callable, args: tuple, kwargs: dict[str, Any]) -> None:
    """Let the error of an operator inside `function` name the function, and its arguments too if the operator got other
    shapes. What Python or NumPy refuses within this package is raised as an error of miniflow."""
    try:
        arguments = inspect.signature(function).bind(*args, **kwargs).arguments
    except TypeError:
        return  # the error says so
    name = function.__name__
    if type(error).__module__ != errors.__name__:
        raise_ours(error, name, arguments)
        return
    message = error.__dict__.setdefault("of_operator", str(error))
    op, colon, rest = message.partition(": ")
    shapes = {str(shape) for shape in _sizes(arguments.values())}
    if not colon or " " in op:
        error.args = (f"{name}: {message}",)
    elif op == name:
        error.args = (message,)
    elif shapes.issuperset(re.findall(SHAPE, rest.partition("; expected")[0])):
        error.args = (f"{name}: {rest}",)
    else:
        error.args = (f"{_arguments_text(name, arguments)}; in its step {message}",)


def _arguments_text(name: str, arguments: Mapping[str, Any]) -> str:
    """The beginning of a message: what a function got."""
    return refusal(str, name, "", **arguments).rpartition("; expected")[0] if arguments else name


def raise_ours(error: Exception, name: str, arguments: Mapping[str, Any]) -> None:
    """Raise what Python or NumPy refused within this package as an error of miniflow that says what was called."""
    ours = next((ours for theirs, ours in OF_PYTHON.items() if isinstance(error, theirs)), None)
    if ours is not None and type(error).__module__ != errors.__name__ and _raised_within(error):
        raise ours(f"{_arguments_text(name, arguments)}: {error}") from error


def _raised_within(error: Exception) -> bool:
    """Whether a line of miniflow or NumPy raised it, and no function of the user's was called in between."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return all(name.partition(".")[0] in ("miniflow", "numpy") for name in modules)


def _sizes(values: Iterable) -> Iterator[tuple]:
    """The shapes of tensors, and tuples of numbers, in nested arguments."""
    for x in values:
        if hasattr(x, "shape"):
            yield tuple(x.shape)
        elif isinstance(x, list | tuple):
            yield tuple(x)
            yield from _sizes(x)


def refuse_operand(x: Any, function: str, expected: str = "a Tensor", parameter: str = "an operand") -> NoReturn:
    """Refuse an operand that is not a tensor.

    Args:
        x: the operand.
        function, parameter: what was called, and which of its parameters got `x`.
        expected: what it takes, in words.

    Raises:
        ArgumentTypeError: naming them, and what it got.
    """
    type_name = f"{type(x).__module__}.{type(x).__name__}".removeprefix("builtins.")
    error = ArgumentTypeError(f"{function}: got {parameter} of type {type_name}; expected {expected}{_remedy(x)}")
    error.operand, error.expected = x, expected
    raise error from None


def _remedy(x: Any) -> str:
    if isinstance(x, np.ndarray):
        return ": use flow.from_numpy(x)"
    if x is None:
        return ": does what made it return its result?"
    if isinstance(x, list | tuple) and any(isinstance(element, Tensor) for element in x):
        return ": take one of its tensors, or flow.stack(x)"
    if isinstance(x, list | tuple | bool | int | float | np.generic):
        return ": use flow.tensor(x)"
    return ": use flow.from_dlpack(x)" if hasattr(x, "__dlpack__") else ""
