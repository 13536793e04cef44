"""What the layers share."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from miniflow.errors import ArgumentTypeError
from miniflow.nn.arguments import ExplainsArguments
from miniflow.nn.modules.module import Module
from miniflow.nn.parameter import Parameter
from miniflow.ops.creation import empty
from miniflow.tensor import Tensor


class Layer(ExplainsArguments, Module):
    """Base of the layers."""

    def __init__(self):
        super().__init__()

    def add_parameters(self, device: Any, dtype: Any, **shapes: Sequence[int] | None) -> None:
        """Register parameters of these names and shapes, not yet initialized, or None."""
        for name, shape in shapes.items():
            parameter = None if shape is None else Parameter(empty(*shape, device=device, dtype=dtype))
            self.register_parameter(name, parameter)


class FunctionModule(Layer):
    """Base of the layers that call a function with options: the arguments of the constructor, kept as attributes."""

    def check_arguments(self, arguments: Mapping[str, Any], signature: inspect.Signature) -> None:
        """Raise ArgumentTypeError for an input in the place of an option too."""
        super().check_arguments(arguments, signature)
        for name, value in arguments.items():
            if isinstance(value, Tensor) and "Tensor" not in str(signature.parameters[name].annotation):
                call = f"{self._get_name()}()(...)"
                raise ArgumentTypeError(f"{self._get_name()}: got a Tensor as the option {name}; make it first: {call}")

    def extra_repr(self) -> str:
        constructors = [inspect.signature(cls).parameters for cls in type(self).__mro__ if issubclass(cls, Layer)]
        names = next((c for c in constructors if c and all(hasattr(self, name) for name in c)), ())
        texts = [f"{name}={getattr(self, name)!r}" for name in names if name != "inplace" or self.inplace is not False]
        return ", ".join(texts)
