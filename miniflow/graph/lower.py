"""Lowering: a program over global arrays becomes one over the shards that this process owns.

Each global slot becomes one slot for each owned rank, each instruction one for each rank, and boxing one instruction
whose operands are the shards. Under MPI a process owns one rank, simulated it owns all: the code is the same. All
passes, the plan and the replay then apply as to any program:

    %2:f32[8, 4] (P) = linear(%0, %1)        %4:f32[8, 2] = linear(%0, %2)        # rank 0
    %3:f32[8, 4] (B) = boxing(%2, P to B)    %5:f32[8, 2] = linear(%1, %3)        # rank 1
                                             %6, %7 = all_reduce(%4, %5)

Small sums that ranks make one after the other, such as the gradients of biases, share a bucket: one all-reduce, which
sends as many bytes and takes the time of one message. What comes between must not need them. All ranks decide this by
the global program, so that they agree. A step of eight layers of 32 features on two MPI ranks takes 0.9 ms
instead of 8 ms at best, and one all-reduce instead of 16.

What an operator does on a part of a tensor (`Op.on_shard`) is recorded too; where that depends on values, such as the
indices of an embedding whose rows are split, it is one instruction, `on_shard`, that runs it at each call.

Source: the same idea as in Xu et al. 2021, "GSPMD: General and Scalable Parallelization for ML Computation Graphs".
Buckets: Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training"; OneFlow's
`boxing.nccl.set_fusion_threshold_mbytes`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from miniflow.backends import memory
from miniflow.backends.geometry import LaidOut, layout_of
from miniflow.backends.registry import kernel, kernel_of
from miniflow.device import of_array, place_of
from miniflow.dispatch.dispatcher import Op, Shard, is_array
from miniflow.dispatch.tape import Version
from miniflow.errors import GraphError
from miniflow.graph.ir import CONSTANT, UPDATE, Instruction, Program, Slot, scalars_in
from miniflow.graph.passes.accumulation import carried, update_part, varying
from miniflow.graph.schedule import stages_of
from miniflow.ops import split_dims
from miniflow.parallel import world
from miniflow.parallel.boxing import Step, box, indices, reduce_along, route
from miniflow.parallel.comm.counted import cut
from miniflow.parallel.dispatch import Plan, make_plan
from miniflow.parallel.global_array import GlobalArray
from miniflow.parallel.partition import GlobalMeta, local_shape, shape_of
from miniflow.parallel.tensors import Boxing
from miniflow.sbp import B, NdSbp, P, S, show

SMALL = 2**16  # bytes of a tensor
MOST = 2**20  # bytes of a bucket


def run(program: Program) -> Program:
    """The program of the shards; a program over local arrays is left as it is.

    Raises:
        GraphError: if some of the inputs and states are local, others global.
    """
    return Lowering(program).run() if program.is_global else program


class Lowering:
    """The lowering of one program.

    Attributes:
        shards: global slot -> rank -> the slot of its shard, for the ranks that this process owns.
        layouts: in which order the elements of a shard lie, if not row-major.
        instructions: those written so far.
        bucket: all-reduces that wait for others, by the global slots of their results.
    """

    def __init__(self, program: Program):
        self.program = program
        self.shards: dict[Slot, dict[int, Slot]] = {}
        self.layouts: dict[Slot, np.ndarray] = {}
        self.constants: dict[Slot, Any] = {}
        self.instructions: list[Instruction] = []
        self.bucket: dict[Slot, Instruction] = {}
        self.bucket_key: tuple = ()  # in which the all-reduces in it agree
        self.sums: dict[tuple, Slot] = {}  # small ones that were made
        self.number, self.template = 0, Instruction(Op, [], [])  # the global instruction that is being lowered
        self.stages = {ranks: number for number, ranks in enumerate(stages_of(program))}
        updates = update_part(program)
        body = [instruction for instruction in program.instructions if instruction not in updates]
        self.varying = varying([*program.inputs, *carried(program)], body)

    def run(self) -> Program:
        """The program of the shards."""
        program = self.program
        local = [slot.name for slot in (*program.inputs, *program.states) if not slot.is_global]
        if local:
            raise GraphError(
                f"{program.name}: {local[0]} is local, and other tensors of the graph are global; expected one kind: "
                "x.to_global(placement, sbp)"
            )
        for slot in (*program.inputs, *program.states):
            self.split(slot, name=slot.name, kind=slot.kind, requires_grad=slot.requires_grad)
        tensors = {}
        for slot in program.states:
            for rank, shard in self.shards[slot].items():
                tensors[shard] = ShardOf(program.tensors[slot], rank, f"{program.name}: {slot.name}")
                self.layouts[shard] = memory.layout(tensors[shard]._array)
        for slot, array in program.constants.items():
            for rank, shard in self.split(slot, kind=CONSTANT).items():
                self.constants[shard] = array.shards[rank]
                self.layouts[shard] = memory.layout(array.shards[rank])
        for self.number, self.template in enumerate(program.instructions):
            self.lower(self.template)
        writes = [self.pairs(state, self.boxed(value, state.device.sbp)) for state, value in program.writes.items()]
        self.close()
        positions = {slot: i for i, slot in enumerate(self.all_of(program.inputs))}
        pairs = [(program.inputs[i], x if isinstance(x, Slot) else program.inputs[x]) for i, x in program.late_reads]
        late = [(positions[x], positions.get(s, s)) for pair in pairs for x, s in self.pairs(*pair)]
        return Program(
            inputs=self.all_of(program.inputs),
            states=self.all_of(program.states),
            constants=self.constants,
            instructions=self.instructions,
            outputs=self.all_of(program.outputs),
            writes=dict([pair for pairs in writes for pair in pairs]),
            tensors=tensors,
            late_reads=late,
            draws=program.draws,
            blocks={shard: n for slot, n in self.blocks() for shard in self.shards[slot].values()},
            name=program.name,
            stages=len(self.stages) if any(i.mutates for i in program.instructions) else 1,
        )

    def blocks(self) -> Iterator[tuple[Slot, int]]:
        """Inputs, and outputs that differ between micro-batches, each with what `Program.blocks` says of it.

        A micro-batch has a part of the rows of each rank. Tensors of other layouts hold these rows too if their number
        of rows is a multiple of that of a split one.
        """
        slots = dict.fromkeys([*self.program.inputs, *[s for s in self.program.outputs if s in self.varying]])
        split = {slot: n for slot in slots if (n := parts_of_rows(slot)) > 1}
        number, rows = math.lcm(*split.values()), min((slot.shape[0] for slot in split), default=0)
        if split.keys().isdisjoint(self.program.inputs):
            sizes = {slot.shape[0] for slot in self.program.inputs if slot.ndim and slot.shape[0]}
            others = [slot for slot in split if all(slot.shape[0] % n for n in sizes)]  # their rows are no samples
            yield from ((slot, 0) for slot in others)
            slots, split = ({s: n for s, n in those.items() if s not in others} for those in (slots, split))
            number = math.lcm(*split.values())
            rows = max((n for n in sizes if any(slot.shape[0] % n == 0 for slot in split)), default=0)
        for slot in slots:
            if slot not in split and (not rows or not slot.ndim or slot.shape[0] % rows):
                yield slot, 1
            else:
                yield slot, 0 if slot.shape[0] % number else number // split.get(slot, 1)

    # slots

    def split(self, slot: Slot, **options: Any) -> dict[int, Slot]:
        """Slots for the shards of a global slot."""
        meta, name = slot.device, options.pop("name", "")
        owned = meta.placement.owned
        self.shards[slot] = {
            r: Slot(
                local_shape(meta.shape, meta.placement, meta.sbp, r), meta.dtype, world.device(meta.type, r),
                name=f"{name}@{r}" if name and len(owned) > 1 else name, **options,
            )
            for r in owned
        }  # fmt: skip
        return self.shards[slot]

    def all_of(self, slots: Iterable[Slot]) -> list[Slot]:
        """The shards of several slots, one after the other."""
        return [shard for slot in slots for shard in self.shards[slot].values()]

    def pairs(self, a: Slot, b: Slot) -> list[tuple[Slot, Slot]]:
        """The shards of two slots that lie on the same ranks."""
        return [(self.shards[a][r], self.shards[b][r]) for r in self.shards[a] if r in self.shards[b]]

    # instructions

    def lower(self, instruction: Instruction) -> None:
        """Write what the ranks of this process do for a global instruction."""
        if not self.bucket.keys().isdisjoint(instruction.waits_for):
            self.close()
        if instruction.op is Boxing:
            (x,), (y,) = instruction.inputs, instruction.outputs
            self.box(x, y, instruction.phase)
        elif instruction.mutates:
            self.update(instruction)
        else:
            self.compute(instruction)

    def append(self, op: type[Op], inputs: Sequence[Any], outputs: Sequence[Slot], attrs: dict[str, Any],
               **changes: Any) -> None:  # fmt: skip
        """Append an instruction, at the place of the global one."""
        after = self.template.after
        after = None if after is None else next(iter(self.shards[after].values()), None)
        changes = {"unless": None, "after": after, "stage": self.stage_of(self.template.outputs[0]), **changes}
        self.instructions.append(self.template.with_(op=op, inputs=inputs, outputs=outputs, attrs=attrs, **changes))

    def compute(self, instruction: Instruction) -> None:
        """Each rank computes with its shards, as `parallel.dispatch.compute` does it. Layouts that passes chose may
        be others than those of the signature."""
        op, attrs = instruction.op, instruction.attrs
        wholes = [GlobalArray(x.device, {}) if isinstance(x, Slot) else x for x in instruction.inputs]
        plan = make_plan(op, tuple(wholes), attrs)
        if plan.boxed:
            boxed = {i: self.boxed(instruction.inputs[i], sbp) for i, sbp in plan.boxed}
            instruction = instruction.with_(inputs=[boxed.get(i, x) for i, x in enumerate(instruction.inputs)])
        shards_of: list[dict[int, Slot]] = [{} for _ in instruction.outputs]
        for rank in plan.parts:
            for of_result, shard in zip(shards_of, self.on_rank(rank, instruction, plan, wholes), strict=True):
                of_result[rank] = shard
        for i, k, by in plan.reductions:
            where, before = plan.results[i].placement, shards_of[i]
            shards_of[i] = {r: slot.like() for r, slot in before.items()}
            self.close()
            if before:
                attrs = {"where": where, "dims": (k,), "by": by}
                self.append(AllReduceShards, list(before.values()), list(shards_of[i].values()), attrs)
        for slot, meta, shards in zip(instruction.outputs, plan.results, shards_of, strict=True):
            result = slot if are_alike(slot.device, meta) else slot.like(device=meta)
            self.shards[result] = shards
            if result is not slot:
                self.box(result, slot, instruction.phase)

    def on_rank(self, rank: int, instruction: Instruction, plan: Plan, wholes: list) -> list[Slot]:
        """What one rank computes: the slots of the results."""
        op, (result, parts) = instruction.op, plan.parts[rank]
        inputs = [self.shards[x][rank] if isinstance(x, Slot) else x for x in instruction.inputs]
        attrs = instruction.attrs
        if "shape" in attrs:
            attrs = attrs | {"shape": shape_of(result)}
        shard = Shard(result, plan.results[0].shape, parts, wholes)
        is_random = any(True for value in attrs.values() for _ in scalars_in(value))
        if op.on_shard is Op.on_shard or is_random and shape_of(result) == shard.shape:
            return self.emit(op, inputs, attrs)
        before = len(self.instructions)
        try:
            if is_random:  # the numbers of a part are some of those of the whole
                raise ValuesNeeded
            results = op.on_shard(op, [self.traced(x) for x in inputs], attrs, shard)
        except ValuesNeeded:
            del self.instructions[before:]
            layouts = [(local_shape(m.shape, m.placement, m.sbp, rank), m.dtype) for m in plan.results]
            return self.emit(OnShard, inputs, {**attrs, "op": op, "shard": shard, "results": tuple(layouts)})
        return [self.slot_of(x) for x in ([results] if op.single else results)]

    def emit(self, op: type[Op], inputs: Sequence[Any], attrs: dict[str, Any]) -> list[Slot]:
        """Append an instruction of one rank; its outputs are what `infer` says."""
        results = op.infer(*inputs, **attrs)
        device = next(x.device for x in inputs if isinstance(x, Slot))
        outputs = [Slot(shape, dtype, device) for shape, dtype in ([results] if op.single else results)]
        if op.view:
            self.layouts[outputs[0]] = kernel_of("cpu", op.__name__).run(self.layout(inputs[0]), **attrs)
        self.append(op, inputs, outputs, dict(attrs))
        return outputs

    def layout(self, slot: Slot) -> np.ndarray:
        """In which order the elements of a slot lie."""
        return self.layouts[slot] if slot in self.layouts else layout_of(slot.shape, slot.dtype)

    def update(self, instruction: Instruction) -> None:
        """Gradients and states get the layout of their parameter, and each rank updates its shards."""
        p, unless = instruction.inputs[0], instruction.unless
        where, sbp = p.device.placement, tuple([B if entry is P else entry for entry in p.device.sbp])
        inputs = [self.boxed(x, sbp) if isinstance(x, Slot) and x.shape == p.shape else x for x in instruction.inputs]
        for i, new in zip(instruction.mutates, instruction.outputs, strict=True):
            self.shards[new] = {r: shard.like() for r, shard in self.shards[inputs[i]].items()}
        for r in where.owned:
            shards = [self.shards[x][r] if isinstance(x, Slot) else x for x in inputs]
            outputs = [self.shards[slot][r] for slot in instruction.outputs]
            for i, output in zip(instruction.mutates, outputs, strict=True):
                self.layouts[output] = self.layout(shards[i])
            flag = None if unless is None else self.shards[unless][r]
            self.append(instruction.op, shards, outputs, instruction.attrs, unless=flag)

    # between ranks

    def boxed(self, slot: Slot, sbp: NdSbp) -> Slot:
        """A slot in another layout."""
        meta = GlobalMeta.of(slot.device.placement, sbp, slot.shape, slot.dtype)
        if are_alike(slot.device, meta):
            return slot
        result = Slot(slot.shape, slot.dtype, meta)
        self.box(slot, result, UPDATE)
        self.close()
        return result

    def box(self, x: Slot, y: Slot, phase: str) -> None:
        """Write the boxing of a global slot into another: within a placement, and to another one."""
        *steps, last = route(x.shape, x.device.placement, x.device.sbp, y.device.placement, y.device.sbp, x.itemsize)
        if last.name == "all-reduce" and not steps and x.device.placement == y.device.placement:
            self.all_reduce(x, y, {"where": last.where, "dims": last.dims, "by": "add"}, phase)
            return
        self.close()
        if last.stays:
            self.exchange(BoxShards, x, y, phase)
            return
        if steps:
            complete = x.like(device=GlobalMeta.of(x.device.placement, last.before, x.shape, x.dtype))
            self.exchange(BoxShards, x, complete, phase)
            x = complete
        if len(world.owned()) == world.size():
            self.exchange(BoxShards, x, y, phase)
            return
        if self.shards[x]:
            token = Slot((0,), x.dtype, next(iter(self.shards[x].values())).device)
            attrs = {"before": x.device, "after": y.device, "number": self.number}
            self.append(SendShards, list(self.shards[x].values()), [token], attrs, phase=phase, stage=self.stage_of(x))
        self.exchange(ReceiveShards, x, y, phase, number=self.number, varies=x in self.varying)

    def all_reduce(self, x: Slot, y: Slot, attrs: dict[str, Any], phase: str) -> None:
        """Put an all-reduce of partial sums into the bucket, if it is small; one that was made is not made again."""
        known = self.sums.get((x, y.device, self.template.after))
        if known is not None:
            if known in self.bucket:
                self.close()
            self.shards[y] = self.shards[known]
            return
        key = (*attrs.values(), phase, self.stage_of(y), y.dtype, x in self.varying, self.template.after)
        if key != self.bucket_key or sum([slot.nbytes for slot in (y, *self.bucket)]) > MOST or y.nbytes > SMALL:
            self.close()
        self.bucket_key, shards = key, self.split(y)
        if shards:
            operands, results = (list(self.shards[slot].values()) for slot in (x, y))
            self.append(AllReduceShards, operands, results, attrs, phase=phase, stage=self.stage_of(y))
            self.bucket[y] = self.instructions.pop()
        if y.nbytes > SMALL:
            self.close()
        else:
            self.sums[x, y.device, self.template.after] = y

    def close(self) -> None:
        """Write the all-reduces of the bucket as one."""
        members = list(self.bucket.values())
        if members:
            inputs, outputs = ([x for m in members for x in getattr(m, name)] for name in ("inputs", "outputs"))
            self.instructions.append(members[-1].with_(inputs=inputs, outputs=outputs))
            self.bucket.clear()

    def exchange(self, op: type[Op], x: Slot, y: Slot, phase: str, **attrs: Any) -> None:
        """Append what ranks get from each other, if there are such in this process."""
        inputs, outputs = list(self.shards[x].values()), list(self.split(y).values())
        if outputs:
            attrs = {"before": x.device, "after": y.device, **attrs}
            self.append(op, inputs, outputs, attrs, phase=phase, stage=self.stage_of(y))

    def stage_of(self, slot: Slot) -> int:
        """The number of the stage that lies on the placement of a slot; the first for a placement of several."""
        return self.stages.get(slot.device.placement.flat, 0)

    # what runs on a shard

    def traced(self, x: Any) -> Any:
        """The operand of `Op.on_shard` for a slot."""
        return ShardSymbol(self, x, self.layout(x)) if isinstance(x, Slot) else x

    def slot_of(self, x: Any) -> Any:
        """The slot of what such a function works with; arrays that it made are constants."""
        if isinstance(x, ShardSymbol):
            return x.slot
        if not is_array(x):
            return x
        slot = Slot(x.shape, x.dtype, of_array(x), CONSTANT)
        self.constants[slot] = x
        return slot

    def run_traced(self, op: type[Op], arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Append what such a function computes."""
        results = [self.traced(slot) for slot in self.emit(op, [self.slot_of(x) for x in arrays], attrs)]
        return results[0] if op.single else tuple(results)


