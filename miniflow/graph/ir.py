"""The program that a graph records: instructions over typed slots, in order, each slot written once.

A `Program` is straight-line code in static single assignment form. It begins from `inputs` (given at every call)
and `states` (memory that lives on between calls: parameters, buffers, what optimizers remember, tensors that `build`
captured), and ends with `outputs` and with `writes`: which value each changed state takes at the end of the call.
There are no views that are written through and no writes in the middle: the tracer has resolved them. So passes may
move, share and drop instructions as long as every slot is computed before it is read.

    %5:f32[8, 4] = linear(%0, %1, %2)        # model.fc  train.py:12

Numbers that change from call to call (learning rates, offsets of random draws, the step) are `Scalar`s in attributes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np

from miniflow.backends import memory
from miniflow.backends.geometry import layout_of
from miniflow.dispatch.dispatcher import Op
from miniflow.dispatch.tape import modes
from miniflow.errors import GraphTraceError
from miniflow.sbp import show

INPUT, PARAMETER, BUFFER, OPTIMIZER, CAPTURED = "input", "parameter", "buffer", "optimizer", "captured"
CONSTANT, VALUE = "constant", "value"
STATES = (PARAMETER, BUFFER, OPTIMIZER, CAPTURED)
FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"  # the phases of a training step
SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "bool": "bool"}


@dataclass(eq=False, slots=True)
class Slot:
    """One array of a program: an input, a state, a constant, or the result of an instruction.

    Attributes:
        shape: of the array.
        dtype: a NumPy dtype.
        device: a `miniflow.device`; of a global array its `GlobalMeta`.
        kind: INPUT, PARAMETER, BUFFER, OPTIMIZER, CAPTURED, CONSTANT or VALUE.
        name: where it comes from: "input.0", "model.fc.weight"; "" for results.
        requires_grad: of a parameter or captured tensor.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    device: Any
    kind: str = VALUE
    name: str = ""
    requires_grad: bool = False

    def __post_init__(self) -> None:
        self.shape, self.dtype = tuple(self.shape), np.dtype(self.dtype)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    # what shape rules, which are written for arrays, look at

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Steps in bytes between neighbours of the array in row-major order."""
        return layout_of(self.shape, self.dtype).strides

    @property
    def flags(self) -> Any:
        """NumPy's flags of the array in row-major order."""
        return layout_of(self.shape, self.dtype).flags

    @property
    def device_index(self) -> int | None:
        """Of a cuda device, None for the CPU."""
        return None if self.device.type == "cpu" else self.device.index

    def reshape(self, *shape: Any, copy: bool | None = None) -> np.ndarray:
        """What NumPy says to a view of that shape."""
        return layout_of(self.shape, self.dtype).reshape(*shape, copy=copy)

    def peek(self) -> None:
        """A slot has no values to look at."""
        return None

    def numpy(self) -> NoReturn:
        """Refuse to show values.

        Raises:
            GraphTraceError: always; while a graph is being recorded, with the user's line.
        """
        if modes.tracer is not None:
            modes.tracer.refuse("the values of a tensor")
        raise GraphTraceError("the values of a tensor cannot be had: a program has none before it runs")

    @property
    def type(self) -> str:
        """As printed: `f32[8, 4]`."""
        name = SHORT.get(self.dtype.name, self.dtype.name.replace("uint", "u").replace("int", "i"))
        return f"{name}{list(self.shape)}" + (f" {show(self.device.sbp)}" if self.is_global else "")

    @property
    def is_global(self) -> bool:
        """Whether it is a global array."""
        return self.device.is_global

    def like(self, **changes: Any) -> Slot:
        """A new result slot of the same shape, dtype and device, but for `changes`; of a global one not the shape."""
        if self.is_global and "dtype" in changes:
            changes["device"] = self.device.with_dtype(np.dtype(changes["dtype"]))
        return Slot(**{"shape": self.shape, "dtype": self.dtype, "device": self.device, **changes})

    def __repr__(self) -> str:
        return f"Slot({self.name or self.kind}:{self.type})"


@dataclass(frozen=True)
class Scalar:
    """A number that is looked up again at every call; it is among the attributes of instructions.

    Attributes:
        name: "draw.0.offset", "optimizer.0.1.lr" (of group 1), "optimizer.0.1.steps.3" (of its parameter 3) ...
        source: a function without arguments that returns the number for the coming call; None in a loaded program.
    """

    name: str
    source: Callable[[], Any] | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        return f"<{self.name}>"


