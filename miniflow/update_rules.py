"""The update rules of the optimizers, each written once: the CPU's loop and the CUDA kernel call them.

A rule is a function of one element, all in the dtype of the parameter:

    rule(p, g, states, own, numbers) -> the new p, the new states

    p, g       the parameter and its gradient, times -1 to maximize and times what a graph fused into the update
    states     three numbers; where a rule or its options have no such state, it is 0 and the result is not used
    own        two numbers of each parameter alone
    numbers    those that all parameters of an update share

A second function makes `own`, a list with an entry for each parameter, and `numbers` of the options of
the optimizer: what does not depend on the element is computed once, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic, register_jitable
from numba.np.unsafe.ndarray import to_fixed_tuple

Own = list[tuple[float, float]]


class Rule(NamedTuple):
    """An update rule.

    Attributes:
        element: the function of one element.
        states: how many it may have.
        numbers: the function of its numbers.
        count: of the numbers that all parameters share.
    """

    element: Callable[..., tuple]
    states: int
    numbers: Callable[..., tuple[Own, tuple[float, ...]]]
    count: int


rule = register_jitable(error_model="numpy", fastmath={"contract"})  # leaves a plain function, and numba can call it
compiled = numba.njit(error_model="numpy", fastmath={"contract"})


@rule
def sgd(p, g, states, own, numbers):
    """v = momentum v + undamped g;  p -= lr v, or lr (g + momentum v) with Nesterov; p -= lr g without momentum."""
    lr, undamped = own
    momentum, nesterov, weight_decay = numbers
    velocity, second, third = states
    if weight_decay != 0:  # 0 * inf is nan
        g += weight_decay * p
    if momentum != 0:
        velocity = momentum * velocity + undamped * g
        g = g + momentum * velocity if nesterov != 0 else velocity
    return p - lr * g, (velocity, second, third)


def sgd_numbers(
    count: int, lr: float, momentum: float, dampening: float, nesterov: bool, weight_decay: float, fresh: Sequence[bool]
) -> tuple[Own, tuple]:
    """`fresh[k]`: the buffer of parameter k is new, and its first gradient is not dampened."""
    own = (lr, 1.0 - dampening), (lr, 1.0)
    return [own[is_fresh] for is_fresh in fresh], (momentum, nesterov, weight_decay)


@rule
def adam(p, g, states, own, numbers):
    """m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2;  p = decay p - step_size m / (root sqrt(v) + eps)."""
    step_size, root = own
    fresh1, beta2, fresh2, eps, l2, decay, amsgrad = numbers
    mean, square, largest = states
    if l2 != 0:  # 0 * inf is nan
        g += l2 * p
    mean += fresh1 * (g - mean)
    square = beta2 * square + fresh2 * g * g
    largest = max(square, largest) if amsgrad != 0 else square
    return decay * p - step_size * (mean / (math.sqrt(largest) * root + eps)), (mean, square, largest)


def adam_numbers(
    count: int, lr: float, betas: Sequence[float], eps: float, weight_decay: float, decoupled: bool, amsgrad: bool,
    do_bias_correction: bool, steps: Sequence[int],
) -> tuple[Own, tuple]:  # fmt: skip
    """`steps[k]`: how many updates parameter k has seen, this one included."""
    beta1, beta2 = betas
    l2, decay = (0.0, 1 - lr * weight_decay) if decoupled else (weight_decay, 1.0)
    own = {t: (lr / (1 - beta1**t), 1 / math.sqrt(1 - beta2**t)) if do_bias_correction else (lr, 1.0) for t in {*steps}}
    return [own[t] for t in steps], (1 - beta1, beta2, 1 - beta2, eps, l2, decay, amsgrad)


@rule
def rmsprop(p, g, states, own, numbers):
    """v = alpha v + (1 - alpha) g^2;  b = momentum b + g / (sqrt(v) + eps), or sqrt(v - mean(g)^2);  p -= lr b."""
    lr, _ = own
    alpha, fresh, eps, weight_decay, momentum, centered = numbers
    square, mean, buffer = states
    if weight_decay != 0:  # 0 * inf is nan
        g += weight_decay * p
    square = alpha * square + fresh * g * g
    variance = square
    if centered != 0:
        mean += fresh * (g - mean)
        variance -= mean * mean
    buffer = momentum * buffer + g / (math.sqrt(variance) + eps)
    return p - lr * buffer, (square, mean, buffer)


def rmsprop_numbers(
    count: int, lr: float, alpha: float, eps: float, weight_decay: float, momentum: float, centered: bool
) -> tuple[Own, tuple]:
    return [(lr, 0.0)] * count, (alpha, 1 - alpha, eps, weight_decay, momentum, centered)


@rule
def adagrad(p, g, states, own, numbers):
    """s += g^2;  p -= lr g / (sqrt(s) + eps), with a learning rate that has already decayed."""
    lr, _ = own
    eps, weight_decay = numbers
    square_sum, second, third = states
    if weight_decay != 0:  # 0 * inf is nan
        g += weight_decay * p
    square_sum += g * g
    return p - lr * g / (math.sqrt(square_sum) + eps), (square_sum, second, third)


def adagrad_numbers(
    count: int, lr: float, lr_decay: float, eps: float, weight_decay: float, steps: Sequence[int]
) -> tuple[Own, tuple]:
    return [(lr / (1 + (t - 1) * lr_decay), 0.0) for t in steps], (eps, weight_decay)


RULES = {
    "sgd_update": Rule(sgd, 1, sgd_numbers, 3),
    "adam_update": Rule(adam, 3, adam_numbers, 7),
    "rmsprop_update": Rule(rmsprop, 3, rmsprop_numbers, 6),
    "adagrad_update": Rule(adagrad, 1, adagrad_numbers, 2),
}
"""By the name of the kernel."""


def fused_factor(maximize: bool, multiply: Sequence[float], divide: Sequence[float]) -> float:
    """What all gradients are multiplied by: -1 to maximize, times the numbers that a graph fused into the update."""
    return (-1.0 if maximize else 1.0) * math.prod(multiply) / math.prod(divide)


@intrinsic
def pointer(typing_context: Any, address: Any) -> Any:
    """An address as a pointer."""

    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.intp), generate


@compiled
def vector(address, begin, end, like):
    """Elements begin .. end - 1 of those at an address, as an array of the dtype of `like`."""
    return carray(pointer(address + begin * like.itemsize), end - begin, like.dtype)


def loop_over(one: Rule) -> Callable:
    """The CPU's loop over elements start .. stop - 1 of all parameters of an update.

    `sizes` has their numbers of elements, `params` and so on their addresses, or None for states that are left out.
    `numbers` has a row for each parameter, or one for all, in the dtype of all arrays: two factors of the gradient, the
    parameter's own numbers, and those of all.

    It stands in this file so that numba's cache, which looks at the time of one file, notices a changed rule.
    """
    element, count = one.element, one.count

    @rule  # numba's cache tells plain functions apart, which the loop refers to, but no compiled ones
    def update(param, grad, first, second, third, factor, bound, own, numbers):
        zero = param.dtype.type(0)
        for i in range(param.size):
            a = zero if first is None else first[i]
            b = zero if second is None else second[i]
            c = zero if third is None else third[i]
            param[i], states = element(param[i], factor * grad[i] * bound, (a, b, c), own, numbers)
            if first is not None:
                first[i] = states[0]
            if second is not None:
                second[i] = states[1]
            if third is not None:
                third[i] = states[2]

    def loop(start, stop, sizes, params, grads, firsts, seconds, thirds, numbers):
        place = 0  # of the first element of parameter k
        for k in range(sizes.size):
            begin, end = max(start - place, 0), min(stop - place, sizes[k])
            place += sizes[k]
            if begin < end:
                param, grad = vector(params[k], begin, end, numbers), vector(grads[k], begin, end, numbers)
                first = None if firsts is None else vector(firsts[k], begin, end, numbers)
                second = None if seconds is None else vector(seconds[k], begin, end, numbers)
                third = None if thirds is None else vector(thirds[k], begin, end, numbers)
                row = numbers[k % len(numbers)]
                own, shared = (row[2], row[3]), to_fixed_tuple(row[4:], count)
                update(param, grad, first, second, third, row[0], row[1], own, shared)

    return loop