def are_alike(a: GlobalMeta, b: GlobalMeta) -> bool:
    """Whether ranks hold the same in both layouts: along a dimension of one rank, layouts do not differ."""
    pairs = zip(a.sbp, b.sbp, a.placement.shape, strict=True)
    return a.placement == b.placement and all(x == y or n == 1 for x, y, n in pairs)


def parts_of_rows(slot: Slot) -> int:
    """Into how many parts a global slot is split along its first dimension."""
    pairs = zip(slot.device.sbp, slot.device.placement.shape, strict=True)
    return math.prod([n for entry, n in pairs if entry == S(0)])


class ValuesNeeded(Exception):
    """A function looks at the values of a shard, which has none before the program runs."""


class ShardSymbol(LaidOut):
    """Takes the place of a shard while `Op.on_shard` is recorded: operators of it append instructions."""

    __slots__ = ("lowering", "slot", "layout", "device_index")

    def __init__(self, lowering: Lowering, slot: Slot, layout: np.ndarray):
        self.lowering, self.slot, self.layout = lowering, slot, layout
        self.device_index = slot.device_index

    @staticmethod
    def kernel_for(op: type[Op]) -> Callable[..., Any]:
        """What computes an operator of such operands."""

        def run(*arrays: Any, **attrs: Any) -> Any:
            lowering = next(x.lowering for x in arrays if isinstance(x, ShardSymbol))
            return lowering.run_traced(op, arrays, attrs)

        return run

    def peek(self) -> None:
        """There are no values to look at; kernels look at them when they run."""
        return None

    def numpy(self) -> np.ndarray:
        raise ValuesNeeded

    def reshape(self, *shape: Any, copy: bool | None = None) -> np.ndarray:
        """What NumPy says to a view of that shape."""
        return self.layout.reshape(*shape, copy=copy)


