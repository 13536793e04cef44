"""What a model computes, as calls of operators, with sizes that may vary.

A model with dynamic axes is recorded four times, with other sizes of these axes. A number that differs among the
recordings, in a shape or an attribute, is a `Size`: what it was in each of them. `writer` finds out how it follows from
the sizes of the inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from miniflow.dispatch import is_array
from miniflow.errors import OnnxError
from miniflow.graph.describe import meta
from miniflow.graph.graph import Graph
from miniflow.graph.ir import Program, Slot
from miniflow.graph.nested import flatten
from miniflow.graph.recording import Recording
from miniflow.graph.trace import kept_whole
from miniflow.nn.modules.module import Module
from miniflow.onnx.exporter.registry import HANDLERS, find
from miniflow.tape import no_grad

RECORDINGS = 4  # with other sizes of dynamic axes


@dataclass(frozen=True)
class Size:
    """A number that follows from the sizes of dynamic axes: what it was in each recording."""

    values: tuple[int, ...]


@dataclass(eq=False)
class Value:
    """An array of the model.

    Attributes:
        shape: numbers and `Size`s.
        dtype: a NumPy dtype.
        name: in ONNX; the writer sets it.
        arrays: of a parameter, a buffer or a constant the values in each recording; else empty.
    """

    shape: tuple[int | Size, ...]
    dtype: np.dtype
    name: str = ""
    arrays: tuple[Any, ...] = ()


@dataclass
class Call:
    """One operator applied to values.

    Attributes:
        name: of the operator, or of the composite function.
        inputs: `Value`s, numbers and None; those of a composite function are in `attributes`.
        scope: the dotted name of the module.
        location: `file:line` of the user's code.
    """

    name: str
    inputs: list[Any]
    attributes: dict[str, Any]
    outputs: list[Value]
    scope: str
    location: str


@dataclass
class Recorded:
    """A model: its calls in order, its inputs and outputs, the names of dynamic axes, and those of parameters."""

    inputs: list[Value]
    outputs: list[Value]
    calls: list[Call] = field(default_factory=list)
    axes: dict[Size, str] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)


class Wrapped(Graph):
    """A module as a graph."""

    def __init__(self, model: Module):
        super().__init__()
        self.model = model

    def build(self, *args: Any, **kwargs: Any) -> Any:
        with no_grad():
            return self.model(*args, **kwargs)


def record(
    graph: Graph, args: tuple, kwargs: dict[str, Any], axes: Mapping[int, Mapping[int, str]], prefix: str, opset: int
) -> Recorded:
    """The calls of a graph for arguments like these.

    Args:
        graph: without an optimizer.
        args, kwargs: their tensors are the inputs of the model, the rest is fixed.
        axes: number of an input -> axis -> name of its size; axes of one name are of one size.
        opset: composite functions for which it has an operator are kept whole.
        prefix: left out at the beginning of names of parameters and scopes.

    Raises:
        OnnxError: if the model cannot be recorded with other sizes of the dynamic axes, or does something else then;
            if a call changes buffers.
    """
    tensors, tree = flatten((args, kwargs))
    metas = [meta(x._array) for x in tensors]
    names = names_of(axes, [shape for shape, *_ in metas])
    programs, failure = [], None
    token = kept_whole.set(frozenset(name for name in HANDLERS if find(name, opset)))
    try:
        for choose in SIZES:
            sizes = {name: Size(choose(size, k)) for k, (name, size) in enumerate(names.items(), start=1)}
            try:
                programs = []
                for k in range(RECORDINGS if sizes else 1):
                    given = [
                        (tuple(sizes[own[d]].values[k] if d in own else n for d, n in enumerate(shape)), *rest)
                        for own, (shape, *rest) in zip([axes.get(i, {}) for i in range(len(metas))], metas, strict=True)
                    ]
                    programs.append(Recording(graph, tree, given, ()).program)
                break
            except (ValueError, TypeError, IndexError, RuntimeError) as error:
                if not sizes:
                    raise
                shapes = [shape for shape, *_ in given]
                failure = failure or OnnxError(f"the model cannot be recorded with inputs of shapes {shapes}: {error}")
        else:
            raise failure
    finally:
        kept_whole.reset(token)
    if written := [slot.name.removeprefix(prefix) for slot in programs[0].writes]:
        raise OnnxError(f"a call of the model changes {', '.join(written)}, which a model of ONNX cannot do")
    return Merger(programs, prefix).recorded({size: name for name, size in sizes.items()})


def names_of(axes: Mapping[int, Mapping[int, str]], shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """The names of dynamic axes, with the sizes that these have in the given inputs.

    Raises:
        OnnxError: for an axis that an input does not have, or for axes of one name with different sizes.
    """
    given: dict[str, int] = {}
    for i, named in axes.items():
        for d, name in named.items():
            if not -len(shapes[i]) <= d < len(shapes[i]):
                raise OnnxError(f"dynamic_axes: got axis {d} of input {i}, whose shape is {shapes[i]}")
            if given.setdefault(name, shapes[i][d]) != shapes[i][d]:
                raise OnnxError(f"dynamic_axes: {name!r} names axes of sizes {given[name]} and {shapes[i][d]}")
    return given


def larger(n: int, k: int) -> tuple[int, ...]:
    """Sizes of axis number k, so far apart that they, and those of other axes, also differ after many strides."""
    n = max(n, 2)
    return n, n + 64 * k + 1, n + 160 * k + 67, 3 * n + 256 * k + 30


def smaller(n: int, k: int) -> tuple[int, ...]:
    """Sizes for models that take no larger ones, because they have so many positions."""
    return (n, n - k, n - 2 * k - 1, n // 2 - k) if n > 4 * k + 4 else (n + 2, n + k + 2, n + 2 * k + 3, n + 4 * k + 7)


def multiples(n: int, k: int) -> tuple[int, ...]:
    """Sizes for networks that halve images several times without a rest."""
    return n, n + 64 * k, n + 32 * (5 * k + 1), n + 32 * (9 * k + 4)


SIZES = (larger, smaller, multiples)


class Merger:
    """Makes one model of recordings with different sizes."""

    def __init__(self, programs: Sequence[Program], prefix: str):
        self.programs, self.prefix = programs, prefix
        self.values: dict[Slot, Value] = {}  # by the slot of the first recording

    def recorded(self, axes: dict[Size, str]) -> Recorded:
        """The model."""
        programs = self.programs
        inputs = [self.value(slots) for slots in zip(*(p.inputs for p in programs), strict=True)]
        for value, slot in zip(inputs, programs[0].inputs, strict=True):
            value.name = slot.name
        for slots in zip(*(p.states for p in programs), strict=False):
            arrays = [p.tensors[slot] for p, slot in zip(programs, slots, strict=True)]
            self.value(slots, arrays).name = slots[0].name.removeprefix(self.prefix)
        result = Recorded(inputs, [], axes=axes, names={value.name for value in self.values.values()})
        for together in zip(*(p.instructions for p in programs), strict=False):
            first, ops = together[0], {i.op.function_name for i in together}
            if len(ops) > 1 or len({len(p.instructions) for p in programs}) > 1:
                raise OnnxError(f"{first.location}: the model takes another path for other sizes of dynamic axes")
            scope = f"{first.scope}.".removeprefix(self.prefix)[:-1]
            call = Call(first.op.function_name, [], {}, [], scope, first.location)
            call.inputs = self.merged([i.inputs for i in together], call)
            call.attributes = self.merged([i.attrs for i in together], call)
            call.outputs = [self.value(slots) for slots in zip(*(i.outputs for i in together), strict=True)]
            result.calls.append(call)
        result.outputs = self.merged([p.outputs for p in programs], None)
        return result

    def value(self, slots: Sequence[Slot], arrays: Sequence[Any] = ()) -> Value:
        """A new value for what is the same array in each recording."""
        shape = tuple(one_size(sizes) for sizes in zip(*(slot.shape for slot in slots), strict=True))
        self.values[slots[0]] = Value(shape, slots[0].dtype, arrays=tuple(arrays))
        return self.values[slots[0]]

    def merged(self, things: Sequence[Any], call: Call | None) -> Any:
        """One of what each recording has: values for slots, `Size`s for numbers that differ."""
        first = things[0]
        if isinstance(first, Slot):
            if first not in self.values:  # a constant that was made in the step
                arrays = [p.constants[slot] for p, slot in zip(self.programs, things, strict=True)]
                self.value(things, arrays)
            return self.values[first]
        if isinstance(first, slice):
            return slice(*(self.merged([getattr(x, key) for x in things], call) for key in ("start", "stop", "step")))
        if isinstance(first, dict):
            return {key: self.merged([x[key] for x in things], call) for key in first}
        if isinstance(first, tuple | list) and len({len(x) for x in things}) == 1:
            made = [self.merged(items, call) for items in zip(*things, strict=True)]
            return tuple(made) if isinstance(first, tuple) else made
        if isinstance(first, int) and not isinstance(first, bool) and all(isinstance(x, int) for x in things):
            return one_size(things)
        if is_array(first) or all(x is first or x == first for x in things):
            return first
        raise OnnxError(f"{call.location}: {call.name}: an argument changes with dynamic axes: {things}")


def one_size(values: Sequence[int]) -> int | Size:
    """A number, or a `Size` if it is another one in each recording."""
    return int(values[0]) if len(set(values)) == 1 else Size(tuple(int(x) for x in values))
