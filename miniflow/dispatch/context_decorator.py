"""Context managers that decorate functions and generator functions too, as those of PyTorch do."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any


class ContextDecorator:
    """Base of a context manager that may decorate: every call of the function runs in a context of its own."""

    def clone(self) -> Any:
        """A context manager with the same arguments."""
        return type(self)()

    def __call__(self, function: Callable) -> Callable:
        clone = self.clone
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                return (yield from _Resumed(function(*args, **kwargs), clone))

        else:

            @functools.wraps(function)
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                with clone():
                    return function(*args, **kwargs)

        return wrapped


class _Resumed(Generator):
    """A generator that enters a context whenever it is resumed, and leaves it at each yield."""

    def __init__(self, generator: Generator, context: Callable[[], Any]):
        self.generator = generator
        self.context = context

    def send(self, value: Any) -> Any:
        with self.context():
            return self.generator.send(value)

    def throw(self, *error: Any) -> Any:
        with self.context():
            return self.generator.throw(*error)
