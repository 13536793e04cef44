"""L-BFGS: a quasi-Newton method for smooth functions without noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from miniflow.dispatch.tape import enable_grad, no_grad
from miniflow.errors import ArgumentError
from miniflow.nn.arguments import check_choice
from miniflow.nn.utils.parameters import parameters_to_vector, vector_to_parameters
from miniflow.ops.creation import zeros_like
from miniflow.optim.optimizer import Optimizer, ParameterGroups
from miniflow.tensor import Tensor

SUFFICIENT_DECREASE, CURVATURE, MOST_STEPS = 1e-4, 0.9, 25  # c1 and c2 of the Wolfe conditions


class Point(NamedTuple):
    """A place along the direction of search: the step, the loss, the gradient and the slope there."""

    t: float
    loss: float
    gradient: Tensor
    slope: float


class LBFGS(Optimizer):
    """Newton's method with an approximation of the inverse Hessian from the last changes of the gradient.

    nn.Graph does not take it.

    Args:
        params: tensors, in one group.
        lr: the step; with a line search, the first that it tries.
        max_iter: iterations of one `step`.
        max_eval: calls of the closure in one `step`; by default max_iter * 5 / 4.
        tolerance_grad: it ends where no gradient is larger.
        tolerance_change: it ends where neither the loss nor a parameter changes more.
        history_size: how many changes of the gradient are kept.
        line_search_fn: None, or "strong_wolfe".

    Raises:
        ArgumentError: for several groups of parameters, another line search, or a step without a closure.

    Source: Liu and Nocedal, "On the limited memory BFGS method", 1989; Nocedal and Wright, "Numerical Optimization",
    2006, algorithms 3.5, 3.6 and 7.4; `torch.optim.LBFGS`.
    """

    def __init__(
        self, params: ParameterGroups, lr: float = 1.0, max_iter: int = 20, max_eval: int | None = None,
        tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
        line_search_fn: str | None = None,
    ):  # fmt: skip
        check_choice(self, [None, "strong_wolfe"], line_search_fn=line_search_fn)
        defaults = {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
            "line_search_fn": line_search_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        if len(self.param_groups) > 1:
            raise ArgumentError(f"LBFGS: got {len(self.param_groups)} groups; expected one")
        self.changes: list[tuple[Tensor, Tensor]] = []  # of the parameters and of the gradient
        self.previous: tuple[Tensor, Tensor] | None = None  # the last change of the parameters, the gradient before it

    def state_dict(self) -> dict[str, Any]:
        """The options, and the changes so far as the state of the first parameter."""
        history = {"changes": list(self.changes), "previous": self.previous}
        return {**super().state_dict(), "state": {0: history} if self.previous is not None else {}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` gave."""
        super().load_state_dict({**state_dict, "state": {}})
        history = state_dict["state"].get(0, {"changes": [], "previous": None})
        self.changes = [(s.clone(), y.clone()) for s, y in history["changes"]]
        self.previous = history["previous"] and tuple(x.clone() for x in history["previous"])

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Minimize for at most `max_iter` iterations.

        Args:
            closure: computes the gradients again and returns the loss.

        Returns:
            the loss at the beginning.
        """
        if closure is None:
            raise ArgumentError("LBFGS: got no closure; expected a function that computes the loss and its gradients")
        with enable_grad():
            first = closure()
        with no_grad():
            self._minimize(closure, float(first))
        return first

    def _minimize(self, closure: Callable[[], Any], loss: float) -> None:
        group = self.param_groups[0]
        self.evaluations, gradient = 1, self._gradient()
        for iteration in range(group["max_iter"]):
            if gradient.abs().max().item() <= group["tolerance_grad"]:
                return
            direction = self._direction(gradient)
            slope = gradient.dot(direction).item()
            if slope > -group["tolerance_change"]:
                return
            is_first = self.previous is None
            t = min(1.0, 1 / gradient.abs().sum().item()) * group["lr"] if is_first else group["lr"]
            start = Point(0.0, loss, gradient, slope)
            at = self._along(closure, direction)
            if group["line_search_fn"] is not None:
                point = strong_wolfe(at, start, t, direction.abs().max().item(), group["tolerance_change"])
            else:
                point = at(t, iteration + 1 < group["max_iter"]) or start._replace(t=t)
            vector_to_parameters(self.origin + point.t * direction, group["params"])
            self.previous = point.t * direction, gradient
            small = self.previous[0].abs().max().item() <= group["tolerance_change"]
            small = small or abs(point.loss - loss) < group["tolerance_change"]
            loss, gradient = point.loss, point.gradient
            if self.evaluations >= group["max_eval"] or small:
                return

    def _gradient(self) -> Tensor:
        """All gradients as one vector."""
        params = self.param_groups[0]["params"]
        return parameters_to_vector([zeros_like(p) if p.grad is None else p.grad for p in params]).clone()

    def _along(self, closure: Callable[[], Any], direction: Tensor) -> Callable[..., Point | None]:
        """A function of the step: it moves the parameters there, and evaluates the closure if it is asked to."""
        params = self.param_groups[0]["params"]
        self.origin = parameters_to_vector(params).clone()

        def at(t: float, evaluate: bool = True) -> Point | None:
            vector_to_parameters(self.origin + t * direction, params)
            if not evaluate:
                return None
            with enable_grad():
                loss = float(closure())
            self.evaluations += 1
            gradient = self._gradient()
            return Point(t, loss, gradient, gradient.dot(direction).item())

        return at

    def _direction(self, gradient: Tensor) -> Tensor:
        """-H g by the two loops over the changes, where H approximates the inverse of the Hessian."""
        if self.previous is not None:
            change = gradient - self.previous[1]
            if change.dot(self.previous[0]).item() > 1e-10:
                self.changes = [*self.changes, (self.previous[0], change)][-self.param_groups[0]["history_size"] :]
        q, factors = -gradient, []
        for s, y in reversed(self.changes):
            factors.append(s.dot(q) / y.dot(s))
            q = q - factors[-1] * y
        if self.changes:
            s, y = self.changes[-1]
            q = q * (y.dot(s) / y.dot(y))
        for (s, y), factor in zip(self.changes, reversed(factors), strict=True):
            q = q + s * (factor - y.dot(q) / y.dot(s))
        return q


def strong_wolfe(at: Callable[[float], Point], start: Point, t: float, size: float, tolerance: float) -> Point:
    """A step that meets the strong Wolfe conditions: the loss decreases enough, and the slope is small enough.

    Args:
        at: evaluates a step.
        start: the place of step 0.
        t: the step to begin with.
        size: the largest element of the direction.
        tolerance: an interval of steps is small if it changes no parameter by more.
    """

    def too_high(point: Point) -> bool:
        return point.loss > start.loss + SUFFICIENT_DECREASE * point.t * start.slope

    def is_flat(point: Point) -> bool:
        return abs(point.slope) <= -CURVATURE * start.slope

    before, point, count = start, at(t), 0
    while count < MOST_STEPS:  # longer steps, until two enclose a minimum
        if too_high(point) or (count > 1 and point.loss >= before.loss) or point.slope >= 0 and not is_flat(point):
            break
        if is_flat(point):
            return point
        bounds = point.t + 0.01 * (point.t - before.t), point.t * 10
        before, point = point, at(minimum_of_cubic(before, point, bounds))
        count += 1
    low, high = sorted((before if count < MOST_STEPS else start, point), key=lambda p: p.loss)
    stalled = False
    while count < MOST_STEPS and abs(high.t - low.t) * size >= tolerance:  # shorter intervals
        first, last = sorted((low.t, high.t))
        t, margin = minimum_of_cubic(low, high, (first, last)), 0.1 * (last - first)
        near = min(last - t, t - first) < margin
        if near and (stalled or t >= last or t <= first):
            t, near = last - margin if abs(t - last) < abs(t - first) else first + margin, False
        stalled = near
        point = at(t)
        count += 1
        if too_high(point) or point.loss >= low.loss:
            low, high = sorted((low, point), key=lambda p: p.loss)
        elif is_flat(point):
            return point
        else:
            low, high = point, low if point.slope * (high.t - low.t) >= 0 else high
    return low


def minimum_of_cubic(low: Point, high: Point, bounds: tuple[float, float]) -> float:
    """Where the cubic with the losses and slopes of two places is least, within bounds."""
    if low.t > high.t:
        low, high = high, low
    first = low.slope + high.slope - 3 * (low.loss - high.loss) / (low.t - high.t)
    square = first * first - low.slope * high.slope
    if square < 0:
        return sum(bounds) / 2
    second = math.sqrt(square)
    ratio = (high.slope + second - first) / (high.slope - low.slope + 2 * second)
    return min(max(high.t - (high.t - low.t) * ratio, bounds[0]), bounds[1])