class ShardOf:
    """The shard of one rank of a global tensor: a state of a lowered program.

    Raises:
        GraphError: from `_array`, if the tensor has got another layout.
    """

    def __init__(self, tensor: Any, rank: int, name: str):
        self.tensor, self.rank, self.name = tensor, rank, name
        self.meta = tensor._array.meta
        self._version = Version()  # the tensor has its own

    @property
    def _array(self) -> Any:
        array = self.tensor._array
        if getattr(array, "meta", None) is not self.meta:
            raise GraphError(
                f"{self.name} was recorded as {self.meta}, now it is on {place_of(array)}; expected it unchanged: make "
                "a new graph"
            )
        return array.shards[self.rank]


# operators of lowered programs


class BoxShards(Op):
    """The shards of one layout become those of another: see `parallel.boxing`."""

    function_name = "boxing"
    outputs = ("y", "others")  # one for each rank of this process
    made_by_passes = True
    communicates = True

    def infer(*shards, before, after):
        return [(local_shape(after.shape, after.placement, after.sbp, r), after.dtype) for r in after.placement.owned]

    @staticmethod
    def show(attrs):
        before, after = attrs["before"], attrs["after"]
        moved = "" if before.placement == after.placement else f" on {after.placement}"
        return f"{show(before.sbp)} to {show(after.sbp)}{moved}"


