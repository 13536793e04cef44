"""Learning rate schedules.

Each schedule is one function of the base learning rate and the number of the step, `get_lr`. `step()` writes its value
into the groups of the optimizer. A chainable schedule goes on from a learning rate that was changed meanwhile, by hand
or by another schedule: so these can be stepped one after the other. Other schedules write over it.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

from miniflow.dispatch.tape import modes
from miniflow.errors import ArgumentError, ArgumentTypeError, CheckpointError
from miniflow.nn.arguments import ExplainsArguments
from miniflow.optim.optimizer import Optimizer


def check_optimizer(name: str, optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise ArgumentTypeError(f"{name}: got a {type(optimizer).__name__}; expected an Optimizer")


class LRScheduler(ExplainsArguments):
    """Base of the schedules that depend on the number of the step alone; a subclass overrides `get_lr`.

    `get_lr()` without arguments is that of PyTorch: it reads `base_lrs` and `last_epoch`, and returns all rates.

    Args:
        optimizer: whose learning rates to set. The base learning rate of each group is its "initial_lr", and that is
            its learning rate when the first scheduler is made.
        last_step: the number of the last completed step, to resume after it; -1 to start.

    Attributes:
        chainable: whether it goes on from learning rates that were changed since its last step, or writes over them.

    Raises:
        ArgumentTypeError: if `optimizer` is not an optimizer.
        ArgumentError: when resuming, if a group has no "initial_lr".

    Source: `oneflow.optim.lr_scheduler.LRScheduler`, `torch.optim.lr_scheduler.LRScheduler` (where it is `last_epoch`).
    """

    not_saved: tuple[str, ...] = ("optimizer",)  # attributes that state_dict leaves out
    chainable = False
    synonyms = {"last_epoch": "last_step"}
    ignored = ("verbose",)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "get_lr" in vars(cls) and len(inspect.signature(cls.get_lr).parameters) == 1:  # written for PyTorch
            cls.get_lrs = lambda self, base_lrs, step: self.get_lr()

    def __init__(self, optimizer: Optimizer, last_step: int = -1):
        name = type(self).__name__
        check_optimizer(name, optimizer)
        self.optimizer = optimizer
        base_lrs = self.prepare(optimizer)
        for i, group in enumerate(optimizer.param_groups):
            if last_step == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ArgumentError(
                    f"{name}: got last_step={last_step}, but group {i} of the optimizer has no 'initial_lr'; "
                    "load the optimizer's state_dict first, or use last_step=-1"
                )
        self.base_lrs: list[float] = base_lrs or [group["initial_lr"] for group in optimizer.param_groups]
        self.rewind()
        if last_step != -1:
            self.last_step, self._last_lr = last_step, None  # what groups had before is not looked at
        self.step()

    def prepare(self, optimizer: Optimizer) -> list[float] | None:
        """Called before the first step; a schedule with base learning rates of its own returns them."""

    def rewind(self) -> None:
        """Be as before the first step; the groups keep their learning rates."""
        self.last_step = -1
        self._start_lrs, self._last_lr = list(self.base_lrs), list(self.base_lrs)

    def get_lr(self, base_lr: float, step: int) -> float:
        """The learning rate of step number `step`, counted from 0, of a group that began with `base_lr`."""
        raise NotImplementedError(f"{type(self).__name__}: a scheduler must override get_lr(base_lr, step)")

    def get_lrs(self, base_lrs: list[float], step: int) -> list[float]:
        """The learning rates of all groups at step number `step`."""
        return [self.get_lr(base_lr, step) for base_lr in base_lrs]

    @property
    def last_epoch(self) -> float:
        """The name of `last_step` in PyTorch."""
        return self.last_step

    @last_epoch.setter
    def last_epoch(self, step: float) -> None:
        self.last_step = step

    def step(self, epoch: float | None = None) -> None:
        """Advance to the next step and set its learning rates; call it after `optimizer.step()`.

        Args:
            epoch: the number of the step to go to, which may lie between two.

        Raises:
            ArgumentError: if groups were added to the optimizer since the scheduler was made.
            GraphError: within the build of a graph, which steps its schedules itself.
        """
        if modes.tracer is not None:
            modes.tracer.before_step(
                f"{type(self).__name__}.step",
                "the graph steps its schedules itself: use add_optimizer(optimizer, lr_sch=scheduler) in __init__",
            )
        groups = self.optimizer.param_groups
        if len(groups) != len(self.base_lrs):
            raise ArgumentError(
                f"{type(self).__name__}: the optimizer has {len(groups)} parameter groups; "
                f"expected {len(self.base_lrs)} as at the start: make the scheduler after add_param_group"
            )
        if epoch is not None:
            return self.move_to(epoch)
        rates = [group["lr"] for group in groups]
        ended = self._start_from(rates) if self.chainable and self._last_lr is not None else []
        self.last_step += 1
        self._set()
        for i in ended:
            groups[i]["lr"] = self._last_lr[i] = rates[i]
        return None

    def _start_from(self, rates: list[float]) -> list[int]:
        """Go on from learning rates that were changed since the last step: find the initial ones that lead to them.

        The formula is linear in the initial rate, so its values for 0 and 1 tell all. Where it gives one value for
        both, the schedule starts from the base learning rate again.

        Returns:
            the groups whose rates stay, since the formula has ended at a factor of 0.
        """
        zeros, ones = [0.0] * len(rates), [1.0] * len(rates)
        of_zero, of_one = zeros, ones
        if self.last_step >= 0:
            of_zero, of_one = (self.get_lrs(initial, self.last_step) for initial in (zeros, ones))
        next_of_zero, next_of_one = (self.get_lrs(initial, self.last_step + 1) for initial in (zeros, ones))
        ended = []
        for i, lr in enumerate(rates):
            if of_zero[i] == of_one[i]:
                self._start_lrs[i] = self.base_lrs[i]
                if of_zero[i] == next_of_zero[i] == next_of_one[i] == 0:
                    ended.append(i)
            elif lr != self._last_lr[i]:
                self._start_lrs[i] = (lr - of_zero[i]) / (of_one[i] - of_zero[i])
        return ended

    def _set(self) -> None:
        """Write the learning rates of the step into the groups."""
        self._last_lr = self.get_lrs(self._start_lrs, self.last_step)
        for group, lr in zip(self.optimizer.param_groups, self._last_lr, strict=True):
            group["lr"] = lr

    def move_to(self, step: float) -> None:
        """Continue after step number `step`, as a schedule that was stepped that often."""
        if step != self.last_step:
            self.last_step, self._start_lrs = step, list(self.base_lrs)
            self._set()

    def take_up(self, step: int) -> None:
        """Set the learning rates of a step, after another schedule."""
        self.rewind()
        self.move_to(step)

    def go_on(self, step: int) -> None:
        """A `take_up` for schedules that start from the learning rates that there are."""
        self.last_step = step - 1
        self.step()

    def get_last_lr(self) -> list[float]:
        """The learning rates that the last `step` set, one for each group."""
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer, as numbers, lists and dicts."""
        return {
            name: value.state_dict() if isinstance(value, LRScheduler) else copy.copy(value)
            for name, value in vars(self).items()
            if name not in self.not_saved
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state, and set its learning rates unless the groups have others than this schedule gave them.

        Load the state of the optimizer too, before or after.

        Raises:
            CheckpointError: if it was saved by another kind of scheduler.
        """
        got, expected = _names(state_dict), _names(self.state_dict())
        if got != expected:
            raise CheckpointError(
                f"{type(self).__name__}.load_state_dict: got entries {got}; expected {expected}: was it saved by "
                "another kind of scheduler?"
            )
        rates_before = self._last_lr
        self._take(state_dict)
        for group, before, lr in zip(self.optimizer.param_groups, rates_before, self._last_lr, strict=True):
            if group["lr"] == before:
                group["lr"] = lr

    def _take(self, state_dict: dict[str, Any]) -> None:
        """Let the attributes be those of a state, which fit."""
        for name, value in state_dict.items():
            if isinstance(getattr(self, name), LRScheduler):
                getattr(self, name)._take(value)
            else:
                setattr(self, name, copy.deepcopy(value))


def per_group(name: str, optimizer: Optimizer, value: Any, noun: str = "values") -> list[Any]:
    """A number or function for each parameter group, of one or a list of them."""
    count = len(optimizer.param_groups)
    values = list(value) if isinstance(value, list | tuple) else [value] * count
    if len(values) != count:
        raise ArgumentError(f"{name}: got {len(values)} {noun}; expected {count}, one for each parameter group")
    return values


def _names(state: Any, prefix: str = "") -> list[str]:
    """The names in a state, and, after a dot, those in the states within it."""
    if isinstance(state, list) and any(isinstance(value, dict) for value in state):
        state = dict(enumerate(state))
    if not isinstance(state, dict):
        return [prefix]
    return sorted(name for key, value in state.items() for name in _names(value, f"{prefix}.{key}".lstrip(".")))
