"""The update rules of the optimizers, each written once: the CPU's loop and the CUDA kernel call them.

    rule(first, last, bound, numbers, p, g, *states)

updates elements first .. last - 1 of one parameter, in its dtype. The CPU calls a rule for a whole parameter, and LLVM
vectorizes its loop; a CUDA thread calls it for its one element.

    p, g       the parameter and its gradient
    states     arrays of its size; one that the options leave out has no elements
    bound      a factor of at most 1 that clips the norm of the gradient
    numbers    factor and decay, then those of the rule: (bound factor g + decay p) takes the place of the gradient

A second function computes `decay` and the numbers of a rule from the options of the optimizer: everything that does not
depend on the element, once, in float64. `steps` is how many updates the parameter has seen, this one included.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable
from numba.np.unsafe.ndarray import to_fixed_tuple


class Rule(NamedTuple):
    """An update rule.

    Attributes:
        update: the function that updates the elements of a parameter.
        states: the number of its states.
        count: the number of its numbers.
        numbers: the function that computes them from the options, all but the first, the factor.
    """

    update: Callable[..., None]
    states: int
    count: int
    numbers: Callable[..., tuple[float, ...]]


rule = register_jitable(error_model="numpy", fastmath={"contract"})  # leaves a plain function, and numba can call it


@rule
def sgd(first, last, bound, numbers, p, g, velocity):
    """v = momentum v + undamped g;  p -= lr v, or lr (g + momentum v) with Nesterov; p -= lr g without momentum."""
    factor, decay, lr, undamped, momentum, nesterov = numbers
    for i in range(first, last):
        d = factor * g[i] * bound
        if decay != 0:  # 0 * inf is nan
            d += decay * p[i]
        if velocity.size != 0:
            v = velocity[i] = momentum * velocity[i] + undamped * d
            d = d + momentum * v if nesterov != 0 else v
        p[i] -= lr * d


def sgd_numbers(lr, momentum, dampening, nesterov, weight_decay, fresh):
    """If `fresh`, the buffer is new: its first gradient is not dampened."""
    return weight_decay, lr, 1.0 if fresh else 1.0 - dampening, momentum, nesterov


@rule
def adam(first, last, bound, numbers, p, g, mean, square, largest):
    """m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2;  p = keep p - step_size m / (root sqrt(v) + eps)."""
    factor, decay, step_size, root, fresh1, beta2, fresh2, eps, keep = numbers
    for i in range(first, last):
        d = factor * g[i] * bound
        if decay != 0:
            d += decay * p[i]
        m = mean[i] = mean[i] + fresh1 * (d - mean[i])
        v = square[i] = beta2 * square[i] + fresh2 * d * d
        if largest.size != 0:
            v = largest[i] = max(v, largest[i])
        p[i] = keep * p[i] - step_size * (m / (math.sqrt(v) * root + eps))


def adam_numbers(lr, betas, eps, weight_decay, decoupled_weight_decay, amsgrad, do_bias_correction, steps):
    (beta1, beta2), t = betas, steps
    step_size, root = (lr / (1 - beta1**t), 1 / math.sqrt(1 - beta2**t)) if do_bias_correction else (lr, 1.0)
    decay, keep = decays(lr, weight_decay, decoupled_weight_decay)
    return decay, step_size, root, 1 - beta1, beta2, 1 - beta2, eps, keep


def decays(lr: float, weight_decay: float, is_decoupled: bool) -> tuple[float, float]:
    """The factor of the parameter in the gradient, and the factor by which the parameter itself shrinks."""
    return (0.0, 1 - lr * weight_decay) if is_decoupled else (weight_decay, 1.0)


@rule
def rmsprop(first, last, bound, numbers, p, g, square, mean, buffer):
    """v = alpha v + (1 - alpha) g^2;  b = momentum b + g / (sqrt(v) + eps), or sqrt(v - mean(g)^2);  p -= lr b."""
    factor, decay, lr, alpha, fresh, eps, momentum = numbers
    for i in range(first, last):
        d = factor * g[i] * bound
        if decay != 0:
            d += decay * p[i]
        v = square[i] = alpha * square[i] + fresh * d * d
        if mean.size != 0:
            m = mean[i] = mean[i] + fresh * (d - mean[i])
            v -= m * m
        b = d / (math.sqrt(v) + eps)
        if buffer.size != 0:
            b = buffer[i] = momentum * buffer[i] + b
        p[i] -= lr * b


def rmsprop_numbers(lr, alpha, eps, weight_decay, momentum, centered):
    return weight_decay, lr, alpha, 1 - alpha, eps, momentum


@rule
def adagrad(first, last, bound, numbers, p, g, square_sum):
    """s += g^2;  p -= lr g / (sqrt(s) + eps), with a learning rate that has already decayed."""
    factor, decay, lr, eps = numbers
    for i in range(first, last):
        d = factor * g[i] * bound
        if decay != 0:
            d += decay * p[i]
        square_sum[i] += d * d
        p[i] -= lr * d / (math.sqrt(square_sum[i]) + eps)


def adagrad_numbers(lr, lr_decay, eps, weight_decay, steps):
    return weight_decay, lr / (1 + (steps - 1) * lr_decay), eps


@rule
def adamax(first, last, bound, numbers, p, g, mean, largest):
    """m += (1 - beta1) (g - m);  u = max(beta2 u, |g| + eps);  p -= step_size m / u."""
    factor, decay, step_size, fresh1, beta2, eps = numbers
    for i in range(first, last):
        d = factor * g[i] * bound
        if decay != 0:
            d += decay * p[i]
        mean[i] += fresh1 * (d - mean[i])
        largest[i] = max(beta2 * largest[i], abs(d) + eps)
        p[i] -= step_size * (mean[i] / largest[i])


def adamax_numbers(lr, betas, eps, weight_decay, steps):
    return weight_decay, lr / (1 - betas[0] ** steps), 1 - betas[0], betas[1], eps


@rule
def radam(first, last, bound, numbers, p, g, mean, square):
    """As `adam`, but p -= step_size m while the variance of v is infinite."""
    factor, decay, step_size, rectified, fresh1, beta2, fresh2, eps, keep = numbers
    for i in range(first, last):
        d = factor * g[i] * bound
        if decay != 0:
            d += decay * p[i]
        m = mean[i] = mean[i] + fresh1 * (d - mean[i])
        v = square[i] = beta2 * square[i] + fresh2 * d * d
        p[i] = keep * p[i] - step_size * (m / (math.sqrt(v) + eps) if rectified != 0 else m)


def radam_numbers(lr, betas, eps, weight_decay, decoupled_weight_decay, steps):
    (beta1, beta2), t = betas, steps
    most = 2 / (1 - beta2) - 1
    step_size, rectified = lr / (1 - beta1**t), 0.0
    rho = most - 2 * t * beta2**t / (1 - beta2**t)
    if rho > 5:
        rectification = math.sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho))
        step_size, rectified = step_size * rectification * math.sqrt(1 - beta2**t), 1.0
    decay, keep = decays(lr, weight_decay, decoupled_weight_decay)
    return decay, step_size, rectified, 1 - beta1, beta2, 1 - beta2, eps, keep


@rule
def nadam(first, last, bound, numbers, p, g, mean, square):
    """As `adam`, but p -= (now g + ahead m) / (root sqrt(v) + eps)."""
    factor, decay, now, ahead, root, fresh1, beta2, fresh2, eps, keep = numbers
    for i in range(first, last):
        d = factor * g[i] * bound
        if decay != 0:
            d += decay * p[i]
        m = mean[i] = mean[i] + fresh1 * (d - mean[i])
        v = square[i] = beta2 * square[i] + fresh2 * d * d
        p[i] = keep * p[i] - (now * d + ahead * m) / (math.sqrt(v) * root + eps)


@functools.lru_cache(16)
def products_of_factors(momentum_decay: float) -> list[float]:
    """Entry t is the product of the first t momenta / beta1; `nadam_numbers` appends entries as it needs them."""
    return [1.0]


def nadam_numbers(lr, betas, eps, weight_decay, momentum_decay, decoupled_weight_decay, steps):
    (beta1, beta2), t = betas, steps
    products = products_of_factors(momentum_decay)

    def factor(t: int) -> float:
        return 1 - 0.5 * 0.96 ** (t * momentum_decay)

    while len(products) <= t + 1:
        products.append(products[-1] * factor(len(products)))
    now = lr * (1 - beta1 * factor(t)) / (1 - beta1**t * products[t])
    ahead = lr * beta1 * factor(t + 1) / (1 - beta1 ** (t + 1) * products[t + 1])
    decay, keep = decays(lr, weight_decay, decoupled_weight_decay)
    return decay, now, ahead, 1 / math.sqrt(1 - beta2**t), 1 - beta1, beta2, 1 - beta2, eps, keep


@rule
def adadelta(first, last, bound, numbers, p, g, square, steps):
    """v = rho v + (1 - rho) g^2;  d = sqrt(a + eps) / sqrt(v + eps) g;  a = rho a + (1 - rho) d^2;  p -= lr d."""
    factor, decay, lr, rho, fresh, eps = numbers
    for i in range(first, last):
        d = factor * g[i] * bound
        if decay != 0:
            d += decay * p[i]
        square[i] = rho * square[i] + fresh * d * d
        d *= math.sqrt(steps[i] + eps) / math.sqrt(square[i] + eps)
        steps[i] = rho * steps[i] + fresh * d * d
        p[i] -= lr * d


def adadelta_numbers(lr, rho, eps, weight_decay):
    return weight_decay, lr, rho, 1 - rho, eps


@rule
def asgd(first, last, bound, numbers, p, g, average):
    """p = (1 - lambd eta) p - eta g;  ax += mu (p - ax)."""
    factor, decay, eta, mu, lambd = numbers
    for i in range(first, last):
        d = factor * g[i] * bound
        if decay != 0:
            d += decay * p[i]
        p[i] = p[i] - lambd * eta * p[i] - eta * d
        average[i] = p[i] if mu == 1 else average[i] + mu * (p[i] - average[i])


def asgd_numbers(lr, lambd, alpha, t0, weight_decay, steps):
    return weight_decay, lr / (1 + lambd * lr * (steps - 1)) ** alpha, 1 / max(1, steps - 1 - t0), lambd


@rule
def rprop(first, last, bound, numbers, p, g, previous, size):
    """s = clamp(eta s), eta by whether the signs of g and prev agree;  p -= sign(g) s, g being 0 where they do not."""
    factor, _, first_size, shrink, grow, smallest, largest = numbers
    for i in range(first, last):
        d = factor * g[i] * bound
        s = first_size if first_size != 0 else size[i]
        if d * previous[i] > 0:
            s = min(s * grow, largest)
        elif d * previous[i] < 0:
            s = max(s * shrink, smallest)
            d = d * 0
        if d > 0:
            p[i] -= s
        elif d < 0:
            p[i] += s
        previous[i], size[i] = d, s


def rprop_numbers(lr, etas, step_sizes, steps):
    return 0.0, lr if steps == 1 else 0.0, *etas, *step_sizes


@rule
def ftrl(first, last, bound, numbers, p, g, square_sum, z):
    """b = a + g^2;  z += g - (b^r - a^r) / lr p;  p = (sign(z) l1 - z) / ((beta + b^r) / lr + l2), 0 if |z| <= l1."""
    factor, decay, lr, initial, power, l1, l2, beta = numbers
    for i in range(first, last):
        d = factor * g[i] * bound
        if decay != 0:
            d += decay * p[i]
        before = square_sum[i] + initial
        after = square_sum[i] = before + d * d
        root = after**power
        z[i] += d - (root - before**power) / lr * p[i]
        signed = l1 if z[i] > 0 else -l1
        p[i] = (signed - z[i]) / ((beta + root) / lr + l2) if abs(z[i]) > l1 else p[i] * 0


def ftrl_numbers(lr, weight_decay, lr_power, initial_accumulator_value, lambda1, lambda2, beta, steps):
    initial = initial_accumulator_value if steps == 1 else 0.0
    return weight_decay, lr, initial, -lr_power, lambda1, lambda2, beta


RULES = {
    "sgd_update": Rule(sgd, 1, 6, sgd_numbers),
    "adam_update": Rule(adam, 3, 9, adam_numbers),
    "rmsprop_update": Rule(rmsprop, 3, 7, rmsprop_numbers),
    "adagrad_update": Rule(adagrad, 1, 4, adagrad_numbers),
    "adamax_update": Rule(adamax, 2, 6, adamax_numbers),
    "radam_update": Rule(radam, 2, 9, radam_numbers),
    "nadam_update": Rule(nadam, 2, 10, nadam_numbers),
    "adadelta_update": Rule(adadelta, 2, 6, adadelta_numbers),
    "asgd_update": Rule(asgd, 1, 5, asgd_numbers),
    "rprop_update": Rule(rprop, 2, 7, rprop_numbers),
    "ftrl_update": Rule(ftrl, 2, 8, ftrl_numbers),
}
"""By the name of the kernel."""


def numbers_of(
    rule: Rule, count: int, maximize: bool, multiply: Sequence[float] = (), divide: Sequence[float] = (), **options
) -> list[tuple[float, ...]]:
    """The numbers of `count` parameters, from the options of an update and what a graph has fused into it.

    `steps` and `fresh` are lists, with an entry for each parameter.
    """
    factor = (-1.0 if maximize else 1.0) * math.prod(multiply) / math.prod(divide)
    name = "steps" if "steps" in options else "fresh"
    if name not in options:
        return [(factor, *rule.numbers(**options))] * count
    values = options.pop(name)
    rows = {value: (factor, *rule.numbers(**options, **{name: value})) for value in {*values}}
    return [rows[value] for value in values]


def loop_over(rule: Rule) -> Callable[..., None]:
    """The CPU's loop: `loop(row, p, g, *states)` updates 1-D arrays; `row` has bound and numbers, in their dtype.

    It stands in this file so that numba's cache, which looks at the time of one file, notices a changed rule.
    """
    update, count = rule.update, rule.count  # numba's cache tells plain functions apart, which the loop refers to

    def loop(row, *arrays):
        update(np.uint64(0), np.uint64(arrays[0].size), row[0], to_fixed_tuple(row[1:], count), *arrays)

    return loop
