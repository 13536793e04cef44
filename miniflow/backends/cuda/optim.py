"""Optimizer updates: one launch for several parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from miniflow.backends.cuda.array import DeviceArray
from miniflow.backends.cuda.launch import launch
from miniflow.backends.cuda.multi_tensor import (
    compute_dtype,
    contiguous_as,
    padded,
    split_into_launches,
    write_back,
)
from miniflow.backends.registry import kernel
from miniflow.formulas.update_rules import RULES, Rule, numbers_of
from miniflow.kernels.optim import UPDATES

THREADS = 256


def update(
    on_device: Callable, groups: Sequence[Sequence], numbers: Sequence[tuple], norms: Sequence | None, max_norm: float
) -> None:
    """Launch a kernel of `make_update` for parameters, their gradients and their states: the `groups`.

    Args:
        numbers: of each parameter.
        norms: of each gradient, if they are bounded by `max_norm`.
    """
    params = groups[0]
    share_memory = len({id(x.block) for x in params}) < len(params)  # then one after the other

    def key(x: DeviceArray) -> tuple:
        return compute_dtype(x), share_memory and id(x)

    for (dtype, _), positions, starts in split_into_launches(params, THREADS, key):
        columns = [[contiguous_as(group[i], dtype) for group in groups] for i in positions]
        arrays = [tuple([(xs[0].reshape(-1)[:0] if x is None else x.reshape(-1)) for x in xs]) for xs in columns]
        bounds = [xs[0] if norms is None else norms[i].reshape((1,)) for i, xs in zip(positions, arrays, strict=True)]
        rows = [tuple(map(dtype, numbers[i])) for i in positions]
        launch(on_device, starts[-1], THREADS, starts, *map(padded, (arrays, rows, bounds)), float(max_norm))
        for i, (param, _, *states) in zip(positions, columns, strict=True):
            write_back([params[i], *[group[i] for group in groups[2:]]], [param, *states])


def update_by(rule: Rule, on_device: Callable, name: str) -> None:
    """Register the kernel that updates parameters by a rule; its groups are those of the CPU's."""

    def run(*groups, maximize, max_norm=None, **options):
        numbers, count = numbers_of(rule, len(groups[0]), maximize, **options), rule.states + 2
        norms, bound = (None, -1.0) if max_norm is None else (groups[count], max_norm)
        update(on_device, groups[:count], numbers, norms, bound)

    run.__name__ = name
    kernel("cuda", returns=True)(run)


for name, rule in RULES.items():
    update_by(rule, UPDATES[name], name)
    update_by(rule, UPDATES[name], f"fused_{name}")
