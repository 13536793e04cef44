"""Options that refuse names and values that they cannot have: those of a graph, of its modules, of job functions."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

from miniflow.dispatch.tape import note_change
from miniflow.errors import ArgumentError, ArgumentTypeError


class Option:
    """An attribute of `Options`.

    Args:
        default: its value at first.
        check: returns the value that is stored, of the option's name and the value that is set, or raises.
        shown: name and value as they are printed, of the value; by default its own.
        is_shown: whether it is printed where it is not as by default.
        is_compiled: whether a plan depends on it.
    """

    def __init__(
        self,
        default: Any,
        check: Callable[[str, Any], Any],
        shown: Callable[[Any], tuple[str, Any]] | None = None,
        *,
        is_shown: bool = True,
        is_compiled: bool = True,
    ):
        self.default, self.check, self.is_shown, self.is_compiled = default, check, is_shown, is_compiled
        self.shown = shown or (lambda value: (self.name, value))

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, options: Options | None, owner: type) -> Any:
        return self if options is None else options.__dict__.get(self.name, self.default)

    def __set__(self, options: Options, value: Any) -> None:
        options.__dict__[self.name] = self.check(self.name, value)
        note_change()


class Options:
    """The base of classes whose public attributes are `Option`s."""

    INSTEAD: ClassVar[dict[str, str]] = {}  # what is assigned by mistake -> what to use

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an option.

        Raises:
            AttributeError: for a name that no option has, or one that is set by a method.
            ArgumentError, ArgumentTypeError, DTypeError: for a value that the option cannot have.
        """
        if not isinstance(getattr(type(self), name, None), Option):
            raise AttributeError(self._refusal(name, value))
        super().__setattr__(name, value)

    def options(self) -> dict[str, Any]:
        """What is not as it is by default, by the names under which it is printed."""
        values = [(option, getattr(self, option.name)) for option in self._all() if option.is_shown]
        return dict(option.shown(value) for option, value in values if value != option.default)

    def key(self) -> tuple:
        """What a plan depends on: of one graph, equal keys compile to equal plans."""
        return tuple([getattr(self, option.name) for option in self._all() if option.is_compiled])

    @classmethod
    def _all(cls) -> Iterator[Option]:
        return (x for base in reversed(cls.__mro__) for x in vars(base).values() if isinstance(x, Option))

    def _refusal(self, name: str, value: Any) -> str:
        """Why an attribute cannot be set: it is a method, or there is none of this name."""
        known = sorted(x for x in {*dir(self), *self.INSTEAD} if not x.startswith("_") and x != "INSTEAD")
        if name in self.INSTEAD:
            remedy = f"use {self.INSTEAD[name].format(repr(value))}"
        elif callable(getattr(type(self), name, None)):
            remedy = f"it is a method: call config.{name}({value!r})"
        elif close := difflib.get_close_matches(name, known, 1):
            remedy = f"did you mean {close[0]}?"
        else:
            remedy = f"it has {', '.join(known)}"
        return f"{type(self).__name__}.{name}: got an assignment; expected the name of an option: {remedy}"


def switch(option: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ArgumentTypeError(f"{option}: got {value!r}; expected True or False")
    return bool(value)


def count(option: str, value: Any) -> int:
    """An integer of at least 1."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise ArgumentError(f"{option}: got {value!r}; expected an integer of at least 1")
    return int(value)


def choice(option: str, value: Any, allowed: tuple, parameter: str = "") -> Any:
    """One of some values."""
    if value not in allowed:
        raise ArgumentError(f"{option}: got {parameter}{value!r}; expected one of {allowed}")
    return value
