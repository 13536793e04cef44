"""Write the Python function that replays a plan; see `replay`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np

from miniflow.backends import memory
from miniflow.backends.registry import kernel_of, without_half
from miniflow.dispatch.dispatcher import kernel_on
from miniflow.dtype import HALF
from miniflow.graph.ir import Instruction, Program, Scalar, Slot, scalars_in
from miniflow.graph.plan import Plan, has_scalars, writing_kernel
from miniflow.graph.schedule import task_of

COMMENT_COLUMN = 72


class Outputs:
    """Buffers for one output: one that nobody refers to any more is used again.

    So an output that the user keeps is never overwritten.
    """

    def __init__(self, slot: Slot, count: int):
        self.shape, self.dtype, self.count = slot.shape, slot.dtype, count
        self.buffers: list[np.ndarray] = []

    def take(self) -> np.ndarray:
        """A buffer that is free."""
        for buffer in self.buffers:
            if sys.getrefcount(buffer) == REFERENCES:
                if self.is_intact(buffer):
                    return buffer
                self.buffers = [other for other in self.buffers if other is not buffer]
        buffer = np.empty(self.shape, self.dtype)
        if len(self.buffers) < self.count:
            self.buffers.append(buffer)
        return buffer

    def is_intact(self, buffer: np.ndarray) -> bool:
        """Whether its last user has not given it another shape or dtype."""
        flags = buffer.flags
        return buffer.shape == self.shape and buffer.dtype == self.dtype and flags.c_contiguous and flags.writeable


def references_from_a_list() -> int:
    """What `getrefcount` says in a loop over a list that alone holds the object; Python versions differ."""
    for buffer in [object()]:
        count = sys.getrefcount(buffer)
    return count


REFERENCES = references_from_a_list()


def settled(result: Any) -> Any:
    """A kernel's result as an array, with its elements in row-major order."""
    if isinstance(result, tuple):
        return tuple([settled(array) for array in result])
    return memory.row_major(result) if hasattr(result, "device_index") else np.asarray(result, order="C")


def is_true(array: Any) -> bool:
    """The truth of an array of one element, on any device."""
    return bool(memory.to_host(array))


def nvtx_for(program: Program) -> Any:
    """The package `nvtx`, if it is installed and the program runs on a cuda device."""
    on_device = any(slot.device.type == "cuda" for slot in (*program.inputs, *program.states))
    return importlib.import_module("nvtx") if on_device and importlib.util.find_spec("nvtx") else None


def has_half(instruction: Instruction) -> bool:
    """Whether an input is of half precision."""
    return any(x.dtype in HALF for x in instruction.inputs if isinstance(x, Slot))


