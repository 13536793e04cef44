"""The passes that turn a recorded program into the one that is replayed, in order.

Each pass is a module of this folder with a function `run(program, ...) -> Program`. It never changes the program that
it gets. Its further parameters are named after fields of the graph's configuration and are filled from them:
`def run(program, amp_dtype)` gets `config.amp_dtype`, `def run(program, config)` the whole configuration.

Each says what it pays, and `python -m benchmarks passes` shows it: one that buys nothing has no place here.

Environment:
    MINIFLOW_DEBUG_PASS: the name of a pass, or ALL: print the program before and after it to stderr.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
import warnings
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from miniflow.backends.runtime_defaults import user_level
from miniflow.graph import lower
from miniflow.graph.ir import Program

PIPELINE = (
    # what is computed
    "autocast",
    "checkpointing",
    "dead_code",
    "zero",
    "accumulation",
    "pipeline",
    "sparse_update",
    # the same with less
    "cse",
    "add_to_output",
    "relu_after_pool",
    "dead_code",
    # several instructions as one
    "normalization_activation",
    "dropout_mask",
    "cast_scale",
    "fused_update",
    "multi_tensor_update",
    "elementwise_fusion",
    # in which order
    "schedule",
)
GLOBAL = 4  # how many of them run on programs over global arrays, before these are lowered
VARIABLE = "MINIFLOW_DEBUG_PASS"


@dataclass(frozen=True)
class PassRecord:
    """What one pass did: the number of instructions before and after it, and the seconds that it took."""

    name: str
    before: int
    after: int
    seconds: float
    changed: bool

    def __str__(self) -> str:
        return f"{self.name}: {self.before} -> {self.after} instructions, {self.seconds * 1e3:.1f} ms"


def run_passes(program: Program, config: Any, report: list[PassRecord] | None = None) -> Program:
    """Send `program` through the pipeline, without the passes that `config.disabled_passes` names.

    Args:
        program: as recorded.
        config: the graph's configuration: an object with the fields that the passes' parameters name.
        report: a list that gets one record for each pass that ran.
    """
    shown = os.environ.get(VARIABLE) or "ALL"
    if shown not in (*PIPELINE, "ALL"):
        warnings.warn(
            f"{VARIABLE}={shown!r} shows nothing; expected ALL or one of {', '.join(dict.fromkeys(PIPELINE))}.",
            stacklevel=user_level(),
        )
    for number, name in enumerate(PIPELINE):
        if number == GLOBAL:
            program = lower.run(program)
        if name not in config.disabled_passes:
            program = run_pass(name, program, config, report)
    return program


def run_pass(name: str, program: Program, config: Any, report: list[PassRecord] | None = None) -> Program:
    """Run one pass by its name."""
    function = import_module(f"{__name__}.{name}").run
    start = time.perf_counter()
    result = function(program, **arguments(function, config))
    seconds = time.perf_counter() - start
    if report is not None:
        counts = len(program.instructions), len(result.instructions)
        report.append(PassRecord(name, *counts, seconds, result is not program))
    if os.environ.get(VARIABLE) in (name, "ALL"):
        print(f"before {name}: {program}\nafter {name}: {result}", file=sys.stderr)
    return result


def arguments(function: Any, config: Any) -> dict[str, Any]:
    """The fields of `config` that a pass asks for by the names of its parameters."""
    _, *names = inspect.signature(function).parameters
    return {name: config if name == "config" else getattr(config, name) for name in names}
