"""The geometry of arrays that are walked through together, whatever the device."""

from __future__ import annotations

from collections.abc import Sequence


def merged(shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Shape and strides with neighbouring dims made one where every array steps through both as through one.

    >>> merged((2, 3, 4), [(12, 4, 1), (0, 4, 1)])
    ((2, 12), [(12, 1), (0, 1)])
    """
    sizes: list[int] = []
    steps: list[list[int]] = []  # for each dim that is kept, the step of each array
    for n, step in zip(shape, zip(*strides, strict=True), strict=True):
        if n == 1:
            continue
        if sizes and all(outer == inner * n for outer, inner in zip(steps[-1], step, strict=True)):
            sizes[-1] *= n
            steps[-1] = list(step)
        else:
            sizes.append(n)
            steps.append(list(step))
    return tuple(sizes), [tuple([s[a] for s in steps]) for a in range(len(strides))]