class Draws:
    """The random draws of a program: from which generator each is taken, in order.

    Draw N is named by the scalars "draw.N.seed" and "draw.N.offset". Every call takes all of them at its start, also
    those of instructions that passes have dropped or moved: so the numbers are those of eager mode, and the generator
    stands where eager mode would have left it.
    """

    def __init__(self, generators: Sequence[Any] = (), agree: Callable[[list], list] = list):
        self.generators = list(generators)
        self.agree = agree  # for programs over global arrays: which of the draws of all ranks count
        self._taken: list[tuple[int, int]] = []

    def add(self, generator: Any) -> tuple[Scalar, Scalar]:
        """One more draw: its seed and its offset."""
        self.generators.append(generator)
        return self.scalars(len(self.generators) - 1)

    def scalars(self, number: int) -> tuple[Scalar, Scalar]:
        """Seed and offset of draw `number`."""
        return (
            Scalar(f"draw.{number}.seed", lambda: self._taken[number][0]),
            Scalar(f"draw.{number}.offset", lambda: self._taken[number][1]),
        )

    def drawn(self) -> list[tuple[int, int]]:
        """Seed and offset of each draw of the next call."""
        return [generator.next_draw() for generator in self.generators]

    def take(self, drawn: list[tuple[int, int]] | None = None) -> None:
        """Take all draws of a call; `drawn` are those that were made for it before."""
        self._taken = self.agree(self.drawn() if drawn is None else drawn)

    def repeated(self, times: int) -> Draws:
        """The draws of `times` calls, one after the other: draw N of call k is number k * len(generators) + N."""
        return Draws(self.generators * times, self.agree)


@dataclass(eq=False)
class Instruction:
    """One op applied to slots.

    Attributes:
        op: the op class; `infer` is its shape rule and the kernel of its name computes it.
        inputs: slots, Python numbers, or None for absent inputs.
        outputs: the slots that it writes.
        attrs: keyword arguments of the kernel; `Scalar`s in them, also within lists and tuples, vary.
        scope: the dotted name of the module it was recorded in, "" outside of all.
        location: `file:line` of the user's code.
        callers: the lines that led there, innermost first, as far as they belong to the step.
        phase: FORWARD, BACKWARD or UPDATE.
        unless: a 0-dim bool slot; when it holds True the instruction, which then is an update, is left out.
        after: a slot that must have been computed before this runs, although it is not read: recomputation of
            activations waits for backward with it. Two instructions that differ in it are never merged.
        stage: of a pipeline; see `passes.pipeline`.
        micro_batch: its number; None for what is done once for all of them.
    """

    op: type[Op]
    inputs: list[Any]
    outputs: list[Slot]
    attrs: dict[str, Any] = field(default_factory=dict)
    scope: str = ""
    location: str = ""
    phase: str = FORWARD
    unless: Slot | None = None
    after: Slot | None = None
    callers: list[str] = field(default_factory=list)
    stage: int = 0
    micro_batch: int | None = None

    @property
    def reads(self) -> list[Slot]:
        """The slots among the inputs, and `unless`."""
        slots = [x for x in self.inputs if isinstance(x, Slot)]
        return slots if self.unless is None else [*slots, self.unless]

    @property
    def waits_for(self) -> list[Slot]:
        """All slots that must exist before this runs."""
        return self.reads if self.after is None else [*self.reads, self.after]

    @property
    def output(self) -> Slot:
        """The only output."""
        (slot,) = self.outputs
        return slot

    @property
    def is_random(self) -> bool:
        """Whether it draws random numbers: two such instructions are never the same."""
        return "offset" in self.attrs and "seed" in self.attrs

    @property
    def may_refuse(self) -> bool:
        """Whether it raises for some values of its inputs."""
        if self.op.checks_values == "integers":
            return self.output.dtype.kind in "iu"
        return bool(self.op.checks_values)

    @property
    def mutates(self) -> tuple[int, ...]:
        """For updates: the positions of inputs whose memory the kernel changes, one for each output, in order.

        An update's inputs are groups of equal length (parameters, gradients, states); `op.mutates` names the groups.
        """
        groups = getattr(self.op, "mutates", ())
        if not groups:
            return ()
        each = len(self.inputs) // self.op.groups
        positions = (group * each + i for group in groups for i in range(each))
        return tuple(i for i in positions if self.inputs[i] is not None)

    def with_(self, **changes: Any) -> Instruction:
        """A copy with some fields changed; lists and dicts are copied."""
        fresh = replace(self, **changes)
        fresh.inputs, fresh.outputs, fresh.attrs = list(fresh.inputs), list(fresh.outputs), dict(fresh.attrs)
        return fresh

    def reading(self, new: Mapping[Slot, Slot], **changes: Any) -> Instruction:
        """A copy that reads and waits for `new[slot]` in place of each slot in `new`."""
        slots = {"unless": new.get(self.unless, self.unless), "after": new.get(self.after, self.after)}
        return self.with_(**{"inputs": [new.get(x, x) for x in self.inputs], **slots, **changes})


