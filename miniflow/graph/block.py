"""How a graph sees its modules: `graph.model` is a proxy that acts as the module and carries its options.

The options belong to the graph, not to the module: two graphs over one module have their own.

    graph.model.config.activation_checkpointing = True          # as in OneFlow 0.8 and before
    graph.model.to(nn.graph.GraphModule).set_stage(0)            # as since then
    graph.model.to(nn.Module)                                    # the module itself
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator
from types import MappingProxyType, MethodType
from typing import TYPE_CHECKING, Any

from miniflow.errors import ArgumentError, GraphError
from miniflow.graph.options import Option, Options, switch
from miniflow.nn.modules.container import ModuleDict
from miniflow.nn.modules.module import Module

if TYPE_CHECKING:
    from miniflow.graph.graph import Graph


def _stage(option: str, value: Any) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise ArgumentError(f"set_stage: got {option}={value!r}; expected an integer of at least 0")
    return value


class GraphModule(Options):
    """The options of a module in a graph.

    Attributes:
        activation_checkpointing: compute the activations within the module again when backward needs them, instead of
            keeping them: less memory, the same numbers.
        stage_id: the number of the pipeline stage, None if there are no stages.
        stage_placement: where the stage lies; see `set_stage`.

    Source: `oneflow.nn.graph.GraphModule`; Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
    """

    activation_checkpointing = Option(False, switch)
    stage_id = Option(None, _stage)
    stage_placement = Option(None, lambda option, value: value, lambda where: ("placement", where))

    INSTEAD = {"stage": "config.stage_id = {}", "checkpointing": "config.activation_checkpointing = {}"}

    def set_stage(self, stage_id: int | None = None, placement: Any = None) -> None:
        """Put the module into a stage of a pipeline.

        With micro-batches, `config.set_gradient_accumulation_steps(k)`, stages on several placements work at the same
        time, in the order of `config.set_pipeline_schedule`.

        Args:
            stage_id: stages are numbered from 0 in the order of the data.
            placement: where the stage lies: global tensors that the module is called with move there. None if `build`
                moves them, x.to_global(placement=...).

        Raises:
            ArgumentError: for a number that is not an integer of at least 0.

        Source: `oneflow.nn.graph.GraphModule.set_stage`.
        """
        self.stage_id, self.stage_placement = stage_id, placement

    def __repr__(self) -> str:
        return f"(CONFIG:config:GraphModule({''.join(f'{name}={value}, ' for name, value in self.options().items())}))"


class ProxyModule:
    """A module of a graph: attributes, calls and items are the module's, and modules among them are proxies again.

    Attributes:
        config: the options of the module in the graph, a `GraphModule`; a module that has an attribute `config` of its
            own keeps it, and `.to(nn.graph.GraphModule)` gives the options.
    """

    def __init__(self, graph: Graph, module: Module) -> None:
        object.__setattr__(self, "_proxy_graph", graph)
        object.__setattr__(self, "_proxy_module", module)

    @property
    def __class__(self) -> type:
        """That of the module, so that `isinstance(graph.model, nn.Module)` holds."""
        return type(self._proxy_module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._proxy_module(*args, **kwargs)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """The options for `GraphModule`, the module for `nn.Module`; otherwise converts it as `nn.Module.to` does."""
        if args and args[0] is GraphModule:
            return options_of(self._proxy_graph, self._proxy_module)
        if args and args[0] is Module:
            return self._proxy_module
        self._proxy_module.to(*args, **kwargs)
        return self

    def __getattr__(self, name: str) -> Any:
        """Reached for everything that is not defined here."""
        module = self._proxy_module
        if name == "config" and not hasattr(module, "config"):
            return options_of(self._proxy_graph, module)
        value = getattr(module, name)
        if name == "_modules":
            return MappingProxyType({key: wrap(self._proxy_graph, child) for key, child in value.items()})
        if getattr(value, "__func__", None) in GIVING_MODULES:
            return MethodType(value.__func__, self)
        return wrap(self._proxy_graph, value)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._proxy_module, name, unwrap(value))

    def __iter__(self) -> Iterator[Any]:
        return (wrap(self._proxy_graph, value) for value in self._proxy_module)

    def __copy__(self) -> Module:
        return copy.copy(self._proxy_module)

    def __deepcopy__(self, memo: dict[int, Any]) -> Module:
        return copy.deepcopy(self._proxy_module, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._proxy_module.__reduce_ex__(protocol)

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._proxy_module), "config"})

    def __repr__(self) -> str:
        return self._proxy_graph._module_text(self._proxy_module)


def _of_module(function: Callable) -> Callable:
    """A special method that does with the module what an operator, or a function, does with an object."""

    def method(proxy: ProxyModule, *args: Any) -> Any:
        return wrap(proxy._proxy_graph, function(proxy._proxy_module, *map(unwrap, args)))

    return method


for _name, _function in {
    "delattr": delattr, "getitem": operator.getitem, "setitem": operator.setitem, "delitem": operator.delitem,
    "len": len, "bool": bool, "contains": operator.contains, "hash": hash, "eq": operator.eq,
}.items():  # fmt: skip
    setattr(ProxyModule, f"__{_name}__", _of_module(_function))

GIVING_MODULES = {  # these run on the proxy, and find proxies in its `_modules`
    Module.modules, Module.children, Module.named_modules, Module.named_children, Module.get_submodule, Module.apply,
    ModuleDict.values, ModuleDict.items,
}  # fmt: skip


def wrap(graph: Graph, value: Any) -> Any:
    """A proxy for a module; anything else as it is."""
    return ProxyModule(graph, value) if isinstance(value, Module) and type(value) is not ProxyModule else value


def options_of(graph: Graph, module: Module) -> GraphModule:
    """The options of a module in a graph.

    Raises:
        GraphError: for a module that the graph does not have, as a slice of a Sequential, which is a new one.
    """
    if all(module is not member for block in graph._blocks.values() for member in block.modules()):
        raise GraphError(
            f"{graph.name}: got the options of a {type(module).__name__} that is not a module of the graph; expected "
            "one of those that it has, and a slice is a new one: set the options of its modules one by one"
        )
    return graph._options.setdefault(module, GraphModule())


def unwrap(value: Any) -> Any:
    """The module of a proxy; anything else as it is."""
    return value._proxy_module if type(value) is ProxyModule else value
