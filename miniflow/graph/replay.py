"""Replay a program: a Python function is written for it once, and run at every call.

The function is straight-line code, one line for each instruction, in which all arrays that never change are constants:
planned memory, views of it, states. Nothing is looked up at a call but the `Scalar`s. `Replay.source` shows it:

    def replay(x0, n):
        linear(a5, x0, a1, a2)                    # model.0  train.py:12
        relu(a5, a5)
        ...

What has no planned memory (see `plan`) is a local variable, deleted after its last use.
"""

from __future__ import annotations

import operator
import threading
import weakref
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from miniflow.backends import memory
from miniflow.device import place_of
from miniflow.errors import GraphError
from miniflow.graph import capture
from miniflow.graph.ir import Instruction, Program, Slot
from miniflow.graph.overlap import overlapping, share
from miniflow.graph.plan import ALIGNMENT, plan
from miniflow.graph.writer import Writer

array_of = operator.attrgetter("_array")


class Replay:
    """Runs a program again and again, in memory that was laid out once.

    Args:
        program: after all passes.
        config: its `outputs_buffer_size` says how many buffers of an output are kept for later calls, 2 by default;
            its `cuda_graph` whether replays on a GPU are launched as CUDA graphs (see `capture`), no by default.
        clock: takes the times of a pipeline's tasks, see `writer.Writer`.
        arena: that of the graph; the caller sees to it that its replays run one after the other.

    Attributes:
        plan: where values are stored.
        capture: the CUDA graph, or the reason why there is none.
        source: the text of the function that runs.
    """

    def __init__(self, program: Program, config: Any = None, arena: Arena | None = None, clock: Callable | None = None):
        self.program, self.arena, self.clock = program, Arena() if arena is None else arena, clock
        self.buffers = getattr(config, "outputs_buffer_size", 2)
        self.reuse = "memory_planning" not in getattr(config, "disabled_passes", ())
        self.capture: capture.Capture | str = "cuda_graph is not asked for"
        self._wants_graph = getattr(config, "cuda_graph", False)
        self.tensors = [program.tensors[slot] for slot in program.states]
        self.written = [program.tensors[slot] for slot in program.writes]
        self._late = [
            [x for i, x in program.late_reads if i == n and isinstance(x, Slot)] for n in range(len(program.inputs))
        ]
        self._apart = [(i, x) for i, x in program.late_reads if isinstance(x, int)]
        self.states: list[Any] = []
        self.memory = np.empty(0, np.uint8)
        self._strides: dict[Slot, tuple[int, ...]] = {}
        self.source = ""
        self._lock = threading.Lock()
        self._function: Callable | None = self._bind()

    def __call__(self, inputs: Sequence[Any], drawn: list[tuple[int, int]] | None = None) -> list[Any]:
        """The outputs of one call; states are changed in place.

        Args:
            inputs: arrays of the shapes, dtypes and devices of `program.inputs`.
            drawn: what `program.draws.drawn()` gave for this call, if it was asked before.
        """
        with self._lock:
            if self._function is None or not all(map(operator.is_, map(array_of, self.tensors), self.states)):
                self._function = self._bind()
            self._refuse_shared(inputs)
            arrays = list(map(self._own, inputs, self._late))
            self.program.draws.take(drawn)
            try:
                return self._function(*arrays) if isinstance(self.capture, str) else self.capture(arrays)
            except Exception as error:
                self._note_place(error)
                raise
            finally:
                for tensor in self.written:
                    (tensor._version or tensor._shared_version()).value += 1

    def poison(self) -> None:
        """Fill the planned memory with NaN: no call may depend on what an earlier one left there."""
        self.memory[...] = 0xFF

    def release(self) -> None:
        """Let go of the planned memory until the next call."""
        self._function, self.memory = None, np.empty(0, np.uint8)

    def _own(self, x: Any, late: Sequence[Slot]) -> Any:
        """An input in row-major order, and not in memory that the call writes to.

        Args:
            x: the input.
            late: states in whose memory it must not lie.
        """
        if not isinstance(x, np.ndarray):
            is_written = any(x.block is block for block in self._blocks)
            return self._copied(x, late) if is_written else memory.row_major(x)
        in_order = x.flags.c_contiguous
        if self._starts:
            start = x.__array_interface__["data"][0]
            start, stop = (start, start + x.nbytes) if in_order else byte_bounds(x)
            before = bisect_left(self._starts, stop)
            if before and start < self._stops[before - 1]:
                return self._copied(x, late)
        return x if in_order else x.copy()

    def _copied(self, x: Any, late: Sequence[Slot]) -> Any:
        """A copy of an input as it is before the call.

        Raises:
            GraphError: if `build` would see in one what it writes to the other.
        """
        for state in late:
            if share(self.program.tensors[state]._array, x):
                raise GraphError(
                    f"{self.program.name}: got an input that shares memory with {state.name}, and build writes to "
                    "one of them before it reads the other; expected an input with memory of its own: pass "
                    f"tensor.clone(), or let build read {state.name} itself"
                )
        return x.copy()

    def _refuse_shared(self, inputs: Sequence[Any]) -> None:
        """Refuse inputs of which one would show what `build` writes to the other.

        Raises:
            GraphError: naming both.
        """
        for pair in self._apart:
            if share(*[inputs[i] for i in pair]):
                a, b = (self.program.inputs[i].name for i in pair)
                raise GraphError(
                    f"{self.program.name}: the inputs {a} and {b} share memory, and build writes to one of them before "
                    "it reads the other, which has a copy of its own; expected memory of their own: pass tensor.clone()"
                )

    def _bind(self) -> Callable:
        """Lay out memory for the states as they lie now, and write the function.

        If that fails, nothing runs on the arrays that they had before: the next call tries again.
        """
        self.states = [None] * len(self.tensors)
        states = [tensor._array for tensor in self.tensors]
        by_slot = dict(zip(self.program.states, states, strict=True))
        for slot, array in by_slot.items():
            check_state(self.program.name, slot, array)
        self._check_strides(by_slot)
        self.plan = plan(self.program, overlapping(by_slot), reuse=self.reuse)
        written = [by_slot[slot] for slot in {*self.program.writes, *chain.from_iterable(self._late)}]
        bounds = sorted([byte_bounds(array) for array in written if memory.is_host(array) and array.size])
        self._starts = [start for start, _ in bounds]
        self._stops = list(accumulate([stop for _, stop in bounds], max))  # the last stop of all that begin so far
        self._blocks = [array.block for array in written if not memory.is_host(array)]
        self.memory = self.arena.take(self)
        writer = Writer(self.plan, by_slot, self.memory, self.buffers, self.clock)
        function = writer.function()
        self.source, self._lines = writer.source, writer.instruction_at
        if self._wants_graph:
            if not isinstance(self.capture, str):
                self.capture.forget()
            self.capture = capture.make(function, self.program)
        self.states = states
        return function

    def _check_strides(self, by_slot: dict[Slot, Any]) -> None:
        """Refuse states that lie in another order than at first: views of them may be copies now.

        Raises:
            GraphError: naming the state.
        """
        strides = {slot: memory.layout(array).strides for slot, array in by_slot.items() if array.size > 1}
        for slot, before in (self._strides or strides).items():
            if strides[slot] != before:
                raise GraphError(
                    f"{self.program.name}: {slot.name} has strides {strides[slot]} (bytes), had {before} before; "
                    "expected them unchanged: give it memory in the same order"
                )
        self._strides = strides

    def _note_place(self, error: Exception) -> None:
        """Add to an error where the instruction comes from that raised it."""
        instruction = self._failed(error)
        if instruction is None or not hasattr(error, "add_note"):
            return
        place = " ".join(filter(None, [instruction.location, instruction.scope and f"in {instruction.scope}"]))
        if place:
            error.add_note(f"in {self.program.name}, recorded at {place}")

    def _failed(self, error: Exception) -> Instruction | None:
        """The instruction that raised an error in the function."""
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code is self._function.__code__:
                return self._lines.get(trace.tb_lineno)
            trace = trace.tb_next
        return None


