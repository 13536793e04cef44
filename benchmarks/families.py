"""A small launch of one kernel of each file of `miniflow.kernels`: what `hostcuda` times the compilation of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.launches import EPS, Launch, block_sums, empty, made, nans, numbers
from miniflow.backends.cuda.copy import SAME
from miniflow.backends.cuda.pointwise import launcher_of
from miniflow.formulas.update_rules import RULES, numbers_of
from miniflow.kernels import (
    arg_reduce,
    batch_norm,
    conv,
    cross_entropy,
    dropout,
    gather,
    layer_norm,
    matmul,
    optim,
    pad,
    pool,
    random,
    scan,
    scatter,
)

NAMES = np.uint64(1), np.uint64(2)  # seed and offset of a draw


def indices(count: int, below: int) -> np.ndarray:
    """Integers from 0 to `below`, exclusive."""
    return np.random.default_rng(0).integers(0, below, count)


def register_tiled() -> Launch:
    arguments = [numbers(1, 64, 64), numbers(1, 64, 64), numbers(64), nans(1, 64, 64), False, False]
    return Launch(matmul.register_tiled, 1, matmul.THREADS, arguments)


def cached_rows() -> Launch:
    statistics = [nans(4, kind=np.float64) for _ in range(2)]
    arguments = [numbers(4, 2048), numbers(2048), numbers(2048), EPS, nans(4, 2048), *statistics]
    return Launch(layer_norm.cached_rows, 4, 256, arguments, shared=2048 * 4)


def convolve() -> Launch:
    geometry = (3, 3), (1, 1), (-1, -1), (1, 1)
    arguments = [numbers(1, 1, 8, 8, 8), numbers(1, 8, 72), numbers(8), nans(1, 1, 8, 8, 8), *geometry]
    return Launch(conv.convolve, 1, matmul.THREADS, arguments)


def max_pool() -> Launch:
    found = np.zeros((4, 4, 4), np.int32)
    geometry = (2, 2), (2, 2), (0, 0), (1, 1), -np.inf
    return Launch(pool.max_pool, 1, (4, 4, 4), [numbers(4, 8, 8), nans(4, 4, 4), found, *geometry])


def channel_statistics() -> Launch:
    parts = [nans(2, 4, kind=np.float64) for _ in range(3)]
    return Launch(batch_norm.channel_statistics, (8, 1), 256, [numbers(8, 300), *parts])


def cross_entropy_rows() -> Launch:
    made = [nans(8, kind=np.float64) for _ in range(3)]
    arguments = [numbers(8, 100), indices(8, 100), np.empty(0), -100, 0.0, *made]
    return Launch(cross_entropy.cross_entropy_rows, 8, 32, arguments)


def adam() -> Launch:
    states = [np.abs(numbers(256, seed=seed)) for seed in range(4)]
    of_parameter = (*states, np.empty(0, np.float32))  # without amsgrad
    options = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "decoupled_weight_decay": False}
    options |= {"amsgrad": False, "do_bias_correction": True, "steps": [1]}
    (row,) = numbers_of(RULES["adam_update"], 1, False, **options)
    no_bound = (np.ones(1, np.float32),), np.float64(-1)
    arguments = [(0, 1), (of_parameter,), (tuple(map(np.float32, row)),), *no_bound]
    return Launch(optim.UPDATES["adam_update"], 1, 256, arguments)


def drop() -> Launch:
    arguments = [numbers(256), nans(256), np.zeros(256, np.uint8), *NAMES, np.uint64(1 << 30), np.float32(2)]
    return Launch(dropout.drop, 1, 64, arguments)


def normal() -> Launch:
    return Launch(random.normal_float32, 1, 64, [nans(256), *NAMES, np.float32(0), np.float32(1)])


def arg_max() -> Launch:
    made = [nans(8), np.zeros(8, np.int64)]
    return Launch(arg_reduce.ARGMAX.warp_rows, 1, 256, [numbers(8, 100), *made])


def cumulative_sum() -> Launch:
    arguments = [numbers(4, 600), nans(0, 1), np.float32(0), 600, False, False, nans(4, 600)]
    return Launch(scan.SUMS.rows, 4, scan.THREADS, arguments)


def take_rows() -> Launch:
    return Launch(gather.take_rows, 1, (32, 8), [numbers(1, 9, 30), indices(8, 9)[None, :, None], nans(1, 8, 30)])


def add_rows() -> Launch:
    return Launch(scatter.add_rows, 1, (32, 8), [numbers(1, 8, 30), indices(8, 9)[None, :, None], numbers(1, 9, 30)])


def one_hot() -> Launch:
    return Launch(pad.one_hot, 1, (32, 8), [indices(8, 30), np.zeros((8, 30), np.int64)])


def spread_copy() -> Launch:
    shape, steps = (1, 1, 8, 8), (0, 64, 64, 8, 1)
    return Launch(launcher_of(SAME, "", "spread"), 1, (32, 8), [shape, nans(64), steps, numbers(64), steps])


FAMILIES: dict[str, Callable[[], Any]] = {
    "nothing (an empty kernel)": lambda: Launch(empty, 1, 1, []),
    "elementwise: add": lambda: made(("add", 256)),
    "activation: gelu": lambda: made(("gelu", 256)),
    "copy: any layout": spread_copy,
    "reduce: sums of blocks": lambda: block_sums(2, 512),
    "arg_reduce: argmax": arg_max,
    "scan: cumulative sum": cumulative_sum,
    "softmax: rows": lambda: made(("softmax of rows", 8, 100)),
    "cross_entropy: rows": cross_entropy_rows,
    "layer_norm: a warp a row": lambda: made(("LayerNorm, Welford in warps", 8, 256)),
    "layer_norm: a block a row": cached_rows,
    "batch_norm: statistics": channel_statistics,
    "matmul: naive": lambda: made(("naive matmul", 32)),
    "matmul: tiled": lambda: made(("tiled matmul", 32)),
    "matmul: register_tiled": register_tiled,
    "conv: convolve": convolve,
    "conv_depthwise: direct": lambda: made(("3x3 convolution, depthwise", 1, 2, 8)),
    "pool: max_pool": max_pool,
    "dropout": drop,
    "random: normal": normal,
    "optim: adam": adam,
    "gather: rows": take_rows,
    "scatter: add rows": add_rows,
    "pad: one_hot": one_hot,
}
