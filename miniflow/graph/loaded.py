"""A graph that came from a folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from miniflow.backends.memory import to_host
from miniflow.device import place_of
from miniflow.dispatch.tape import modes
from miniflow.dtype import BY_NUMPY
from miniflow.errors import (
    ArgumentError,
    ArgumentTypeError,
    DeviceError,
    DTypeError,
    GraphError,
    GraphTraceError,
    OnnxError,
    ShapeError,
)
from miniflow.graph.global_replay import GlobalReplay
from miniflow.graph.ir import Slot
from miniflow.graph.nested import flatten, unflatten
from miniflow.graph.onnxruntime import engine_of
from miniflow.graph.passes import run_passes
from miniflow.graph.replay import Arena, Replay
from miniflow.graph.resized import resized
from miniflow.graph.saved.graph_file import Parts
from miniflow.graph.saved.schedules import step
from miniflow.graph.saved.trees import arranged, describe
from miniflow.tensor import Tensor


class LoadedGraph:
    """A compiled graph without the code of its model: call it as the graph that was saved.

    Made by `flow.load(folder)`. Inputs must have the shapes, dtypes and devices that the graph was compiled for. In a
    training graph each call is a training step and changes `state_dict()`.

    Attributes:
        program_recorded: what the file holds.
        program: the same after all passes, which is what runs.
        config: the options of the graph that was saved.
        numbers: the values that vary from step to step by name. They can be set; steps are counted by every call.
            "optimizer.0.1.lr" is the learning rate of optimizer 0 in its group 1, "optimizer.0.1.betas.0" the first of
            its betas. A momentum that was 0 has no buffer and stays without effect.
    """

    def __init__(self, parts: Parts, sibling: LoadedGraph | None = None) -> None:
        self._parts, self.numbers = parts, parts.numbers
        self._arena, self._lock = (sibling._arena, sibling._lock) if sibling else (Arena(), threading.Lock())
        self.program_recorded, self.config = parts.program, parts.config
        self.program = run_passes(parts.program, parts.config)
        if parts.program.is_global:
            self._replay = GlobalReplay(parts.program, self.program, self.config, self.config.accumulation_steps)
            self._inputs = [Slot(meta.shape, meta.dtype, meta) for meta in self._replay.inputs]
        else:
            self._replay, self._inputs = Replay(self.program, parts.config, self._arena), self.program.inputs

    @property
    def name(self) -> str:
        """The name of the graph that was saved."""
        return self.program_recorded.name

    @property
    def is_compiled(self) -> bool:
        """True: only compiled graphs can be saved."""
        return True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program.

        Raises:
            ArgumentTypeError: for arguments of another structure, or other constants among them. Arguments with names
                and the entries of dicts may be in any order.
            GraphTraceError: in the build of another graph, or for a tensor that is left over from one.
            ShapeError, DTypeError, DeviceError: for a tensor unlike that of the first call of the graph.
        """
        if modes.tracer is not None:
            raise GraphTraceError(
                f"{self.name}: called while {modes.tracer.program.name} is being recorded; a loaded graph cannot be "
                "called within the build of another: call it before or after, on the values"
            )
        given, tree = flatten((args, kwargs))
        tensors = arranged(self._parts.arguments, tree, given)
        if tensors is None:
            got, expected = ("{}, {}".format(*map(describe, t.children)) for t in (tree, self._parts.arguments))
            raise ArgumentTypeError(f"{self.name}: called with {got}; expected {expected}")
        for number, (tensor, slot) in enumerate(zip(tensors, self._inputs, strict=True)):
            self._check(number, tensor, slot)
        with self._lock:
            arrays = self._replay([tensor._array for tensor in tensors])
            self._count(arrays)
        return unflatten(self._parts.results, [Tensor._wrap(array) for array in arrays])

    def _check(self, number: int, tensor: Tensor, slot: Slot) -> None:
        if getattr(tensor._array, "is_symbolic", False):
            tensor._array.numpy()  # raises: it was left over from the recording of a graph
        which = f"{self.name}: input {number}"
        if tensor._array.shape != slot.shape:
            raise ShapeError(
                f"{which} has shape {tuple(tensor.shape)}; expected {slot.shape}, which the graph was compiled for: "
                "pad the batch, or save a graph for that shape"
            )
        if tensor._array.dtype != slot.dtype:
            expected = BY_NUMPY[slot.dtype]
            raise DTypeError(f"{which} has {tensor.dtype}; expected {expected}: use x.to({expected})")
        place = place_of(tensor._array)
        if place != slot.device:
            remedy = "move it"
            if not slot.is_global and not place.is_global:
                remedy += f", or load the graph with map_location={str(place)!r}"
            raise DeviceError(f"{which} is on {place}; expected {slot.device}: {remedy}")

    def _count(self, outputs: list[Any]) -> None:
        """Count the step that was made; one that was left out counts for the scaler only."""
        if self._parts.skipper is not None:
            skipped = bool(to_host(outputs.pop()))
            self._parts.skipper.replayed(skipped)
            if skipped:
                return
        for name, value in self.numbers.items():
            if kind_of(name) == "steps":
                self.numbers[name] = value + 1
            elif kind_of(name) == "fresh":
                self.numbers[name] = False
        step([schedule for _, schedule in self._parts.schedules], self.numbers)

    def set_lr(self, lr: float) -> None:
        """Let all optimizers in the graph go on with this learning rate; schedules go on from it, or write over it.

        Raises:
            ArgumentError: if the graph has no optimizer, or for a rate that is negative or no number.
        """
        names = [name for name in self.numbers if kind_of(name) == "lr"]
        if not names or isinstance(lr, bool) or not isinstance(lr, int | float) or not lr >= 0:
            raise ArgumentError(
                f"{self.name}.set_lr: got {lr!r} for {len(names)} rates; expected a number for at least 1"
            )
        self.numbers.update(dict.fromkeys(names, float(lr)))

    def for_rows(self, rows: int) -> LoadedGraph:
        """The graph for batches of another size; it shares weights and the memory of a call with this one.

        Its results are those of this graph only if no row of a batch depends on another one: compare them.

        Raises:
            GraphError, ShapeError, DimError, IndexRangeError: if it cannot be had, see `resized`.
        """
        other = LoadedGraph(replace(self._parts, program=resized(self.program_recorded, rows)), self)
        if self.config.engine is not None:
            other.run_by(self.config.engine)
        return other

    def run_by(self, engine: str) -> None:
        """Let onnxruntime run calls from now on, as `config.enable_openvino()` does for graphs that are not loaded.

        Args:
            engine: "xla_jit", "tensorrt" or "openvino".

        Raises:
            ArgumentError: for another one.
            GraphError: with the reason, if the engine cannot run the graph, or is not installed.
        """
        self.config.engine = engine
        try:
            self._replay = engine_of(self.program_recorded, self.config, engine, "step_of", self.program_recorded)
        except OnnxError as error:
            raise GraphError(f"{self.name}: {engine} cannot run the graph: {error.message}") from error

    def state_dict(self) -> dict[str, Tensor]:
        """Parameters, buffers and states of optimizers by name; they share memory with the graph."""
        return {slot.name: self.program_recorded.tensors[slot] for slot in self.program_recorded.states}

    @contextmanager
    def _to_save(self) -> Iterator[Parts]:
        """What `flow.save` writes. Calls of other threads wait until the block is done."""
        with self._lock:
            yield self._parts

    def __repr__(self) -> str:
        args, kwargs = map(describe, self._parts.arguments.children)
        states = sum(slot.nbytes for slot in self.program_recorded.states)
        return (
            f"LoadedGraph({self.name}: {args}, {kwargs} -> {describe(self._parts.results)}, "
            f"{len(self.program.instructions)} instructions, {states} bytes of states)"
        )


def kind_of(name: str) -> str:
    """What a number is: "steps" in "optimizer.0.0.steps.3", "lr" in "optimizer.0.0.lr"."""
    parts = name.split(".")
    return parts[-2] if parts[-1].isdecimal() and len(parts) > 1 else parts[-1]
