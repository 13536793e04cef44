"""Arguments of constructors: what is wrong with them is said by the project's own errors."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, ClassVar

from miniflow.dispatch.call_errors import raise_ours
from miniflow.errors import ArgumentError, ArgumentTypeError

ABOVE_0 = (math.ulp(0.0), math.inf)
AT_LEAST_0 = (0, math.inf)


class ExplainsArguments:
    """Base of layers, optimizers and schedules: arguments that do not fit their constructor are an ArgumentTypeError.

    Attributes:
        synonyms: other names of arguments.
        ignored: keywords that are accepted as in PyTorch and have no effect.
    """

    synonyms: ClassVar[dict[str, str]] = {}
    ignored: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = explained(cls.__init__)

    def check_arguments(self, arguments: Mapping[str, Any], signature: inspect.Signature) -> None:
        """Raise ArgumentTypeError for a bool in the place of an integer."""
        for name, value in arguments.items():
            if isinstance(value, bool) and type(signature.parameters[name].default) is int:
                raise ArgumentTypeError(f"{type(self).__name__}: got {name}={value}; expected an integer")


def explained(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor that names the class, its arguments and what does not fit."""
    _, *parameters = inspect.signature(init).parameters.values()
    signature = inspect.Signature(parameters)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)

    @functools.wraps(init)
    def __init__(self, *args: Any, **options: Any) -> None:
        if options and not takes_any:
            names = signature.parameters
            options = {name: x for name, x in options.items() if name in names or name not in self.ignored}
            options = {name if name in names else self.synonyms.get(name, name): x for name, x in options.items()}
        try:
            arguments = signature.bind(*args, **options).arguments
        except TypeError as error:
            shown = signature.replace(parameters=[p.replace(annotation=p.empty) for p in parameters])
            raise ArgumentTypeError(f"{type(self).__name__}: {error}; expected {shown}") from None
        self.check_arguments(arguments, signature)
        try:
            init(self, *args, **options)
        except (TypeError, ValueError, ZeroDivisionError) as error:
            if type(self).__init__ is __init__ and init.__module__.startswith("miniflow."):  # not of a base class
                values = {name: x for name, x in arguments.items() if not type(x).__module__.startswith("miniflow.")}
                raise_ours(error, type(self).__name__, values)
            raise

    return __init__


def check_choice(owner: Any, choices: list, **values: Any) -> None:
    """Raise ArgumentError, which names the class of an object and the argument, unless values are among `choices`."""
    *others, last = map(repr, choices)
    for name, value in values.items():
        if value not in choices:
            raise unfit(owner, name, value, f"{', '.join(others)} or {last}" if others else last)


def check_range(owner: Any, limits: tuple[float, float], **values: Any) -> None:
    """Raise ArgumentError unless numbers are at least the first limit and at most the second."""
    low, high = limits
    least = "above 0" if limits == ABOVE_0 else f"of at least {low}"
    for name, value in values.items():
        if not (isinstance(value, Real) and low <= value <= high):
            raise unfit(
                owner, name, value, f"a number {least}" if high == math.inf else f"a number from {low} to {high}"
            )


def check_pair(owner: Any, limits: tuple[float, float], **values: Any) -> None:
    """Raise ArgumentError unless values are pairs of numbers, at least the first limit and below the second."""
    low, high = limits
    for name, pair in values.items():
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(low <= x < high for x in pair)):
            raise unfit(owner, name, pair, f"two numbers of at least {low} and below {high}")


def unfit(owner: Any, name: str, value: Any, expected: str) -> ArgumentError:
    return ArgumentError(f"{type(owner).__name__}: got {name}={value!r}; expected {expected}")
