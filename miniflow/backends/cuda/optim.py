"""Optimizer updates: a launch for each few parameters."""

from __future__ import annotations

from collections.abc import Callable

from miniflow.backends.cuda.launch import launch
from miniflow.backends.cuda.together import padded, plain, real_of, together, write_back
from miniflow.backends.registry import kernel
from miniflow.kernels.optim import UPDATES
from miniflow.update_rules import RULES, Rule, fused_factor

THREADS = 256


def update_by(rule: Rule, on_device: Callable, name: str) -> Callable[..., None]:
    """The kernel that updates parameters by a rule; its groups are those of the CPU's."""

    def update(params, grads, *states, maximize, multiply=(), divide=(), max_norm=None, **options):
        own, shared = rule.numbers(len(params), **options)
        norms = None if max_norm is None else states[rule.states]
        factors = fused_factor(maximize, multiply, divide), -1.0 if norms is None else float(max_norm)
        groups = (params, grads, *states[: rule.states])
        one_by_one = len({id(x.block) for x in params}) < len(params)  # they may share memory
        for (real, _), some, starts in together(params, THREADS, lambda x: (real_of(x), one_by_one and id(x))):
            columns = [[plain(group[i], real) for i in some] for group in groups]
            flat = [None if column[0] is None else padded([x.reshape(-1) for x in column]) for column in columns]
            absent = flat[0][:1]
            flat = [absent if arrays is None else arrays for arrays in (*flat, *[None] * (3 - rule.states))]
            present = tuple(arrays is not absent for arrays in flat[2:])
            bounds = absent if norms is None else padded([norms[i].reshape((1,)) for i in some])
            own_numbers = tuple(padded([real(own[i][j]) for i in some]) for j in (0, 1))
            numbers = own_numbers, tuple(map(real, shared))
            launch(on_device, starts[-1], THREADS, starts, *flat, present, bounds, *numbers, *factors)
            for group, column in zip(groups, columns, strict=True):
                if group is not grads:
                    write_back([group[i] for i in some], column)

    update.__name__ = name
    return kernel("cuda", returns=True)(update)


for name, rule in RULES.items():
    update_by(rule, UPDATES[name], name)
    update_by(rule, UPDATES[name], f"fused_{name}")
