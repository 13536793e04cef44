"""Optimizer updates: a launch for each few parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from miniflow.backends.cuda.launch import launch
from miniflow.backends.cuda.together import padded, plain, real_of, together, write_back
from miniflow.backends.registry import kernel
from miniflow.formulas.update_rules import RULES, Rule, numbers_of
from miniflow.kernels.optim import UPDATES

THREADS = 256


def update(
    on_device: Callable, groups: Sequence[Sequence], numbers: Sequence[tuple], norms: Sequence | None, max_norm: float
) -> None:
    """Launch a kernel of `make_update` for parameters, their gradients and their states, which stand in `groups`.

    Args:
        numbers: of each parameter.
        norms: of each gradient, if they are bounded by `max_norm`.
    """
    params = groups[0]
    one_by_one = len({id(x.block) for x in params}) < len(params)  # they may share memory
    for (real, _), some, starts in together(params, THREADS, lambda x: (real_of(x), one_by_one and id(x))):
        columns = [[plain(group[i], real) for group in groups] for i in some]
        arrays = [tuple([(of[0].reshape(-1)[:0] if x is None else x.reshape(-1)) for x in of]) for of in columns]
        bounds = [of[0] if norms is None else norms[i].reshape((1,)) for i, of in zip(some, arrays, strict=True)]
        rows = [tuple(map(real, numbers[i])) for i in some]
        launch(on_device, starts[-1], THREADS, starts, *map(padded, (arrays, rows, bounds)), float(max_norm))
        for i, (changed, _, *states) in zip(some, columns, strict=True):
            write_back([params[i], *[group[i] for group in groups[2:]]], [changed, *states])


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
