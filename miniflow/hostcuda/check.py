"""The checked executor: the compiled program with every access looked up in shadow memory, which reports mistakes.

It is the same generated text as in the compiled mode (`instrument`), with accesses and barriers announced to `lookup`
and `arrivals`. One processor runs the blocks and threads in a fixed order, so that two runs report the same. What is
looked for:

    out of bounds, negative index   the element is not accessed; the thread goes on with zero
    race, uninitialised read        found whatever the order in which threads happen to run (`shadow`)
    divergent barrier, warp         threads that go around a barrier and are not finished by an early `return`; lanes
                                    that a mask names in vain (`arrivals`)
    typing                          what numba's CUDA compiler says, where numba-cuda is installed (`ptx`)

Limits of the hardware (threads, and blocks that wait for each other; shared, local and constant memory) are errors of
the launch, as without checks.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from miniflow.hostcuda import ptx, shadow, stream_order
from miniflow.hostcuda.arguments import Arguments, InOut, cast
from miniflow.hostcuda.cache import keep
from miniflow.hostcuda.compile import ERROR_FIELDS
from miniflow.hostcuda.errors import KernelArgumentError, UnsupportedKernelError
from miniflow.hostcuda.findings import Finding, raise_findings, sentences
from miniflow.hostcuda.instrument import CheckedTranslation
from miniflow.hostcuda.lookup import KernelStop
from miniflow.hostcuda.memory_map import MemoryMap
from miniflow.hostcuda.numba_cuda import NUMBA_CUDA
from miniflow.hostcuda.profile import Profile
from miniflow.hostcuda.source import compiling

if TYPE_CHECKING:
    from miniflow.hostcuda.launch import Launch

Dims = int | tuple[int, ...]
SPINS = 1_000_000
"""A thread that asks for one element so many times in a row is taken for waiting."""
ONE_AT_A_TIME = threading.RLock()


def launch(
    kernel: Any, arguments: Sequence[Any], grid: Dims, block: Dims, shared: int = 0, profile: bool | Profile = False
) -> Profile | None:
    """Run a kernel with all checks.

    Args:
        kernel: of `cuda.jit`.
        arguments: NumPy arrays, device arrays, numbers, or tuples of them, as a launch takes them.
        grid: number of blocks, in one to three dims.
        block: number of threads in each.
        shared: bytes of dynamic shared memory.
        profile: True to count memory accesses, or the Profile to count them in.

    Returns:
        The profile, if one was asked for.

    Raises:
        KernelCheckError: with everything that was found.
        KernelArgumentError: for a function that is no kernel.
    """
    if not hasattr(kernel, "configure"):
        raise KernelArgumentError(
            f"check.launch: got {kernel!r}; expected a kernel: write @cuda.jit above the function"
        )
    chosen = profile if isinstance(profile, Profile) else Profile() if profile else None
    launched = tuple(InOut(a) if isinstance(a, np.ndarray) else a for a in arguments)
    run(kernel.configure(grid, block, 0, shared), Arguments(launched, checked=True), chosen)
    return chosen


def run(configured: Launch, launched: Arguments, profile: Profile | None) -> None:
    """`launch` with what was made of its arguments; `profile` is filled."""
    try:
        with ONE_AT_A_TIME:
            raise_findings(Run(configured, profile).findings(launched))
    finally:
        launched.write_back()


class Run:
    """One launch."""

    def __init__(self, configured: Launch, profile: Profile | None):
        self.configured, self.kernel, self.profile = configured, configured.kernel, profile
        self.grid, self.block, self.shared_bytes = configured.griddim, configured.blockdim, configured.sharedmem
        self.spins = SPINS

    def findings(self, launched: Arguments) -> list[Finding]:
        """Run all blocks, one after the other; what was found."""
        shadow.add_symbols()
        types, casts = self.kernel.types_for(launched.kinds)
        key = types, self.configured.rank, self.profile is not None
        try:
            with compiling(self.kernel.py_func):
                compiled = self.kernel.checked.get(key) or CheckedTranslation(self.kernel, *key)
        except UnsupportedKernelError:
            raise_findings(self.typing(cached_typing_error(self.kernel, launched.values)))
            raise
        self.kernel.checked[key] = compiled
        self.configured.check_resources(compiled)
        rows = self.run(compiled, cast(launched.values, casts) if casts else launched.values)
        if compiled.typing is None:
            compiled.typing = cached_typing_error(self.kernel, launched.values, compiled.path)
        return self.typing(compiled.typing) + sentences(self, rows) + self.streams()

    def run(self, compiled: CheckedTranslation, values: Sequence[Any]) -> np.ndarray:
        """Run the code; the rows of what was found."""
        compilation, total, threads = compiled.compilation, math.prod(self.grid), math.prod(self.block)
        self.sites, self.uses_atomics = compiled.sites, "atomic_" in compiled.text
        blocks = total if compilation.cooperative else 1
        arrays: list[tuple] = []
        names = (compilation.original.get(n, n) for n in compiled.parameters)
        values = [kernel_argument(n, v, arrays) for n, v in zip(names, values, strict=True)]
        constants = compilation.captured_arrays
        arrays += [(compilation.original[n], host, None, "const") for n, host in constants.items()]
        self.memory = MemoryMap(compilation, threads, blocks, self.shared_bytes, arrays)
        tables = {
            "stretches": self.memory.table, "cells": self.memory.cells, "blocks": np.zeros(total, shadow.BLOCK_STATE),
            "lanes": np.zeros(blocks * threads, shadow.LANE_STATE), "spare": np.zeros(shadow.SPARE, np.uint8),
            "known": np.zeros(blocks * threads * shadow.WARP_LANES, np.int64),
            "findings": np.zeros(shadow.FOUND_KEPT + 1, shadow.FINDING),
            **(self.profile.begin(self) if self.profile else {}),
        }  # fmt: skip
        numbers = {"threads": threads, "cooperative": int(compilation.cooperative), "now": 1, "started": 1, "at": 1}
        numbers |= {"stretch": len(self.memory.table), "spin_limit": self.spins}
        shadow.STATE_ARRAY[:] = 0
        for name, value in (numbers | {name: table.ctypes.data for name, table in tables.items()}).items():
            shadow.STATE_ARRAY[name] = value
        error = np.zeros(ERROR_FIELDS, np.int64)
        try:
            compiled.code(0, total, *self.grid, *self.block, self.shared_bytes, error, *values, *constants.values())
        except KernelStop:
            pass
        except Exception as caught:
            compiled.locate(caught, error, self.grid, self.block)
            raise
        if self.profile:
            shadow.COUNTING[-1]()
        self.memory.commit()
        return tables["findings"][: int(shadow.STATE_ARRAY["finding_count"][0])]

    def streams(self) -> list[Finding]:
        """Memory that work in another stream uses at the same time."""
        name, findings = self.kernel.__name__, []
        for stretch, row in zip(self.memory.stretches, self.memory.table, strict=True):
            if stretch.allocation is not None and (row["read"] or row["written"]):
                use = f"kernel {name}, in `{stretch.placed[0].name}`,"
                writes, stream = bool(row["written"]), self.configured.stream
                if problem := stream_order.conflict(stretch.allocation, stream, writes, use, True):
                    findings.append(Finding("stream", name, problem, stream_order.REMEDY))
        return findings

    def typing(self, error: str) -> list[Finding]:
        """The finding for a typing error of numba's compiler for GPUs."""
        useful, _, details = error.partition("\n")
        message = f"numba.cuda cannot compile this for a GPU: {useful}"
        return [Finding("typing", self.kernel.__name__, message, details.replace("\n", "\n    "))] if error else []


def kernel_argument(name: str, value: Any, arrays: list[tuple]) -> Any:
    """The value that the kernel receives; `arrays` collects (name, array, device allocation or None, space)."""
    if isinstance(value, tuple):
        parts = [kernel_argument(f"{name}[{position}]", part, arrays) for position, part in enumerate(value)]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    host = getattr(value, "host", value)
    if isinstance(host, np.ndarray):
        arrays.append((name, host, getattr(value, "allocation", None), "global"))
        return host[()] if host.ndim == 0 and host.dtype.names else host
    return host


def cached_typing_error(kernel: Any, arguments: Sequence[Any], path: Path | None = None) -> str:
    """`ptx.typing_error`; the answer is kept in a file beside `path`, that of the generated text."""
    try:
        ptx.numba_types(arguments, NUMBA_CUDA)
    except (ImportError, ValueError):  # nobody to ask, or no type to ask about
        return ""
    kept = path and path.with_suffix(f".{NUMBA_CUDA.version}.typing")
    if kept and kept.exists():
        return kept.read_text()
    error = ptx.typing_error(kernel, arguments) or ""
    return keep(kept, error) if kept else error
