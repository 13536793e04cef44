"""Optimizer updates: each reads and writes the memory of a parameter once.

A kernel takes the parameters of a group as lists of arrays and changes parameters and states in place. The arithmetic
of one element stands in the compiled loops; `update` brings arrays of any layout and dtype into their form.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numba import prange

from miniflow.backends.cpu.loops import loop
from miniflow.backends.registry import register

PARALLEL_FROM = 262_144  # elements: below, one thread is done before a second one has woken up
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
ABSENT = {FLOAT32: np.empty(0, FLOAT32), FLOAT64: np.empty(0, FLOAT64)}  # stands for a state that an option leaves out


def update(element_loop: Callable, arrays: tuple, *numbers: float) -> None:
    """Run a compiled loop over a parameter, its gradient and its states, all of one shape.

    Args:
        element_loop: takes the arrays flat and of one dtype, then `numbers`.
        arrays: the parameter, the gradient (not written), then the states; None for a state that does not exist.
        numbers: floats and bools; an int would have the loop compiled once more.
    """
    real = FLOAT64 if arrays[0].dtype == FLOAT64 else FLOAT32
    flat = []
    copied = []
    for array in arrays:
        if array is None:
            flat.append(ABSENT[real])
        elif array.dtype is real and array.flags.carray:
            flat.append(array.ravel())
        else:
            flat.append(np.array(array, real, order="C").ravel())
            copied.append((array, flat[-1]))
    run = element_loop.serial if flat[0].size < PARALLEL_FROM else element_loop.parallel
    run(*flat, *numbers)
    for array, changed in copied:
        if array is not arrays[1]:
            array[...] = changed.reshape(array.shape)


@loop()
def sgd_loop(param, grad, momentum_buffer, lr, momentum, undamped, nesterov, weight_decay, sign):
    real = param.dtype.type
    lr, momentum, undamped = real(lr), real(momentum), real(undamped)
    weight_decay, sign = real(weight_decay), real(sign)
    for i in prange(param.size):
        g = sign * grad[i]
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


@register("cpu", "SgdUpdate", half="native")
def sgd(params, grads, momentum_buffers, fresh, *, lr, momentum, dampening, nesterov, weight_decay, maximize):
    """`fresh[i]`: the buffer of parameter i is new, and its first gradient is not dampened."""
    lr, momentum, weight_decay, sign = float(lr), float(momentum), float(weight_decay), -1.0 if maximize else 1.0
    for param, grad, buffer, is_fresh in zip(params, grads, momentum_buffers, fresh, strict=True):
        undamped = 1.0 if is_fresh else 1.0 - dampening
        update(sgd_loop, (param, grad, buffer), lr, momentum, undamped, nesterov, weight_decay, sign)


@loop()
def adam_loop(
    param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, step_size, beta1, beta2, root, eps, l2, decay, sign, amsgrad
):
    real = param.dtype.type
    step_size, fresh1, beta2, fresh2 = real(step_size), real(1 - beta1), real(beta2), real(1 - beta2)
    root, eps, l2, decay, sign = real(root), real(eps), real(l2), real(decay), real(sign)
    for i in prange(param.size):
        g = sign * grad[i]
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


@register("cpu", "AdamUpdate", half="native")
def adam(
    params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps,
    *, lr, betas, eps, weight_decay, decoupled, amsgrad, maximize, do_bias_correction,
):  # fmt: skip
    """`steps[i]`: how many updates parameter i has seen, this one included."""
    beta1, beta2, eps, sign = float(betas[0]), float(betas[1]), float(eps), -1.0 if maximize else 1.0
    l2, decay = (0.0, float(1 - lr * weight_decay)) if decoupled else (float(weight_decay), 1.0)
    step_size, root = float(lr), 1.0
    corrected = None
    for param, grad, mean, square, largest, step in zip(
        params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, strict=True
    ):
        if do_bias_correction and step != corrected:
            step_size, root = lr / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step)
            corrected = step
        arrays = (param, grad, mean, square, largest)
        update(adam_loop, arrays, step_size, beta1, beta2, root, eps, l2, decay, sign, amsgrad)


@loop()
def rmsprop_loop(
    param, grad, square_avg, grad_avg, momentum_buffer, lr, alpha, eps, weight_decay, momentum, centered, sign
):
    real = param.dtype.type
    lr, alpha, fresh, eps = real(lr), real(alpha), real(1 - alpha), real(eps)
    weight_decay, momentum, sign = real(weight_decay), real(momentum), real(sign)
    for i in prange(param.size):
        g = sign * grad[i]
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


@register("cpu", "RmspropUpdate", half="native")
def rmsprop(
    params,
    grads,
    square_avgs,
    grad_avgs,
    momentum_buffers,
    *,
    lr,
    alpha,
    eps,
    weight_decay,
    momentum,
    centered,
    maximize,
):
    numbers = (float(lr), float(alpha), float(eps), float(weight_decay), float(momentum), centered)
    sign = -1.0 if maximize else 1.0
    for arrays in zip(params, grads, square_avgs, grad_avgs, momentum_buffers, strict=True):
        update(rmsprop_loop, arrays, *numbers, sign)


@loop()
def adagrad_loop(param, grad, square_sum, lr, eps, weight_decay, sign):
    real = param.dtype.type
    lr, eps, weight_decay, sign = real(lr), real(eps), real(weight_decay), real(sign)
    for i in prange(param.size):
        g = sign * grad[i]
        if weight_decay != 0:  # 0 * inf is nan
            g += weight_decay * param[i]
        square = square_sum[i] + g * g
        square_sum[i] = square
        param[i] -= lr * g / (math.sqrt(square) + eps)


@register("cpu", "AdagradUpdate", half="native")
def adagrad(params, grads, square_sums, steps, *, lr, lr_decay, eps, weight_decay, maximize):
    eps, weight_decay, sign = float(eps), float(weight_decay), -1.0 if maximize else 1.0
    for param, grad, square_sum, step in zip(params, grads, square_sums, steps, strict=True):
        update(adagrad_loop, (param, grad, square_sum), lr / (1 + (step - 1) * lr_decay), eps, weight_decay, sign)