class SendShards(Op):
    """What ranks of this process send to another placement; it goes on while they compute."""

    function_name = "send"
    made_by_passes = True
    communicates = True
    show = BoxShards.show

    def infer(*shards, before, after, number):
        return (0,), before.dtype


class ReceiveShards(Op):
    """What ranks of this process get from another placement, or have got themselves. What the `following` instruction
    of its kind waits for may come from then on."""

    function_name = "receive"
    outputs = ("y", "others")
    made_by_passes = True
    communicates = waits = True
    show = BoxShards.show

    def infer(*shards, before, after, number, varies, following=None):
        return BoxShards.infer(before=before, after=after)


class AllReduceShards(Op):
    """Results of ranks that differ along some dimensions of a placement become one, by an operation. Of several
    tensors at once: the shards of the first, then those of the second ..."""

    function_name = "all_reduce"
    outputs = ("y", "others")
    made_by_passes = True
    communicates = True

    def infer(*shards, where, dims, by):
        return [(x.shape, x.dtype) for x in shards]

    @staticmethod
    def show(attrs):
        along = "" if len(attrs["where"].shape) == 1 else f" along {attrs['dims']} of {attrs['where'].shape}"
        return f"{attrs['by']}{along}"


class OnShard(Op):
    """What an operator does on a part of a tensor, where that depends on values: see `Op.on_shard`."""

    outputs = ("y", "others")
    made_by_passes = True
    checks_values = "kernel"

    def infer(*arrays, op, shard, results, **attrs):
        return list(results)

    @staticmethod
    def show(attrs):
        return attrs["op"].function_name


