"""Schedules of a pipeline: in which order its stages compute the micro-batches, and how long they wait for each other.

    >>> print(Schedule("1F1B", stages=3, micro_batches=4))
    1F1B: 3 stages, 4 micro-batches
    stage 0  F0 F1 F2 .. .. B0 F3 B1 .. B2 .. B3   at most 3 micro-batches alive
    stage 1  .. F0 F1 .. B0 F2 B1 F3 B2 .. B3 ..   at most 2 micro-batches alive
    stage 2  .. .. F0 B0 F1 B1 F2 B2 F3 B3 .. ..   at most 1 micro-batch alive
    bubble   33 % of the time; (stages - 1) / (micro-batches + stages - 1) = 33 %

A stage computes one task after another, and waits where what it needs is not there yet: forward needs that of the stage
before, backward that of the stage behind.

Source: Huang et al. 2019, "GPipe"; Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU
Clusters Using Megatron-LM" (1F1B and the size of the bubble).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from miniflow.errors import ArgumentError, GraphError
from miniflow.graph.ir import BACKWARD, FORWARD, Instruction, Program
from miniflow.parallel.tensors import Boxing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LETTERS = {FORWARD: "F", BACKWARD: "B"}
COLORS = {FORWARD: "#4c78a8", BACKWARD: "#f58518"}


class Task(NamedTuple):
    """Forward or backward of one micro-batch in one stage."""

    stage: int
    phase: str
    micro_batch: int

    def __str__(self) -> str:
        return f"{LETTERS[self.phase]}{self.micro_batch}"


def task_of(instruction: Instruction) -> Task:
    """The task that an instruction belongs to."""
    return Task(instruction.stage, instruction.phase, instruction.micro_batch)


def stages_of(program: Program) -> list[tuple[int, ...]]:
    """The ranks of the stages of a program over global arrays, in the order of the data: by what moves from one to
    another, else by which computes first."""
    forward = [i for i in program.instructions if i.phase == FORWARD]
    left = list(dict.fromkeys(slot.device.placement.flat for i in forward for slot in i.outputs))
    moves = [(i.inputs[0].device.placement.flat, i.output.device.placement.flat) for i in forward if i.op is Boxing]
    order: list[tuple[int, ...]] = []
    while left:
        waiting = {b for a, b in moves if a != b and a in left}
        order.append(next((ranks for ranks in left if ranks not in waiting), left[0]))
        left.remove(order[-1])
    return order


Order = list[tuple[str, int]]  # phase and micro-batch of the tasks of a stage


def one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> Order:
    """Forward as often as there are stages behind, then one forward and one backward in turns, then the backwards left:
    of stage s no more than stages - s micro-batches are alive."""
    warm_up = min(stages - stage - 1, micro_batches)
    order = [(FORWARD, i) for i in range(warm_up)]
    for i in range(warm_up, micro_batches):
        order += [(FORWARD, i), (BACKWARD, i - warm_up)]
    return order + [(BACKWARD, i) for i in range(micro_batches - warm_up, micro_batches)]


def all_forward_all_backward(stage: int, stages: int, micro_batches: int) -> Order:
    """Forward of all micro-batches, then backward of all: as GPipe does."""
    return [(phase, i) for phase in (FORWARD, BACKWARD) for i in range(micro_batches)]


SCHEDULES: dict[str, Callable[[int, int, int], Order]] = {
    "1F1B": one_forward_one_backward,
    "GPipe": all_forward_all_backward,
}


IN_ORDER = (
    "an order in which forward of a micro-batch comes before its backward, and backward of a micro-batch before that "
    "of the next, since gradients are added up so"
)


def in_order_of_readiness(
    orders: Sequence[Sequence[Task]], is_ready: Callable[[Task], bool], done: Callable[[Task], Any], name: str,
    expected: str = "",
) -> None:  # fmt: skip
    """Run the tasks of each stage in their order, those that are ready first.

    Args:
        orders: for each stage its tasks.
        is_ready: whether all that a task needs is there.
        done: called with each task in turn.
        name: of the schedule.
        expected: what is wrong if it is not the order.

    Raises:
        GraphError: if tasks are left, and each stage waits for another.
    """
    left = [list(order) for order in orders]
    while any(left):
        ready = [tasks for tasks in left if tasks and is_ready(tasks[0])]
        if not ready:
            waiting = ", ".join(f"stage {tasks[0].stage} waits with {tasks[0]}" for tasks in left if tasks)
            raise GraphError(
                f"pipeline: nobody is ready in the schedule {name}: {waiting}; expected {expected or IN_ORDER}"
            )
        for tasks in ready:
            done(tasks.pop(0))


class Schedule:
    """The schedule of a pipeline, and the times at which its tasks run.

    Args:
        name: "1F1B" or "GPipe", or a function of stage, number of stages and number of micro-batches that returns the
            order of the stage's tasks: pairs of "forward" or "backward" and a micro-batch.
        stages: how many there are.
        micro_batches: how many there are.
        seconds: how long each task took; 1 each if they were not measured.

    Attributes:
        orders: for each stage its tasks.
        times: task -> start and end.

    Raises:
        ArgumentError: for another name, or an order that is not each task once.
        GraphError: for a schedule in which the stages wait for each other for ever.
    """

    def __init__(
        self, name: str | Callable[[int, int, int], Order], stages: int, micro_batches: int,
        seconds: dict[Task, float] | None = None,
    ):  # fmt: skip
        function = schedule_of(name)
        self.name = name if isinstance(name, str) else function.__name__
        self.stages, self.micro_batches, self.seconds = stages, micro_batches, seconds
        every = {(phase, i) for phase in (FORWARD, BACKWARD) for i in range(micro_batches)}
        self.orders: list[list[Task]] = []
        for s in range(stages):
            order = function(s, stages, micro_batches)
            order = list(order) if isinstance(order, Iterable) else order
            if not isinstance(order, list) or len(order) != len(every) or any(task not in order for task in every):
                raise ArgumentError(
                    f"pipeline: got the order {order!r} for stage {s}; expected F and B of each micro-batch: a list of "
                    f"the pairs {sorted(every, reverse=True)} in some order"
                )
            self.orders.append([Task(s, *task) for task in order])
        self.times: dict[Task, tuple[float, float]] = {}
        free = [0.0] * stages

        def run(task: Task) -> None:
            start = max([free[task.stage], *[self.times[need][1] for need in self.needs(task)]])
            free[task.stage] = start + (1.0 if seconds is None else seconds.get(task, 0.0))
            self.times[task] = start, free[task.stage]

        in_order_of_readiness(self.orders, lambda task: all(t in self.times for t in self.needs(task)), run, self.name)

    def needs(self, task: Task) -> list[Task]:
        """The tasks of other stages, or of other phases, that come before."""
        stage, phase, i = task
        if phase == FORWARD:
            return [Task(stage - 1, FORWARD, i)] if stage else []
        behind = [Task(stage + 1, BACKWARD, i)] if stage + 1 < self.stages else []
        return [Task(stage, FORWARD, i), *behind]

    @property
    def end(self) -> float:
        """When the last task ends."""
        return max(end for _, end in self.times.values())

    @property
    def bubble(self) -> float:
        """The part of the time of all stages in which they wait."""
        busy = sum(end - start for start, end in self.times.values())
        return 1 - busy / (self.stages * self.end) if self.end else 0.0

    @property
    def ideal_bubble(self) -> float:
        """The same if all tasks took equally long: (stages - 1) / (micro-batches + stages - 1)."""
        return (self.stages - 1) / (self.micro_batches + self.stages - 1)

    def alive(self, stage: int) -> int:
        """Of how many micro-batches a stage keeps activations at once, at the most."""
        now = most = 0
        for task in self.orders[stage]:
            now += 1 if task.phase == FORWARD else -1
            most = max(most, now)
        return most

    def __str__(self) -> str:
        rows = [self._row(stage) for stage in range(self.stages)]
        measured = "" if self.seconds is None else f", a step of {1e3 * self.end:.2f} ms was measured"
        return "\n".join(
            [
                f"{self.name}: {self.stages} stages, {self.micro_batches} micro-batches{measured}",
                *rows,
                f"bubble   {self.bubble:.0%} of the time; (stages - 1) / (micro-batches + stages - 1) = "
                f"{self.ideal_bubble:.0%}".replace("%", " %"),
            ]
        )

    def _row(self, stage: int) -> str:
        """The tasks of a stage from left to right, each as wide as the shortest."""
        unit = min((end - start for start, end in self.times.values() if end > start), default=1.0)
        unit = max(unit, self.end / 60)
        width = max(map(len, map(str, self.orders[stage]))) + 1
        cells = ["." * (width - 1)] * round(self.end / unit)
        for task in self.orders[stage]:
            start, end = (round(t / unit) for t in self.times[task])
            cells[start:end] = [str(task).ljust(width - 1)] * (end - start)
        alive = self.alive(stage)
        return f"stage {stage}  {' '.join(cells)}   at most {alive} micro-batch{'es' if alive > 1 else ''} alive"

    def picture(self, *, axes: Axes | None = None) -> Axes:
        """Draw a Gantt chart: one row for each stage, one bar for each task.

        Args:
            axes: matplotlib axes to draw into; by default, those of a new pyplot figure.

        Returns:
            the axes.
        """
        if axes is None:
            import matplotlib.pyplot as plt

            axes = plt.subplots(figsize=(9, 0.6 * self.stages + 1.2), constrained_layout=True)[1]
        scale = 1.0 if self.seconds is None else 1e3
        for task, (start, end) in self.times.items():
            bar = axes.barh(task.stage, scale * (end - start), 0.9, scale * start, fc=COLORS[task.phase], ec="white")
            if (end - start) / self.end > 0.02:
                axes.bar_label(bar, [str(task.micro_batch)], label_type="center", color="white", fontsize=8)
        for phase, color in COLORS.items():
            axes.barh(0, 0, color=color, label=phase)
        axes.set_yticks(range(self.stages), [f"stage {s}" for s in range(self.stages)])
        axes.set_xlim(0, scale * self.end)
        axes.set_xlabel("tasks, all equally long" if self.seconds is None else "milliseconds")
        axes.set_title(
            f"{self.name}: stages wait {self.bubble:.0%} of the time ({self.ideal_bubble:.0%} of equal tasks)"
        )
        axes.invert_yaxis()
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.3), ncols=2, frameon=False)
        return axes


class Clock:
    """Takes the times of tasks while a program runs.

    Attributes:
        seconds: how long each took.
    """

    def __init__(self) -> None:
        self.seconds: dict[Task, float] = {}
        self._task: Task | None = None
        self._since = 0.0

    def __call__(self, task: Task | None) -> None:
        """A task begins, and the one before ends."""
        now = time.perf_counter()
        if self._task is not None:
            self.seconds[self._task] = self.seconds.get(self._task, 0.0) + now - self._since
        self._task, self._since = task, now


def schedule_of(name: Any) -> Callable[[int, int, int], Order]:
    """The function of a schedule.

    Raises:
        ArgumentError: for a name that no schedule has.
    """
    if callable(name):
        return name
    if not isinstance(name, str) or name not in SCHEDULES:
        raise ArgumentError(f"pipeline schedule: got {name!r}; expected one of {list(SCHEDULES)}, or a function")
    return SCHEDULES[name]
