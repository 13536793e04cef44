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
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from miniflow.backends import memory
from miniflow.device import of_array
from miniflow.errors import GraphError
from miniflow.graph import capture
from miniflow.graph.ir import Program, Slot
from miniflow.graph.overlap import overlapping
from miniflow.graph.plan import ALIGNMENT, plan
from miniflow.graph.writer import Writer

array_of = operator.attrgetter("_array")


class Replay:
    """Runs a program again and again, in memory that was laid out once.

    Args:
        program: after all passes.
        config: its `outputs_buffer_size` says how many buffers of an output are kept for later calls, 2 by default;
            its `cuda_graph` whether replays on a GPU are launched as CUDA graphs (see `capture`), no by default.

    Attributes:
        plan: where values lie.
        capture: the CUDA graph, or the reason why there is none.
        source: the text of the function that runs.
    """

    def __init__(self, program: Program, config: Any = None):
        self.program = program
        self.buffers = getattr(config, "outputs_buffer_size", 2)
        self.reuse = "memory_planning" not in getattr(config, "disabled_passes", ())
        self.capture: capture.Capture | str = "cuda_graph is not asked for"
        self._wants_graph = getattr(config, "cuda_graph", False)
        self.tensors = [program.tensors[slot] for slot in program.states]
        self.written = [program.tensors[slot] for slot in program.writes]
        self.states: list[Any] = []
        self.arena = np.empty(0, np.uint8)
        self._strides: dict[Slot, tuple[int, ...]] = {}
        self.source = ""
        self._lock = threading.Lock()
        self._function: Callable = self._bind()

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of one call; states are changed in place.

        Args:
            inputs: arrays of the shapes, dtypes and devices of `program.inputs`.
        """
        with self._lock:
            if not all(map(operator.is_, map(array_of, self.tensors), self.states)):
                self._function = self._bind()
            arrays = [self._own(x) for x in inputs]
            self.program.draws.take()
            try:
                return self._function(*arrays) if isinstance(self.capture, str) else self.capture(arrays)
            except Exception as error:
                explained = self._explained(error)
                if explained is error:
                    raise
                raise explained from error
            finally:
                for tensor in self.written:
                    (tensor._version or tensor._shared_version()).value += 1

    def poison(self) -> None:
        """Fill the planned memory with NaN: no call may depend on what an earlier one left there."""
        self.arena[...] = 0xFF

    def _own(self, x: Any) -> Any:
        """An input in row-major order, and not in memory that the call writes to."""
        if not isinstance(x, np.ndarray):
            is_written = any(x.block is block for block in self._blocks)
            return x.copy() if is_written else memory.row_major(x)
        if not x.flags.c_contiguous:
            return x.copy()
        if self._bounds:
            start = x.__array_interface__["data"][0]
            stop = start + x.nbytes
            if start < self._hull[1] and self._hull[0] < stop:
                if any(start < high and low < stop for low, high in self._bounds):
                    return x.copy()
        return x

    def _bind(self) -> Callable:
        """Lay out memory for the states as they lie now, and write the function.

        If that fails, nothing runs on the arrays that they had before: the next call tries again.
        """
        self.states = [None] * len(self.tensors)
        states = [tensor._array for tensor in self.tensors]
        by_slot = dict(zip(self.program.states, states, strict=True))
        for slot, found in by_slot.items():
            check_state(self.program.name, slot, found)
        self._check_strides(by_slot)
        self.plan = plan(self.program, overlapping(by_slot), reuse=self.reuse)
        written = [by_slot[slot] for slot in self.program.writes]
        self._bounds = [byte_bounds(array) for array in written if memory.is_host(array) and array.size]
        self._blocks = [array.block for array in written if not memory.is_host(array)]
        self._hull = (
            min((low for low, _ in self._bounds), default=0),
            max((high for _, high in self._bounds), default=0),
        )
        if self.arena.size != self.plan.arena_bytes:
            self.arena = empty_arena(self.plan.arena_bytes)
        writer = Writer(self.plan, by_slot, self.arena, self.buffers)
        function = writer.function()
        self.source, self._lines, self._names = writer.source, writer.instruction_at, writer.namespace
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

    def _explained(self, error: Exception) -> Exception:
        """The error, or what the op's shape rule has to say, with the place where the instruction comes from."""
        frame, instruction, operands = self._failed(error)
        if instruction is None:
            return error
        if instruction.op.kernel_checks and type(error) in (ValueError, TypeError, IndexError):
            values = {**self._names, **frame.f_locals}
            try:
                instruction.op.infer(*[values.get(name) for name in operands], **instruction.attrs)
            except Exception as better:
                error = better
        place = " ".join(filter(None, [instruction.location, instruction.scope and f"in {instruction.scope}"]))
        if place and hasattr(error, "add_note"):
            error.add_note(f"in {self.program.name}, recorded at {place}")
        return error

    def _failed(self, error: Exception) -> tuple:
        """The frame of the function, the instruction that raised an error in it, and the names of its operands."""
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code is self._function.__code__:
                return (trace.tb_frame, *self._lines.get(trace.tb_lineno, (None, ())))
            trace = trace.tb_next
        return None, None, ()


def check_state(name: str, slot: Slot, found: Any) -> None:
    """Refuse a state that is no longer what was recorded.

    Raises:
        GraphError: with both.
    """
    now = Slot(found.shape, found.dtype, of_array(found))
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
