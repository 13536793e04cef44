"""The operators of ONNX as functions of tensors, by name.

    @operator("Squeeze")
    def squeeze(data: Tensor, axes: Ints = None) -> Tensor: ...

Positional parameters are the node's inputs, in order; an absent optional input takes the default. Keyword parameters
are its attributes under their names in ONNX, `**rest` all others; one that is absent has the default of the node's
opset. An input that older versions had as an attribute, as `axes` here, needs nothing: an attribute with the name of a
positional parameter fills it. What else differs between opsets, the function finds in `node.opset`. Annotations say
what it gets:

    Tensor              a tensor on the module's device; also for parameters without an annotation
    Ints                a list of Python integers, for shapes and axes; None if absent
    Array               the values as a NumPy array on the host
    Number              a Python number if it is one and known on the host, as initializers are; else a tensor
    Value               a tensor, or a NumPy array if it is known on the host; also of types that tensors do not have
    Buffer              a tensor that is no parameter to be trained: running statistics, scales
    Node                (keyword) the node: its opset, the number of its outputs
    Callable            (keyword) an attribute that is a graph

A function returns a tensor or a NumPy array, or a tuple of these for several outputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from miniflow.errors import OnnxError
from miniflow.tensor import Tensor

Ints: TypeAlias = list[int] | None
Array: TypeAlias = np.ndarray
Number: TypeAlias = int | float | Tensor
Buffer: TypeAlias = Tensor
Value: TypeAlias = Tensor | np.ndarray


@dataclass(frozen=True)
class Operator:
    """An operator.

    Attributes:
        name: of the ONNX operator.
        function: computes it.
        inputs: the annotations of the positional parameters by name.
        variadic: the annotation of `*inputs`, "" if it takes none.
        keywords: the names of its keyword parameters.
        any_keyword: whether it takes all other attributes too.
    """

    name: str
    function: Callable[..., Any]
    inputs: dict[str, str]
    variadic: str = ""
    keywords: tuple[str, ...] = ()
    any_keyword: bool = False


OPERATORS: dict[str, Operator] = {}


def operator(*names: str, **annotations: str) -> Callable:
    """Register a function as ONNX operators; `annotations` are those of parameters that have none."""

    def register(function: Callable) -> Callable:
        parameters = inspect.signature(function).parameters.values()
        by_kind: dict[Any, dict[str, str]] = {}
        for p in parameters:
            annotation = annotations.get(p.name, "Tensor") if p.annotation is p.empty else str(p.annotation)
            by_kind.setdefault(p.kind, {})[p.name] = annotation
        inputs, keywords = by_kind.get(p.POSITIONAL_OR_KEYWORD, {}), tuple(by_kind.get(p.KEYWORD_ONLY, ()))
        variadic = "".join(by_kind.get(p.VAR_POSITIONAL, {}).values())
        for name in names:
            OPERATORS[name] = Operator(name, function, inputs, variadic, keywords, p.VAR_KEYWORD in by_kind)
        return function

    return register


def operators(table: Mapping[str, Callable], **annotations: str) -> None:
    """Register functions as the operators under whose names they are."""
    for name, function in table.items():
        operator(name, **annotations)(function)


def choice(name: str, value: str, table: Mapping[str, Any]) -> Any:
    """What the value of an attribute stands for.

    Raises:
        OnnxError: for a value that is not in the table.
    """
    if value not in table:
        raise OnnxError(f"got {name}={value!r}; expected one of {', '.join(table)}")
    return table[value]
