"""Pictures of attempts at a kernel: which thread reads and writes which element, one row for each attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import shorten
from types import ModuleType
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np

from miniflow.hostcuda import KernelCheckError, check
from miniflow.hostcuda.picture import draw_touches
from miniflow.hostcuda.profile import Profile
from tutorials.implementation import Todo
from tutorials.limits import OutOfTime, at_most

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Launch = tuple[Any, Any, Any, Sequence[np.ndarray]]
"""Kernel, grid, block, and the arrays, of which the last one is `out`."""
PANEL, EMPTY = (3.8, 2.6), 0.4  # inches of a panel, and of the height of a row without one
WIDEST = 4  # panels beside each other
SECONDS = 20  # for an attempt
LINE = 50  # characters of a title above one panel


def draw_attempts(attempts: Mapping[str, ModuleType], launch_of: Callable[[ModuleType], Launch]) -> Figure | None:
    """A row for each attempt, in the order given: the arrays that it reads and those that it writes.

    Args:
        attempts: title -> implementation.
        launch_of: what is launched of an implementation.

    Returns:
        the figure, or None if no attempt accesses memory.
    """
    found = {title: touched(impl, launch_of) for title, impl in attempts.items()}
    columns = min(WIDEST, max(len(panels) for _, panels in found.values()))
    if not columns:
        return None
    lines = [-(-len(panels) // columns) for _, panels in found.values()]
    heights = [PANEL[1] * count or EMPTY for count in lines]
    figure = plt.figure(figsize=(PANEL[0] * columns, sum(heights)), layout="constrained")
    rows = figure.subfigures(len(found), 1, squeeze=False, height_ratios=heights)[:, 0]
    for row, count, (title, (text, panels)) in zip(rows, lines, found.items(), strict=True):
        row.suptitle(shorten(f"{title}: {text}", LINE * columns, placeholder=" ..."), fontsize=10)
        axes = row.subplots(max(1, count), columns, squeeze=False).ravel()
        for axis, panel in zip(axes, panels, strict=False):
            draw_touches(axis, *panel)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
    return figure


def touched(impl: ModuleType, launch_of: Callable[[ModuleType], Launch]) -> tuple[str, list[tuple]]:
    """What a launch is to be called, and the panels of what it accessed, as `draw_touches` takes them."""
    profile, text = Profile(), ""
    try:
        with at_most(SECONDS):
            kernel, grid, block, arrays = launch_of(impl)
            check.launch(kernel, [a.copy() for a in arrays], grid, block, profile=profile)
    except KernelCheckError as error:  # what it accessed up to then is drawn
        text = f"{error.findings[0]}".partition("\n")[0]
    except Todo:
        return "not written", []
    except (Exception, OutOfTime) as error:  # of any kind, as a student wrote it; the check of the task says it whole
        return type(error).__name__, []
    panels = [
        (profile, touches, verb)
        for touches in profile.touches.values()
        for verb in ("read", "written")
        if (touches.readers if verb == "read" else touches.writers)
    ]
    reads = profile.total.global_loads / arrays[-1].size
    return text or f"reads of global memory for each result: {reads:.3g}", panels
