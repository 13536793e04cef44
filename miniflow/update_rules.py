"""The update rules of the optimizers, each written once: the CPU's loop and the CUDA kernel call them.

A rule is a function of one element, all in the dtype of the parameter:

    rule(p, g, states, own, numbers) -> the new p, the new states

    p, g       the parameter and its gradient, times -1 to maximize and times what a graph fused into the update, plus
               weight_decay p
    states     a number of each state; where the options leave a state out, it is 0 and the result is not used
    own        the numbers of each parameter alone
    numbers    those that all parameters of an update share

A second function makes `own`, a list with an entry for each of `count` parameters, the weight decay that the gradient
gets, and `numbers` of the options of the optimizer: what does not depend on the element is computed once, in float64.
`steps[k]` is how many updates parameter k has seen, this one included.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic, register_jitable
from numba.np.unsafe.ndarray import to_fixed_tuple

Own = list[tuple[float, ...]]  # of each parameter


class Rule(NamedTuple):
    """An update rule.

    Attributes:
        element: the function of one element.
        states: how many it may have.
        numbers: the function of its numbers.
        own: how many numbers each parameter has.
        count: of the numbers that all parameters share.
    """

    element: Callable[..., tuple]
    states: int
    numbers: Callable[..., tuple[Own, float, tuple[float, ...]]]
    own: int
    count: int


rule = register_jitable(error_model="numpy", fastmath={"contract"})  # leaves a plain function, and numba can call it
compiled = numba.njit(error_model="numpy", fastmath={"contract"})


@rule
def sgd(p, g, states, own, numbers):
    """v = momentum v + undamped g;  p -= lr v, or lr (g + momentum v) with Nesterov; p -= lr g without momentum."""
    lr, undamped = own
    momentum, nesterov = numbers
    (velocity,) = states
    if momentum != 0:
        velocity = momentum * velocity + undamped * g
        g = g + momentum * velocity if nesterov != 0 else velocity
    return p - lr * g, (velocity,)


def sgd_numbers(count, lr, momentum, dampening, nesterov, weight_decay, fresh):
    """`fresh[k]`: the buffer of parameter k is new, and its first gradient is not dampened."""
    own = (lr, 1.0 - dampening), (lr, 1.0)
    return [own[is_fresh] for is_fresh in fresh], weight_decay, (momentum, nesterov)


@rule
def adam(p, g, states, own, numbers):
    """m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2;  p = decay p - step_size m / (root sqrt(v) + eps)."""
    step_size, root = own
    fresh1, beta2, fresh2, eps, decay, amsgrad = numbers
    mean, square, largest = states
    mean += fresh1 * (g - mean)
    square = beta2 * square + fresh2 * g * g
    largest = max(square, largest) if amsgrad != 0 else square
    return decay * p - step_size * (mean / (math.sqrt(largest) * root + eps)), (mean, square, largest)


def adam_numbers(count, lr, betas, eps, weight_decay, decoupled_weight_decay, amsgrad, do_bias_correction, steps):
    beta1, beta2 = betas
    l2, decay = (0.0, 1 - lr * weight_decay) if decoupled_weight_decay else (weight_decay, 1.0)
    own = {t: (lr / (1 - beta1**t), 1 / math.sqrt(1 - beta2**t)) for t in {*steps}} if do_bias_correction else {}
    return [own.get(t, (lr, 1.0)) for t in steps], l2, (1 - beta1, beta2, 1 - beta2, eps, decay, amsgrad)


@rule
def rmsprop(p, g, states, own, numbers):
    """v = alpha v + (1 - alpha) g^2;  b = momentum b + g / (sqrt(v) + eps), or sqrt(v - mean(g)^2);  p -= lr b."""
    (lr,) = own
    alpha, fresh, eps, momentum, centered = numbers
    square, mean, buffer = states
    square = alpha * square + fresh * g * g
    variance = square
    if centered != 0:
        mean += fresh * (g - mean)
        variance -= mean * mean
    buffer = momentum * buffer + g / (math.sqrt(variance) + eps)
    return p - lr * buffer, (square, mean, buffer)


def rmsprop_numbers(count, lr, alpha, eps, weight_decay, momentum, centered):
    return [(lr,)] * count, weight_decay, (alpha, 1 - alpha, eps, momentum, centered)


@rule
def adagrad(p, g, states, own, numbers):
    """s += g^2;  p -= lr g / (sqrt(s) + eps), with a learning rate that has already decayed."""
    (lr,) = own
    (eps,) = numbers
    (square_sum,) = states
    square_sum += g * g
    return p - lr * g / (math.sqrt(square_sum) + eps), (square_sum,)


def adagrad_numbers(count, lr, lr_decay, eps, weight_decay, steps):
    return [(lr / (1 + (t - 1) * lr_decay),) for t in steps], weight_decay, (eps,)


@rule
def adamax(p, g, states, own, numbers):
    """m += (1 - beta1) (g - m);  u = max(beta2 u, |g| + eps);  p -= step_size m / u."""
    (step_size,) = own
    fresh1, beta2, eps = numbers
    mean, largest = states
    mean += fresh1 * (g - mean)
    largest = max(beta2 * largest, abs(g) + eps)
    return p - step_size * (mean / largest), (mean, largest)


def adamax_numbers(count, lr, betas, eps, weight_decay, steps):
    return [(lr / (1 - betas[0] ** t),) for t in steps], weight_decay, (1 - betas[0], betas[1], eps)


@rule
def radam(p, g, states, own, numbers):
    """As `adam`, but p -= step_size m while the variance of v is infinite."""
    step_size, rectified = own
    fresh1, beta2, fresh2, eps, decay = numbers
    mean, square = states
    mean += fresh1 * (g - mean)
    square = beta2 * square + fresh2 * g * g
    ratio = mean / (math.sqrt(square) + eps) if rectified != 0 else mean
    return decay * p - step_size * ratio, (mean, square)


def radam_numbers(count, lr, betas, eps, weight_decay, decoupled_weight_decay, steps):
    beta1, beta2 = betas
    most = 2 / (1 - beta2) - 1

    def own(t: int) -> tuple[float, float]:
        step_size = lr / (1 - beta1**t)
        rho = most - 2 * t * beta2**t / (1 - beta2**t)
        if rho <= 5:
            return step_size, 0.0
        rectification = math.sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho))
        return step_size * rectification * math.sqrt(1 - beta2**t), 1.0

    l2, decay = (0.0, 1 - lr * weight_decay) if decoupled_weight_decay else (weight_decay, 1.0)
    return [own(t) for t in steps], l2, (1 - beta1, beta2, 1 - beta2, eps, decay)


@rule
def nadam(p, g, states, own, numbers):
    """As `adam`, but p -= (now g + ahead m) / (root sqrt(v) + eps)."""
    now, ahead, root = own
    fresh1, beta2, fresh2, eps, decay = numbers
    mean, square = states
    mean += fresh1 * (g - mean)
    square = beta2 * square + fresh2 * g * g
    return decay * p - (now * g + ahead * mean) / (math.sqrt(square) * root + eps), (mean, square)


@functools.cache
def products_of_momenta(beta1: float, momentum_decay: float) -> list[float]:
    """The product of the first t momenta at place t, as far as they were needed."""
    return [1.0]


def nadam_numbers(count, lr, betas, eps, weight_decay, momentum_decay, decoupled_weight_decay, steps):
    beta1, beta2 = betas
    products = products_of_momenta(beta1, momentum_decay)

    def momentum(t: int) -> float:
        return beta1 * (1 - 0.5 * 0.96 ** (t * momentum_decay))

    def own(t: int) -> tuple[float, float, float]:
        while len(products) <= t + 1:
            products.append(products[-1] * momentum(len(products)))
        now, ahead = lr * (1 - momentum(t)) / (1 - products[t]), lr * momentum(t + 1) / (1 - products[t + 1])
        return now, ahead, 1 / math.sqrt(1 - beta2**t)

    l2, decay = (0.0, 1 - lr * weight_decay) if decoupled_weight_decay else (weight_decay, 1.0)
    return [own(t) for t in steps], l2, (1 - beta1, beta2, 1 - beta2, eps, decay)


@rule
def adadelta(p, g, states, own, numbers):
    """v = rho v + (1 - rho) g^2;  d = sqrt(a + eps) / sqrt(v + eps) g;  a = rho a + (1 - rho) d^2;  p -= lr d."""
    (lr,) = own
    rho, fresh, eps = numbers
    square, steps = states
    square = rho * square + fresh * g * g
    delta = math.sqrt(steps + eps) / math.sqrt(square + eps) * g
    return p - lr * delta, (square, rho * steps + fresh * delta * delta)


def adadelta_numbers(count, lr, rho, eps, weight_decay):
    return [(lr,)] * count, weight_decay, (rho, 1 - rho, eps)


@rule
def asgd(p, g, states, own, numbers):
    """p = (1 - lambd eta) p - eta g;  ax += mu (p - ax)."""
    eta, mu = own
    (lambd,) = numbers
    (average,) = states
    p = p - lambd * eta * p - eta * g
    return p, (p if mu == 1 else average + mu * (p - average),)


def asgd_numbers(count, lr, lambd, alpha, t0, weight_decay, steps):
    own = [(lr / (1 + lambd * lr * (t - 1)) ** alpha, 1 / max(1, t - 1 - t0)) for t in steps]
    return own, weight_decay, (lambd,)


@rule
def rprop(p, g, states, own, numbers):
    """s = clamp(eta s), eta by whether the signs of g and prev agree;  p -= sign(g) s, g being 0 where they do not."""
    (first,) = own
    shrink, grow, smallest, largest = numbers
    previous, size = states
    if first != 0:
        size = first
    if g * previous > 0:
        size = min(size * grow, largest)
    elif g * previous < 0:
        size = max(size * shrink, smallest)
        g = g * 0
    if g > 0:
        p -= size
    elif g < 0:
        p += size
    return p, (g, size)


def rprop_numbers(count, lr, etas, step_sizes, steps):
    return [(lr if t == 1 else 0.0,) for t in steps], 0.0, (*etas, *step_sizes)


@rule
def ftrl(p, g, states, own, numbers):
    """b = a + g^2;  z += g - (b^r - a^r) / lr p;  p = (sign(z) l1 - z) / ((beta + b^r) / lr + l2), 0 if |z| <= l1."""
    lr, initial = own
    power, l1, l2, beta = numbers
    square_sum, z = states
    square_sum += initial
    before = square_sum**power
    square_sum += g * g
    root = square_sum**power
    z += g - (root - before) / lr * p
    signed = l1 if z > 0 else -l1
    return (signed - z) / ((beta + root) / lr + l2) if abs(z) > l1 else p * 0, (square_sum, z)


def ftrl_numbers(count, lr, weight_decay, lr_power, initial_accumulator_value, lambda1, lambda2, beta, steps):
    own = [(lr, initial_accumulator_value if t == 1 else 0.0) for t in steps]
    return own, weight_decay, (-lr_power, lambda1, lambda2, beta)


RULES = {
    "sgd_update": Rule(sgd, 1, sgd_numbers, 2, 2),
    "adam_update": Rule(adam, 3, adam_numbers, 2, 6),
    "rmsprop_update": Rule(rmsprop, 3, rmsprop_numbers, 1, 5),
    "adagrad_update": Rule(adagrad, 1, adagrad_numbers, 1, 1),
    "adamax_update": Rule(adamax, 2, adamax_numbers, 1, 3),
    "radam_update": Rule(radam, 2, radam_numbers, 2, 5),
    "nadam_update": Rule(nadam, 2, nadam_numbers, 3, 5),
    "adadelta_update": Rule(adadelta, 2, adadelta_numbers, 1, 3),
    "asgd_update": Rule(asgd, 1, asgd_numbers, 2, 1),
    "rprop_update": Rule(rprop, 2, rprop_numbers, 1, 4),
    "ftrl_update": Rule(ftrl, 2, ftrl_numbers, 2, 4),
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
    weight decay, the parameter's own numbers, and those of all.

    It stands in this file so that numba's cache, which looks at the time of one file, notices a changed rule.
    """
    element, kept, owned, count = one.element, one.states, one.own, one.count
    first_shared = 3 + owned

    @rule  # numba's cache tells plain functions apart, which the loop refers to, but no compiled ones
    def update(param, grad, first, second, third, factor, bound, weight_decay, own, numbers):
        zero = param.dtype.type(0)
        for i in range(param.size):
            a = zero if first is None else first[i]
            b = zero if second is None else second[i]
            c = zero if third is None else third[i]
            g = factor * grad[i] * bound
            if weight_decay != 0:  # 0 * inf is nan
                g += weight_decay * param[i]
            param[i], states = element(param[i], g, (a, b, c)[:kept], own, numbers)
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
                own, shared = to_fixed_tuple(row[3:first_shared], owned), to_fixed_tuple(row[first_shared:], count)
                update(param, grad, first, second, third, row[0], row[1], row[2], own, shared)

    return loop
