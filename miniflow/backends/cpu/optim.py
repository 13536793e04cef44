"""Optimizer updates: each reads and writes the memory of a parameter once, in one compiled call for each parameter.

The rules are those of `miniflow.update_rules`. Parameters, gradients and states come as lists of arrays of any layout
and floating dtype; parameters and states are changed in place. Half precision is computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from miniflow.backends.cpu.threads import share, unlocked
from miniflow.backends.registry import kernel
from miniflow.update_rules import RULES, Rule, fused_factor, loop_over

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def update_by(rule: Rule, loop: Callable, name: str) -> Callable[..., None]:
    """The kernel that updates parameters by a rule.

    Its groups are the parameters, the gradients (not written), and the states, None for one that is left out; then, if
    a graph fused clipping into the update, the 0-dim norms of the gradients, which are bounded by `max_norm`.
    """
    missing = [None] * (3 - rule.states)

    def update(params, grads, *states, maximize, multiply=(), divide=(), max_norm=None, **options):
        own, shared = rule.numbers(len(params), **options)
        factor = fused_factor(maximize, multiply, divide)
        shrink = bounds(states[rule.states :], max_norm, len(params))
        scalars: dict[tuple, tuple] = {}  # to convert a number costs as much as a hundred elements
        for k, arrays in enumerate(zip(params, grads, *states[: rule.states], strict=True)):
            real = FLOAT64 if arrays[0].dtype == FLOAT64 else FLOAT32
            key = real, shrink[k], own[k]
            if key not in scalars:
                of = real.type
                scalars[key] = of(factor), of(shrink[k]), tuple(map(of, own[k])), tuple(map(of, shared))
            # an array is taken as it is if it is contiguous, aligned, writeable and of the dtype of the loop
            working = [
                x if x is None or (x.flags.carray and x.dtype == real) else np.array(x, real, order="C") for x in arrays
            ]
            size, flat = arrays[0].size, [None if x is None else x.ravel() for x in working]
            share(loop, size, size, *flat, *missing, *scalars[key])
            for x, changed in zip(arrays, working, strict=True):
                if changed is not x and x is not arrays[1]:
                    x[...] = changed

    update.__name__ = name
    return kernel("cpu", returns=True)(update)


def bounds(norms: Sequence[Sequence[np.ndarray]], max_norm: float | None, count: int) -> list[float]:
    """min(1, max_norm / (norm + 1e-6)) for each gradient; a nan stays."""
    if not norms or max_norm is None:
        return [1.0] * count
    shrink = [max_norm / (float(norm) + 1e-6) for norm in norms[0]]
    return [1.0 if x >= 1 else x for x in shrink]


LOOPS = {name: unlocked()(loop_over(rule.element)) for name, rule in RULES.items()}
for name, rule in RULES.items():
    update_by(rule, LOOPS[name], name)
    update_by(rule, LOOPS[name], f"fused_{name}")
