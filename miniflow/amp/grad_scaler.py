"""Loss scaling for float16: the loss is multiplied, gradients are divided, and a step with infinities is skipped.

In eager code:

    scaler = flow.amp.GradScaler()
    with flow.autocast("cuda"):
        loss = loss_function(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()

In a graph (`set_grad_scaler`) the same things happen within the recorded step, and the scale is a number that every
replay looks up:

    scale = Scalar("grad_scaler.scale", scaler.get_scale)
    scaler.scale_in_graph(loss, scale).backward()
    skip = scaler.unscale_in_graph(parameters, scale)    # a 0-dim bool; None if steps are never skipped
    with tracer.updating("optimizer.0", unless=skip):    # clipping comes after unscaling, and before the step
        optimizer.clip_grad()
        optimizer.step()

`skip` is one more output of the program. After each replay the graph calls `scaler.replayed(bool(skip))`; where it was
True, no other count of steps advances: not `count_step` of the optimizers, not the schedulers, not the number
of the training step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from miniflow.dispatch.tape import modes
from miniflow.errors import ArgumentError, ArgumentTypeError, CheckpointError, GradScalerError
from miniflow.ops.loss_scale import any_non_finite, scale_loss, unscale_gradients
from miniflow.tensor import Tensor

LARGEST = float(np.finfo(np.float32).max)


class GradScaler:
    """Dynamic loss scaling: the scale is halved after an overflow, and doubled after many steps without one.

    Args:
        device: accepted as in PyTorch; the scale belongs to no device.
        init_scale: the first scale.
        growth_factor: the scale is multiplied by it after `growth_interval` finite steps in a row.
        backoff_factor: the scale is multiplied by it after a step with an inf or nan; it does not fall below 1.
        growth_interval: in steps.
        enabled: if False, nothing is scaled or checked, and `step` is the optimizer's own.

    Raises:
        ArgumentError: for numbers out of range.
        ArgumentTypeError: for a scale that is not a number.

    >>> import miniflow as flow
    >>> w = flow.tensor([1.0], requires_grad=True)
    >>> optimizer = flow.optim.SGD([w], lr=0.5)
    >>> scaler = GradScaler(init_scale=8.0)
    >>> scaler.scale((w * float("inf")).sum()).backward()
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> w.tolist(), scaler.get_scale()
    ([1.0], 4.0)

    Source: `torch.amp.GradScaler`; `oneflow.amp.GradScaler`; Micikevicius et al. 2018, "Mixed Precision Training".
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ):
        if not isinstance(device, str):
            raise ArgumentTypeError(
                f"GradScaler: got device={device!r}; expected 'cuda' or 'cpu', and init_scale by its name"
            )
        self._enabled = enabled
        self._scale = _scale("init_scale", init_scale)
        self._finite_steps = 0  # in a row
        self._found_inf: dict[int, bool] = {}  # id of an optimizer whose gradients were unscaled -> whether one was inf
        self._stepped: set[int] = set()  # ids of optimizers
        self.set_growth_factor(growth_factor)
        self.set_backoff_factor(backoff_factor)
        self.set_growth_interval(growth_interval)

    # numbers

    def get_scale(self) -> float:
        """The scale now; 1.0 if not enabled."""
        return self._scale if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """What the scale is multiplied by to grow."""
        return self._growth_factor

    def set_growth_factor(self, value: float) -> None:
        """Set it to a number above 1."""
        self._growth_factor = _number("growth_factor", value, lambda v: 1 < v < math.inf, "a finite number above 1")

    def get_backoff_factor(self) -> float:
        """What the scale is multiplied by after an overflow."""
        return self._backoff_factor

    def set_backoff_factor(self, value: float) -> None:
        """Set it to a number between 0 and 1."""
        self._backoff_factor = _number("backoff_factor", value, lambda v: 0 < v < 1, "a number above 0 and below 1")

    def get_growth_interval(self) -> int:
        """How many finite steps in a row it takes to increase the scale."""
        return self._growth_interval

    def set_growth_interval(self, value: int) -> None:
        """Set it to a number of steps."""
        self._growth_interval = _integer("growth_interval", value, 1)

    def is_enabled(self) -> bool:
        """Whether it scales at all."""
        return self._enabled

    # eager

    def scale(self, outputs: Any) -> Any:
        """The loss, or a list or tuple of losses, multiplied by the scale.

        Raises:
            GraphError: within the build of a graph; so do `unscale_`, `step` and `update`.
        """
        self._refuse_in_build("scale")
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return scale_loss(outputs, self._scale)
        if isinstance(outputs, list | tuple):
            return type(outputs)(self.scale(y) for y in outputs)
        raise ArgumentTypeError(
            f"GradScaler.scale: got {type(outputs).__name__}; expected a Tensor, or a list or tuple of tensors"
        )

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, in place, and note whether all are finite.

        `step` does this itself; call it earlier to clip or inspect the gradients.

        Raises:
            GradScalerError: if it was called for this optimizer since the last `update`, or after `step`.
            ArgumentError: for gradients in float16, whose range they would leave.
        """
        self._refuse_in_build("unscale_")
        if not self._enabled:
            return
        if id(optimizer) in self._stepped:
            raise GradScalerError("unscale_() is being called after step(): call it before, or update() first.")
        if id(optimizer) in self._found_inf:
            raise GradScalerError("unscale_() has already been called on this optimizer since the last update().")
        gradients = gradients_of(p for group in optimizer.param_groups for p in group["params"])
        if gradients:
            self._found_inf[id(optimizer)] = self._has_overflowed(gradients)
            unscale_gradients(gradients, self._scale)

    def _has_overflowed(self, gradients: list[Tensor]) -> bool:
        return bool(any_non_finite(gradients).item())

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscale the gradients unless that was done, and call `optimizer.step` if all of them are finite.

        Returns:
            what `optimizer.step` returned; None if the step was skipped.

        Raises:
            GradScalerError: if it was called for this optimizer since the last `update`, or if no parameter has a
                gradient.
            ArgumentError: for a closure.
        """
        self._refuse_in_build("step")
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if args or "closure" in kwargs:
            raise ArgumentError("GradScaler.step: got a closure; expected none: its gradients could not be unscaled")
        if id(optimizer) in self._stepped:
            raise GradScalerError("step() has already been called since the last update().")
        if id(optimizer) not in self._found_inf:
            self.unscale_(optimizer)
        if id(optimizer) not in self._found_inf:
            raise GradScalerError(
                "step(): no gradient was checked for this optimizer: call scaler.scale(loss).backward() before"
            )
        self._stepped.add(id(optimizer))
        return None if self._found_inf[id(optimizer)] else optimizer.step(**kwargs)

    def update(self, new_scale: float | None = None) -> None:
        """Increase or decrease the scale, once after the `step` of all optimizers; or set it to `new_scale`.

        Raises:
            GradScalerError: if no gradients were checked since the last `update`.
        """
        self._refuse_in_build("update")
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = _scale("new_scale", new_scale)
        elif not self._found_inf:
            raise GradScalerError("update(): no gradients were checked before: call step(optimizer) or unscale_ first.")
        else:
            self.replayed(any(self._found_inf.values()))
        self._found_inf.clear()
        self._stepped.clear()

    def _refuse_in_build(self, method: str) -> None:
        if modes.tracer is not None:
            modes.tracer.before_step(
                f"{type(self).__name__}.{method}",
                "the graph scales the loss and the gradients itself: use set_grad_scaler in __init__",
            )

    # in a graph

    def check_for_graph(self) -> None:
        """Refuse what OneFlow's graphs cannot do.

        Raises:
            ArgumentError: unless the backoff factor is 1 / growth factor.
        """
        if not math.isclose(self._backoff_factor, 1.0 / self._growth_factor, rel_tol=1e-9):
            raise ArgumentError(
                f"Only support 1.0/growth_factor as backoff_factor at the moment, got {self._backoff_factor} and "
                f"growth_factor {self._growth_factor}"
            )

    def scale_in_graph(self, loss: Tensor, scale: Any) -> Tensor:
        """The loss to differentiate while a graph is recorded; `scale` is a `Scalar` that reads `get_scale`."""
        return scale_loss(loss, scale) if self._enabled else loss

    def unscale_in_graph(self, parameters: Iterable[Tensor], scale: Any) -> Tensor | None:
        """Divide the gradients of `parameters` by the scale while a graph is recorded.

        Returns:
            whether any of them is inf or nan, a 0-dim bool; None if there are none, or if no check is needed.
        """
        gradients = gradients_of(parameters) if self._enabled else []
        if not gradients:
            return None
        found_inf = any_non_finite(gradients)
        unscale_gradients(gradients, scale)
        return found_inf

    def replayed(self, found_inf: bool) -> None:
        """Update the scale after one step: decrease it after an inf or nan, increase it after enough finite steps."""
        if not self._enabled:
            return
        if found_inf:
            self._scale = max(self._scale * self._backoff_factor, min(self._scale, 1.0))
            self._finite_steps = 0
            return
        self._finite_steps += 1
        if self._finite_steps >= self._growth_interval:
            grown = self._scale * self._growth_factor
            self._scale = grown if grown <= LARGEST else self._scale
            self._finite_steps = 0

    # state

    def state_dict(self) -> dict[str, Any]:
        """Numbers that `load_state_dict` takes, under PyTorch's names; empty if not enabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._finite_steps,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` returned.

        Raises:
            CheckpointError: if a number is missing; the scaler is then unchanged.
            ArgumentError: for numbers out of range.
        """
        if not self._enabled:
            return
        names = GradScaler().state_dict().keys()
        if not isinstance(state_dict, dict) or names - state_dict.keys():
            raise CheckpointError(
                f"GradScaler.load_state_dict: expected a dict with {', '.join(names)}; was it saved by a scaler that "
                "was not enabled?"
            )
        *numbers, finite_steps = (state_dict[name] for name in names)
        loaded = vars(GradScaler("cuda", *numbers)) | {"_finite_steps": _integer("_growth_tracker", finite_steps, 0)}
        vars(self).update(loaded | {"_found_inf": self._found_inf, "_stepped": self._stepped})

    def __repr__(self) -> str:
        return (
            f"GradScaler(scale={self.get_scale()}, growth_factor={self._growth_factor}, "
            f"backoff_factor={self._backoff_factor}, growth_interval={self._growth_interval}, enabled={self._enabled})"
        )


