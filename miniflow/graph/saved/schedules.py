"""Schedules of learning rates as JSON values and back: the class and the attributes of each, and what it moves.

    {"schedule": {"kind": "StepLR", "state": {"dict": {
        "optimizer": {"optimizer": [{"dict": {"lr": 0.1, "initial_lr": 0.1, "momentum": 0.9}}]},
        "step_size": 30, "gamma": 0.1, "base_lrs": [0.1], "last_step": 7, ...}}}}

A loaded graph has no optimizer: its schedules move the numbers of groups, from which the program takes them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from miniflow.formulas.scalar import is_number
from miniflow.graph.saved.attributes import among, bounded, instance, is_plain, number, several
from miniflow.graph.saved.values import Form, Refused, refuse
from miniflow.optim import lr_scheduler
from miniflow.optim.lr_scheduler.base import LRScheduler
from miniflow.optim.lr_scheduler.combined import CombinedSchedule
from miniflow.optim.optimizer import Optimizer

SCHEDULES = {
    name: kind
    for name, kind in vars(lr_scheduler).items()
    if isinstance(kind, type) and issubclass(kind, LRScheduler) and kind is not LRScheduler
}
ONE_FOR_EACH_GROUP = ("base_lrs", "_start_lrs", "_last_lr")
STEPS = {"last_step": -1, "T_0": 1, "T_mult": 1}  # the least that they may be


@dataclass(eq=False)
class SavedOptimizer:
    """The groups of an optimizer that was saved, without parameters: what its schedule moves.

    Attributes:
        param_groups: their numbers, and pairs of numbers, by name.
        index: its number among the optimizers of the graph.
    """

    param_groups: list[dict[str, Any]]
    index: int = 0

    def _entries(self) -> Iterator[tuple[str, dict[str, Any], str, int | None]]:
        for i, group in enumerate(self.param_groups):
            for name, value in group.items():
                for part in range(len(value)) if isinstance(value, tuple) else (None,):
                    rest = "" if part is None else f".{part}"
                    yield f"optimizer.{self.index}.{i}.{name}{rest}", group, name, part

    def give(self, numbers: dict[str, Any]) -> None:
        """Put what the groups have into the numbers that a program reads."""
        numbers.update((key, looked_up(*entry)) for key, *entry in self._entries() if key in numbers)

    def take(self, numbers: dict[str, Any]) -> None:
        """Let the groups have what was changed in `numbers` since `give`."""
        for key, group, name, part in list(self._entries()):
            if key in numbers and numbers[key] != looked_up(group, name, part):
                value = numbers[key]
                if part is not None:
                    value = (*group[name][:part], value, *group[name][part + 1 :])
                elif name == "lr" and group.get("lr_scale"):
                    value = value / group["lr_scale"]
                group[name] = value


def looked_up(group: dict[str, Any], name: str, part: int | None) -> float:
    """A number of a group as a program reads it."""
    if part is not None:
        return group[name][part]
    return group["lr"] * group["lr_scale"] if name == "lr" and "lr_scale" in group else group[name]


def step(schedules: list[LRScheduler], numbers: dict[str, Any]) -> None:
    """Advance the schedules of a loaded graph: from the numbers as they are, which may have been set by hand."""
    for schedule in schedules:
        schedule.optimizer.take(numbers)
        schedule.step()
        schedule.optimizer.give(numbers)


# to JSON and back


def numbers_of(group: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a group, and the pairs of numbers."""
    pairs = {k: tuple(v) for k, v in group.items() if isinstance(v, tuple | list) and v and all(map(is_number, v))}
    return {name: value for name, value in {**group, **pairs}.items() if is_number(value) or name in pairs}


def optimizer_of(groups: list[dict[str, Any]]) -> SavedOptimizer:
    """An optimizer with such groups."""
    for group in groups:
        if not all(number(v) or name != "lr" and several(number)(v) for name, v in group.items()) or "lr" not in group:
            refuse(group, "numbers and pairs of numbers, and a number with the name lr")
    return SavedOptimizer(groups)


def is_numbered(pair: Any) -> bool:
    """Whether it is a schedule behind the number of its optimizer."""
    return several(instance(int, LRScheduler), 2)(pair) and isinstance(pair[1], LRScheduler)


def parts_of_schedule(schedule: LRScheduler) -> dict[str, Any]:
    """The class and the attributes of a schedule; those that it steps, and the optimizer, are among them.

    Raises:
        Refused: for schedules of the user, and those that call functions.
    """
    kind, state = type(schedule), vars(schedule)
    functions = [name for name, value in state.items() if any(map(callable, value if type(value) is list else [value]))]
    if SCHEDULES.get(kind.__name__) is not kind or functions:
        why = f"calls a function, {functions[0]}" if functions else "is Python code of yours"
        raise Refused(
            f"the schedule {kind.__name__} {why}, which a file cannot hold; expected schedules of "
            "flow.optim.lr_scheduler without functions: save the state, flow.save(graph.state_dict(), path), and load "
            "that into a graph made by the same code, or leave lr_sch out and call set_lr of the loaded graph"
        )
    return {"kind": kind.__name__, "state": state}


def schedule_of(kind: str, state: dict[str, Any]) -> LRScheduler:
    """A schedule of a known class, with attributes that its methods accept."""
    schedule = SCHEDULES[kind].__new__(SCHEDULES[kind])
    for name, value in state.items():
        if hasattr(SCHEDULES[kind], name):
            refuse(name, "the name of an attribute, not of something else")
        if not (isinstance(value, SavedOptimizer) if name == "optimizer" else is_plain(value) or is_schedules(value)):
            refuse(value, f"another {name}: numbers, texts or schedules")
    vars(schedule).update(state)
    check(schedule)
    return schedule


def is_schedules(value: Any) -> bool:
    """Whether it is a schedule, or some of them."""
    return isinstance(value, LRScheduler) or several(instance(LRScheduler))(value)


def check(schedule: LRScheduler) -> None:
    """Refuse attributes with which the schedule could not go on, or not end."""
    state, groups = vars(schedule), schedule.optimizer.param_groups
    one_for_each_group = several(number, len(groups))
    accepted = dict.fromkeys(ONE_FOR_EACH_GROUP, one_for_each_group)
    accepted |= {name: bounded(least, 2**48) for name, least in STEPS.items() if name in state}
    for name, is_accepted in accepted.items():
        if not is_accepted(state[name]):
            refuse(state[name], f"another {name} for {len(groups)} groups")
    if isinstance(schedule, CombinedSchedule):
        if not schedule.schedulers or not is_schedules(schedule.schedulers):
            refuse(schedule.schedulers, "schedules")
    else:
        trial = copy.deepcopy(schedule)
        trial.last_step = max(0, trial.last_step)
        trial._set()


OPTIMIZERS = Form(
    (Optimizer, SavedOptimizer), lambda x: [numbers_of(group) for group in x.param_groups], optimizer_of, is_shared=True
)
FORM = Form(LRScheduler, parts_of_schedule, schedule_of, {"kind": among(*SCHEDULES), "state": instance(dict)})
