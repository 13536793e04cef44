"""ZeRO: ranks that hold the same parameters share out what the optimizer remembers of them.

Of a parameter of T bytes that n ranks hold whole (B), each rank updates its n-th part: states of the optimizer are
S(0), the gradient's sum arrives by a reduce-scatter, and new values leave by an all-gather. All ranks together send

    stage   a rank keeps of it                                 gradient            parameter
    none    parameter, states                                  2 (n - 1) T         0
    1       parameter, states / n                              (n - 1) T           (n - 1) T
    2       the same; also a sum of micro-batches / n          k (n - 1) T         (n - 1) T           k micro-batches
    3       parameter / n, states / n, sum / n                 k (n - 1) T         2 k (n - 1) T: forward and backward

In the mode "non_distributed" the states are not cut: the rank that has the fewest bytes yet updates the parameter.

Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models"; OneFlow's
OptimizerPlacementOptimizationPass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from miniflow.graph.ir import BACKWARD, FORWARD, OPTIMIZER, UPDATE, Instruction, Program, Slot
from miniflow.graph.uses import Uses
from miniflow.parallel.boxing import box
from miniflow.parallel.dispatch import make_plan
from miniflow.parallel.global_array import GlobalArray
from miniflow.parallel.partition import GlobalMeta
from miniflow.parallel.placement import placement
from miniflow.parallel.tensors import Boxing
from miniflow.sbp import B, P, S
from miniflow.tensor import Tensor

MODES = ("distributed_split", "non_distributed")


@dataclass(frozen=True)
class Zero:
    """What is shared out.

    Attributes:
        stage: 1, 2 or 3, see above.
        min_size: a parameter is shared out if each part has at least so many elements.
        mode: one of MODES.
    """

    stage: int = 2
    min_size: int = 1024
    mode: str = MODES[0]


def run(program: Program, zero: Zero | None) -> Program:
    """The program in which updates are shared out; the states' tensors are boxed to their new layouts."""
    return Sharing(program, zero).run() if zero is not None and program.is_global else program


