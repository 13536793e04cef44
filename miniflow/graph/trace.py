"""Record a step as a program.

`record` runs a function once on symbolic tensors (see `symbol`). While it runs, `dispatch` asks the tracer for the
kernel of every op: one that computes nothing, but appends an instruction. Autograd and the optimizers run as they are,
so that their ops are recorded too. Nothing that outlives the step is changed: parameters, buffers and states of
optimizers appear as states of the program, and what the step wrote to them as its `writes`.
"""

from __future__ import annotations

import bisect
import inspect
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from operator import itemgetter
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from miniflow.backends.geometry import layout_of
from miniflow.backends.memory import layout, load_kernels
from miniflow.backends.registry import kernel_of
from miniflow.device import place_of
from miniflow.dispatch.dispatcher import Op, is_array
from miniflow.dispatch.tape import Leaf, Node, modes, sequence
from miniflow.errors import GraphTraceError
from miniflow.graph.accesses import Accesses
from miniflow.graph.ir import (
    BACKWARD,
    CAPTURED,
    CONSTANT,
    FORWARD,
    INPUT,
    STATES,
    UPDATE,
    Instruction,
    Program,
    Scalar,
    Slot,
)
from miniflow.graph.nested import flatten, unflatten
from miniflow.graph.overlap import sharing
from miniflow.graph.symbol import Cell, GlobalSymbol, Symbol
from miniflow.graph.uses import Uses
from miniflow.nn.modules.hooks import call_with_hooks
from miniflow.nn.modules.module import Module
from miniflow.ops.inplace import ViewScatter
from miniflow.ops.promotion import Cast, ToDevice, ToInteger
from miniflow.ops.shape import Clone, View, can_view
from miniflow.parallel import world
from miniflow.parallel.dispatch import make_plan
from miniflow.parallel.global_array import GlobalArray, GlobalMeta
from miniflow.parallel.tensors import Boxing
from miniflow.sbp import NdSbp
from miniflow.tensor import Tensor

PACKAGE = str(Path(__file__).parents[1]) + os.sep
# the names of composite functions whose calls recordings keep whole
kept_whole: ContextVar[frozenset[str]] = ContextVar("kept_whole", default=frozenset())


def record(
    step: Callable[..., Iterable[Tensor]],
    inputs: Sequence[tuple[tuple[int, ...], np.dtype, Any]],
    states: Iterable[tuple[str, str, Tensor]] = (),
    *,
    name: str = "program",
    modules: Mapping[Any, str] | None = None,
) -> Program:
    """The program of one step.

    Args:
        step: called with one tensor for each input; returns the tensors that the program returns.
        inputs: shape, NumPy dtype and device of each.
        states: `(name, kind, tensor)` of the tensors known to live on; any other tensor that is met is CAPTURED.
        name: of the program.
        modules: module -> dotted name, for the scopes of instructions.

    Raises:
        GraphTraceError: if the step looks at a value, or returns what is not a tensor.
        Exception: what the step raises.
    """
    named = [(f"input.{i}", *meta) for i, meta in enumerate(inputs)]
    return Tracer(name, modules or {}).record(step, named, states)


def active() -> Tracer | None:
    """The tracer of the graph that this thread is recording."""
    return modes.tracer


def refuse_nesting(name: str) -> None:
    """Refuse a graph's call within a build.

    Raises:
        GraphTraceError: while a graph is being recorded.
    """
    if modes.tracer is not None:
        recorded = modes.tracer.program.name
        where = "its own build" if recorded == name else "the build of another"
        raise GraphTraceError(
            f"{name}: called while {recorded} is being recorded; a graph cannot be called within {where}: "
            "call its modules instead"
        )


