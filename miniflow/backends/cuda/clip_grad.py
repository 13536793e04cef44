"""Clipping of gradients: a launch for each few of them, and nothing that the host has to wait for."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from miniflow.backends.cuda.array import DeviceArray, empty
from miniflow.backends.cuda.launch import launch
from miniflow.backends.cuda.optim import update
from miniflow.backends.cuda.together import padded, plain, real_of, together
from miniflow.backends.registry import kernel
from miniflow.kernels import clip_grad as kernels
from miniflow.kernels.clip_grad import PART, THREADS


@kernel("cuda", half="native")
def total_norm(norm: DeviceArray, *gradients: DeviceArray, norm_type: float) -> None:
    p = float(norm_type)
    reduction = kernels.largest if p == math.inf else kernels.norm
    launches = list(together(gradients, PART, real_of))
    partials = empty((sum([starts[-1] for _, _, starts in launches]),), np.float64, norm.device_index)
    done = 0
    for real, some, starts in launches:
        flat = padded([plain(gradients[i], real).reshape(-1) for i in some])
        launch(reduction, starts[-1], THREADS, starts, flat, PART, p, True, done, partials)
        done += starts[-1]
    launch(reduction, 1, THREADS, (0, 1), (partials,), done, p, False, 0, norm.reshape((1,)))


@kernel("cuda", returns=True)
def clip_grad_norm(gradients: Sequence[DeviceArray], norms: Sequence[DeviceArray], *, max_norm: float) -> None:
    update(kernels.scale, [gradients, gradients], [(0.0,)] * len(gradients), norms, max_norm)


@kernel("cuda", returns=True)
def clip_grad_value(gradients: Sequence[DeviceArray], *, clip_value: float) -> None:
    update(kernels.clamp, [gradients, gradients], [(clip_value,)] * len(gradients), None, -1.0)
