"""Optimizer updates: a launch for each few parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from miniflow.backends.cuda.launch import launch
from miniflow.backends.cuda.together import padded, plain, real_of, together, write_back
from miniflow.backends.registry import kernel
from miniflow.kernels.optim import UPDATES
from miniflow.update_rules import RULES, Own, Rule, fused_factor

THREADS = 256


def update(
    on_device: Callable, groups: Sequence[Sequence], norms: Sequence | None, own: Own, decay: float,
    shared: Sequence[float], factor: float = 1.0, max_norm: float = -1.0,
) -> None:  # fmt: skip
    """Launch a kernel of `make_update` for parameters, their gradients and their states, which stand in `groups`."""
    params = groups[0]
    one_by_one = len({id(x.block) for x in params}) < len(params)  # they may share memory
    for (real, _), some, starts in together(params, THREADS, lambda x: (real_of(x), one_by_one and id(x))):
        columns = [[plain(group[i], real) for i in some] for group in groups]
        flat = [None if column[0] is None else padded([x.reshape(-1) for x in column]) for column in columns]
        absent = flat[0][:1]
        flat = [absent if arrays is None else arrays for arrays in (*flat, *[None] * (5 - len(groups)))]
        present = tuple(arrays is not absent for arrays in flat[2:])
        bounds = absent if norms is None else padded([norms[i].reshape((1,)) for i in some])
        own_numbers = padded([tuple(map(real, own[i])) for i in some])
        numbers = own_numbers, tuple(map(real, shared)), factor, float(decay), float(max_norm)
        launch(on_device, starts[-1], THREADS, starts, *flat, present, bounds, *numbers)
        for group, column in zip([params, *groups[2:]], [columns[0], *columns[2:]], strict=True):
            write_back([group[i] for i in some], column)


def update_by(rule: Rule, on_device: Callable, name: str) -> None:
    """Register the kernel that updates parameters by a rule; its groups are those of the CPU's."""

    def run(*groups, maximize, multiply=(), divide=(), max_norm=None, **options):
        numbers = rule.numbers(len(groups[0]), **options)
        factor, states = fused_factor(maximize, multiply, divide), rule.states + 2
        bound = (None, -1.0) if max_norm is None else (groups[states], max_norm)
        update(on_device, groups[:states], bound[0], *numbers, factor, bound[1])

    run.__name__ = name
    kernel("cuda", returns=True)(run)


for name, rule in RULES.items():
    update_by(rule, UPDATES[name], name)
    update_by(rule, UPDATES[name], f"fused_{name}")