class Arena:
    """Planned memory that several replays use in turn: as much as the largest of them needs.

    When it has to grow, the others let go of it, and lay out their memory again at their next call. It is freed with
    the last of them.
    """

    def __init__(self) -> None:
        self._users: weakref.WeakSet[Replay] = weakref.WeakSet()
        self._memory: Callable[[], np.ndarray | None] = lambda: None

    def take(self, replay: Replay) -> np.ndarray:
        """The memory for a replay, whose plan says how much it needs."""
        needed, arena = replay.plan.arena_bytes, self._memory()
        if arena is None or arena.size < needed:
            arena = None
            for user in self._users - {replay}:
                user.release()
            arena = empty_arena(needed)
            self._users, self._memory = weakref.WeakSet(), weakref.ref(arena)
        self._users.add(replay)
        return arena


def check_state(name: str, slot: Slot, array: Any) -> None:
    """Refuse a state that is no longer what was recorded.

    Raises:
        GraphError: with both.
    """
    now = Slot(array.shape, array.dtype, place_of(array))
    if (now.shape, now.dtype, now.device) != (slot.shape, slot.dtype, slot.device):
        raise GraphError(
            f"{name}: {slot.name} was recorded as {slot.type} on {slot.device}, now it is {now.type} on {now.device}; "
            "expected it unchanged: make a new graph"
        )


def empty_arena(nbytes: int) -> np.ndarray:
    """Memory that begins at a cache line."""
    block = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -memory.address(block) % ALIGNMENT
    return block[start : start + nbytes]