class Sharing:
    """The rewriting of one program.

    Attributes:
        layouts: parameter -> the layout in which it is updated.
        states: state -> the slot that takes its place.
        instead: slot -> what its readers read now.
    """

    def __init__(self, program: Program, zero: Zero):
        self.program, self.zero = program, zero
        uses = Uses(program)
        self.producers, self.readers = uses.producers, uses.readers
        self.updates = [i for i in program.instructions if i.mutates]
        self.layouts = dict(self.choose())
        self.leaves = dict(self.leaves_of_gradients())
        self.states: dict[Slot, Slot] = {}
        self.instead: dict[Slot, Slot] = {}
        self.writes = dict(program.writes)
        self.gathered: dict[tuple[Slot, bool], Slot] = {}
        self.instructions: list[Instruction] = []

    def choose(self) -> Iterator[tuple[Slot, GlobalMeta]]:
        """The parameters that are shared out, with the layouts for their updates."""
        shared = {id(first) for _, first in self.program.aliases}
        used: dict[int, int] = {}  # bytes of states by rank
        for update in self.updates:
            p, where = update.inputs[0], update.inputs[0].device.placement
            dims = [k for k, entry in enumerate(p.device.sbp) if entry is B and where.shape[k] > 1]
            has_state = update.op.groups > 2 and p in self.program.tensors and id(self.program.tensors[p]) not in shared
            if not has_state or not p.ndim or not dims:
                continue
            if self.zero.mode == "distributed_split":
                k = dims[-1]
                if p.size // where.shape[k] >= self.zero.min_size:
                    sbp = (*p.device.sbp[:k], S(0), *p.device.sbp[k + 1 :])
                    yield p, GlobalMeta.of(where, sbp, p.shape, p.dtype)
            elif len(dims) == len(where.shape):
                rank = min(where.flat, key=lambda r: used.get(r, 0))
                used[rank] = used.get(rank, 0) + p.nbytes
                yield p, GlobalMeta.of(placement(where.type, [rank]), (B,), p.shape, p.dtype)

    def leaves_of_gradients(self) -> Iterator[tuple[Slot, GlobalMeta]]:
        """The sums over ranks that only updates read, each with the layout in which that is enough."""
        for update in self.updates:
            layout, slot = self.layouts.get(update.inputs[0]), update.inputs[1]
            if layout is None or layout.placement != update.inputs[0].device.placement:
                continue
            producer = self.producers.get(slot)
            while producer is not None and producer.phase == UPDATE and producer.op is not Boxing:
                slot = producer.inputs[0]  # clipping, unscaling
                producer = self.producers.get(slot)
            only = all(reader.phase == UPDATE for reader in self.readers[slot]) and slot not in self.program.outputs
            if producer is not None and producer.op is Boxing and P in producer.inputs[0].device.sbp and only:
                yield slot, layout.with_dtype(slot.dtype)

    def run(self) -> Program:
        """Rewrite the updates, what leads to them, and with stage 3 the readers of parameters."""
        for instruction in self.program.instructions:
            self.rewrite(instruction)
        for old, new in self.states.items():
            move(self.program.tensors[old], new.device)
        return self.program.with_(
            instructions=self.instructions,
            states=[self.states.get(slot, slot) for slot in self.program.states],
            tensors={self.states.get(slot, slot): tensor for slot, tensor in self.program.tensors.items()},
            outputs=[self.instead.get(slot) or self.whole(slot, False) for slot in self.program.outputs],
            writes={state: self.instead.get(slot, slot) for state, slot in self.writes.items()},
            late_reads=[(i, self.states.get(slot, slot)) for i, slot in self.program.late_reads],
        )

    def rewrite(self, instruction: Instruction) -> None:
        """Append an instruction as it is now."""
        if instruction.mutates and instruction.inputs[0] in self.layouts:
            self.update(instruction)
        elif instruction.op is Boxing and instruction.output in self.leaves:
            slot, phase = instruction.output, BACKWARD if self.zero.stage > 1 else UPDATE
            self.instead[slot] = self.box(instruction.inputs[0], self.leaves[slot], phase)
        elif any(x in self.instead for x in instruction.reads):
            self.again(instruction)
        else:
            inputs = [self.whole(x, instruction.phase == BACKWARD, instruction) for x in instruction.inputs]
            self.instructions.append(instruction.with_(inputs=inputs))

    def again(self, instruction: Instruction) -> None:
        """An instruction whose inputs lie in other layouts now."""
        now = instruction.reading(self.instead)
        if now.op is Boxing:
            self.instead[now.output] = self.box(now.inputs[0], now.output.device, now.phase)
            return
        if now.mutates:
            metas = [now.inputs[i].device for i in now.mutates]
        else:
            operands = [GlobalArray(x.device, {}) if isinstance(x, Slot) else x for x in now.inputs]
            metas = make_plan(now.op, tuple(operands), now.attrs).results
        outputs = [Slot(meta.shape, meta.dtype, meta) for meta in metas]
        self.instead.update(zip(now.outputs, outputs, strict=True))
        self.instructions.append(now.with_(outputs=outputs))

    def update(self, instruction: Instruction) -> None:
        """Let the ranks update their parts, and put the new parameter together."""
        p, layout = instruction.inputs[0], self.layouts[instruction.inputs[0]]
        new: dict[Slot, Slot] = {}
        for x in dict.fromkeys([x for x in instruction.inputs if isinstance(x, Slot) and x.shape == p.shape]):
            is_kept_so = x.kind == OPTIMIZER or x is p and self.zero.stage == 3
            x_now = self.instead.get(x, x)
            new[x] = self.state(x, layout) if is_kept_so else self.box(x_now, layout.with_dtype(x.dtype), UPDATE)
        outputs = [slot.like(device=layout.with_dtype(slot.dtype)) for slot in instruction.outputs]
        self.instructions.append(instruction.reading({**self.instead, **new}, outputs=outputs))
        for i, before, after in zip(instruction.mutates, instruction.outputs, outputs, strict=True):
            state = instruction.inputs[i]
            is_read = before in self.readers or before in self.program.outputs
            if state not in self.states or is_read:
                self.instead[before] = self.box(after, before.device, UPDATE)
            self.writes.pop(state)
            self.writes[self.states.get(state, state)] = after if state in self.states else self.instead[before]

    def state(self, slot: Slot, layout: GlobalMeta) -> Slot:
        """The slot of a state in another layout."""
        if slot not in self.states:
            device = layout.with_dtype(slot.dtype)
            self.states[slot] = Slot(slot.shape, slot.dtype, device, slot.kind, slot.name, slot.requires_grad)
        return self.states[slot]

    def whole(self, x: Any, in_backward: bool, reader: Instruction | None = None) -> Any:
        """What a reader of a whole parameter reads: with stage 3 it is gathered for forward, and again for backward."""
        if self.zero.stage < 3 or not isinstance(x, Slot) or x not in self.layouts:
            return x
        if (x, in_backward) not in self.gathered:
            others = [slot for slot in reader.reads if slot not in self.program.tensors] if reader else []
            after = others[0] if others else None  # not before there is something to do with it
            source, phase = self.state(x, self.layouts[x]), BACKWARD if in_backward else FORWARD
            self.gathered[x, in_backward] = self.box(source, x.device, phase, after)
        return self.gathered[x, in_backward]

    def box(self, slot: Slot, layout: GlobalMeta, phase: str, after: Slot | None = None) -> Slot:
        """The slot in another layout."""
        source = slot.device.placement, slot.device.sbp
        if source == (layout.placement, layout.sbp):
            return slot
        result = Slot(slot.shape, slot.dtype, layout.with_dtype(slot.dtype))
        attrs = {"placement": layout.placement, "sbp": layout.sbp, "grad_sbp": None, "source": source}
        self.instructions.append(Instruction(Boxing, [slot], [result], attrs, "zero", phase=phase, after=after))
        return result


@contextmanager
def whole(optimizers: Iterable[Any], layouts: dict[Tensor, GlobalMeta]) -> Iterator[None]:
    """Meanwhile, parameters and states that were shared out are whole, as the recording of a step expects them.

    Args:
        optimizers: whose states.
        layouts: the layouts of parameters before they were shared out; new ones are added.
    """
    before: list[tuple[Tensor, Any]] = []
    try:
        for optimizer in optimizers:
            for p in [p for group in optimizer.param_groups for p in group["params"] if p.is_global]:
                meta = layouts.setdefault(p, p._array.meta)
                for tensor in (p, *optimizer.state.get(p, {}).values()):
                    if isinstance(tensor, Tensor) and tensor.shape == p.shape:
                        before.append((tensor, tensor._array.meta))
                        move(tensor, meta)
        yield
    finally:
        for tensor, meta in before:
            move(tensor, meta)


def move(tensor: Tensor, meta: GlobalMeta) -> None:
    """Give a tensor memory of another layout."""
    tensor._array = box(tensor._array, meta.placement, meta.sbp)