@dataclass(eq=False)
class Program:
    """What one call computes. Passes take a program and return a new one; they never change the one they got.

    Attributes:
        inputs: given at each call, in the order of the flattened arguments of `build`.
        states: memory that outlives a call; `tensors` holds the tensor behind each.
        constants: arrays known when the program was recorded.
        instructions: in order.
        outputs: slots in the order of the flattened result of `build`; inputs and states may be among them.
        writes: state slot -> the slot whose value it holds after the call. A value whose shape and dtype are the
            state's; for updates it is the output that the kernel wrote in place.
        tensors: state slot -> Tensor.
        aliases: other tensors on the array of a state, each with that state's tensor.
        late_reads: pairs of an input's position and a state, or the position of another input, of which the step writes
            to one before it reads the other: they must not share memory.
        draws: the random draws that every call takes before it begins, `draws.take()`; `Scalar`s name them.
        blocks: of a lowered program, inputs and outputs that differ between micro-batches; each shard holds so many
            parts of the batch, and a micro-batch has as many rows of each. 0: they cannot be cut so.
        stages: how many stages a pipeline has that trains; 1 for other programs.
    """

    inputs: list[Slot] = field(default_factory=list)
    states: list[Slot] = field(default_factory=list)
    constants: dict[Slot, np.ndarray] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    outputs: list[Slot] = field(default_factory=list)
    writes: dict[Slot, Slot] = field(default_factory=dict)
    tensors: dict[Slot, Any] = field(default_factory=dict)
    aliases: list[tuple[Any, Any]] = field(default_factory=list)
    late_reads: list[tuple[int, Slot | int]] = field(default_factory=list)
    draws: Draws = field(default_factory=Draws)
    blocks: dict[Slot, int] = field(default_factory=dict)
    name: str = "program"
    stages: int = 1

    def with_(self, **changes: Any) -> Program:
        """A copy with some fields changed; lists and dicts are copied, instructions and slots are shared."""
        fresh = replace(self, **changes)
        for name in ("inputs", "states", "instructions", "outputs", "aliases", "late_reads"):
            setattr(fresh, name, list(getattr(fresh, name)))
        for name in ("constants", "writes", "tensors"):
            setattr(fresh, name, dict(getattr(fresh, name)))
        return fresh

    @property
    def is_global(self) -> bool:
        """Whether it computes with global arrays."""
        return any(slot.is_global for slot in (*self.inputs, *self.states, *self.constants))

    @property
    def results(self) -> list[Slot]:
        """All slots that must be computed: outputs and the final values of states."""
        return [*self.outputs, *self.writes.values()]

    def scalars(self) -> dict[str, Scalar]:
        """Every number that varies, by name, in order of appearance."""
        scalars: dict[str, Scalar] = {}
        for instruction in self.instructions:
            for value in instruction.attrs.values():
                for scalar in scalars_in(value):
                    scalars.setdefault(scalar.name, scalar)
        return scalars

    def check(self) -> None:
        """Raise AssertionError unless every slot is written once, before it is read. For tests of passes."""
        known = {*self.inputs, *self.states, *self.constants}
        assert len(known) == len(self.inputs) + len(self.states) + len(self.constants), "it begins with a slot twice"
        for instruction in self.instructions:
            for slot in instruction.waits_for:
                assert slot in known, f"{instruction.op.__name__} reads {slot} before it is written"
            for slot in instruction.outputs:
                assert slot not in known, f"{instruction.op.__name__} writes {slot} a second time"
                known.add(slot)
        for slot in self.results:
            assert slot in known, f"the result {slot} is never computed"
        for state, slot in self.writes.items():
            assert state in self.states and (state.shape, state.dtype) == (slot.shape, slot.dtype), f"{state} <- {slot}"

    def __str__(self) -> str:
        return text(self)


