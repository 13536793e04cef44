"""Launches of checks: what the checked executor finds becomes a message with advice that the lessons teach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from miniflow.hostcuda import KernelCheckError, check
from miniflow.hostcuda.findings import Finding
from miniflow.hostcuda.profile import Profile

BARRIER = "put cuda.syncthreads() between the two, where all threads of the block pass"
OWNER = "let each element belong to one thread of the grid"
UNWRITTEN = "a thread writes it first, also one beyond the edge: a thread that has returned writes nothing"


def launch(kernel: Any, arrays: Sequence[Any], grid: Any, block: Any, what: str, hint: str = "") -> Profile:
    """The profile of a launch with all checks.

    Args:
        what: the launch in words.
        hint: what to think about if it is wrong.

    Raises:
        AssertionError: with what was found, its remedies, and the hint.
    """
    try:
        return check.launch(kernel, arrays, grid, block, profile=True)
    except KernelCheckError as error:
        found = dict.fromkeys(str(replace(one, remedy=remedy(one))) for one in error.findings)
        raise AssertionError("\n".join([f"{what}:", *found, *([f"Hint: {hint}"] if hint else [])])) from None


def remedy(finding: Finding) -> str:
    """What to do, without atomic operations and barriers of warps."""
    if finding.kind == "race":
        return BARRIER if "in shared memory" in finding.what else OWNER
    return UNWRITTEN if finding.kind == "uninitialised read" and "in shared memory" in finding.what else finding.remedy
