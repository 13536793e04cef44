"""Schedules of learning rates as JSON values and back: the class and the attributes of each, and what it moves.

    {"optimizer": 0, "groups": [{"lr": 0.1, "initial_lr": 0.1, "momentum": 0.9}],
     "schedule": {"kind": "StepLR", "state": {"step_size": 30, "gamma": 0.1, "base_lrs": [0.1], "last_step": 7, ...}}}

A loaded graph has no optimizer: its schedules move the numbers of groups, from which the program takes them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from miniflow.errors import CheckpointError
from miniflow.formulas.scalar import is_number
from miniflow.graph.saved.attributes import is_plain, number, several
from miniflow.graph.saved.fields import each, integer, named, one_of, record, refuse
from miniflow.graph.saved.values import Values, encode_value
from miniflow.optim import lr_scheduler
from miniflow.optim.lr_scheduler.base import LRScheduler
from miniflow.optim.lr_scheduler.combined import CombinedSchedule

SCHEDULES = {
    name: kind
    for name, kind in vars(lr_scheduler).items()
    if isinstance(kind, type) and issubclass(kind, LRScheduler) and kind is not LRScheduler
}
ONE_FOR_EACH_GROUP = ("base_lrs", "_start_lrs", "_last_lr")


@dataclass
class SavedOptimizer:
    """The groups of an optimizer that was saved, without parameters: what its schedule moves.

    Attributes:
        place: its number among the optimizers of the graph.
        param_groups: their numbers, and pairs of numbers, by name.
    """

    place: int
    param_groups: list[dict[str, Any]]

    def _entries(self) -> Iterator[tuple[str, dict[str, Any], str, int | None]]:
        for i, group in enumerate(self.param_groups):
            for name, value in group.items():
                for part in range(len(value)) if isinstance(value, tuple) else (None,):
                    rest = "" if part is None else f".{part}"
                    yield f"optimizer.{self.place}.{i}.{name}{rest}", group, name, part

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


# to JSON


def encode_schedules(schedules: list[tuple[int, LRScheduler]]) -> list[dict[str, Any]]:
    """The schedules of a graph, each with the number of its optimizer.

    Raises:
        CheckpointError: for schedules of the user, and those that call functions.
    """
    return [
        {
            "optimizer": place,
            "groups": [encode_group(group) for group in schedule.optimizer.param_groups],
            "schedule": encode_schedule(schedule),
        }
        for place, schedule in schedules
    ]


def encode_group(group: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a group, and the pairs of numbers."""
    pairs = {k: tuple(v) for k, v in group.items() if isinstance(v, tuple | list) and v and all(map(is_number, v))}
    found = {**{k: v for k, v in group.items() if is_number(v)}, **pairs}
    return {name: encode_value(value) for name, value in found.items() if name != "params"}


def encode_schedule(schedule: LRScheduler) -> dict[str, Any]:
    """The class and the attributes of a schedule; those that it steps are among them."""
    kind = type(schedule)
    if SCHEDULES.get(kind.__name__) is not kind:
        refuse_code(kind.__name__, "is Python code of yours")
    state = {name: encode_part(kind.__name__, name, v) for name, v in vars(schedule).items() if name != "optimizer"}
    return {"kind": kind.__name__, "state": state}


def encode_part(kind: str, name: str, value: Any) -> Any:
    """An attribute of a schedule."""
    if isinstance(value, LRScheduler):
        return {"schedule": encode_schedule(value)}
    if isinstance(value, list):
        return [encode_part(kind, name, part) for part in value]
    if callable(value):
        refuse_code(kind, f"calls a function, {name}")
    return encode_value(value)


def refuse_code(kind: str, why: str) -> None:
    """Raise CheckpointError for what a file cannot hold."""
    raise CheckpointError(
        f"save: the schedule {kind} {why}, which a file cannot hold; expected schedules of flow.optim.lr_scheduler "
        "without functions: save the state, flow.save(graph.state_dict(), path), and load that into a graph made by "
        "the same code, or leave lr_sch out and call set_lr of the loaded graph"
    )


# from JSON


def decode_schedules(values: Values, value: Any, at: str) -> list[tuple[int, LRScheduler]]:
    """The schedules of a file, checked; each moves the groups of a `SavedOptimizer`."""

    def entry(value: Any, at: str) -> tuple[int, LRScheduler]:
        found = record(value, at, optimizer=integer(0), groups=each(group), schedule=lambda value, at: (value, at))
        optimizer = SavedOptimizer(found["optimizer"], found["groups"])
        return optimizer.place, decode_schedule(values, optimizer, *found["schedule"])

    def group(value: Any, at: str) -> dict[str, Any]:
        found = named(values.value)(value, at)
        if "lr" not in found:
            refuse(at, f"the keys {sorted(found)[:12]}", "an object with the entry lr")
        for name, v in found.items():
            if not (number(v) or name != "lr" and isinstance(v, tuple) and several(number)(v)):
                refuse(f"{at}.{name:.80}", repr(v)[:80], "a number, or a pair of numbers")
        return found

    return each(entry)(value, at)


def decode_schedule(values: Values, optimizer: SavedOptimizer, value: Any, at: str) -> LRScheduler:
    """A schedule of a known class, with attributes that its methods accept."""

    def part(value: Any, at: str) -> Any:
        if isinstance(value, dict) and value.keys() == {"schedule"}:
            return decode_schedule(values, optimizer, value["schedule"], at)
        if isinstance(value, list):
            return each(part)(value, at)
        found = values.value(value, at)
        return found if is_plain(found) else refuse(at, repr(found)[:80], "a number, a text, or a list of such")

    found = record(value, at, kind=one_of(SCHEDULES), state=named(part))
    kind, at = found["kind"], f"{at}.state"
    schedule = kind.__new__(kind)
    for name in found["state"]:
        if name == "optimizer" or hasattr(kind, name):
            refuse(f"{at}.{name:.80}", "the name of something else", "attributes of the schedule")
    vars(schedule).update(found["state"], optimizer=optimizer)
    check(schedule, at)
    return schedule


def check(schedule: LRScheduler, at: str) -> None:
    """Refuse attributes with which the schedule could not go on, or not end."""
    state, groups = vars(schedule), schedule.optimizer.param_groups
    for name in ONE_FOR_EACH_GROUP:
        if not several(number, len(groups))(state[name]):
            refuse(f"{at}.{name}", repr(state[name])[:80], f"{len(groups)} numbers, one for each group")
    for name, least in (("last_step", -1), ("T_0", 1), ("T_mult", 1)):
        if name in state and not (number(state[name]) and least <= state[name] <= 2**48):
            refuse(f"{at}.{name}", repr(state[name])[:80], f"a number from {least} to {2**48}")
    if isinstance(schedule, CombinedSchedule):
        if not schedule.schedulers or not all(isinstance(s, LRScheduler) for s in schedule.schedulers):
            refuse(f"{at}.schedulers", repr(schedule.schedulers)[:80], "schedules")
    else:
        trial = copy.deepcopy(schedule)
        trial.last_step = max(0, trial.last_step)
        trial._set()
