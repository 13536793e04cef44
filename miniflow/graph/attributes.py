"""What assigning to an attribute of a graph does: modules become its blocks, optimizers and tensors are refused."""

from __future__ import annotations

from typing import Any, TypeVar

from miniflow.dispatch.tape import modes, note_change
from miniflow.graph import describe
from miniflow.graph.block import ProxyModule, unwrap
from miniflow.graph.config import GraphConfig
from miniflow.graph.state import module_names
from miniflow.nn.modules.module import Module
from miniflow.optim.optimizer import Optimizer
from miniflow.tensor import Tensor

Self = TypeVar("Self", bound="GraphAttributes")
INSTEAD = {
    "forward": "call the graph itself, graph(...)",
    "backward": "build calls loss.backward()",
    "step": "every call of a graph with an optimizer is a step",
    "zero_grad": "every call begins without gradients, and leaves the .grad of parameters alone",
}


class GraphAttributes:
    """The part of `Graph` that knows its modules by attribute, and forgets its plans when they change."""

    def _initialised(self: Self) -> Self:
        """The graph itself, if `Graph.__init__` has run.

        Raises:
            AttributeError: otherwise.
        """
        if "_blocks" not in self.__dict__:
            raise AttributeError(
                "Base class nn.Graph has not been initialized, please call super().__init__() in subclass of nn.Graph "
                f"before assigning any attribute: in {type(self).__name__}.__init__"
            )
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        self._initialised()
        class_name = type(self).__name__
        value = unwrap(value)
        if modes.tracer is not None:
            modes.tracer.accesses.assigning(self, name)
        is_module = isinstance(value, Module)
        if is_module and hasattr(type(self), name) or name == "config" and not isinstance(value, GraphConfig):
            raise AttributeError(f"'{class_name}' nn.Graph has an attribute '{name}' of its own: choose another name")
        if is_module:
            self.__dict__.pop(name, None)
            self._blocks[name] = value
            self._forget_plans(f"its module {name!r} is another")
        elif isinstance(value, Optimizer):
            raise AttributeError(
                f"'{class_name}' nn.Graph is not allowed to set Optimizer attribute named '{name}'. "
                "Please use add_optimizer(...) instead."
            )
        elif isinstance(value, Tensor):
            raise AttributeError(
                f"'{class_name}' nn.Graph is not allowed to set Tensor attribute named '{name}'. "
                "Please use nn.Module to hold the tensor, then add the nn.Module to nn.Graph."
            )
        elif name == "config":
            value._set_training(value.training or self.training)
            object.__setattr__(self, name, value)
        else:
            if self._blocks.pop(name, None) is not None:
                self._forget_plans(f"its attribute {name!r} is not a module any more")
            object.__setattr__(self, name, value)
            note_change()

    def __getattr__(self, name: str) -> Any:
        """Reached when ordinary lookup has failed."""
        if name.startswith("__"):
            raise AttributeError(name)
        blocks = self._initialised()._blocks
        if name in blocks:
            return ProxyModule(self, blocks[name])
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'{self._remedy(name)}")

    def _remedy(self, name: str) -> str:
        """What to do instead of looking for this attribute, for those that modules and training loops have."""
        if name in INSTEAD:
            return f": {INSTEAD[name]}"
        if not hasattr(Module, name):
            return ""
        module = f"graph.{next(iter(self._blocks), 'model')}"
        return f": a graph is not an nn.Module, and its modules stay as they are; use {module}.{name}"

    def __delattr__(self, name: str) -> None:
        if name in self._initialised()._blocks:
            del self._blocks[name]
            self._forget_plans(f"its module {name!r} was deleted")
        else:
            object.__delattr__(self, name)
            note_change()

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__dict__.get("_blocks", ())})

    def _forget_plans(self, why: str) -> None:
        """Forget what was compiled; the next call says why it compiles again."""
        if self._last is not None:
            self.__dict__.update(_plans=[], _last=None, _forgotten=why)

    def _module_text(self, module: Module) -> str:
        return describe.module_text(self, module, module_names(self._blocks).get(module, "?"))
