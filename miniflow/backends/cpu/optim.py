"""Optimizer updates: each reads and writes the memory of a parameter once, all parameters in one compiled call.

A kernel takes parameters, gradients and states as lists of arrays and changes parameters and states in place. The
arithmetic of one element stands in the functions named `..._loop`; those named `..._rows` run them over the rows of a
`Table`, from element `start` to `stop` of all; `update` brings arrays of any layout and dtype into that form.

Every loop works in the dtype of its arrays, to which it rounds the numbers that it gets in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from miniflow.backends.cpu.tables import Arrays, overlap, tables, vector
from miniflow.backends.cpu.threads import compiled, share, unlocked
from miniflow.backends.registry import register


def update(rows_loop: Callable, groups: Sequence[Arrays], own: np.ndarray, *numbers: float) -> None:
    """Run a compiled function over parameters, their gradients and their states.

    Args:
        rows_loop: takes start, stop, the fields of a table, `own` and `numbers`.
        groups: the parameters, the gradients (not written), then the states; None for a state that is left out.
        own: float64 (parameters, k), numbers that each parameter has for itself; (1, k) if all have the same.
        numbers: floats and bools; an int would have the function compiled once more.
    """
    changed = [column for column in range(len(groups)) if column != 1]
    for table, rows in tables(groups, changed):
        mine = own if len(own) == 1 else own[rows]
        share(rows_loop, table.total, table.total, table.addresses, table.ends, table.like, mine, *numbers)


def fused_factor(maximize: bool, multiply: Sequence[float], divide: Sequence[float]) -> float:
    """What all gradients are multiplied by."""
    factor = -1.0 if maximize else 1.0
    for number in multiply:
        factor *= number
    for number in divide:
        factor /= number
    return float(factor)


def factors(
    maximize: bool,
    norms: Sequence[np.ndarray] | None,
    multiply: Sequence[float],
    divide: Sequence[float],
    max_norm: float | None,
) -> tuple[list[float], list[float]]:
    """What each gradient is multiplied by, one after the other: the sign with all numbers, and the bound on the norm.

    The bound is min(1, max_norm / (norm + 1e-6)); it is a single number if it is the same for all. Loss scale and bound
    are two factors since their product may lie outside of float32 although no gradient does.
    """
    factor = [fused_factor(maximize, multiply, divide)]
    if norms is None or max_norm is None:
        return factor, [1.0]
    some = norms[:1] if all([norm is norms[0] for norm in norms]) else norms
    shrink = [max_norm / (float(norm) + 1e-6) for norm in some]
    return factor, [1.0 if x >= 1 else x for x in shrink]


def together(*columns: Sequence[float]) -> np.ndarray:
    """Numbers of each parameter, (parameters, columns); (1, columns) if every column is the same for all."""
    rows = max(map(len, columns))
    return np.array([*zip(*[column if len(column) == rows else column * rows for column in columns], strict=True)])


def each(steps: Sequence[int], numbers_at: Callable[[int], tuple[float, ...]]) -> list[tuple[float, ...]]:
    """Columns of what depends on how many steps a parameter has seen; of one row if all have seen as many."""
    if steps.count(steps[0]) == len(steps):
        return [(number,) for number in numbers_at(steps[0])]
    known = {step: numbers_at(step) for step in set(steps)}
    return [*zip(*[known[step] for step in steps], strict=True)]


@compiled
def sgd_loop(param, grad, momentum_buffer, lr, momentum, undamped, nesterov, weight_decay, factor, shrink):
    real = param.dtype.type
    lr, momentum, undamped = real(lr), real(momentum), real(undamped)
    weight_decay, factor, shrink = real(weight_decay), real(factor), real(shrink)
    for i in range(param.size):
        g = factor * grad[i] * shrink
        if weight_decay != 0:  # 0 * inf is nan
            g += weight_decay * param[i]
        if momentum != 0:
            velocity = momentum * momentum_buffer[i] + undamped * g
            momentum_buffer[i] = velocity
            if nesterov:
                g += momentum * velocity
            else:
                g = velocity
        param[i] -= lr * g


@unlocked()
def sgd_rows(start, stop, addresses, ends, like, own, lr, momentum, nesterov, weight_decay):
    for row in range(ends.size - 1):
        first, count = overlap(ends, row, start, stop)
        if count > 0:
            param = vector(addresses[row, 0], first, count, like)
            grad = vector(addresses[row, 1], first, count, like)
            momentum_buffer = vector(addresses[row, 2], first, count, like)
            numbers = own[row % own.shape[0]]
            factor, shrink, undamped = numbers[0], numbers[1], numbers[2]
            sgd_loop(param, grad, momentum_buffer, lr, momentum, undamped, nesterov, weight_decay, factor, shrink)


@register("cpu", "SgdUpdate", half="native")
@register("cpu", "FusedSgdUpdate", half="native")
def sgd(
    params, grads, momentum_buffers, norms=None,
    *, fresh, lr, momentum, dampening, nesterov, weight_decay, maximize, multiply=(), divide=(), max_norm=None,
):  # fmt: skip
    """`fresh[i]`: the buffer of parameter i is new, and its first gradient is not dampened."""
    undamped = [1.0 if is_fresh else 1.0 - dampening for is_fresh in fresh] if dampening else [1.0]
    own = together(*factors(maximize, norms, multiply, divide, max_norm), undamped)
    numbers = (float(lr), float(momentum), bool(nesterov), float(weight_decay))
    update(sgd_rows, (params, grads, momentum_buffers), own, *numbers)


@compiled
def adam_loop(
    param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, step_size, beta1, beta2, root, eps, l2, decay, factor, shrink,
    amsgrad,
):  # fmt: skip
    real = param.dtype.type
    step_size, fresh1, beta2, fresh2 = real(step_size), real(1 - beta1), real(beta2), real(1 - beta2)
    root, eps, l2, decay = real(root), real(eps), real(l2), real(decay)
    factor, shrink = real(factor), real(shrink)
    for i in range(param.size):
        g = factor * grad[i] * shrink
        if l2 != 0:  # 0 * inf is nan
            g += l2 * param[i]
        mean = exp_avg[i] + fresh1 * (g - exp_avg[i])
        square = beta2 * exp_avg_sq[i] + fresh2 * g * g
        exp_avg[i] = mean
        exp_avg_sq[i] = square
        if amsgrad:
            square = max(square, max_exp_avg_sq[i])
            max_exp_avg_sq[i] = square
        param[i] = decay * param[i] - step_size * (mean / (math.sqrt(square) * root + eps))


@unlocked()
def adam_rows(start, stop, addresses, ends, like, own, beta1, beta2, eps, l2, decay, amsgrad):
    for row in range(ends.size - 1):
        first, count = overlap(ends, row, start, stop)
        if count > 0:
            param = vector(addresses[row, 0], first, count, like)
            grad = vector(addresses[row, 1], first, count, like)
            mean = vector(addresses[row, 2], first, count, like)
            square = vector(addresses[row, 3], first, count, like)
            largest = vector(addresses[row, 4], first, count, like)
            numbers = own[row % own.shape[0]]
            factor, shrink, step_size, root = numbers[0], numbers[1], numbers[2], numbers[3]
            adam_loop(
                param, grad, mean, square, largest, step_size, beta1, beta2, root, eps, l2, decay, factor, shrink,
                amsgrad,
            )  # fmt: skip


@register("cpu", "AdamUpdate", half="native")
@register("cpu", "FusedAdamUpdate", half="native")
def adam(
    params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, norms=None,
    *, steps, lr, betas, eps, weight_decay, decoupled, amsgrad, maximize, do_bias_correction,
    multiply=(), divide=(), max_norm=None,
):  # fmt: skip
    """`steps[i]`: how many updates parameter i has seen, this one included."""
    beta1, beta2 = float(betas[0]), float(betas[1])
    l2, decay = (0.0, float(1 - lr * weight_decay)) if decoupled else (float(weight_decay), 1.0)
    corrected = [(lr,), (1.0,)]  # the size of a step, and what the root of the square is multiplied by
    if do_bias_correction:
        corrected = each(steps, lambda t: (lr / (1 - beta1**t), 1 / math.sqrt(1 - beta2**t)))
    own = together(*factors(maximize, norms, multiply, divide, max_norm), *corrected)
    groups = (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs)
    update(adam_rows, groups, own, beta1, beta2, float(eps), l2, decay, bool(amsgrad))


@compiled
def rmsprop_loop(
    param, grad, square_avg, grad_avg, momentum_buffer, lr, alpha, eps, weight_decay, momentum, centered, factor, shrink
):
    real = param.dtype.type
    lr, alpha, fresh, eps = real(lr), real(alpha), real(1 - alpha), real(eps)
    weight_decay, momentum = real(weight_decay), real(momentum)
    factor, shrink = real(factor), real(shrink)
    for i in range(param.size):
        g = factor * grad[i] * shrink
        if weight_decay != 0:  # 0 * inf is nan
            g += weight_decay * param[i]
        square = alpha * square_avg[i] + fresh * g * g
        square_avg[i] = square
        if centered:
            mean = grad_avg[i] + fresh * (g - grad_avg[i])
            grad_avg[i] = mean
            square -= mean * mean
        g /= math.sqrt(square) + eps
        if momentum != 0:
            g += momentum * momentum_buffer[i]
            momentum_buffer[i] = g
        param[i] -= lr * g


@unlocked()
def rmsprop_rows(
    start, stop, addresses, ends, like, own, lr, alpha, eps, weight_decay, momentum, centered
):  # fmt: skip
    for row in range(ends.size - 1):
        first, count = overlap(ends, row, start, stop)
        if count > 0:
            param = vector(addresses[row, 0], first, count, like)
            grad = vector(addresses[row, 1], first, count, like)
            square = vector(addresses[row, 2], first, count, like)
            mean = vector(addresses[row, 3], first, count, like)
            momentum_buffer = vector(addresses[row, 4], first, count, like)
            factor, shrink = own[row % own.shape[0], 0], own[row % own.shape[0], 1]
            rmsprop_loop(
                param, grad, square, mean, momentum_buffer, lr, alpha, eps, weight_decay, momentum, centered, factor,
                shrink,
            )  # fmt: skip


@register("cpu", "RmspropUpdate", half="native")
@register("cpu", "FusedRmspropUpdate", half="native")
def rmsprop(
    params, grads, square_avgs, grad_avgs, momentum_buffers, norms=None,
    *, lr, alpha, eps, weight_decay, momentum, centered, maximize, multiply=(), divide=(), max_norm=None,
):  # fmt: skip
    own = together(*factors(maximize, norms, multiply, divide, max_norm))
    numbers = (float(lr), float(alpha), float(eps), float(weight_decay), float(momentum), bool(centered))
    update(rmsprop_rows, (params, grads, square_avgs, grad_avgs, momentum_buffers), own, *numbers)


@compiled
def adagrad_loop(param, grad, square_sum, lr, eps, weight_decay, factor, shrink):
    real = param.dtype.type
    lr, eps, weight_decay = real(lr), real(eps), real(weight_decay)
    factor, shrink = real(factor), real(shrink)
    for i in range(param.size):
        g = factor * grad[i] * shrink
        if weight_decay != 0:  # 0 * inf is nan
            g += weight_decay * param[i]
        square = square_sum[i] + g * g
        square_sum[i] = square
        param[i] -= lr * g / (math.sqrt(square) + eps)


@unlocked()
def adagrad_rows(start, stop, addresses, ends, like, own, eps, weight_decay):
    for row in range(ends.size - 1):
        first, count = overlap(ends, row, start, stop)
        if count > 0:
            param = vector(addresses[row, 0], first, count, like)
            grad = vector(addresses[row, 1], first, count, like)
            square_sum = vector(addresses[row, 2], first, count, like)
            numbers = own[row % own.shape[0]]
            factor, shrink, lr = numbers[0], numbers[1], numbers[2]
            adagrad_loop(param, grad, square_sum, lr, eps, weight_decay, factor, shrink)


@register("cpu", "AdagradUpdate", half="native")
@register("cpu", "FusedAdagradUpdate", half="native")
def adagrad(
    params, grads, square_sums, norms=None,
    *, steps, lr, lr_decay, eps, weight_decay, maximize, multiply=(), divide=(), max_norm=None,
):  # fmt: skip
    (rates,) = each(steps, lambda t: (lr / (1 + (t - 1) * lr_decay),))
    own = together(*factors(maximize, norms, multiply, divide, max_norm), rates)
    update(adagrad_rows, (params, grads, square_sums), own, float(eps), float(weight_decay))
