"""Packed sequences of recurrent layers, for every device: a time step is the slice of rows of its sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any


def time_steps(sizes: Sequence[int], reverse: bool) -> Iterator[slice]:
    """The rows of each time step, in the order in which they are computed."""
    steps = [slice(stop - size, stop) for stop, size in zip(accumulate(sizes), sizes, strict=True)]
    return reversed(steps) if reverse else iter(steps)


def states_before(before: Any, first: Any, states: Any, steps: Iterator[slice]) -> Any:
    """Write to `before` the state before each row of each time step, given the states after them."""
    current = first.copy()
    for step in steps:
        size = step.stop - step.start
        before[step], current[:size] = current[:size], states[step]
    return before


def by_gate(x: Any, hidden: int) -> Any:
    """(rows, gates * hidden) -> (rows, gates, hidden)"""
    return x.reshape((x.shape[0], x.shape[1] // hidden, hidden))
