"""The order of a pipeline: micro-batches go through stages on several placements as a schedule says.

The program holds forward and backward of one micro-batch after another. The result has them in the order of the
schedule, each stage by itself: one forward and one backward in turns (1F1B), or all forward and then all backward
(GPipe). Where one process has all stages, that of which the next task is ready runs; a process that has one stage
receives, computes and sends in its order; sends go on while it computes, and so does the next receive.

Of several processes all exchange in one order: each exchange waits for the last one.

Source: OneFlow's PipelineBufferPass, whose buffers bound what is alive; see `graph.schedule` for the schedules.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

from miniflow.graph.ir import FORWARD, Instruction, Program, Slot
from miniflow.graph.schedule import Schedule, Task, in_order_of_readiness
from miniflow.parallel import world

EXCHANGE = "before", "after", "number"  # attributes of a receive that say what comes


def run(program: Program, pipeline_schedule: str | Callable, accumulation_steps: int) -> Program:
    """The program in the order of the schedule; one that has a single stage keeps its order."""
    if program.stages > 1 and any(i.micro_batch is not None for i in program.instructions):
        program = scheduled(program, Schedule(pipeline_schedule, program.stages, accumulation_steps))
    return in_one_order(program) if len(world.owned()) < world.size() else program


def scheduled(program: Program, schedule: Schedule) -> Program:
    """The tasks of the stages, each when it is ready."""
    tasks: dict[Task, list[Instruction]] = {task: [] for order in schedule.orders for task in order}
    numbers = [n for n, i in enumerate(program.instructions) if i.micro_batch is not None]
    first, last = numbers[0], numbers[-1] + 1
    for instruction in program.instructions[first:last]:
        tasks[Task(instruction.stage, instruction.phase, instruction.micro_batch)].append(instruction)
    maker_of = {slot: task for task, instructions in tasks.items() for i in instructions for slot in i.outputs}
    needs = {
        task: {maker_of[slot] for i in instructions for slot in i.waits_for if slot in maker_of} - {task}
        for task, instructions in tasks.items()
    }
    back = [(task.stage, n.stage) for task in needs for n in needs[task] if is_behind(n, task)]
    expected = ""
    if back:
        reader, maker = back[0]
        expected = (
            f"data that never return to a stage: forward of stage {reader} reads what stage {maker} makes; move its "
            "module, or leave out set_gradient_accumulation_steps"
        )
    order: dict[Task, list[Instruction]] = {}
    in_order_of_readiness(
        schedule.orders, lambda task: needs[task] <= order.keys(), lambda task: order.update({task: tasks[task]}),
        schedule.name, expected,
    )  # fmt: skip
    body = [instruction for instructions in order.values() for instruction in instructions]
    return program.with_(instructions=[*program.instructions[:first], *body, *program.instructions[last:]])


def is_behind(need: Task, task: Task) -> bool:
    """Whether forward of a micro-batch needs that of a later stage."""
    return need.phase == task.phase == FORWARD and need.micro_batch == task.micro_batch and need.stage > task.stage


def in_one_order(program: Program) -> Program:
    """The program in which each exchange between processes waits for the one before: so none is merged with another
    that looks the same to this rank alone. A receive begins when the one before it has ended."""
    instructions: list[Instruction] = []
    last: Slot | None = None
    received: int | None = None
    for instruction in program.instructions:
        if instruction.op.communicates:
            instruction = instruction.with_(after=last) if last is not None else instruction
            last = instruction.outputs[0]
        if instruction.op.waits:
            if received is not None and instruction.unless is None:
                attrs = {**instructions[received].attrs, "following": itemgetter(*EXCHANGE)(instruction.attrs)}
                instructions[received] = instructions[received].with_(attrs=attrs)
            received = len(instructions)
        instructions.append(instruction)
    return program.with_(instructions=instructions)
