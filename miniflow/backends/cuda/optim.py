"""Optimizer updates: a launch for each few parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from miniflow.backends.cpu.optim import fused_factor
from miniflow.backends.cuda.array import DeviceArray
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.launch import launch
from miniflow.backends.registry import register
from miniflow.kernels import optim as kernels

THREADS = 256
TOGETHER = 8  # parameters in a launch: their arrays are arguments, of which CUDA takes 4 KB


class Gradients:
    """What is done to the gradients of all parameters before a rule sees them.

    Args:
        maximize: change their sign.
        norms: None, or for each parameter the 0-dim array of a norm that is bounded by `max_norm`.
        multiply, divide: numbers.
    """

    def __init__(
        self,
        maximize: bool,
        norms: Sequence[DeviceArray] | None,
        multiply: Sequence[float],
        divide: Sequence[float],
        max_norm: float | None,
    ):
        self.factor = fused_factor(maximize, multiply, divide)
        self.norms = None if max_norm is None else norms
        self.max_norm = -1.0 if self.norms is None else float(max_norm)


def update(
    kernel: Any,
    rows: Sequence[Sequence[DeviceArray | None]],
    own: Sequence[Sequence[float]],
    numbers: Sequence[float],
    gradients: Gradients,
    flag: bool | None = None,
) -> None:
    """Launch a kernel over parameters, their gradients and states.

    Half precision is computed in float32; arrays of other layouts are copied, and written back if they changed.

    Args:
        kernel: see `kernels.optim`.
        rows: for each parameter its array, its gradient (not written), then the states; None for one left out.
        own: for each parameter the numbers that it has for itself.
        numbers, gradients, flag: for all of them.
    """
    for real in (np.float32, np.float64):
        mine = [r for r, row in enumerate(rows) if row[0].size and (row[0].dtype == np.float64) == (real is np.float64)]
        for first in range(0, len(mine), TOGETHER):
            _update(kernel, mine[first : first + TOGETHER], rows, own, real, numbers, gradients, flag)


def _update(
    kernel: Any,
    some: Sequence[int],
    rows: Sequence[Sequence[DeviceArray | None]],
    own: Sequence[Sequence[float]],
    real: type,
    numbers: Sequence[float],
    gradients: Gradients,
    flag: bool | None,
) -> None:
    """One launch. It has always the same number of parameters, so that it is compiled once; the last have no blocks.

    Where copies are needed of arrays in one block of memory, each parameter has a launch of its own, so that none takes
    back what another has written.
    """
    if len(some) > 1 and _copies_overlap([rows[r] for r in some], real):
        for r in some:
            _update(kernel, [r], rows, own, real, numbers, gradients, flag)
        return
    working = [
        [x if x is None or (x.dtype == real and x.flags.c_contiguous) else x.astype(real) for x in rows[r]]
        for r in some
    ]
    flat = [[(row[0] if x is None else x).reshape(-1) for x in row] for row in working]
    for row, r in zip(flat, some, strict=True):
        row.append(row[1] if gradients.norms is None else gradients.norms[r].reshape((1,)))
    blocks = [-(-row[0].size // THREADS) for row in flat]
    missing = TOGETHER - len(some)
    starts = (*accumulate(blocks, initial=0), *[sum(blocks)] * missing)
    arrays = [tuple(column) for column in zip(*flat, *[flat[0]] * missing, strict=True)]
    own = [own[r] for r in some]
    numbers_of_each = [tuple(map(real, column)) for column in zip(*own, *[own[0]] * missing, strict=True)]
    flags = () if flag is None else (bool(flag),)
    last = (gradients.factor, gradients.max_norm, *flags)
    launch(kernel, sum(blocks), THREADS, starts, *arrays, *numbers_of_each, *map(real, numbers), *last)
    for r, changed in zip(some, working, strict=True):
        for i, (x, new) in enumerate(zip(rows[r], changed, strict=True)):
            if x is not new and i != 1:
                copy_into(x, new)


def _copies_overlap(rows: Sequence[Sequence[DeviceArray | None]], real: type) -> bool:
    changed = [x for row in rows for i, x in enumerate(row) if x is not None and i != 1]
    if all(x.dtype == real and x.flags.c_contiguous for x in changed):
        return False
    return len({id(x.block) for x in changed}) < len(changed)


@register("cuda", "SgdUpdate", half="native")
@register("cuda", "FusedSgdUpdate", half="native")
def sgd(
    params, grads, momentum_buffers, norms=None,
    *, fresh, lr, momentum, dampening, nesterov, weight_decay, maximize, multiply=(), divide=(), max_norm=None,
):  # fmt: skip
    """`fresh[i]`: the buffer of parameter i is new, and its first gradient is not dampened."""
    rows = list(zip(params, grads, momentum_buffers, strict=True))
    undamped = [(1.0 if is_fresh else 1.0 - dampening,) for is_fresh in fresh]
    gradients = Gradients(maximize, norms, multiply, divide, max_norm)
    update(kernels.sgd, rows, undamped, (lr, momentum, weight_decay), gradients, nesterov)


@register("cuda", "AdamUpdate", half="native")
@register("cuda", "FusedAdamUpdate", half="native")
def adam(
    params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, norms=None,
    *, steps, lr, betas, eps, weight_decay, decoupled, amsgrad, maximize, do_bias_correction,
    multiply=(), divide=(), max_norm=None,
):  # fmt: skip
    """`steps[i]`: how many updates parameter i has seen, this one included."""
    beta1, beta2 = betas
    l2, decay = (0.0, 1 - lr * weight_decay) if decoupled else (weight_decay, 1.0)
    rows = list(zip(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, strict=True))
    own = [(lr / (1 - beta1**t), 1 / math.sqrt(1 - beta2**t)) if do_bias_correction else (lr, 1.0) for t in steps]
    gradients = Gradients(maximize, norms, multiply, divide, max_norm)
    update(kernels.adam, rows, own, (1 - beta1, beta2, 1 - beta2, eps, l2, decay), gradients, amsgrad)


@register("cuda", "RmspropUpdate", half="native")
@register("cuda", "FusedRmspropUpdate", half="native")
def rmsprop(
    params, grads, square_avgs, grad_avgs, momentum_buffers, norms=None,
    *, lr, alpha, eps, weight_decay, momentum, centered, maximize, multiply=(), divide=(), max_norm=None,
):  # fmt: skip
    rows = list(zip(params, grads, square_avgs, grad_avgs, momentum_buffers, strict=True))
    numbers = (lr, alpha, 1 - alpha, eps, weight_decay, momentum)
    gradients = Gradients(maximize, norms, multiply, divide, max_norm)
    update(kernels.rmsprop, rows, [()] * len(rows), numbers, gradients, centered)


@register("cuda", "AdagradUpdate", half="native")
@register("cuda", "FusedAdagradUpdate", half="native")
def adagrad(
    params, grads, square_sums, norms=None,
    *, steps, lr, lr_decay, eps, weight_decay, maximize, multiply=(), divide=(), max_norm=None,
):  # fmt: skip
    rows = list(zip(params, grads, square_sums, strict=True))
    rates = [(lr / (1 + (step - 1) * lr_decay),) for step in steps]
    update(kernels.adagrad, rows, rates, (eps, weight_decay), Gradients(maximize, norms, multiply, divide, max_norm))
