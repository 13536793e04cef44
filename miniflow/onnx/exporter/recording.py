"""What a model computes, as one program with sizes that may vary.

A model with dynamic axes is recorded four times, with other sizes of these axes. A number that differs among the
recordings, in a shape or an attribute, is a `Size`: what it was in each of them. `writer` finds out how it follows from
the sizes of the inputs. The size of a result that depends on values is another one in each recording, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from miniflow.dispatch.composite import sizes_of_values
from miniflow.dispatch.dispatcher import is_array
from miniflow.errors import OnnxError
from miniflow.graph.describe import meta
from miniflow.graph.graph import Graph
from miniflow.graph.ir import Instruction, Program, Slot
from miniflow.graph.nested import flatten
from miniflow.graph.recording import Recording
from miniflow.graph.trace import kept_whole

RECORDINGS = 4  # with other sizes of dynamic axes
Axes = Sequence[Mapping[int, str]]  # of each input those whose size varies, with its name


@dataclass(frozen=True)
class Size:
    """A number that follows from the sizes of dynamic axes: what it was in each recording."""

    values: tuple[int, ...]


def record(
    graph: Graph, args: tuple, kwargs: dict[str, Any], axes: Axes, prefix: str, composites: Iterable[str]
) -> tuple[Program, dict[Size, str]]:
    """The program of a graph for arguments like these, and the names of dynamic axes.

    Args:
        graph: without an optimizer.
        args, kwargs: their tensors are the inputs of the model, the rest is fixed.
        axes: those of one name are of one size.
        prefix: left out at the beginning of names of parameters and scopes.
        composites: the functions whose calls are recorded as one instruction.

    Returns:
        the program: its constants are parameters and buffers too, each with the arrays of all recordings.

    Raises:
        OnnxError: if the model cannot be recorded with other sizes of the dynamic axes, or does something else then;
            if a call changes buffers.
    """
    tensors, tree = flatten((args, kwargs))
    metas, failures, context = [meta(x._array) for x in tensors], [], copy_context()
    names = {name: shape[d] for (shape, *_), named in zip(metas, axes, strict=True) for d, name in named.items()}
    context.run(kept_whole.set, frozenset(composites))
    for choose in SIZES:
        sizes = {name: Size(choose(size, k)) for k, (name, size) in enumerate(names.items(), start=1)}
        try:
            programs = context.run(recordings, graph, tree, metas, axes, sizes, choose)
            break
        except (ValueError, TypeError, IndexError, RuntimeError) as error:
            if not sizes:
                raise
            failures.append(OnnxError(f"the model cannot be recorded with dynamic axes of sizes {sizes}: {error}"))
    else:
        raise failures[0]
    if written := [slot.name.removeprefix(prefix) for slot in programs[0].writes]:
        raise OnnxError(f"a call of the model changes {', '.join(written)}, which a model of ONNX cannot do")
    return Merger(programs, prefix).program(), {size: name for name, size in sizes.items()}


def recordings(
    graph: Graph, tree: Any, metas: Sequence[tuple], axes: Axes, sizes: Mapping[str, Size], choose: Callable
) -> list[Program]:
    """A model recorded with different sizes, those of results that depend on values too; once if there are none."""
    programs: list[Program] = []
    for k in range(RECORDINGS):
        sizes_of_values.set(choose(2, number)[k] for number in count(len(sizes) + 1))
        input_metas = [
            (tuple(sizes[named[d]].values[k] if d in named else n for d, n in enumerate(shape)), *rest)
            for named, (shape, *rest) in zip(axes, metas, strict=True)
        ]
        programs.append(Recording(graph, tree, input_metas, ()).program)
        if not sizes and not any(x.op.shape_depends_on_values for x in programs[0].instructions):
            break
    return programs


# sizes of axis number k, of which n is given: so far apart that they, and those of other axes, also differ after many
# strides; for models that take no larger ones, because they have so many positions; and for networks that halve images
# several times without a rest
SIZES = (
    lambda n, k: (max(n, 2), max(n, 2) + 64 * k + 1, max(n, 2) + 160 * k + 67, 3 * max(n, 2) + 256 * k + 30),
    lambda n, k: (
        (n, n - k, n - 2 * k - 1, n // 2 - k) if n > 4 * k + 4 else (n + 2, n + k + 2, n + 2 * k + 3, n + 4 * k + 7)
    ),
    lambda n, k: (n, n + 64 * k, n + 32 * (5 * k + 1), n + 32 * (9 * k + 4)),
)


class Merger:
    """Makes one program of recordings with different sizes."""

    def __init__(self, programs: Sequence[Program], prefix: str):
        self.programs, self.prefix, self.merged = programs, prefix, Program()
        self.slots: dict[Slot, Slot] = {}  # by that of the first recording

    def program(self) -> Program:
        """The program."""
        for slots in zip(*(p.inputs for p in self.programs), strict=True):
            self.merged.inputs.append(self.slot(slots, slots[0].name))
        for slots in zip(*(p.states for p in self.programs), strict=False):
            self.constant(slots, [p.tensors[slot] for p, slot in zip(self.programs, slots, strict=True)])
        for together in zip(*(p.instructions for p in self.programs), strict=False):
            first, ops = together[0], {i.op.function_name for i in together}
            if len(ops) > 1 or len({len(p.instructions) for p in self.programs}) > 1:
                raise OnnxError(f"{first.location}: the model takes another path for other sizes of dynamic axes")
            inputs, attrs = self.merge([(i.inputs, i.attrs) for i in together], first)
            outputs = [self.slot(slots) for slots in zip(*(i.outputs for i in together), strict=True)]
            scope = f"{first.scope}.".removeprefix(self.prefix)[:-1]
            self.merged.instructions.append(replace(first, inputs=inputs, attrs=attrs, outputs=outputs, scope=scope))
        self.merged.outputs = self.merge([p.outputs for p in self.programs])
        return self.merged

    def slot(self, slots: Sequence[Slot], name: str = "") -> Slot:
        """A new slot for what is the same array in each recording."""
        shape = tuple(one_size(sizes) for sizes in zip(*(slot.shape for slot in slots), strict=True))
        self.slots[slots[0]] = Slot(shape, slots[0].dtype, None, name=name)
        return self.slots[slots[0]]

    def constant(self, slots: Sequence[Slot], arrays: Sequence[Any]) -> None:
        """A new slot with the array of each recording."""
        self.merged.constants[self.slot(slots, slots[0].name.removeprefix(self.prefix))] = arrays

    def merge(self, things: Sequence[Any], call: Instruction | None = None) -> Any:
        """One value from those of all recordings, with a `Size` for each number that differs."""
        first = things[0]
        if isinstance(first, Slot):
            if first not in self.slots:  # a constant that was made in the step
                self.constant(things, [p.constants[slot] for p, slot in zip(self.programs, things, strict=True)])
            return self.slots[first]
        if isinstance(first, slice):
            return slice(*self.merge([(x.start, x.stop, x.step) for x in things], call))
        if isinstance(first, dict):
            return dict(zip(first, self.merge([list(x.values()) for x in things], call), strict=True))
        if isinstance(first, tuple | list) and len({len(x) for x in things}) == 1:
            merged = [self.merge(items, call) for items in zip(*things, strict=True)]
            return tuple(merged) if isinstance(first, tuple) else merged
        if all(isinstance(x, int) and not isinstance(x, bool) for x in things):
            return one_size(things)
        if is_array(first) or all(x is first or x == first for x in things):
            return first
        raise OnnxError(f"{call.location}: {call.op.function_name}: an argument changes with dynamic axes: {things}")


def one_size(values: Sequence[int]) -> int | Size:
    """A number, or a `Size` if it is another one in each recording."""
    return int(values[0]) if len(set(values)) == 1 else Size(tuple(int(x) for x in values))