class Tracer:
    """The recording of one program. One thread records with it, once.

    Args:
        name: of the program.
        names: module or graph -> dotted name.

    Attributes:
        program: what was recorded.
        names: also of the modules that the step has called.
        accesses: the attributes that the step has read and assigned.
    """

    def __init__(self, name: str, names: Mapping[Any, str]):
        self.program = Program(name=name)
        self.names = dict(names)
        self.whole = kept_whole.get()
        self.phase = FORWARD
        self.accesses = Accesses(self)
        self._failure: GraphTraceError | None = None
        self._scopes: list[str] = []
        self._symbols: dict[int, Symbol] = {}  # by id of the array of a tensor that is not symbolic
        self._cells: dict[Slot, Cell] = {}  # the memory of inputs, states and constants
        self._layouts: dict[Slot, np.ndarray] = {}  # of the slots that need not be row-major
        self._firsts: dict[int, Tensor] = {}  # by id of the array of a state: its tensor
        self._outside: dict[int, tuple] = {}  # tensor, edge and view of tensors that were there before, by id
        self._written: dict[int, int] = {}  # id of a cell -> instructions recorded when it was first written
        self._created: dict[int, Any] = {}  # arrays made by the step itself, by id
        self._borrowed: dict[int, Any] = {}  # NumPy arrays around which the step put tensors, by id
        self._gradients: dict[Tensor, Tensor | None] = {}
        self._before: tuple[str, list[str]] | None = None  # scope and lines of forward, while backward runs
        self._unless: Tensor | None = None  # a bool; where it holds True at replay, updates are left out
        # tape positions at which instructions were recorded, and the scopes and lines they came from
        self._origins: list[tuple[int, tuple[str, list[str]]]] = []

    def record(self, step: Callable, inputs: Iterable[tuple], states: Iterable[tuple[str, str, Tensor]]) -> Program:
        """The program of one step; see `record`.

        Afterwards the gradients of leaves, the history of tensors that live on and what modules hold are what they were
        before.

        Args:
            inputs: name, shape, NumPy dtype and device of each.
        """
        refuse_nesting(self.program.name)
        for state in states:
            self.add_state(*state)
        symbols = [self.add_input(*name_and_meta) for name_and_meta in inputs]
        modes.tracer = self
        try:
            outputs = list(step(*map(Tensor._wrap, symbols)))
            program = self.finish(outputs)
        finally:
            modes.tracer = None
            for tensor, gradient in self._gradients.items():
                tensor._grad = gradient
            self.accesses.restore()
            self._restore_history()
        del outputs, symbols
        self._find_aliases()
        for table in (self._symbols, self._created, self._borrowed, self._cells, self._layouts, self._firsts):
            table.clear()
        self._gradients.clear()
        return program

    def _restore_history(self) -> None:
        """Forget what in-place operations of the step made of the tensors that live on."""
        for tensor, edge, view in self._outside.values():
            if tensor._edge is not None and tensor._edge is not edge and type(tensor._edge[0]) is not Leaf:
                tensor._edge, tensor._view = edge, view
        self._others = [weakref.ref(tensor) for tensor, *_ in self._outside.values()]
        self._outside.clear()

    def _find_aliases(self) -> None:
        """Note in the program the tensors that share the array of a state with its tensor, and outlive the step."""
        for other in self._others:
            alias = other()
            first = None if alias is None else self._firsts.get(id(alias._array))
            if first is not None and first is not alias:
                self.program.aliases.append((alias, first))

    # memory

    def add_input(self, name: str, shape: tuple[int, ...], dtype: Any, device: Any) -> Symbol:
        """A new input of the program."""
        slot = Slot(shape, dtype, device, INPUT, name)
        self.program.inputs.append(slot)
        symbol = self.new_memory(slot)
        self._cells[slot] = symbol.cell
        return symbol

    def add_state(self, name: str, kind: str, tensor: Tensor) -> Symbol:
        """Let `tensor` be a state of the program."""
        array = tensor._array
        known = self._symbols.get(id(array))
        if known is not None:
            self._met(tensor)
            return known
        slot = Slot(array.shape, array.dtype, place_of(array), kind, name, tensor._edge is not None)
        self.program.states.append(slot)
        self.program.tensors[slot] = tensor
        self._firsts[id(array)] = tensor
        self._met(tensor)
        return self._enter(array, slot)

    def _met(self, tensor: Tensor) -> None:
        """Note a tensor on the array of a state, and the history that it has outside of the step."""
        if id(tensor) not in self._outside:
            self._outside[id(tensor)] = tensor, tensor._edge, tensor._view
            if tensor._view is not None:
                self._met(tensor._view[0])

    def _enter(self, array: Any, slot: Slot) -> Symbol:
        cell = Cell(slot, is_borrowed=id(array) in self._borrowed)
        self._layouts[slot] = layout(array)
        symbol = self._symbol(cell, self._layouts[slot])
        self._symbols[id(array)] = symbol
        self._cells[slot] = symbol.cell
        return symbol

    def created(self, tensor: Tensor) -> None:
        """Note that the step made this tensor from numbers: a constant, unless it writes to it."""
        if not isinstance(tensor._array, Symbol):
            self._created[id(tensor._array)] = tensor._array

    def borrowed(self, tensor: Tensor) -> None:
        """Note that the step made this tensor on the memory of a NumPy array, which it may read, but not write to."""
        self._borrowed[id(tensor._array)] = tensor._array

    def symbol_of(self, array: Any, tensor: Tensor | None = None) -> Symbol:
        """The symbol of an array: its own, or that of a state or constant."""
        if isinstance(array, Symbol):
            if array.recorder is not self:
                array.numpy()
            return array
        known = self._symbols.get(id(array))
        if known is not None:
            if tensor is not None and id(array) in self._firsts:
                self._met(tensor)
            return known
        if id(array) in self._created:
            slot = Slot(array.shape, array.dtype, place_of(array), CONSTANT)
            self.program.constants[slot] = array
            return self._enter(array, slot)
        count = sum(slot.kind == CAPTURED for slot in self.program.states)
        return self.add_state(f"captured.{count}", CAPTURED, Tensor._wrap(array) if tensor is None else tensor)

    def state_in(self, cell: Cell) -> Slot | None:
        """The state whose memory a cell is."""
        return next((s for s, memory in self._cells.items() if memory is cell and s.kind in STATES), None)

    def first_writes(self) -> dict[Slot, int]:
        """The inputs and states that the step has written to, with the numbers of instructions recorded before."""
        cells = {slot: id(cell) for slot, cell in self._cells.items() if slot.kind != CONSTANT}
        return {slot: self._written[cell] for slot, cell in cells.items() if cell in self._written}

    def new_memory(self, slot: Slot) -> Symbol:
        """A symbol for new memory that holds `slot`, in row-major order."""
        return self._symbol(Cell(slot))

    def _symbol(self, cell: Cell, eager_layout: np.ndarray | None = None) -> Symbol:
        slot = cell.value
        if slot.dtype.hasobject:
            raise GraphTraceError(
                "nn.Graph: got a tensor of tensor_buffer; expected numbers: convert it before the call"
            )
        layout = layout_of(slot.shape, slot.dtype)
        symbol_class = GlobalSymbol if slot.is_global else Symbol
        return symbol_class(self, cell, layout, layout if eager_layout is None else eager_layout, slot.device_index)

    def slot_of(self, array: Any, tensor: Tensor | None = None) -> Slot:
        """The slot that holds the value of an array, that of `tensor`, now."""
        return self.symbol_of(array, tensor).slot(self.emit)

    def write(self, tensor: Tensor, values: Tensor) -> None:
        """Write `values`, of the same shape, into the memory of `tensor`."""
        symbol, value = self.symbol_of(tensor._array, tensor), self.slot_of(values._array, values)
        if value.dtype != symbol.dtype:
            op = Cast if symbol.dtype.kind not in "biu" else ToInteger
            (value,) = self.emit(op, [value], {"dtype": symbol.dtype})
        self.write_slot(symbol, value)

    def keep_gradient(self, leaf: Tensor) -> None:
        """Called before the gradient of a leaf changes: `recording` puts the old one back."""
        if leaf not in self._gradients:
            self._gradients[leaf], leaf._grad = leaf._grad, None

    # instructions

    def kernel(self, op: type[Op], tensors: Iterable[Any]) -> Callable[..., Any]:
        """What computes `op` of these inputs while recording: a function of their arrays that returns symbols."""
        if op.shape_depends_on_values:
            raise GraphTraceError(
                f"{user_lines()[0]}: {op.function_name}: the shape of the result depends on values, which a recording "
                "does not have (a mask as an index, x[mask], becomes nonzero() too); expected shapes that are fixed in "
                "nn.Graph.build: use flow.where(mask, value, x), which keeps the shape, or do it outside of build"
            )
        for x in tensors:
            if isinstance(x, Tensor):
                self.symbol_of(x._array, x)

        def run(*arrays: Any, **attrs: Any) -> Any:
            inputs = [self.slot_of(x) if is_array(x) else x for x in arrays]
            if op.view:
                op.infer(*arrays, **attrs)  # as eager mode lays out its operand
                symbol = self.symbol_of(arrays[0])
                views = [self._view(view, symbol, view_attrs) for view, view_attrs in op.views(attrs)]
                return views[0] if op.single else tuple(views)
            results = [self.new_memory(slot) for slot in self.emit(op, inputs, attrs)]
            return results[0] if op.single else tuple(results)

        return run

    def _view(self, op: type[Op], symbol: Symbol, attrs: dict[str, Any]) -> Symbol:
        parent = symbol.layout
        is_copy = op is View and not can_view(parent, attrs["shape"])
        if is_copy:
            parent = layout_of(parent.shape, parent.dtype)
        view = symbol.view(op, attrs, kernel_of("cpu", op.__name__).run(parent, **attrs), is_copy)
        view.slot(self.emit)
        return view

    def emit(self, op: type[Op], inputs: list[Any], attrs: dict[str, Any]) -> list[Slot]:
        """Append an instruction, and return its outputs; before a view that the program's memory rules out, a copy."""
        if op is View and not can_view(self._layout(inputs[0]), attrs["shape"]):
            inputs = self.emit(Clone, inputs, {})
        if any(isinstance(x, Slot) and x.is_global for x in inputs):
            inputs, outputs = self._by_signature(op, list(inputs), attrs)
        else:
            results = op.infer(*inputs, **attrs)
            device = attrs["target"] if op is ToDevice else next(x.device for x in inputs if isinstance(x, Slot))
            if op is ToDevice:
                load_kernels(device)
            outputs = [Slot(shape, dtype, device) for shape, dtype in ([results] if op.single else results)]
        if op.view:
            self._layouts[outputs[0]] = kernel_of("cpu", op.__name__).run(self._layout(inputs[0]), **attrs)
        self.append(Instruction(op, inputs, outputs, dict(attrs)))
        return outputs

    def _by_signature(self, op: type[Op], inputs: list[Any], attrs: dict[str, Any]) -> tuple[list[Any], list[Slot]]:
        """Inputs over global arrays, boxed as a signature of the op says, and the outputs."""
        if op is Boxing:
            return inputs, [as_slot(GlobalMeta.of(attrs["placement"], attrs["sbp"], inputs[0].shape, inputs[0].dtype))]
        operands = tuple([GlobalArray(x.device, {}) if isinstance(x, Slot) else x for x in inputs])
        plan = make_plan(op, operands, attrs)
        for i, sbp in plan.boxed:
            inputs[i] = self._boxed(inputs[i], sbp)
        return inputs, list(map(as_slot, plan.results))

    def _boxed(self, slot: Slot, sbp: NdSbp) -> Slot:
        """A global slot in another layout on the same placement."""
        if slot.device.sbp == sbp:
            return slot
        where = slot.device.placement
        attrs = {"placement": where, "sbp": sbp, "grad_sbp": None, "source": (where, slot.device.sbp)}
        return self.emit(Boxing, [slot], attrs)[0]

    def _layout(self, slot: Slot) -> np.ndarray:
        """In which order the elements of a slot lie in the program."""
        return self._layouts[slot] if slot in self._layouts else layout_of(slot.shape, slot.dtype)

    def append(self, instruction: Instruction) -> None:
        """Append an instruction, with its phase and where it comes from."""
        if self._before is None:
            scope, lines = self._scopes[-1] if self._scopes else "", user_lines()
            self._origins.append((sequence(), (scope, lines)))
        else:
            scope, lines = self._before
        instruction.scope, instruction.phase = scope, self.phase
        instruction.location, *instruction.callers = lines or [""]
        self.program.instructions.append(instruction)

    def keep_whole(self, op: type[Op], function: Callable, bound: inspect.BoundArguments) -> Any:
        """Append one instruction for a call of a composite function, with its arguments as the attribute `arguments`.

        The function runs, which checks its arguments and says what the results are; its instructions are dropped.
        """
        tensors, tree = flatten(dict(bound.arguments), tell=False)
        inputs = [self.slot_of(tensor._array, tensor) for tensor in tensors]
        start = len(self.program.instructions)
        results, shape_of_results = flatten(function(*bound.args, **bound.kwargs), tell=False)
        del self.program.instructions[start:]
        outputs = [self.slot_of(tensor._array).like() for tensor in results]
        del self.program.instructions[start:]
        self.append(Instruction(op, inputs, outputs, {"arguments": unflatten(tree, inputs)}))
        return unflatten(shape_of_results, [Tensor._wrap(self.new_memory(slot)) for slot in outputs])

    def draw(self, generator: Any) -> tuple[Scalar, Scalar]:
        """Seed and offset of a random draw, which every call makes again."""
        return self.program.draws.add(generator)

    def scalar(self, name: str, source: Callable[[], Any]) -> Scalar:
        """A number that every call looks up, named after the optimizer that is recorded: "optimizer.0.1.lr"."""
        return Scalar(f"{self._scopes[-1] if self._scopes else 'update'}.{name}", source)

    def update(self, op: type[Op], groups: Sequence[Sequence[Tensor | None]], attrs: dict[str, Any]) -> None:
        """Record an update, one instruction for each parameter; see `dispatcher.update`."""
        for i in range(len(groups[0])):
            attributes = {**attrs, **{name: list(attrs[name][i : i + 1]) for name in op.per_parameter}}
            symbols = [None if group[i] is None else self.symbol_of(group[i]._array, group[i]) for group in groups]
            inputs = [None if symbol is None else symbol.slot(self.emit) for symbol in symbols]
            changed = [position for position in op.mutates if inputs[position] is not None]
            outputs = [inputs[position].like() for position in changed]
            unless = None if self._unless is None else self.slot_of(self._unless._array)
            self.append(Instruction(op, inputs, outputs, attributes, unless=unless))
            for position, output in zip(changed, outputs, strict=True):
                self._layouts[output] = self._layout(inputs[position])
                self.write_slot(symbols[position], output)

    def write_slot(self, symbol: Symbol, value: Slot) -> None:
        """Write to the memory of a symbol, which may be a view."""
        if symbol.cell.is_borrowed:
            self.fail(
                f"{user_lines()[0]}: got a write to a tensor that from_numpy or as_tensor made in nn.Graph.build of a "
                "NumPy array; a call of the graph would write to the array of the recording, not to a new one: use "
                "flow.tensor(array), which copies it"
            )
        if self.phase != UPDATE:
            self._written.setdefault(id(symbol.cell), len(self.program.instructions))
        if value.is_global:
            value = self._boxed(value, symbol.sbp)
        if symbol.parent is None:
            symbol.cell.write(value)
        elif any(view.is_copy for view in symbol.chain()):
            self._write_step_by_step(symbol, value)
            symbol.wrote(value)
        else:
            (whole,) = self.emit(ViewScatter, [symbol.cell.value, value], {"steps": symbol.steps()})
            if whole.is_global:
                whole = self._boxed(whole, symbol.cell.value.device.sbp)
            symbol.cell.write(whole)
            symbol.wrote(value)

    def _write_step_by_step(self, symbol: Symbol, value: Slot) -> None:
        """Write through views that are copies in the program: what a view shares is written to its parent."""
        if symbol.is_copy:
            (above,) = self.emit(View, [value], {"shape": symbol.parent.shape})
        else:
            step = symbol.op, symbol.attrs
            (above,) = self.emit(ViewScatter, [symbol.parent.slot(self.emit), value], {"steps": (step,)})
        self.write_slot(symbol.parent, above)

    # places

    @contextmanager
    def scope(self, module: Any) -> Iterator[None]:
        """Record the instructions of a module under its name."""
        outer = self._scopes[-1] if self._scopes else ""
        self._scopes.append(self.names.setdefault(module, f"{outer}.{type(module).__name__}".removeprefix(".")))
        try:
            yield
        finally:
            self._scopes.pop()

    @contextmanager
    def updating(self, scope: str, unless: Tensor | None = None) -> Iterator[None]:
        """Record clipping and the step of an optimizer, under a scope such as "optimizer.0".

        Args:
            scope: of the instructions.
            unless: a 0-dim bool; a replay in which it holds True leaves the updates out (see `amp.GradScaler`).
        """
        self.phase, self._unless = UPDATE, unless
        self._scopes.append(scope)
        try:
            yield
        finally:
            self._scopes.pop()
            self.phase, self._unless = FORWARD, None

    def differentiate(self, node: Any) -> None:
        """Called by backward before each node: what follows is its gradient."""
        self.phase = BACKWARD
        if isinstance(node, Node):
            at = bisect.bisect_left(self._origins, node.sequence, key=itemgetter(0)) - 1
            self._before = self._origins[at][1] if at >= 0 else ("", [])

    def leave_backward(self) -> None:
        """Called by backward at its end."""
        self.phase, self._before = FORWARD, None

    # what a graph does in its own way, see `recording`

    def run(self, module: Module, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run a module that the step calls."""
        return call_with_hooks(module, args, kwargs)

    def before_forward(self, module: Module) -> None:
        """Called before `forward` of a module is looked up."""

    def before_backward(self, tensors: tuple[Tensor, ...], gradients: Any) -> tuple[Tensor, ...]:
        """Called with what backward is called with; returns the tensors to differentiate."""
        return tensors

    def before_step(self, what: str, remedy: str) -> None:
        """Called before an optimizer or a schedule makes a step."""

    def before_clipping(self, what: str) -> None:
        """Called before gradients are clipped."""

    # values

    def look(self, tensor: Tensor, what: str) -> None:
        """Called when a program looks at the values of a tensor: allowed only for constants that the step made.

        Raises:
            GraphTraceError: for anything else, whose value at the time of recording would be burned in.
        """
        if not self.is_constant(tensor):
            self.refuse(what)

    def is_constant(self, tensor: Tensor) -> bool:
        """Whether a tensor was made of numbers by the step itself, so that its values may be looked at."""
        return id(tensor._array) in self._created and id(tensor._array) not in self._symbols

    def refuse_other_memory(self, tensor: Tensor, what: str) -> None:
        """Called before a tensor gets another array: allowed only for tensors that the step made.

        Raises:
            GraphTraceError: for a tensor that lives on.
        """
        if not isinstance(tensor._array, Symbol) and id(tensor._array) not in self._created:
            self.fail(
                f"{user_lines()[0]}: {what} gives a tensor other memory, which cannot be recorded; expected its memory "
                "to stay in nn.Graph.build: write to it, tensor.copy_(...) under flow.no_grad(), or do it before the "
                "first call"
            )

    def refuse(self, what: str) -> NoReturn:
        """Raise GraphTraceError for a look at what a recording does not have."""
        active = modes.tracer is self
        where = f"{user_lines()[0]}: " if active else ""
        reason = (
            f"{what} cannot be looked at in nn.Graph.build: tensor.item(), .numpy(), .tolist(), bool(tensor) and "
            "Python branches on tensor values are not allowed there, since build is recorded once and replayed; use "
            "flow.where, or return the tensor from build and look at it outside"
            if active
            else f"{what} cannot be had: the tensor was made while {self.program.name} was being recorded, and only "
            "what build returns has values; return it from build"
        )
        self.fail(f"{where}{reason}")

    def fail(self, message: str) -> NoReturn:
        """Raise GraphTraceError, and again at the end of the recording if the program catches it: what it does instead
        would be recorded in place of what it does in eager mode."""
        error = GraphTraceError(message)
        self._failure = self._failure or error
        raise error

    # the end

    def finish(self, outputs: Sequence[Any]) -> Program:
        """The program, given what the step returned.

        Raises:
            GraphTraceError: for outputs that are not tensors, shared memory, or what was raised before.
        """
        if self._failure is not None:
            raise self._failure
        for i, y in enumerate(outputs):
            if not isinstance(y, Tensor):
                raise GraphTraceError(f"{self.program.name}: output {i} is a {type(y).__name__}; expected a Tensor")
        program = self.program
        program.outputs = [self.slot_of(y._array, y) for y in outputs]
        states = set(program.states)
        for slot, cell in self._cells.items():
            if cell.value is not slot and slot in states:
                program.writes[slot] = cell.value
        if program.is_global:
            program.draws.agree = of_rank_0
            sum_in_update(program)
        self._refuse_shared_memory()
        return program

    def _refuse_shared_memory(self) -> None:
        """Refuse states that would have to see each other's writes: in a program each has a value of its own.

        Raises:
            GraphTraceError: naming both.
        """
        program = self.program
        pairs = sharing({slot: program.tensors[slot]._array for slot in program.states}) if program.writes else []
        starts, uses = self.first_writes(), Uses(program)
        for a, b in pairs:
            both = a in program.writes and b in program.writes
            is_late = any(x in starts and uses.last_read(y) >= starts[x] for x, y in ((a, b), (b, a)))
            if both or is_late:
                raise GraphTraceError(
                    f"{program.name}: {a.name} and {b.name} share memory, and the step writes to "
                    f"{'both' if both else 'one and reads the other afterwards'}; expected tensors with memory of "
                    "their own: use .clone() for one of them, or the same tensor for both"
                )


def as_slot(meta: GlobalMeta) -> Slot:
    """A result that is a global array."""
    return Slot(meta.shape, meta.dtype, meta)


def sum_in_update(program: Program) -> None:
    """Let the sums over ranks that only updates read belong to the update: micro-batches are added up before."""
    readers = Uses(program).readers
    for instruction in program.instructions:
        if instruction.op is Boxing and instruction.phase == BACKWARD and instruction.output not in program.outputs:
            phases = {reader.phase for reader in readers.get(instruction.output, ())}
            if phases == {UPDATE}:
                instruction.phase = UPDATE


def of_rank_0(draws: list) -> list:
    """The draws of rank 0, for all ranks: their seeds and offsets may differ."""
    if not draws or len(world.owned()) == world.size():
        return draws
    return world.communicator().all_gather_object(draws, range(world.size()))[0]


def user_lines() -> list[str]:
    """`file:line` of the frames outside of this package, innermost first, up to the call of `record`.

    If there is none before it, then that which led to it.
    """
    lines: list[str] = []
    frame, recorded = sys._getframe(1), True
    while frame is not None and (recorded or not lines):
        if frame.f_code is Tracer.record.__code__:
            recorded = False
        elif not frame.f_code.co_filename.startswith(PACKAGE):
            lines.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        frame = frame.f_back
    return lines
