"""Layers that hold the options of a function and call it: activations, pooling, losses, changes of shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from miniflow.errors import ArgumentTypeError
from miniflow.nn.modules.module import Module
from miniflow.options import WithOptions
from miniflow.tensor import Tensor


class FunctionModule(WithOptions, Module):
    """Base of the layers that call a function with the options they were made with, which are their attributes.

        class Softplus(FunctionModule, function=softplus, beta=1.0, threshold=20.0):
            "log(1 + exp(beta * x)) / beta"

    Attributes:
        function: called with the inputs, and the options by keyword.
        options: see `WithOptions`.
        shown: those that the printed form shows; all if None.
        buffer_names: options that are buffers.
    """

    function: ClassVar[Callable[..., Any]]
    shown: ClassVar[tuple[str, ...] | None] = None
    buffer_names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, function: Callable | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if function is not None:
            cls.function = staticmethod(function)

    def __init__(self, *args: Any, **options: Any):
        Module.__init__(self)
        for name, value in self.given(args, options).items():
            if name in self.buffer_names:
                self.register_buffer(name, value)
            elif isinstance(value, Tensor):
                call = f"{self._get_name()}()(...)"
                raise ArgumentTypeError(f"{self._get_name()}: got a Tensor as the option {name}; make it first: {call}")
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
