"""A compiled step: what a graph replays for inputs of one kind, and how it tells whether a call fits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from miniflow.backends import memory
from miniflow.backends.cpu import conv
from miniflow.device import CPU, place_of
from miniflow.dispatch.tape import note_change
from miniflow.errors import GraphError
from miniflow.graph import onnxruntime
from miniflow.graph.global_replay import GlobalReplay
from miniflow.graph.guards import Guards
from miniflow.graph.interpret import execute
from miniflow.graph.ir import Program, Slot
from miniflow.graph.nested import DICT, LEAF, SEQUENCE, Tree, flatten, unflatten
from miniflow.graph.passes import PassRecord, run_passes, zero
from miniflow.graph.recording import Recording
from miniflow.graph.replay import Replay
from miniflow.graph.snapshot import ABSENT
from miniflow.ops.convolution import Conv2d, Conv2dDataGrad, Conv2dWeightGrad
from miniflow.tensor import Tensor

if TYPE_CHECKING:
    from miniflow.graph.graph import Graph

CONVOLUTIONS = (Conv2d, Conv2dDataGrad, Conv2dWeightGrad)
array_of = attrgetter("_array")


class Compiled:
    """The step of a graph for inputs of one kind.

    Args:
        graph: the graph.
        tree: of its arguments, `(args, kwargs)`.
        metas: shape, dtype and device of the tensors among them.

    Attributes:
        kind: of the inputs: a number that stands for `tree` and `metas`.
        config: the options of the graph, its modules and its optimizers.
        recording: what `build` did.
        program: after all passes.
        report: what each pass did.
        replay: runs the program.
    """

    def __init__(self, graph: Graph, tree: Tree, metas: Sequence[tuple]):
        self.graph = graph
        self.tree = tree
        self.metas = list(metas)
        self.kind = kind_of(tree, metas)
        self.report: list[PassRecord] = []
        for optimizer in graph._optimizers:
            optimizer.create_state()
        options, self.config = graph._options_key(), graph._full_config()
        whole = zero.whole(graph._optimizers, graph._whole) if self.config.zero else nullcontext()
        with self._stage("building graph"), whole:
            self.recording = Recording(graph, tree, metas, self.config.checkpoint_scopes)
        with self._stage("optimizing graph"):
            self.program = run_passes(self.recording.program, self.config, self.report)
        with self._stage("building plan"):
            recorded, steps = self.recording.program, graph._micro_batches
            engine = onnxruntime.replay_of(self) if self.config.engine else None
            if engine is None and not self.config.conv_heuristics:
                time_convolutions(self.program)
            if engine is not None:
                self.replay = engine
            elif recorded.is_global:
                self.replay = GlobalReplay(recorded, self.program, self.config, steps, graph._arena)
            else:
                self.replay = Replay(self.program, self.config, graph._arena)
        tensors = {slot.name: recorded.tensors[slot] for slot in recorded.states}
        self.guards = Guards(graph, self.recording, tensors, options)
        positional = Tree(SEQUENCE, tuple, children=(LEAF,) * len(self.metas))
        self._plain = tree == Tree(SEQUENCE, tuple, children=(positional, Tree(DICT, dict)))
        self._returns_tensor = self.recording.result == LEAF

    @contextmanager
    def _stage(self, what: str) -> Iterator[None]:
        """Print that a stage begins, and at its end how long it took, or that it failed."""
        say, head = self.graph._print, self.graph._shallow_repr()
        say(0, f"{head} start {what}.")
        start = time.perf_counter()
        try:
            yield
        except BaseException as error:
            say(0, f"[ERROR]{head} {what} got error: {type(error).__name__}.")
            raise
        say(0, f"{head} {what} Done! Cost time: {time.perf_counter() - start:.2f}s.\n")

    # whether a call fits

    def arrays_of(self, args: tuple, kwargs: dict[str, Any]) -> list[Any] | None:
        """The arrays of a call's tensors; None if it needs another plan."""
        if self._plain and not kwargs and len(args) == len(self.metas):
            tensors: Sequence[Any] = args
        else:
            tensors, tree = flatten((args, kwargs))
            if tree != self.tree:
                return None
        arrays = []
        for x, (shape, dtype, device) in zip(tensors, self.metas, strict=True):
            if not isinstance(x, Tensor):
                return None
            array = x._array
            if array.shape != shape or array.dtype != dtype:
                return None
            if (type(array) is np.ndarray) != (device is CPU) or (device is not CPU and place_of(array) != device):
                return None
            if x._edge is not None or x._view is not None:
                self.graph._warn_of_modes((x,))
                self.refuse_updated(x)
            arrays.append(array)
        return arrays

    def refuse_updated(self, x: Tensor) -> None:
        """Refuse an input whose gradient belongs to a parameter that the step updates: it would be left out.

        Raises:
            GraphError: for the parameter, or a view of it.
        """
        if not x.requires_grad:
            return
        root = x
        while root._view is not None:
            root = root._view[0]
        if any(root is p for _, params in self.recording.updated for p in params):
            raise GraphError(
                f"{self.graph.name}: got an input that is a parameter of {self.graph.name}, or a view of one, and its "
                "gradient through the input would be left out; expected build to use the parameter itself, or "
                "parameter.detach() as the input if no gradient is wanted"
            )

    # running it

    def run(self, arrays: list[Any], drawn: list[tuple[int, int]] | None = None) -> Any:
        """One call: what `build` returned, with the values of this call; `drawn` are its random draws, made before."""
        return self.finish(self.replay(arrays, drawn))

    def _assign(self) -> None:
        """What `build` assigns to attributes without reading them."""
        for items, key, snapshot in self.recording.accesses.effects:
            if items.get(key, ABSENT) is not snapshot.value or not snapshot.is_unchanged():
                snapshot.restore(lambda tensor: True)
                items.pop(key) if snapshot.value is ABSENT else items.update({key: snapshot.value})
                note_change()

    def finish(self, outputs: list[Any]) -> Any:
        """What the call returns, after a replay with these outputs."""
        if self.recording.accesses.effects:
            self._assign()
        if self.graph._optimizers:
            self._count(outputs)
        if self._returns_tensor:
            return Tensor._wrap(outputs[0])
        return unflatten(self.recording.result, [Tensor._wrap(array) for array in outputs])

    def _count(self, outputs: list[Any]) -> None:
        """Let everything move on that counts steps; an update that was left out counts for the scaler only."""
        graph = self.graph
        skipped = bool(memory.to_host(outputs.pop())) if self.recording.skips else False
        if graph._grad_scaler is not None:
            graph._grad_scaler.replayed(skipped)
        if skipped:
            return
        graph.__dict__["_train_step"] += 1  # which no recording depends on
        for optimizer, params in self.recording.updated:
            optimizer.count_step(params)
        for scheduler in graph._schedulers:
            scheduler.step()


def kind_of(tree: Tree, metas: Sequence[tuple]) -> int:
    """A number that stands for inputs of one kind."""
    return hash((tree, tuple(metas)))


def time_convolutions(program: Program) -> None:
    """Run the convolutions of a program on the CPU, each by all methods: later calls take the fastest."""
    with conv.search():
        for instruction in program.instructions:
            if instruction.op in CONVOLUTIONS and instruction.output.device == CPU:
                arrays = {x: np.ones(x.shape, x.dtype) for x in instruction.inputs if isinstance(x, Slot)}
                execute(instruction, arrays, {})
