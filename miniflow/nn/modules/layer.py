"""Layers with parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from miniflow.nn.modules.module import Module
from miniflow.nn.parameter import Parameter
from miniflow.ops.creation import empty
from miniflow.options import WithOptions


class Layer(WithOptions, Module):
    """Base of the layers with parameters.

        class Linear(Layer, in_features=..., out_features=..., bias=True, device=None, dtype=None):

    The keywords of the class are the arguments of its constructor, see `WithOptions`. They become attributes, but for
    `bias`, `device` and `dtype`; then `set_up` adds the parameters, and `reset_parameters` initializes them.
    """

    shown: ClassVar[str] = ""  # what `repr` shows, a format of the attributes; {bias} says whether there is one

    def __init__(self, *args: Any, **options: Any):
        values = self.given(args, options)
        Module.__init__(self)
        bias, place = values.pop("bias", True), {name: values.pop(name) for name in ("device", "dtype")}
        for name, value in values.items():
            setattr(self, name, value)
        self.set_up(bias, place)
        self.reset_parameters()

    def extra_repr(self) -> str:
        return self.shown.format_map({**vars(self), "bias": self._parameters.get("bias") is not None})

    def set_up(self, bias: bool, place: dict[str, Any]) -> None:
        """Add what the layer has; `place` is where: device and dtype."""
        raise NotImplementedError(f"{self._get_name()}: a layer must override set_up(bias, place)")

    def reset_parameters(self) -> None:
        """Initialize the parameters again; those of layers within it have their own initialization."""

    def add_parameters(self, place: dict[str, Any], **shapes: Sequence[int] | None) -> None:
        """Register parameters of these names and shapes, or None."""
        for name, shape in shapes.items():
            self.register_parameter(name, None if shape is None else Parameter(empty(*shape, **place)))
