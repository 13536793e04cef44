"""Classes whose keywords are the arguments of their constructor: layers, optimizers and schedules of few lines."""

from __future__ import annotations

import inspect
import math
from numbers import Real
from typing import Any, ClassVar

from miniflow.errors import ArgumentError, ArgumentTypeError

ABOVE_0 = (math.ulp(0.0), math.inf)


class OfTheClass:
    """What `inspect.signature` finds at a class, but not at its objects, which may be called in another way."""

    def __init__(self, signature: inspect.Signature):
        self.signature = signature

    def __get__(self, found: Any, owner: type) -> inspect.Signature:
        if found is not None:
            raise AttributeError("__signature__")
        return self.signature


class WithOptions:
    """Base of the classes that are declared by their options.

        class StepLR(Schedule, step_size=..., gamma=0.1):

    The keywords of the class, after those of its base, are the arguments of its constructor and their defaults; `...`
    stands for one that must be given.

    Attributes:
        options: their names and defaults.
        before: the names of arguments that stand before them.
        by_keyword: the option from which on they are given by keyword only.
        limits: for some options, the least and the largest number, or the list of the values that there are; for two
            numbers, the least, and what they are below.
        usual_limits: of the other options that are numbers; None if they have none.
        synonyms: other names of options.
        ignored: keywords that are accepted as in PyTorch and have no effect.
    """

    options: ClassVar[dict[str, Any]] = {}
    before: ClassVar[tuple[str, ...]] = ()
    by_keyword: ClassVar[str] = ""
    limits: ClassVar[dict[str, tuple[float, float] | list]] = {}
    usual_limits: ClassVar[tuple[float, float] | None] = None
    synonyms: ClassVar[dict[str, str]] = {}
    ignored: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__()
        cls.options = {**{name: value for name, value in cls.options.items() if name not in options}, **options}
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(name, kind) for name in cls.before]
        for name, default in cls.options.items():
            kind = inspect.Parameter.KEYWORD_ONLY if name == cls.by_keyword else kind
            default = inspect.Parameter.empty if default is ... else default
            parameters.append(inspect.Parameter(name, kind, default=default))
        cls.__signature__ = OfTheClass(inspect.Signature(parameters))

    def given(self, args: tuple, options: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a constructor by name, those that are left out by their defaults; `check_options` looks at
        them."""
        signature = type(self).__signature__
        options = {self.synonyms.get(name, name): value for name, value in options.items() if name not in self.ignored}
        try:
            bound = signature.bind(*args, **options)
        except TypeError as error:
            raise ArgumentTypeError(f"{type(self).__name__}: {error}; expected {signature}") from None
        bound.apply_defaults()
        self.check_options(bound.arguments)
        return dict(bound.arguments)

    def check_options(self, options: dict[str, Any]) -> None:
        """Raise ArgumentError for values outside of the limits."""
        for name, default in self.options.items():
            if isinstance(options[name], bool) and type(default) is int:
                raise ArgumentTypeError(f"{type(self).__name__}: got {name}={options[name]}; expected an integer")
            limits = self.limits.get(name, self.usual_limits)
            if limits is not None and not isinstance(default, bool):
                check(f"{type(self).__name__}: got {name}", options[name], limits, isinstance(default, tuple))


def check(got: str, value: Any, limits: tuple[float, float] | list, is_pair: bool) -> None:
    """Raise ArgumentError unless a value is one of a list, or within limits; two numbers are below the upper one."""
    if isinstance(limits, list):
        *others, last = map(repr, limits)
        right, expected = value in limits, f"{', '.join(others)} or {last}" if others else last
    elif is_pair:
        low, high = limits
        right = isinstance(value, tuple | list) and len(value) == 2 and all(low <= x < high for x in value)
        expected = f"two numbers of at least {low} and below {high}"
    else:
        low, high = limits
        right = isinstance(value, Real) and low <= value <= high
        least = "above 0" if limits == ABOVE_0 else f"of at least {low}"
        expected = f"a number {least}" if high == math.inf else f"a number from {low} to {high}"
    if not right:
        raise ArgumentError(f"{got}={value!r}; expected {expected}")
