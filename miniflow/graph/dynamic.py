"""Graphs from functions, and graphs for inputs of many shapes."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from miniflow.errors import ArgumentError, ArgumentTypeError
from miniflow.graph.block import unwrap
from miniflow.nn.modules.module import Module

if TYPE_CHECKING:
    from miniflow.graph.graph import Graph


def with_dynamic_input_shape(size: int, enable_shared: bool) -> Callable:
    """Decorate the `__init__` of a graph to keep plans for up to `size` kinds of inputs: shapes, dtypes and devices.

    The kind that was used longest ago is dropped; a graph warns when it meets it again. Graphs take inputs of any shape
    anyway, and keep plans for ten kinds; the decorator sets the number, and wins over `config.static_shapes`. All plans
    share one memory for their results, as large as the largest of them needs.

        class Net(nn.Graph):
            @nn.Graph.with_dynamic_input_shape(size=3)
            def __init__(self, model):
                super().__init__()
                self.model = model

    Args:
        size: for how many kinds of inputs plans are kept.
        enable_shared: plans share parameters and buffers, always.

    Raises:
        ArgumentError: unless `size` is an integer of at least 1.

    Source: `oneflow.nn.Graph.with_dynamic_input_shape`.
    """
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ArgumentError(f"with_dynamic_input_shape: got size={size!r}; expected an integer of at least 1")
    if not enable_shared:
        warnings.warn(
            "with_dynamic_input_shape: enable_shared=False has no effect: plans share the memory of the modules; to "
            "train copies, give each graph a module of its own.",
            stacklevel=3,
        )

    def decorate(initialise: Callable) -> Callable:
        @functools.wraps(initialise)
        def wrapped(self: Graph, *args: Any, **kwargs: Any) -> None:
            initialise(self, *args, **kwargs)
            self.__dict__["_kinds_kept"] = size
            self.config.static_shapes(False)

        return wrapped

    return decorate


def trace(base: type[Graph], function: Callable) -> Graph:
    """A graph that computes what a function or a module does.

    Modules that the function finds around it (in its closure, or as globals) become modules of the graph.

    >>> import miniflow as flow
    >>> @flow.nn.Graph.trace
    ... def distance(x, y):
    ...     return (x - y).square().sum().sqrt()
    >>> distance(flow.tensor([1.0, 2.0]), flow.tensor([4.0, 6.0])).item()
    5.0

    Raises:
        ArgumentTypeError: for anything but a function or a module.
    """
    function = unwrap(function)
    if not isinstance(function, Module) and not inspect.isfunction(function) and not inspect.ismethod(function):
        raise ArgumentTypeError(
            f"nn.Graph.trace: got a {type(function).__name__}; expected a function or a module: @nn.Graph.trace"
        )
    name = function._get_name() if isinstance(function, Module) else function.__name__
    graph = type(name, (base,), {"build": staticmethod(function), "__doc__": function.__doc__})()
    for key, module in {"module": function}.items() if isinstance(function, Module) else _around(function).items():
        graph.__dict__["_blocks"][key] = module
    if not isinstance(function, Module):
        functools.update_wrapper(graph, function, updated=())
    return graph


def _around(function: Callable) -> dict[str, Module]:
    variables = inspect.getclosurevars(function)
    names = {**variables.globals, **variables.nonlocals}
    if inspect.ismethod(function) and isinstance(function.__self__, Module):
        names = {"self": function.__self__, **names}
    return {name: unwrap(value) for name, value in names.items() if isinstance(value, Module)}
