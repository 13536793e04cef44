"""Optimizer updates: one launch for each parameter; `kernels.optim` says why."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from miniflow.backends.cuda.array import DeviceArray
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.launch import each
from miniflow.backends.registry import register
from miniflow.kernels import optim as kernels


def update(kernel: Any, arrays: tuple[DeviceArray | None, ...], *numbers: float, flag: bool | None = None) -> None:
    """Launch a kernel over a parameter, its gradient and its states, all of one shape.

    Half precision is computed in float32; arrays of other layouts are copied, and written back if they changed.

    Args:
        kernel: takes the arrays flat and of one dtype, `numbers` in that dtype, and `flag` if there is one.
        arrays: the parameter, the gradient (not written), then the states; None for one that an option leaves out.
        numbers: see the kernel.
        flag: see the kernel.
    """
    param = arrays[0]
    if param.size == 0:
        return
    real = np.float64 if param.dtype == np.float64 else np.float32
    working = [x if x is None or (x.dtype == real and x.flags.c_contiguous) else x.astype(real) for x in arrays]
    flat = [(working[0] if x is None else x).reshape(-1) for x in working]
    flags = () if flag is None else (bool(flag),)
    each(kernel, param.size, *flat, *[real(number) for number in numbers], *flags)
    for i, (x, changed) in enumerate(zip(arrays, working, strict=True)):
        if x is not changed and i != 1:
            copy_into(x, changed)


@register("cuda", "SgdUpdate", half="native")
def sgd(params, grads, momentum_buffers, fresh, *, lr, momentum, dampening, nesterov, weight_decay, maximize):
    """`fresh[i]`: the buffer of parameter i is new, and its first gradient is not dampened."""
    sign = -1.0 if maximize else 1.0
    for *arrays, is_fresh in zip(params, grads, momentum_buffers, fresh, strict=True):
        undamped = 1.0 if is_fresh else 1.0 - dampening
        update(kernels.sgd, arrays, lr, momentum, undamped, weight_decay, sign, flag=nesterov)


@register("cuda", "AdamUpdate", half="native")
def adam(
    params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps,
    *, lr, betas, eps, weight_decay, decoupled, amsgrad, maximize, do_bias_correction,
):  # fmt: skip
    """`steps[i]`: how many updates parameter i has seen, this one included."""
    beta1, beta2 = betas
    l2, decay = (0.0, 1 - lr * weight_decay) if decoupled else (weight_decay, 1.0)
    sign, step_size, root = -1.0 if maximize else 1.0, lr, 1.0
    for *arrays, step in zip(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, strict=True):
        if do_bias_correction:
            step_size, root = lr / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step)
        numbers = (step_size, 1 - beta1, beta2, 1 - beta2, root, eps, l2, decay, sign)
        update(kernels.adam, arrays, *numbers, flag=amsgrad)


@register("cuda", "RmspropUpdate", half="native")
def rmsprop(
    params, grads, square_avgs, grad_avgs, momentum_buffers,
    *, lr, alpha, eps, weight_decay, momentum, centered, maximize,
):  # fmt: skip
    numbers = (lr, alpha, 1 - alpha, eps, weight_decay, momentum, -1.0 if maximize else 1.0)
    for arrays in zip(params, grads, square_avgs, grad_avgs, momentum_buffers, strict=True):
        update(kernels.rmsprop, arrays, *numbers, flag=centered)


@register("cuda", "AdagradUpdate", half="native")
def adagrad(params, grads, square_sums, steps, *, lr, lr_decay, eps, weight_decay, maximize):
    sign = -1.0 if maximize else 1.0
    for *arrays, step in zip(params, grads, square_sums, steps, strict=True):
        update(kernels.adagrad, arrays, lr / (1 + (step - 1) * lr_decay), eps, weight_decay, sign)
