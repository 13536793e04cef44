"""Optimizer updates: a launch for each few parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from miniflow.backends.cuda.array import DeviceArray
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.launch import launch
from miniflow.backends.registry import register
from miniflow.kernels import optim as kernels

THREADS = 256
TOGETHER = 8  # parameters in a launch: their arrays are arguments, of which CUDA takes 4 KB


def update(
    kernel: Any,
    rows: Sequence[Sequence[DeviceArray | None]],
    own: Sequence[Sequence[float]],
    *numbers: float,
    flag: bool | None = None,
) -> None:
    """Launch a kernel over parameters, their gradients and states.

    Half precision is computed in float32; arrays of other layouts are copied, and written back if they changed.

    Args:
        kernel: see `kernels.optim`.
        rows: for each parameter its array, its gradient (not written), then the states; None for one left out.
        own: for each parameter the numbers that it has for itself.
        numbers, flag: for all of them.
    """
    for real in (np.float32, np.float64):
        mine = [r for r, row in enumerate(rows) if row[0].size and (row[0].dtype == np.float64) == (real is np.float64)]
        for first in range(0, len(mine), TOGETHER):
            some = mine[first : first + TOGETHER]
            _update(kernel, [rows[r] for r in some], [own[r] for r in some], real, numbers, flag)


def _update(kernel: Any, rows: list, own: list, real: type, numbers: Sequence[float], flag: bool | None) -> None:
    """One launch. It has always the same number of parameters, so that it is compiled once; the last have no blocks."""
    working = [
        [x if x is None or (x.dtype == real and x.flags.c_contiguous) else x.astype(real) for x in row] for row in rows
    ]
    flat = [[(row[0] if x is None else x).reshape(-1) for x in row] for row in working]
    blocks = [-(-row[0].size // THREADS) for row in flat]
    missing = TOGETHER - len(rows)
    starts = (*accumulate(blocks, initial=0), *[sum(blocks)] * missing)
    arrays = [tuple(column) for column in zip(*flat, *[flat[0]] * missing, strict=True)]
    numbers_of_each = [tuple(map(real, column)) for column in zip(*own, *[own[0]] * missing, strict=True)]
    flags = () if flag is None else (bool(flag),)
    launch(kernel, sum(blocks), THREADS, starts, *arrays, *numbers_of_each, *map(real, numbers), *flags)
    for row, changed in zip(rows, working, strict=True):
        for i, (x, new) in enumerate(zip(row, changed, strict=True)):
            if x is not new and i != 1:
                copy_into(x, new)


@register("cuda", "SgdUpdate", half="native")
def sgd(params, grads, momentum_buffers, fresh, *, lr, momentum, dampening, nesterov, weight_decay, maximize):
    """`fresh[i]`: the buffer of parameter i is new, and its first gradient is not dampened."""
    rows = list(zip(params, grads, momentum_buffers, strict=True))
    undamped = [(1.0 if is_fresh else 1.0 - dampening,) for is_fresh in fresh]
    update(kernels.sgd, rows, undamped, lr, momentum, weight_decay, -1.0 if maximize else 1.0, flag=nesterov)


@register("cuda", "AdamUpdate", half="native")
def adam(
    params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps,
    *, lr, betas, eps, weight_decay, decoupled, amsgrad, maximize, do_bias_correction,
):  # fmt: skip
    """`steps[i]`: how many updates parameter i has seen, this one included."""
    beta1, beta2 = betas
    l2, decay = (0.0, 1 - lr * weight_decay) if decoupled else (weight_decay, 1.0)
    rows = list(zip(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, strict=True))
    own = [(lr / (1 - beta1**t), 1 / math.sqrt(1 - beta2**t)) if do_bias_correction else (lr, 1.0) for t in steps]
    sign = -1.0 if maximize else 1.0
    update(kernels.adam, rows, own, 1 - beta1, beta2, 1 - beta2, eps, l2, decay, sign, flag=amsgrad)


@register("cuda", "RmspropUpdate", half="native")
def rmsprop(
    params, grads, square_avgs, grad_avgs, momentum_buffers,
    *, lr, alpha, eps, weight_decay, momentum, centered, maximize,
):  # fmt: skip
    rows = list(zip(params, grads, square_avgs, grad_avgs, momentum_buffers, strict=True))
    numbers = (lr, alpha, 1 - alpha, eps, weight_decay, momentum, -1.0 if maximize else 1.0)
    update(kernels.rmsprop, rows, [()] * len(rows), *numbers, flag=centered)


@register("cuda", "AdagradUpdate", half="native")
def adagrad(params, grads, square_sums, steps, *, lr, lr_decay, eps, weight_decay, maximize):
    rows = list(zip(params, grads, square_sums, strict=True))
    rates = [(lr / (1 + (step - 1) * lr_decay),) for step in steps]
    update(kernels.adagrad, rows, rates, eps, weight_decay, -1.0 if maximize else 1.0)