class StaticGradScaler(GradScaler):
    """Loss scaling by a fixed number: no gradient is checked, and no step skipped.

    Args:
        scale_factor: the scale.

    Raises:
        ArgumentError: for a scale that is not above 0.

    Source: `oneflow.amp.StaticGradScaler`.
    """

    def __init__(self, scale_factor: float):
        super().__init__(init_scale=scale_factor)

    def _has_overflowed(self, gradients: list[Tensor]) -> bool:
        return False

    def check_for_graph(self) -> None:
        """Accept any settings: a graph can do all of them."""

    def unscale_in_graph(self, parameters: Iterable[Tensor], scale: Any) -> None:
        """Divide the gradients of `parameters` by the scale while a graph is recorded; steps are never skipped."""
        unscale_gradients(gradients_of(parameters), scale)

    def replayed(self, found_inf: bool) -> None:
        """The scale does not change."""

    def __repr__(self) -> str:
        return f"StaticGradScaler({self._scale})"


def gradients_of(parameters: Iterable[Tensor]) -> list[Tensor]:
    """The gradients of those parameters that have one.

    Raises:
        ArgumentError: for a gradient in float16.
    """
    gradients = [p.grad for p in dict.fromkeys(parameters) if p.grad is not None]
    if any(g._array.dtype == np.float16 for g in gradients):
        raise ArgumentError(
            "unscale_: got a gradient in float16, whose small values are lost when it is divided; expected float32: "
            "keep the parameters in float32 and run the model under flow.autocast"
        )
    return gradients


def _number(name: str, value: Any, valid: Callable[[float], bool], expected: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ArgumentTypeError(f"GradScaler: got {name}={value!r}; expected a number")
    if not valid(value):
        raise ArgumentError(f"GradScaler: got {name}={value!r}; expected {expected}")
    return float(value)


def _scale(name: str, value: Any) -> float:
    """A number by which losses can be multiplied: within the range of float32."""
    return _number(name, value, lambda v: 0 < v <= LARGEST, "a finite number above 0")


def _integer(name: str, value: Any, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ArgumentError(f"GradScaler: got {name}={value!r}; expected an integer of at least {least}")
    return value