def scalars_in(value: Any) -> Iterator[Scalar]:
    """The `Scalar`s in an attribute."""
    if isinstance(value, Scalar):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from scalars_in(part)


def with_numbers(value: Any, numbers: dict[str, Any]) -> Any:
    """An attribute with the numbers of this call in place of the `Scalar`s that have one."""
    if isinstance(value, Scalar):
        return numbers.get(value.name, value)
    if isinstance(value, list | tuple) and any(True for _ in scalars_in(value)):
        return type(value)(with_numbers(part, numbers) for part in value)
    return value


def substitute(instructions: Iterable[Instruction], new: dict[Slot, Slot]) -> list[Instruction]:
    """The instructions reading `new[slot]` where they read `slot`; chains in `new` are followed."""
    new = {slot: follow(new, slot) for slot in new}
    return [i.reading(new) if any(slot in new for slot in i.waits_for) else i for i in instructions]


def follow(new: dict[Slot, Slot], slot: Slot) -> Slot:
    """What stands for `slot` in the end."""
    while slot in new:
        slot = new[slot]
    return slot


def replaced(program: Program, new: dict[Slot, Slot], instructions: Sequence[Instruction] | None = None) -> Program:
    """`program` (with other `instructions`, if given) in which every reader of a slot in `new` reads its substitute."""
    return program.with_(
        instructions=substitute(program.instructions if instructions is None else instructions, new),
        outputs=[follow(new, slot) for slot in program.outputs],
        writes={state: follow(new, slot) for state, slot in program.writes.items()},
    )


# printing


def numbering(program: Program) -> dict[Slot, str]:
    """The names under which slots are printed: `%0`, `%1` ... in order of appearance."""
    counter = itertools.count()
    names: dict[Slot, str] = {}
    results = (slot for instruction in program.instructions for slot in instruction.outputs)
    for slot in itertools.chain(program.inputs, program.states, program.constants, results):
        if slot not in names:
            names[slot] = f"%{next(counter)}"
    return names


def text(program: Program) -> str:
    """The program as it can be read: inputs and states, instructions with their places, outputs and writes."""
    names = numbering(program)
    head = [f"{names[s]}:{s.type} = {s.kind} {s.name}".rstrip() for s in (*program.inputs, *program.states)]
    head += [f"{names[s]}:{s.type} = constant {_values(a)}" for s, a in program.constants.items()]
    body = [f"{line}{place}" for line, place in _aligned(program, names)]
    tail = [f"write {state.name} <- {names[slot]}" for state, slot in program.writes.items()]
    tail.append(f"return {', '.join(names[slot] for slot in program.outputs)}".rstrip())
    return f"{program.name}:\n" + "\n".join(f"  {line}" for line in [*head, *body, *tail])


def _aligned(program: Program, names: dict[Slot, str]) -> Iterator[tuple[str, str]]:
    for instruction in program.instructions:
        place = "  ".join(filter(None, [instruction.scope, instruction.location]))
        line = instruction_text(instruction, names)
        yield line, f"{' ' * max(2, 72 - len(line))}# {place}" if place else ""


def instruction_text(instruction: Instruction, names: dict[Slot, str]) -> str:
    """`%7:f32[8, 4] = add(%5, 1.0, alpha=2)`."""
    outputs = ", ".join(f"{names[slot]}:{slot.type}" for slot in instruction.outputs)
    inputs = [names[x] if isinstance(x, Slot) else repr(x) for x in instruction.inputs]
    attrs = instruction.op.show(instruction.attrs)
    attrs = [f"{name}={_attribute(value)}" for name, value in instruction.attrs.items()] if attrs is None else [attrs]
    unless = "" if instruction.unless is None else f" unless {names[instruction.unless]}"
    return f"{outputs} = {instruction.op.function_name}({', '.join(inputs + attrs)}){unless}"


def _attribute(value: Any) -> str:
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, list | tuple):
        inner = ", ".join(map(_attribute, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    if hasattr(value, "text"):  # the body of a fused region
        return value.text
    return repr(value)


def _values(array: np.ndarray) -> str:
    return " ".join(np.array2string(memory.to_host(array), threshold=6, edgeitems=2, separator=", ").split())
