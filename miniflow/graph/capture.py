"""Launch a whole replay on a GPU at once: as a CUDA graph.

The driver records what a replay puts into a stream, and later launches all of it by one call: for small kernels that
takes less time than launching them one by one from Python. Everything in such a recording is fixed: addresses (so
inputs are copied to where they were, outputs from where they are, and the memory in between is kept), and numbers. So

    the first call replays on the stream, and so loads kernels and fills the pool of memory;
    a call whose `Scalar`s are those of the call before is captured, then launched;
    later calls with the same numbers are launched, others are replayed on the stream.

Adam's steps and the offsets of random draws differ in every call: such programs are never captured. `Capture.reason`
says what hinders. Source: CUDA C Programming Guide, "CUDA graphs"; PyTorch, `torch.cuda.CUDAGraph`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from miniflow.backends import memory
from miniflow.graph.ir import Program, Slot

log = logging.getLogger(__name__)

CHANGING = "a number changes from call to call"


class GpuGraphs:
    """The driver's calls, by `cuda.bindings`."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        self.driver = driver

    def check(self, result: tuple) -> Any:
        """What a call returned; RuntimeError if it failed."""
        error, *values = result
        if int(error):
            raise RuntimeError(f"CUDA graph: {error.name}")
        return values[0] if values else None

    def handle(self, stream: Any) -> Any:
        """The driver's handle of a `streams.Stream`."""
        raw = stream.raw.handle
        return self.driver.CUstream(int(getattr(raw, "value", raw) or 0))

    def begin(self, stream: Any) -> None:
        """Record what is put into the stream from now on, instead of doing it."""
        mode = self.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self.check(self.driver.cuStreamBeginCapture(self.handle(stream), mode))

    def end(self, stream: Any) -> Any:
        """End the recording; returns what `launch` takes."""
        graph = self.check(self.driver.cuStreamEndCapture(self.handle(stream)))
        try:
            return self.check(self.driver.cuGraphInstantiate(graph, 0))
        finally:
            self.check(self.driver.cuGraphDestroy(graph))

    def launch(self, graph: Any, stream: Any) -> None:
        """Do what was recorded."""
        self.check(self.driver.cuGraphLaunch(graph, self.handle(stream)))

    def destroy(self, graph: Any) -> None:
        """Free a recording."""
        self.driver.cuGraphExecDestroy(graph)


def why_not(program: Program, emulated: bool) -> str | None:
    """What hinders capturing a program; None if nothing does."""
    slots: list[Slot] = [*program.inputs, *program.states, *program.constants]
    slots += [slot for instruction in program.instructions for slot in instruction.outputs]
    places = {str(slot.device) for slot in slots}
    if len(places) != 1 or slots[0].device.type != "cuda":
        return f"it works on {', '.join(sorted(places)) or 'nothing'}, not on one cuda device"
    if any(instruction.unless is not None for instruction in program.instructions):
        return "whether an update is left out is decided on the host"
    if program.draws.generators:
        return f"random draws: {CHANGING}"
    return "the device is emulated" if emulated else None


class Capture:
    """The CUDA graph of one replay.

    Args:
        function: puts the work of one call into the current stream; takes arrays, returns arrays.
        program: what it computes.
        graphs: the driver's calls.
        stream: a stream of its own, whose memory nobody else uses.

    Attributes:
        reason: why calls are not launched as a graph; None if they are.
    """

    def __init__(self, function: Callable, program: Program, graphs: Any, stream: Any):
        self.function, self.program, self.graphs, self.stream = function, program, graphs, stream
        self.reason: str | None = "the first call"
        self.failed = False
        self.inputs: list[Any] | None = None
        self.outputs: list[Any] = []
        self.graph: Any = None
        self.memory: list[Any] = []
        self.captured: list[Any] | None = None  # the numbers in the graph
        self.previous: list[Any] | None = None  # the numbers of the last call

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of one call."""
        if self.failed:
            return self.function(*inputs)
        numbers = [scalar.source() for scalar in self.program.scalars().values()]
        with self.on_own_stream() as current:
            if self.inputs is None:
                self.inputs = [x.copy() for x in inputs]
            for copy, x in zip(self.inputs, inputs, strict=True):
                memory.copy_into(copy, x)
            if self.captured != numbers and self.previous == numbers:
                self.capture(numbers)
            if self.captured == numbers and self.graph is not None:
                self.graphs.launch(self.graph, self.stream)
                results, self.reason = self.outputs, None
            else:
                results = self.function(*self.inputs)
                if not self.failed:
                    self.reason = "the first call" if self.previous is None else CHANGING
            self.previous = numbers
        outputs = [y.copy() for y in results]
        self.stream.wait_stream(current)  # the next call, perhaps from another stream, overwrites what is copied
        return outputs

    @contextmanager
    def on_own_stream(self) -> Iterator[Any]:
        """Work in the own stream, after what the current one has to do, which then waits for it; gives the latter."""
        from miniflow.backends.cuda import streams

        current = streams.current(self.stream.device_index)
        self.stream.wait_stream(current)
        try:
            with streams.stream(self.stream):
                yield current
        finally:
            current.wait_stream(self.stream)

    def capture(self, numbers: list[Any]) -> None:
        """Record the work of a call. If that fails, all calls are replayed on the stream from then on."""
        self.forget()
        try:
            self.graphs.begin(self.stream)
            try:
                self.outputs = self.function(*self.inputs)
            finally:
                graph = self.graphs.end(self.stream)
        except Exception as error:
            self.failed, self.reason = True, f"capturing failed: {error}"
            log.warning("%s: %s", self.program.name, self.reason)
            return
        self.graph, self.captured = graph, numbers
        self.memory = self.withdraw()

    def withdraw(self) -> list[Any]:
        """Keep the memory that the graph works in from being released or handed out."""
        from miniflow.backends.cuda.allocator import allocator

        return allocator(self.stream.device_index).withdraw(self.stream)

    def forget(self) -> None:
        """Drop the graph: states have moved, or numbers have changed."""
        if self.graph is not None:
            self.graphs.destroy(self.graph)
        self.graph, self.captured, self.outputs, self.memory = None, None, [], []


def make(function: Callable, program: Program) -> Capture | str:
    """The capture of a replay, or the reason why there is none."""
    from miniflow.backends.cuda.driver import driver

    cuda = any(slot.device.type == "cuda" for slot in (*program.inputs, *program.states))
    reason = why_not(program, not cuda or driver().emulated)
    if reason is not None:
        return reason
    try:
        graphs = GpuGraphs()
    except ImportError as error:
        return f"cuda.bindings cannot be imported: {error}"
    from miniflow.backends.cuda import streams

    return Capture(function, program, graphs, streams.Stream((program.inputs or program.states)[0].device.index))
