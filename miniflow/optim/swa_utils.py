"""Averages of the parameters over training, and a schedule for them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from miniflow.dispatch.tape import no_grad
from miniflow.errors import ArgumentError
from miniflow.nn.arguments import AT_LEAST_0, check_choice, check_range
from miniflow.nn.modules.module import Module
from miniflow.nn.modules.norm import BatchNorm
from miniflow.ops.creation import tensor
from miniflow.optim.lr_scheduler.base import LRScheduler, per_group
from miniflow.optim.optimizer import Optimizer
from miniflow.tensor import Tensor

Tensors = list[Tensor]


def get_swa_multi_avg_fn() -> Callable[[Tensors, Tensors, Any], None]:
    """The update of a plain mean: average += (p - average) / (n + 1). `torch.optim.swa_utils.get_swa_multi_avg_fn`."""

    return _move(lambda num_averaged: 1 / (int(num_averaged) + 1))


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[Tensors, Tensors, Any], None]:
    """The update of an exponential average: average = decay * average + (1 - decay) * p.

    Raises:
        ArgumentError: for a decay outside of [0, 1].

    Source: `torch.optim.swa_utils.get_ema_multi_avg_fn`.
    """
    if not 0 <= decay <= 1:
        raise ArgumentError(f"get_ema_multi_avg_fn: got decay={decay}; expected a number from 0 to 1")

    return _move(lambda num_averaged: 1 - decay)


def _move(part: Callable[[Any], float]) -> Callable[[Tensors, Tensors, Any], None]:
    """The function that moves the averages by a part of the way to new values."""

    @no_grad
    def update(averaged: Tensors, current: Tensors, num_averaged: Any) -> None:
        for a, p in zip(averaged, current, strict=True):
            a.add_((p - a) * part(num_averaged))

    return update


class AveragedModel(Module):
    """A copy of a model, `module`, whose parameters are averages over the calls of `update_parameters`.

    Args:
        model: to copy.
        device: of the copy; that of the model if None.
        avg_fn: the new average from the average, a parameter, and how many it is of; the plain mean by default.
        multi_avg_fn: the same for lists, in place: `get_ema_multi_avg_fn(decay)` for an exponential average.
        use_buffers: average floating buffers too; other buffers are copied.

    >>> import miniflow as flow
    >>> model = flow.nn.Linear(1, 1, bias=False)
    >>> mean = AveragedModel(model)
    >>> for value in (1.0, 3.0):
    ...     _ = flow.nn.init.constant_(model.weight, value)
    ...     mean.update_parameters(model)
    >>> mean.module.weight.item()
    2.0

    Source: `torch.optim.swa_utils.AveragedModel`; Izmailov et al. 2018, "Averaging Weights Leads to Wider Optima".
    """

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Callable[[Tensor, Tensor, Any], Tensor] | None = None,
        multi_avg_fn: Callable[[Tensors, Tensors, Any], None] | None = None,
        use_buffers: bool = False,
    ):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ArgumentError("AveragedModel: got avg_fn and multi_avg_fn; expected one of them")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device=device)
        self.register_buffer("n_averaged", tensor(0, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn or get_swa_multi_avg_fn(), use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Take the parameters of a model into the averages; the first time they are copied."""
        averaged, current = self._tensors(self.module), self._tensors(model)
        if int(self.n_averaged) == 0:
            for a, p in zip(averaged, current, strict=True):
                a.copy_(p)
        elif self.avg_fn is not None:
            for a, p in zip(averaged, current, strict=True):
                a.copy_(self.avg_fn(a, p, self.n_averaged))
        else:
            self.multi_avg_fn(averaged, current, self.n_averaged)
        for a, b in zip(self.module.buffers(), model.buffers(), strict=True):
            if not (self.use_buffers and b.is_floating_point()):
                a.copy_(b)
        self.n_averaged.add_(1)

    def _tensors(self, model: Module) -> Tensors:
        buffers: Iterable[Tensor] = model.buffers() if self.use_buffers else ()
        return [x.detach() for x in (*model.parameters(), *buffers) if x.is_floating_point()]


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Let the running statistics of batch normalisation be the means over all batches of a loader.

    Args:
        loader: gives batches, or tuples and lists that begin with one.
        model: whose parameters are averages, so that the statistics of training are not its own.
        device: where batches are moved to; where they are if None.

    Source: `torch.optim.swa_utils.update_bn`.
    """
    momenta = {m: m.momentum for m in model.modules() if isinstance(m, BatchNorm) and m.track_running_stats}
    if not momenta:
        return
    was_training = model.training
    model.train()
    for layer in momenta:
        layer.reset_running_stats()
        layer.momentum = None
    for batch in loader:
        batch = batch[0] if isinstance(batch, list | tuple) else batch
        model(batch if device is None else batch.to(device))
    for layer, momentum in momenta.items():
        layer.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """From the learning rate when it is made to `swa_lr` within `anneal_epochs` steps, and then constant.

    Args:
        swa_lr: the last learning rate, or a list of them, one for each parameter group.
        anneal_epochs: how many steps that takes.
        anneal_strategy: "cos" or "linear".

    Raises:
        ArgumentError: for another strategy, or a negative number of steps.

    Source: `torch.optim.swa_utils.SWALR`.
    """

    chainable = True

    def __init__(
        self, optimizer: Optimizer, swa_lr: float | Sequence[float], anneal_epochs: int = 10,
        anneal_strategy: str = "cos", last_step: int = -1,
    ):  # fmt: skip
        check_range(self, AT_LEAST_0, anneal_epochs=anneal_epochs)
        check_choice(self, ["cos", "linear"], anneal_strategy=anneal_strategy)
        self.swa_lr, self.anneal_epochs, self.anneal_strategy = swa_lr, anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_step)

    def prepare(self, optimizer: Optimizer) -> None:
        self.swa_lrs = per_group("SWALR", optimizer, self.swa_lr)

    def get_lrs(self, base_lrs: list[float], step: int) -> list[float]:
        part = min(1.0, step / max(1, self.anneal_epochs))
        if self.anneal_strategy == "cos":
            part = (1 - math.cos(math.pi * part)) / 2
        return [lr * (1 - part) + last * part for lr, last in zip(base_lrs, self.swa_lrs, strict=True)]

    take_up = LRScheduler.go_on
