"""Optimizer updates: one compiled call per parameter, which reads and writes its memory once.

The rules are those of `formulas.update_rules`. Parameters, gradients and states come as lists of arrays of any layout
and floating dtype; parameters and states are changed in place. Half precision is computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from miniflow.backends.cpu.threads import SHARED_FROM, share, unlocked
from miniflow.backends.registry import kernel
from miniflow.formulas.update_rules import RULES, Rule, loop_over, numbers_of

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
ABSENT = {real: np.empty(0, real) for real in (FLOAT32, FLOAT64)}  # in place of a state that is left out


def update_by(rule: Rule, loop: Callable[..., None], name: str) -> None:
    """Register the kernel that updates parameters by a rule.

    Its groups are the parameters, the gradients (not written), and the states, None for one that is left out; then, if
    a graph fused clipping into the update, the 0-dim norms of the gradients, which are bounded by `max_norm`.
    """

    def run(*groups, maximize, max_norm=None, **options):
        numbers, norms = numbers_of(rule, len(groups[0]), maximize, **options), groups[rule.states + 2 :]
        row, row_is_of = None, ()
        for k, arrays in enumerate(zip(*groups[: rule.states + 2], strict=True)):
            real = FLOAT64 if arrays[0].dtype == FLOAT64 else FLOAT32
            bound = 1.0 if max_norm is None else bounded(norms[0][k], max_norm)
            if row_is_of != (real, bound, numbers[k]):
                row, row_is_of = np.array((bound, *numbers[k]), real), (real, bound, numbers[k])
            update(loop, row, arrays)

    run.__name__ = name
    kernel("cpu", returns=True)(run)


def bounded(norm: np.ndarray, max_norm: float) -> float:
    """min(1, max_norm / (norm + 1e-6)), or nan if the norm is."""
    shrink = max_norm / (float(norm) + 1e-6)
    return 1.0 if shrink >= 1 else shrink


def update(loop: Callable[..., None], row: np.ndarray, arrays: Sequence[np.ndarray | None]) -> None:
    """Run a loop over a parameter, its gradient and its states; copies stand in for arrays it cannot take."""
    real, copies = row.dtype, []

    def copy_of(x: np.ndarray) -> np.ndarray:
        copies.append((x, np.array(x, real, order="C")))
        return copies[-1][1].ravel()

    flat = [
        ABSENT[real] if x is None else x.ravel() if x.dtype is real and x.flags.carray else copy_of(x) for x in arrays
    ]
    if flat[0].size < SHARED_FROM:
        loop(row, *flat)
    else:
        share(lambda start, stop: loop(row, *[x[start:stop] for x in flat]), flat[0].size, flat[0].size)
    for x, changed in copies:
        if x is not arrays[1]:
            x[...] = changed


LOOPS = {name: unlocked()(loop_over(rule)) for name, rule in RULES.items()}
for name, rule in RULES.items():
    update_by(rule, LOOPS[name], name)
    update_by(rule, LOOPS[name], f"fused_{name}")
