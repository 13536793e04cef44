"""Replay a program over global arrays: their shards go through the lowered program, and come out as global arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from miniflow.graph.ir import Program, Slot
from miniflow.graph.replay import Arena, Replay
from miniflow.parallel.global_array import GlobalArray
from miniflow.parallel.partition import GlobalMeta, local_shape


class GlobalReplay(Replay):
    """Runs a lowered program again and again; see `lower`.

    Args:
        recorded: the program over global arrays, of one micro-batch.
        program: after all passes.
        config, arena: see `Replay`.
        steps: how many micro-batches make a batch.
    """

    def __init__(
        self, recorded: Program, program: Program, config: Any = None, steps: int = 1, arena: Arena | None = None
    ):
        super().__init__(program, config, arena)
        self.global_written = list({id(shard.tensor): shard.tensor for shard in self.written}.values())
        self.results, shapes = [], iter([slot.shape for slot in program.outputs])
        for slot in recorded.outputs:
            owned = slot.device.placement.owned
            self.results.append(joined(slot, dict(zip(owned, shapes, strict=False)), steps))

    def __call__(self, inputs: Sequence[Any], drawn: list[tuple[int, int]] | None = None) -> list[Any]:
        """The outputs of one call; states are changed in place.

        Args:
            inputs: global arrays of the layouts of the inputs.
            drawn: see `Replay`.
        """
        arrays = iter(super().__call__([shard for x in inputs for shard in x.shards.values()], drawn))
        for tensor in self.global_written:
            tensor._array.wrote()
            tensor._written()
        return [GlobalArray(meta, {r: next(arrays) for r in meta.placement.owned}) for meta in self.results]


def joined(slot: Slot, shapes: dict[int, tuple[int, ...]], steps: int) -> GlobalMeta:
    """The layout of an output, of whose shards those of all micro-batches may have been put together."""
    meta = slot.device
    whole = (steps * meta.shape[0], *meta.shape[1:]) if meta.shape else (steps,)
    for shape in (meta.shape, whole):
        if all(local_shape(shape, meta.placement, meta.sbp, r) == own for r, own in shapes.items()):
            return GlobalMeta.of(meta.placement, meta.sbp, shape, meta.dtype)
    raise AssertionError(f"shards of shapes {shapes} are none of {slot} or of {steps} such")