@kernel("cuda", returns=True)
@kernel("cpu", returns=True)
def box_shards(*shards: Any, before: GlobalMeta, after: GlobalMeta) -> tuple:
    """Of the ranks that this process owns; an empty array if it only sends."""
    x = GlobalArray(before, dict(zip(before.placement.owned, shards, strict=True)))
    results = box(x, after.placement, after.sbp).shards
    return own_memory([results[r] for r in after.placement.owned], shards)


@kernel("cuda", returns=True)
@kernel("cpu", returns=True)
def send_shards(*shards: Any, before: GlobalMeta, after: GlobalMeta, number: int) -> Any:
    """An empty array, as a sign that they are on their way."""
    local = dict(zip(before.placement.owned, shards, strict=True))
    for (sender, receiver), (part, _) in indices(before.shape, between(before, after)).items():
        if sender in local and receiver not in local:
            world.communicator().send(local[sender][part], receiver, number)
    return memory.empty((0,), before.dtype, of_array(shards[0]))


@kernel("cuda", returns=True)
@kernel("cpu", returns=True)
def receive_shards(
    *shards: Any, before: GlobalMeta, after: GlobalMeta, number: int, varies: bool, following: tuple | None = None
) -> tuple:
    """Of the ranks that this process owns."""
    local, arrived = dict(zip(before.placement.owned, shards, strict=True)), landing(after)
    for x in arrived.values():
        if P in after.sbp:
            memory.fill(x, 0)
    for sender, part, x in parts_for(arrived, before, after):
        if sender in local:
            memory.copy_into(x, local[sender][part])
        else:
            world.communicator().receive(x, sender, number)
    if following is not None:
        before, after, number = following
        for sender, _, x in parts_for(landing(after), before, after):
            if sender not in before.placement.owned:
                world.communicator().expect(x, sender, number)
    return tuple([x[0, ...] for x in arrived.values()])