class Writer:
    """Writes the function of a plan.

    Names in it: `x0` inputs, `v12` what is allocated at each call, `a12` arrays that stay, `n2` numbers, `k3` others.

    Args:
        plan: where values are stored.
        states: the arrays of the program's states.
        arena: the planned memory.
        buffers: how many buffers each output keeps.
        clock: called with the task of a pipeline when it begins, and with None when one has ended; see `schedule`.

    Attributes:
        source: the text.
        namespace: what the names mean that are not local variables.
        instruction_at: line -> instruction.
    """

    def __init__(
        self, plan: Plan, states: dict[Slot, Any], arena: np.ndarray, buffers: int, clock: Callable | None = None
    ):
        self.plan, self.program = plan, plan.program
        self.clock, self.task = clock, None
        self.arena, self.buffers = arena, buffers
        self.namespace: dict[str, Any] = {
            "copyto": memory.copy_into, "settled": settled, "is_true": is_true, "replay": None,
        }  # fmt: skip
        self.lines: list[str] = []
        self.instruction_at: dict[int, Instruction] = {}
        self.names: dict[Slot, str] = {}
        self.numbers = {name: f"n{i}" for i, name in enumerate(self.program.scalars())}
        self.ranges, self.scope = nvtx_for(self.program), ""
        self._constants: dict[int, str] = {}
        for slot, array in (*states.items(), *self.program.constants.items()):
            self.fix(slot, array)
        for slot, block in plan.block.items():
            self.fix(slot, np.ndarray(slot.shape, slot.dtype, arena, block.offset))

    def function(self) -> Callable:
        """Write the function and compile it."""
        for i, slot in enumerate(self.program.inputs):
            self.names[slot] = f"x{i}"
        self.lines.append(f"def replay({', '.join(self.names[slot] for slot in self.program.inputs)}):")
        for name, scalar in self.program.scalars().items():
            self.line(f"{self.numbers[name]} = {self.constant(scalar.source)}()", name)
        last = self.last_lines()
        for number, instruction in enumerate(self.program.instructions):
            self.mark(instruction.scope)
            if self.clock is not None:
                self.tell(instruction)
            self.instruction(number, instruction)
            dead = [self.names[slot] for slot in last.get(number, ())]
            if dead:
                self.line(f"del {', '.join(dead)}")
        self.mark("")
        self.end()
        self.source = "\n".join(self.lines) + "\n"
        exec(compile(self.source, f"<replay of {self.program.name}>", "exec"), self.namespace)
        return self.namespace["replay"]

    # names

    def fix(self, slot: Slot, array: Any) -> None:
        """Let `slot` lie in `array` at every call."""
        self.names[slot] = self.constant(array, "a")

    def variable(self, slot: Slot) -> str:
        """A local variable for a slot."""
        name = self.names[slot] = f"v{len(self.names)}"
        return name

    def constant(self, value: Any, letter: str = "k") -> str:
        """The name of a value that never changes; short ones stand for themselves."""
        if value is None or type(value) in (bool, int, str) or type(value) is float and isfinite(value):
            return repr(value)
        if id(value) not in self._constants:
            name = self._constants[id(value)] = f"{letter}{len(self.namespace)}"
            self.namespace[name] = value
        return self._constants[id(value)]

    def called(self, function: Callable) -> str:
        """A function, under its own name if that is free."""
        name = getattr(function, "__name__", "kernel")
        if name.isidentifier() and self.namespace.setdefault(name, function) is function:
            return name
        return self.constant(function, "f")

    def operands(self, instruction: Instruction) -> list[str]:
        """The names of the inputs."""
        return [self.names[x] if isinstance(x, Slot) else self.constant(x) for x in instruction.inputs]

    def keywords(self, instruction: Instruction) -> list[str]:
        """The attributes as `name=value`."""
        return [f"{name}={self.attribute(value)}" for name, value in instruction.attrs.items()]

    def attribute(self, value: Any) -> str:
        """An attribute, in which the numbers of this call stand for `Scalar`s."""
        if isinstance(value, Scalar):
            return self.numbers[value.name]
        if isinstance(value, list | tuple) and any(True for _ in scalars_in(value)):
            parts = "".join(f"{self.attribute(part)}, " for part in value)
            return f"[{parts}]" if isinstance(value, list) else f"({parts})"
        return self.constant(value)

    # lines

    def mark(self, scope: str) -> None:
        """Begin the range of another module in NVIDIA's profilers."""
        if self.ranges is None or scope == self.scope:
            return
        if self.scope:
            self.line(f"{self.called(self.ranges.pop_range)}()")
        if scope:
            self.line(f"{self.called(self.ranges.push_range)}({scope!r})")
        self.scope = scope

    def tell(self, instruction: Instruction) -> None:
        """Tell the clock if another task begins; to wait for others belongs to none."""
        task = None if instruction.micro_batch is None or instruction.op.waits else task_of(instruction)
        if task != self.task:
            self.line(f"{self.constant(self.clock)}({self.constant(task)})")
            self.task = task

    def line(self, text: str, comment: str = "") -> None:
        """Append one line to the function."""
        text = f"    {text}"
        self.lines.append(f"{text:<{COMMENT_COLUMN}}  # {comment}" if comment else text)

    def call(self, instruction: Instruction, text: str) -> None:
        """Append the line that executes an instruction."""
        self.line(text, "  ".join(filter(None, [instruction.scope, instruction.location])))
        self.instruction_at[len(self.lines)] = instruction

    def instruction(self, number: int, instruction: Instruction) -> None:
        """Append the lines of one instruction."""
        if instruction.op.view:
            self.view(instruction)
        elif instruction.mutates:
            self.update(number, instruction)
        else:
            self.compute(instruction)

    def view(self, instruction: Instruction) -> None:
        """A view of an array that never changes is taken once and for all."""
        output = instruction.output
        kernel = kernel_of(output.device.type, instruction.op.__name__).run
        if output not in self.plan.dynamic:
            self.fix(output, kernel(self.namespace[self.names[instruction.inputs[0]]], **instruction.attrs))
            return
        operands = self.operands(instruction)
        arguments = ", ".join([*operands, *self.keywords(instruction)])
        self.call(instruction, f"{self.variable(output)} = {self.called(kernel)}({arguments})")

    def compute(self, instruction: Instruction) -> None:
        """A result is written into planned memory, or allocated."""
        operands, kernel = self.operands(instruction), writing_kernel(instruction)
        arguments = ", ".join([*operands, *self.keywords(instruction)])
        if instruction.op.checks_values in ("infer", "integers"):
            self.call(instruction, f"{self.called(instruction.op.infer)}({arguments})")
        if kernel is None:
            compute = kernel_on(instruction.op, instruction.outputs[0].device.type)
            results = ", ".join(self.variable(slot) for slot in instruction.outputs)
            results += "" if instruction.op.single else ","
            self.call(instruction, f"{results} = settled({self.called(compute)}({arguments}))")
            return
        for slot in instruction.outputs:
            if slot in self.plan.handed_out:
                buffers = self.constant(Outputs(slot, self.buffers).take)
                self.line(f"{self.variable(slot)} = {buffers}()", "a buffer for an output")
        results = [self.names[slot] for slot in instruction.outputs]
        out = results[0] if instruction.op.single else f"({', '.join(results)},)"
        run = without_half(kernel.run) if not has_half(instruction) else kernel.run
        if kernel.bind is not None and self.never_change([*results, *operands]) and not has_scalars(instruction):
            arrays = [self.namespace[name] for name in operands]
            outs = tuple([self.namespace[name] for name in results])
            text = f"{self.called(kernel.bind(outs, *arrays, **instruction.attrs))}()"
        elif kernel.ufunc is not None:
            text = f"{self.called(kernel.ufunc)}({arguments}, out={out})"
        else:
            text = f"{self.called(run)}({', '.join(filter(None, [out, arguments]))})"
        self.call(instruction, text)

    def never_change(self, names: list[str]) -> bool:
        """Whether these are arrays that lie in the same place at every call."""
        return all(name in self.namespace for name in names)

    def update(self, number: int, instruction: Instruction) -> None:
        """An update writes into the memory of states, or into copies."""
        operands = self.operands(instruction)
        for position, output in zip(instruction.mutates, instruction.outputs, strict=True):
            if (number, position) in self.plan.staged:
                self.stage(operands[position], output)
            elif output in self.plan.dynamic:
                self.line(f"{self.variable(output)} = {operands[position]}")
            else:
                self.names[output] = operands[position]
            operands[position] = self.names[output]
        each = len(operands) // instruction.op.groups
        groups = [self.listed(operands[i : i + each]) for i in range(0, len(operands), each)]
        kernel = kernel_of(instruction.outputs[0].device.type, instruction.op.__name__).run
        text = f"{self.called(kernel)}({', '.join([*groups, *self.keywords(instruction)])})"
        if instruction.unless is not None:
            flag = self.names[instruction.unless]
            on_host = instruction.unless.device.type == "cpu"
            text = f"if not {flag if on_host else f'is_true({flag})'}: {text}"
        self.call(instruction, text)

    def stage(self, source: str, output: Slot) -> None:
        """Copy what an update changes, since others read the old value."""
        if output in self.plan.dynamic:
            self.line(f"{self.variable(output)} = {source}.copy()")
        else:
            self.line(f"copyto({self.names[output]}, {source})")

    def listed(self, names: list[str]) -> str:
        """A list of arrays; one of arrays that never change is made once."""
        if self.never_change([name for name in names if name != "None"]):
            return self.constant([self.namespace.get(name) for name in names])
        return f"[{', '.join(names)}]"

    def end(self) -> None:
        """The outputs, and the states that are written by copying.

        No output lies in memory that a state, an input, the arena or another output owns.
        """
        results: list[str] = []
        allocated, handed_out = self.plan.dynamic.difference(self.program.inputs), set()
        for slot in self.program.outputs:
            root = self.plan.root[slot]
            if slot in self.plan.dynamic and root in allocated and root not in handed_out:
                handed_out.add(root)
                results.append(self.names[slot])
            else:
                results.append(f"y{len(results)}")
                self.line(f"{results[-1]} = {self.names[slot]}.copy()")
        sources = {value: self.names[value] for value in self.plan.late.values()}
        for i, value in enumerate(sources):
            if self.plan.root[value] in self.program.tensors or self.plan.root[value] in self.plan.in_state:
                sources[value] = f"s{i}"
                self.line(f"s{i} = {self.names[value]}.copy()", "other writes may overlap it")
        for state, value in self.plan.late.items():
            self.line(f"copyto({self.names[state]}, {sources[value]})", f"write {state.name}")
        self.line(f"return [{', '.join(results)}]")

    def last_lines(self) -> dict[int, list[Slot]]:
        """For each instruction, the local variables that are not needed after it."""
        dynamic = self.plan.dynamic.difference(self.program.inputs)
        last: dict[Slot, int] = {}
        for number, instruction in enumerate(self.program.instructions):
            last.update((slot, number) for slot in (*instruction.outputs, *instruction.reads) if slot in dynamic)
        for slot in (*self.program.outputs, *self.plan.late.values()):
            last.pop(slot, None)
        result: dict[int, list[Slot]] = {}
        for slot, number in last.items():
            result.setdefault(number, []).append(slot)
        return result
