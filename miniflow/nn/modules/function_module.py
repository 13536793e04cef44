"""Layers that hold the options of a function and call it: activations, pooling, losses, changes of shape."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from miniflow.errors import ArgumentTypeError
from miniflow.nn.modules.module import Module


class FunctionModule(Module):
    """Base of the layers that call a function with the options they were made with, which are their attributes.

        class Softplus(FunctionModule, function=softplus, beta=1.0, threshold=20.0):
            "log(1 + exp(beta * x)) / beta"

    The keywords of the class, after those of its base, are the arguments of its constructor and their defaults; `...`
    stands for one that must be given.

    Attributes:
        function: called with the inputs, and the options by keyword.
        options: their names and defaults.
        shown: those that the printed form shows; all if None.
        buffer_names: options that are buffers.
    """

    function: ClassVar[Callable[..., Any]]
    options: ClassVar[dict[str, Any]] = {}
    shown: ClassVar[tuple[str, ...] | None] = None
    buffer_names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, function: Callable | None = None, **options: Any) -> None:
        super().__init_subclass__()
        if function is not None:
            cls.function = staticmethod(function)
        cls.options = {**{name: value for name, value in cls.options.items() if name not in options}, **options}
        kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
        cls.__signature__ = inspect.Signature(
            inspect.Parameter(name, kind, default=empty if default is ... else default)
            for name, default in cls.options.items()
        )

    def __init__(self, *args: Any, **options: Any):
        super().__init__()
        try:
            values = self.__signature__.bind(*args, **options)
        except TypeError as error:
            raise ArgumentTypeError(f"{self._get_name()}: {error}; expected {self.__signature__}") from None
        values.apply_defaults()
        for name, value in values.arguments.items():
            if name in self.buffer_names:
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        options = {name: getattr(self, name) for name in self.options}
        return self.function(*inputs, **named, **options)

    def extra_repr(self) -> str:
        shown = self.options if self.shown is None else self.shown
        texts = {name: f"{name}={getattr(self, name)!r}" for name in shown}
        if texts.get("inplace") == "inplace=False":
            del texts["inplace"]
        return ", ".join(texts.values())