def landing(meta: GlobalMeta) -> dict[int, Any]:
    """For each rank that this process owns room for its shard, with a dim in front."""
    shapes = {r: (1, *local_shape(meta.shape, meta.placement, meta.sbp, r)) for r in meta.placement.owned}
    return {r: memory.empty(shape, meta.dtype, world.device(meta.type, r)) for r, shape in shapes.items()}


def parts_for(arrays: dict[int, Any], before: GlobalMeta, after: GlobalMeta) -> Iterator[tuple[int, tuple, Any]]:
    """Who sends what of its shard to which part of these arrays of receivers."""
    for (sender, receiver), (part, place) in indices(before.shape, between(before, after)).items():
        if receiver in arrays:
            yield sender, part, arrays[receiver][place]


def between(before: GlobalMeta, after: GlobalMeta) -> Step:
    """The step from one placement to another."""
    return Step(before.placement, after.placement, before.sbp, after.sbp, 0)


@kernel("cuda", returns=True)
def all_reduce_shards(*shards: Any, **attrs: Any) -> tuple:
    """Of the ranks that this process owns."""
    return own_memory(all_reduced(shards, **attrs), shards)


@kernel("cpu", half="native", in_place=lambda k, **attrs: (k,))
def all_reduce_shards_(out: tuple, *shards: Any, **attrs: Any) -> None:
    """The same in given arrays: where nobody else reads a shard, its result takes its memory."""
    for y, x in zip(out, all_reduced(shards, **attrs, out=out), strict=True):
        if x is not y:
            y[...] = x


