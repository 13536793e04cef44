"""Optimizer updates: one pass over a parameter, its gradient and its states.

    thread i of the grid  ->  element i of the parameter and of every state, changed in place

SGD reads two elements and writes one (with momentum three and two); Adam reads four and writes three. What does not
depend on the element, as the bias correction of Adam, is computed on the host.

Launches: one for each parameter. Fused optimizers elsewhere put a table of pointers into one launch for all parameters,
but numba makes no array of a pointer, and packing the parameters into one buffer would cost the two passes over memory
that it saves. A state that an option leaves out is not touched: any array may stand in for it.

All arrays are 1-D, of one floating dtype, and so are the numbers; flags are bools, the same for all threads.
"""

from __future__ import annotations

import math

from miniflow.hostcuda import cuda


@cuda.jit(device=True)
def penalised(gradient, parameter, weight_decay):
    """gradient + weight_decay * parameter; without decay the parameter does not count, even if infinite."""
    return gradient + weight_decay * parameter if weight_decay != 0 else gradient


@cuda.jit
def sgd(param, grad, momentum_buffer, lr, momentum, undamped, weight_decay, sign, nesterov):
    """v = momentum v + undamped g;  p -= lr v, or lr (g + momentum v) with Nesterov; p -= lr g without momentum.

    Args:
        param, grad, momentum_buffer: (n,).
        undamped: 1 - dampening, or 1 at the first step.
        sign: -1 to maximize, else 1.
        nesterov: bool.
    """
    i = cuda.grid(1)
    if i < param.size:
        step = penalised(sign * grad[i], param[i], weight_decay)
        if momentum != 0:
            velocity = momentum * momentum_buffer[i] + undamped * step
            momentum_buffer[i] = velocity
            step = step + momentum * velocity if nesterov else velocity
        param[i] -= lr * step


@cuda.jit
def adam(
    param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq,
    step_size, fresh1, beta2, fresh2, root, eps, weight_decay, decay, sign, amsgrad,
):  # fmt: skip
    """m += fresh1 (g - m);  v = beta2 v + fresh2 g^2;  p = decay p - step_size m / (root sqrt(v) + eps).

    Args:
        param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq: (n,).
        step_size: lr / (1 - beta1^t).
        fresh1, beta2, fresh2: 1 - beta1, beta2, 1 - beta2.
        root: 1 / sqrt(1 - beta2^t).
        weight_decay: of the L2 penalty.
        decay: 1 - lr weight_decay where the decay is decoupled, else 1.
        sign: -1 to maximize, else 1.
        amsgrad: bool, divide by the largest v so far.
    """
    i = cuda.grid(1)
    if i < param.size:
        g = penalised(sign * grad[i], param[i], weight_decay)
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
    param, grad, square_avg, grad_avg, momentum_buffer,
    lr, alpha, fresh, eps, weight_decay, momentum, sign, centered,
):  # fmt: skip
    """v = alpha v + fresh g^2;  b = momentum b + g / (sqrt(v) + eps);  p -= lr b. Centered: sqrt(v - mean(g)^2).

    Args:
        param, grad, square_avg, grad_avg, momentum_buffer: (n,).
        fresh: 1 - alpha.
        sign: -1 to maximize, else 1.
        centered: bool.
    """
    i = cuda.grid(1)
    if i < param.size:
        g = penalised(sign * grad[i], param[i], weight_decay)
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
def adagrad(param, grad, square_sum, lr, eps, weight_decay, sign):
    """s += g^2;  p -= lr g / (sqrt(s) + eps).

    Args:
        param, grad, square_sum: (n,).
        lr: already decayed.
        sign: -1 to maximize, else 1.
    """
    i = cuda.grid(1)
    if i < param.size:
        g = penalised(sign * grad[i], param[i], weight_decay)
        square = square_sum[i] + g * g
        square_sum[i] = square
        param[i] -= lr * g / (math.sqrt(square) + eps)
