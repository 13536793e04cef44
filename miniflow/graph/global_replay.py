"""Replay a program over global arrays: their shards go through the lowered program, and come out as global arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from miniflow.graph.ir import Program, Slot
from miniflow.graph.replay import Arena, Replay
from miniflow.graph.schedule import Clock, Task
from miniflow.parallel import world
from miniflow.parallel.global_array import GlobalArray
from miniflow.parallel.partition import GlobalMeta, local_shape


class GlobalReplay(Replay):
    """Runs a lowered program again and again; see `lower`.

    Args:
        recorded: the program over global arrays, of one micro-batch.
        program: after all passes.
        config, arena: see `Replay`.
        steps: how many micro-batches make a batch.
        clock: takes the times of a pipeline's tasks.

    Attributes:
        inputs, results: the layouts of what a call takes and returns.
    """

    def __init__(
        self, recorded: Program, program: Program, config: Any = None, steps: int = 1, arena: Arena | None = None,
        clock: Callable | None = None,
    ):  # fmt: skip
        super().__init__(program, config, arena, clock)
        self.recorded, self.steps = recorded, steps
        self.global_written = list({id(shard.tensor): shard.tensor for shard in self.written}.values())
        shapes = iter([slot.shape for slot in (*program.inputs, *program.outputs)])
        slots = [*recorded.inputs, *recorded.outputs]
        owned = [{r: next(shapes) for r in slot.device.placement.owned} for slot in slots]
        of_ranks = world.communicator().all_gather_object(owned, range(world.size()))  # a rank may hold no part of one
        metas = [
            joined(slot, {r: shape for shapes in of_ranks for r, shape in shapes[i].items()}, steps)
            for i, slot in enumerate(slots)
        ]
        self.inputs, self.results = metas[: len(recorded.inputs)], metas[len(recorded.inputs) :]

    def __call__(self, inputs: Sequence[Any], drawn: list[tuple[int, int]] | None = None) -> list[Any]:
        """The outputs of one call; states are changed in place.

        Args:
            inputs: global arrays of the layouts of the inputs.
            drawn: see `Replay`.
        """
        arrays = iter(super().__call__([shard for x in inputs for shard in x.shards.values()], drawn))
        world.communicator().finish_sending()
        for tensor in self.global_written:
            tensor._array.wrote()
            tensor._written()
        return [GlobalArray(meta, {r: next(arrays) for r in meta.placement.owned}) for meta in self.results]

    def timed(self, config: Any, inputs: Sequence[Any]) -> tuple[list[Any], dict[Task, float]]:
        """One call, and how long each task of the pipeline took, on all ranks."""
        clock = Clock()
        outputs = GlobalReplay(self.recorded, self.program, config, self.steps, self.arena, clock)(inputs)
        clock(None)
        clocks = world.communicator().all_gather_object(clock.seconds, range(world.size()))
        return outputs, {task: seconds for tasks in clocks for task, seconds in tasks.items()}


def joined(slot: Slot, shapes: dict[int, tuple[int, ...]], steps: int) -> GlobalMeta:
    """The layout of an input or output, of whose shards those of all micro-batches may have been put together."""
    meta = slot.device
    whole = (steps * meta.shape[0], *meta.shape[1:]) if meta.shape else (steps,)
    for shape in (meta.shape, whole):
        if all(local_shape(shape, meta.placement, meta.sbp, r) == local for r, local in shapes.items()):
            return GlobalMeta.of(meta.placement, meta.sbp, shape, meta.dtype)
    raise AssertionError(f"shards of shapes {shapes} are none of {slot} or of {steps} such")
