"""Optimizer updates: one pass over parameters, their gradients and their states, several parameters in one launch.

    blocks starts[k] .. starts[k + 1] - 1 of the grid  ->  parameter k
    thread i of those                                  ->  element i of it and of its states, changed in place

SGD reads two elements and writes one (with momentum three and two); Adam reads four and writes three. What does not
depend on the element, as the bias correction of Adam, is computed on the host; but for the bound on the norm of the
gradient, which only the device knows.

Every argument in the plural is a tuple with an entry for each parameter of the launch: 1-D arrays of one floating
dtype, or numbers of that dtype. A state that an option leaves out is not touched: any array may stand in for it. Flags
are bools, the same for all threads.
"""

from __future__ import annotations

import math

import numpy as np

from miniflow.hostcuda import cuda


@cuda.jit(device=True)
def bound(norm, max_norm):
    """min(1, max_norm / (norm + 1e-6)), float64; a negative max_norm is none, and `norm` is not read."""
    if max_norm < 0:
        return 1.0
    shrink = max_norm / (np.float64(norm[0]) + 1e-6)
    return 1.0 if shrink >= 1 else shrink


@cuda.jit(device=True)
def penalised(gradient, parameter, weight_decay):
    """gradient + weight_decay * parameter; without decay the parameter does not count, even if infinite."""
    return gradient + weight_decay * parameter if weight_decay != 0 else gradient


@cuda.jit
def sgd(
    starts, params, grads, momentum_buffers, norms, undamped, lr, momentum, weight_decay, factor, max_norm, nesterov
):  # fmt: skip
    """v = momentum v + undamped g;  p -= lr v, or lr (g + momentum v) with Nesterov; p -= lr g without momentum.

    Args:
        starts: the first block of every parameter, and the number of all blocks.
        undamped: tuple of 1 - dampening, or 1 at the first step.
        factor: float64, what gradients are multiplied by: -1 to maximize, else 1, times what was fused into the update.
        norms: tuple of arrays (1,).
        max_norm: float64, the bound on them, see `bound`.
        nesterov: bool.
    """
    k = 0
    while cuda.blockIdx.x >= starts[k + 1]:
        k += 1
    param, grad, momentum_buffer = params[k], grads[k], momentum_buffers[k]
    i = max(cuda.blockIdx.x - starts[k], 0) * cuda.blockDim.x + cuda.threadIdx.x
    if i < param.size:
        gradient = param.dtype.type(factor) * grad[i] * param.dtype.type(bound(norms[k], max_norm))
        step = penalised(gradient, param[i], weight_decay)
        if momentum != 0:
            velocity = momentum * momentum_buffer[i] + undamped[k] * step
            momentum_buffer[i] = velocity
            step = step + momentum * velocity if nesterov else velocity
        param[i] -= lr * step


@cuda.jit
def adam(
    starts, params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, norms, step_sizes, roots,
    fresh1, beta2, fresh2, eps, weight_decay, decay, factor, max_norm, amsgrad,
):  # fmt: skip
    """m += fresh1 (g - m);  v = beta2 v + fresh2 g^2;  p = decay p - step_size m / (root sqrt(v) + eps).

    Args:
        starts: as for `sgd`.
        step_sizes: lr / (1 - beta1^t).
        roots: 1 / sqrt(1 - beta2^t).
        fresh1, beta2, fresh2: 1 - beta1, beta2, 1 - beta2.
        weight_decay: of the L2 penalty.
        decay: 1 - lr weight_decay where the decay is decoupled, else 1.
        norms, factor, max_norm: as for `sgd`.
        amsgrad: bool, divide by the largest v so far.
    """
    k = 0
    while cuda.blockIdx.x >= starts[k + 1]:
        k += 1
    param, grad, step_size, root = params[k], grads[k], step_sizes[k], roots[k]
    exp_avg, exp_avg_sq, max_exp_avg_sq = exp_avgs[k], exp_avg_sqs[k], max_exp_avg_sqs[k]
    i = max(cuda.blockIdx.x - starts[k], 0) * cuda.blockDim.x + cuda.threadIdx.x
    if i < param.size:
        gradient = param.dtype.type(factor) * grad[i] * param.dtype.type(bound(norms[k], max_norm))
        g = penalised(gradient, param[i], weight_decay)
        mean = exp_avg[i] + fresh1 * (g - exp_avg[i])
        square = beta2 * exp_avg_sq[i] + fresh2 * g * g
        exp_avg[i] = mean
        exp_avg_sq[i] = square
        if amsgrad:
            square = max(square, max_exp_avg_sq[i])
            max_exp_avg_sq[i] = square
        param[i] = decay * param[i] - step_size * (mean / (math.sqrt(square) * root + eps))


@cuda.jit
def rmsprop(
    starts, params, grads, square_avgs, grad_avgs, momentum_buffers, norms,
    lr, alpha, fresh, eps, weight_decay, momentum, factor, max_norm, centered,
):  # fmt: skip
    """v = alpha v + fresh g^2;  b = momentum b + g / (sqrt(v) + eps);  p -= lr b. Centered: sqrt(v - mean(g)^2).

    Args:
        starts: as for `sgd`.
        fresh: 1 - alpha.
        norms, factor, max_norm: as for `sgd`.
        centered: bool.
    """
    k = 0
    while cuda.blockIdx.x >= starts[k + 1]:
        k += 1
    param, grad = params[k], grads[k]
    square_avg, grad_avg, momentum_buffer = square_avgs[k], grad_avgs[k], momentum_buffers[k]
    i = max(cuda.blockIdx.x - starts[k], 0) * cuda.blockDim.x + cuda.threadIdx.x
    if i < param.size:
        gradient = param.dtype.type(factor) * grad[i] * param.dtype.type(bound(norms[k], max_norm))
        g = penalised(gradient, param[i], weight_decay)
        square = alpha * square_avg[i] + fresh * g * g
        square_avg[i] = square
        if centered:
            mean = grad_avg[i] + fresh * (g - grad_avg[i])
            grad_avg[i] = mean
            square -= mean * mean
        step = g / (math.sqrt(square) + eps)
        if momentum != 0:
            step += momentum * momentum_buffer[i]
            momentum_buffer[i] = step
        param[i] -= lr * step


@cuda.jit
def adagrad(starts, params, grads, square_sums, norms, rates, eps, weight_decay, factor, max_norm):
    """s += g^2;  p -= lr g / (sqrt(s) + eps).

    Args:
        starts: as for `sgd`.
        rates: tuple of lr, already decayed.
        norms, factor, max_norm: as for `sgd`.
    """
    k = 0
    while cuda.blockIdx.x >= starts[k + 1]:
        k += 1
    param, grad, square_sum = params[k], grads[k], square_sums[k]
    i = max(cuda.blockIdx.x - starts[k], 0) * cuda.blockDim.x + cuda.threadIdx.x
    if i < param.size:
        gradient = param.dtype.type(factor) * grad[i] * param.dtype.type(bound(norms[k], max_norm))
        g = penalised(gradient, param[i], weight_decay)
        square = square_sum[i] + g * g
        square_sum[i] = square
        param[i] -= rates[k] * g / (math.sqrt(square) + eps)