def all_reduced(
    shards: Sequence[Any], where: Any, dims: tuple[int, ...], by: str, out: Sequence[Any] | None = None
) -> list[Any]:
    """The results of the ranks that this process owns: of one tensor in `out`, of several by one collective."""
    owned, n = where.owned, len(where.owned)
    of_rank = {r: shards[i::n] for i, r in enumerate(owned)}
    if len(shards) == n:
        places = None if out is None else dict(zip(owned, out, strict=True))
        sums = reduce_along(where, dims, {r: x for r, (x,) in of_rank.items()}, by, places)
        return [sums[r] for r in owned]
    flat = {r: joined(arrays) for r, arrays in of_rank.items()}
    sums = reduce_along(where, dims, flat, by)
    parts = [cut(sums[r], [x.size for x in arrays]) for r, arrays in of_rank.items()]
    return [y.reshape(x.shape) for x, y in zip(shards, itertools.chain(*zip(*parts, strict=True)), strict=True)]


def joined(arrays: Sequence[Any]) -> Any:
    """The elements of several arrays in one."""
    rows = [x.reshape(-1) for x in map(memory.row_major, arrays)]
    return split_dims.run("Cat", *rows, dim=0, sizes=tuple([x.size for x in rows]))


@kernel("cuda", returns=True)
@kernel("cpu", returns=True)
def on_shard(*arrays: Any, op: type[Op], shard: Shard, results: tuple, **attrs: Any) -> tuple:
    """Run it."""
    result = op.on_shard(op, list(arrays), attrs, shard)
    return (result,) if op.single else tuple(result)


def own_memory(results: Sequence[Any], operands: Sequence[Any]) -> tuple:
    """The results, with copies of those that are operands: where one rank is alone, nothing is exchanged."""
    return tuple([x.copy() if any(x is y for y in operands) else x for x in results])
