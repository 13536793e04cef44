"""Clipping of gradients: one launch for several of them, and nothing that the host has to wait for."""

from __future__ import annotations

import math

import numpy as np

from miniflow.backends.cuda.array import empty
from miniflow.backends.cuda.launch import launch
from miniflow.backends.cuda.multi_tensor import compute_dtype, contiguous_as, padded, split_into_launches
from miniflow.backends.cuda.optim import update
from miniflow.backends.registry import kernel
from miniflow.kernels import clip_grad as kernels
from miniflow.kernels.clip_grad import PART, THREADS


@kernel("cuda", half="native")
def total_norm(norm, *gradients, norm_type):
    p = float(norm_type)
    reduction = kernels.largest if p == math.inf else kernels.norm
    launches = list(split_into_launches(gradients, PART, compute_dtype))
    partials = empty((sum([starts[-1] for _, _, starts in launches]),), np.float64, norm.device_index)
    written = 0
    for dtype, positions, starts in launches:
        flat = padded([contiguous_as(gradients[i], dtype).reshape(-1) for i in positions])
        launch(reduction, starts[-1], THREADS, starts, flat, PART, p, True, written, partials)
        written += starts[-1]
    launch(reduction, 1, THREADS, (0, 1), (partials,), written, p, False, 0, norm.reshape((1,)))


@kernel("cuda", returns=True)
def clip_grad_norm(gradients, norms, *, max_norm):
    update(kernels.scale, [gradients, gradients], [(0.0,)] * len(gradients), norms, max_norm)


@kernel("cuda", returns=True)
def clip_grad_value(gradients, *, clip_value):
    update(kernels.clamp, [gradients, gradients], [(clip_value,)] * len(gradients), None, -1.0)
