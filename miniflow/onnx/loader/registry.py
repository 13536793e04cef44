"""The operators of ONNX as functions of tensors, by name and version.

    @operator("Squeeze")
    def squeeze(data: Tensor, axes: Ints = None) -> Tensor: ...

Positional parameters are the node's inputs, in order; an absent optional input takes the default. Keyword parameters
are its attributes under their names in ONNX. An input that older versions had as an attribute, as `axes` here, needs
nothing: an attribute with the name of a positional parameter fills it. Annotations say what a function gets:

    Tensor              a tensor on the module's device; also for parameters without an annotation
    Ints                a list of Python integers, for shapes and axes; None if absent
    Array               the values as a NumPy array on the host
    Number              a Python number if it is one and known on the host, as initializers are; else a tensor
    Value               a tensor, or a NumPy array if it is known on the host; also of types that tensors do not have
    Buffer              a tensor that is no parameter to be trained: running statistics, scales
    Node                (keyword) the node: its opset, the number of its outputs
    Subgraph            (keyword) an attribute that is a graph

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
    """One version of an operator.

    Attributes:
        name: of the ONNX operator.
        since: the first opset that it computes.
        function: computes it.
        inputs: the annotations of the positional parameters by name.
        variadic: the annotation of `*inputs`, "" if it takes none.
        attributes: the names of its keyword parameters.
        wants_node: whether it has the keyword parameter `node`.
    """

    name: str
    since: int
    function: Callable[..., Any]
    inputs: dict[str, str]
    variadic: str
    attributes: tuple[str, ...]
    wants_node: bool


OPERATORS: dict[str, list[Operator]] = {}


def operator(*names: str, since: int = 1) -> Callable:
    """Register a function as ONNX operators, from an opset on."""

    def register(function: Callable) -> Callable:
        parameters = inspect.signature(function).parameters.values()
        kinds = {p.name: "Tensor" if p.annotation is p.empty else str(p.annotation) for p in parameters}
        inputs = {p.name: kinds[p.name] for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
        variadic = next((kinds[p.name] for p in parameters if p.kind is p.VAR_POSITIONAL), "")
        keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "node"]
        for name in names:
            entry = Operator(name, since, function, inputs, variadic, tuple(keywords), "node" in kinds)
            OPERATORS.setdefault(name, []).append(entry)
        return function

    return register


def find(name: str, opset: int) -> Operator | None:
    """The newest version of an operator that is not above the opset."""
    versions = [entry for entry in OPERATORS.get(name, ()) if entry.since <= opset]
    return max(versions, key=lambda entry: entry.since, default=None)


def choice(name: str, value: str, table: Mapping[str, Any]) -> Any:
    """What the value of an attribute stands for.

    Raises:
        OnnxError: for a value that is not in the table.
    """
    if value not in table:
        raise OnnxError(f"got {name}={value!r}; expected one of {', '.join(table)}")
    return table[value]
