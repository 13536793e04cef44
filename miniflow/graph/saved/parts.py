"""What of a graph is saved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from miniflow.amp.grad_scaler import GradScaler
from miniflow.graph.config import GraphConfig
from miniflow.graph.ir import Program
from miniflow.graph.nested import Tree
from miniflow.optim.lr_scheduler.base import LRScheduler


@dataclass
class Parts:
    """All that is needed to run a graph without its code.

    Attributes:
        program: as recorded, before all passes.
        config: what the passes are told.
        arguments: the tree of `(args, kwargs)` of a call.
        results: the tree of what a call returns.
        skipper: the scaler that decides by the last output of the program, a bool, whether the step was left out; None
            if there is no such output.
        schedules: those that each call steps, with the numbers of their optimizers.
        numbers: of a loaded graph, the values of scalars by name.
    """

    program: Program
    config: GraphConfig
    arguments: Tree
    results: Tree
    skipper: GradScaler | None = None
    schedules: list[tuple[int, LRScheduler]] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
