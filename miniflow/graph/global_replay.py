"""Replay a program over global arrays: instruction after instruction, each on the shards that this process owns.

Boxing is an instruction like the others. Nothing is fused and no memory is planned: what is saved is autograd, and the
choice of signatures.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NoReturn

from miniflow.backends import memory
from miniflow.errors import GraphError
from miniflow.graph.interpret import execute
from miniflow.graph.ir import Program, Slot
from miniflow.graph.replay import check_state
from miniflow.parallel import world


class GlobalReplay:
    """Runs a program again and again.

    Args:
        program: after all passes.

    Raises:
        GraphError: if some of its arrays are local.
    """

    def __init__(self, program: Program):
        local = [slot.name for slot in (*program.inputs, *program.states) if not slot.is_global]
        if local:
            raise GraphError(
                f"{program.name}: {local[0]} is local, and other tensors of the graph are global; expected one kind: "
                "x.to_global(placement, sbp)"
            )
        self.program = program
        self.tensors = [program.tensors[slot] for slot in program.states]
        self._last = self._last_reads()
        self._borrowed = {*program.inputs, *program.states, *program.constants}  # what is in memory that others hold
        for instruction in program.instructions:
            if instruction.op.view and instruction.inputs[0] in self._borrowed:
                self._borrowed.update(instruction.outputs)
        self._lock = threading.Lock()

    @property
    def plan(self) -> NoReturn:
        """Refused: there is none."""
        raise GraphError(f"{self.program.name}: no memory is planned for global tensors")

    def _last_reads(self) -> list[list[Slot]]:
        """For each instruction the slots that nothing reads after it."""
        program = self.program
        needed = {*program.results, *program.states, *program.constants, *program.inputs}
        last: dict[Slot, int] = {}
        for number, instruction in enumerate(program.instructions):
            last.update(dict.fromkeys([*instruction.waits_for, *instruction.outputs], number))
        return [[s for s, k in last.items() if k == n and s not in needed] for n in range(len(program.instructions))]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of one call; states are changed in place.

        Args:
            inputs: global arrays of the layouts of `program.inputs`.
        """
        program = self.program
        with self._lock:
            values: dict[Slot, Any] = dict(zip(program.inputs, inputs, strict=True))
            for slot, tensor in zip(program.states, self.tensors, strict=True):
                check_state(program.name, slot, tensor._array)
                values[slot] = tensor._array
            values.update(program.constants)
            program.draws.take()
            numbers = agreed({name: scalar.source() for name, scalar in program.scalars().items()})
            for instruction, done in zip(program.instructions, self._last, strict=True):
                values.update(zip(instruction.outputs, execute(instruction, values, numbers), strict=True))
                for slot in done:
                    del values[slot]
            values.update({slot: values[slot].copy() for slot in self._borrowed.intersection(program.results)})
            outputs = [values[slot] for slot in program.outputs]
            for slot, value in program.writes.items():
                memory.copy_into(program.tensors[slot]._array, values[value])
                program.tensors[slot]._written()
            return outputs


def agreed(numbers: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a call, of rank 0 for all ranks: seeds and offsets of random draws may differ."""
    if not any(name.startswith("draw.") for name in numbers) or len(world.owned()) == world.size():
        return numbers
    return world.communicator().all_gather_object(numbers, range(world.size()))[0]
