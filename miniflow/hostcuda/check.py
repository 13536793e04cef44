"""The checked executor: a slow second way to run a kernel, which reports what a GPU would do silently wrong.

Each thread is a Python generator. The scheduler runs a block's threads one after the other up to the next place where
threads meet, carries out what the warps do together (`warps`), then the block's barrier; blocks run one after the
other. So the order is fixed and two runs report the same. What is looked for:

    out of bounds, negative index   `access`; the thread that leaves an array stops there
    race, uninitialised read        `shadow`: found whatever the order in which threads happen to run
    divergent barrier, warp         here: threads of a block that wait at different barriers; threads that came to the
                                    kernel's end while others wait at a barrier; lanes that a mask names in vain. A
                                    thread that left by an early `return` is not waited for, as on GPUs since Volta.
                                    The block stops there, since what it would do next is undefined.
    limit                           of threads and static shared memory
    typing                          what numba's CUDA compiler says, where numba-cuda is installed (`ptx`)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from miniflow.hostcuda import ptx, warps
from miniflow.hostcuda.access import ThreadStop
from miniflow.hostcuda.expressions import BARRIERS, GRID_SYNC
from miniflow.hostcuda.findings import Findings
from miniflow.hostcuda.global_memory import GlobalMemory
from miniflow.hostcuda.interpret import Program
from miniflow.hostcuda.profile import Profile
from miniflow.hostcuda.threads import Block, Thread

THREADS_PER_BLOCK = 1024
BLOCK_LIMITS = (1024, 1024, 64)


def launch(
    kernel: Any,
    arguments: Sequence[Any],
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    shared: int = 0,
    profile: bool | Profile = False,
) -> Profile | None:
    """Run a kernel with all checks.

    Args:
        kernel: of `cuda.jit`.
        arguments: NumPy arrays (used in place), device arrays, numbers, or tuples of them.
        grid: number of blocks, in one to three dims.
        block: number of threads in each.
        shared: bytes of dynamic shared memory.
        profile: True to count memory accesses, or the Profile to count them in.

    Returns:
        The profile, if one was asked for.

    Raises:
        KernelCheckError: with everything that was found.
    """
    chosen = profile if isinstance(profile, Profile) else Profile() if profile else None
    return run(kernel, list(arguments), _three(grid), _three(block), shared, chosen)


def _three(dims: int | tuple[int, ...]) -> tuple[int, int, int]:
    dims = (dims,) if isinstance(dims, int | np.integer) else tuple(dims)
    return (*map(int, dims), 1, 1)[:3]


def run(
    kernel: Any,
    arguments: Sequence[Any],
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared_bytes: int = 0,
    profile: Profile | None = None,
) -> Profile | None:
    """`launch` with grid and block in three dims; `profile` is filled and returned."""
    checked = Run(kernel, grid, block, shared_bytes, profile)
    checked.limits()
    checked.typing(kernel, arguments)
    with np.errstate(all="ignore"):  # a GPU knows infinities, NaNs and wrapping integers, no warnings
        checked.execute(arguments)
    checked.findings.report()
    return profile


class Run:
    """One launch.

    Attributes:
        time: how many publications (see `shadow`) there were.
        ended: the first thread that came to the kernel's end, if threads meet in the kernel.
    """

    def __init__(self, kernel: Any, grid: tuple, block: tuple, shared_bytes: int, profile: Profile | None):
        self.grid, self.block, self.shared_bytes, self.profile = grid, block, shared_bytes, profile
        self.function = getattr(kernel, "py_func", kernel)
        self.findings = Findings(self.function.__name__)
        self.program = Program(kernel)
        self.time = 0
        self.ended: Thread | None = None

    def limits(self) -> None:
        """What no launch can have."""
        threads = math.prod(self.block)
        if threads > THREADS_PER_BLOCK or any(n > most for n, most in zip(self.block, BLOCK_LIMITS, strict=True)):
            self.findings.add(
                "limit",
                f"a block of {self.block} has {threads} threads; a GPU has at most {THREADS_PER_BLOCK}, and "
                f"{BLOCK_LIMITS} by dim",
                "launch more blocks of fewer threads",
            )
            self.findings.report()

    def typing(self, kernel: Any, arguments: Sequence[Any]) -> None:
        """What numba's compiler for GPUs would refuse."""
        error = known_typing_error(kernel, arguments)
        if error is not None:
            useful, _, rest = error.partition("\n")
            self.findings.add(
                "typing", f"numba.cuda cannot compile this for a GPU: {useful}", rest.replace("\n", "\n    ")
            )

    def execute(self, arguments: Sequence[Any]) -> None:
        """All blocks one after the other; those that wait for the whole grid, in rounds."""
        memory = GlobalMemory()
        names = self.function.__code__.co_varnames
        values = [memory.argument(name, value) for name, value in zip(names, arguments, strict=False)]
        if self.profile is not None:
            self.profile.begin(self, values)
        blocks = [self._block(number, values) for number in range(math.prod(self.grid))]
        while blocks:
            met = [(block, thread) for block in blocks if (thread := next(block, None)) is not None]
            blocks = [block for block, _ in met]
            if met and self.ended is not None:
                self._divergent_grid(met[0][1], self.ended)
                break
            if blocks:
                memory.forget()  # the whole grid has met
        memory.commit()

    def _block(self, number: int, values: list) -> Iterator[Thread]:
        """Run a block; yields a thread each time that its threads wait for the other blocks."""
        block = Block(self, number)
        yield from Scheduler(self, block, values).run()
        if self.profile is not None:
            self.profile.end_block(block)

    def _divergent_grid(self, waiting: Thread, ended: Thread) -> None:
        waiting.note(
            "divergent barrier",
            f"{waiting} waits in cuda.{GRID_SYNC}, while {ended} went around it and has reached the kernel's end",
            REMEDY.replace("of the block", "of the grid"),
            waiting.waiting[1],
        )


REMEDY = (
    "a barrier stands where all threads of the block pass: move it out of the branch or loop, and guard only the work"
)


class Scheduler:
    """Runs the threads of one block."""

    def __init__(self, run: Run, block: Block, values: list):
        self.launch, self.block = run, block
        self.kernel = run.program.kernel
        self.values = values

    def run(self) -> Iterator[Thread]:
        threads = self.block.threads
        if not self.kernel.meets:
            for thread in threads:
                self._guarded(thread, lambda thread=thread: self.kernel.call(thread, *self.values))
            return
        for thread in threads:
            thread.body = self.kernel.call(thread, *self.values)
        ready = list(threads)
        while ready:
            for thread in ready:
                self._resume(thread)
            ready = [thread for warp in self.block.warps for thread in warps.step(warp)]
            if not ready:
                ready = yield from self._meet()
        if all(thread.finished for thread in threads) and self.launch.ended is None:
            self.launch.ended = next((thread for thread in threads if not thread.returned), None)
        for thread in threads:
            thread.body.close()

    def _resume(self, thread: Thread) -> None:
        """Let a thread run to where it meets others, or to its end."""
        answer, thread.answer, thread.waiting = thread.answer, None, None

        def advance() -> None:
            thread.waiting = thread.body.send(answer)

        self._guarded(thread, advance)

    def _guarded(self, thread: Thread, go: Any) -> None:
        try:
            go()
            return
        except StopIteration as end:
            thread.returned = bool(end.value)
        except ThreadStop:
            thread.returned = True
        except Exception as error:
            thread.returned = True
            self._exception(thread, error)
        thread.finished = True

    def _exception(self, thread: Thread, error: Exception) -> None:
        trace, line = error.__traceback__, self.launch.function.__code__.co_firstlineno
        filename = self.launch.function.__code__.co_filename
        known = {site.filename for site in self.launch.program.sites} | {filename}
        while trace is not None:
            if trace.tb_frame.f_code.co_filename in known:
                filename, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
            trace = trace.tb_next
        self.launch.findings.cause = self.launch.findings.cause or error
        self.launch.findings.exception(thread, error, filename, line)

    def _meet(self) -> Iterator[Thread]:
        """Nothing moves within the warps: the block's barrier, or the grid's, or threads that wait in vain."""
        waiting = [thread for thread in self.block.threads if thread.waiting is not None]
        if not waiting or self._stuck_lanes(waiting) or self._divergent(waiting):
            return []
        operation, _, _ = waiting[0].waiting
        if operation == GRID_SYNC:
            yield waiting[0]
        answer = _agreement(operation, waiting)
        for thread in waiting:
            thread.answer = answer
        self.block.barrier()
        return waiting

    def _stuck_lanes(self, waiting: list[Thread]) -> bool:
        """Lanes that wait for others which have gone elsewhere."""
        stuck = [thread for thread in waiting if thread.waiting[0] in warps.OPERATIONS]
        for thread in stuck[:1]:
            operation, site, _ = thread.waiting
            mask = warps.named(thread)
            same = [t for t in thread.warp.lanes if t.waiting and t.waiting[0] == operation and warps.named(t) == mask]
            absent = warps.missing(thread.warp, mask, same)[0]
            thread.note(
                "warp",
                f"{thread} waits in cuda.{operation} for lane {absent.lane}, which its mask 0x{mask:08x} names, "
                f"but that waits at {self._place(absent)} in cuda.{absent.waiting[0]}",
                "all lanes of a mask must make the same call: move it out of the branch, or name only the lanes in it",
                site,
                other=self.launch.program.sites[absent.waiting[1]],
            )
        return bool(stuck)

    def _divergent(self, waiting: list[Thread]) -> bool:
        """Threads that wait at different barriers, or that ended without coming to this one."""
        first = waiting[0]
        site, path = first.waiting[1], _path(first)
        for thread in waiting:
            if thread.waiting[1] != site or _path(thread) != path:
                what = (
                    f"{first} waits in {_call(first)}, while {thread.short()} waits in {_call(thread)} "
                    f"at {self._place(thread)}"
                )
                first.note("divergent barrier", what, REMEDY, site, other=self._site(thread))
                return True
        ended = next((t for t in self.block.threads if t.finished and not t.returned), None)
        if ended is not None:
            went = f"{ended.short()} went around it and has reached the kernel's end"
            what = f"{first} waits in {_call(first)}, while {went}"
            first.note("divergent barrier", what, REMEDY, site)
        return ended is not None

    def _site(self, thread: Thread) -> Any:
        return self.launch.program.sites[thread.waiting[1]]

    def _place(self, thread: Thread) -> str:
        return str(self._site(thread))


def _path(thread: Thread) -> list[int]:
    """The lines at which a thread waits: of the kernel, of the device function that it calls there, and so on."""
    lines, body = [], thread.body
    while body is not None:
        lines.append(body.gi_frame.f_lineno)
        body = body.gi_yieldfrom
    return lines


def _call(thread: Thread) -> str:
    """What a thread waits in, with the kernel's line if that calls a device function."""
    line, *deeper = _path(thread)
    return f"cuda.{thread.waiting[0]}" + (f" (called at line {line})" if deeper else "")


def _agreement(operation: str, waiting: list[Thread]) -> Any:
    """What a barrier answers to all threads."""
    if operation not in BARRIERS or operation == "syncthreads":
        return None
    votes = [bool(thread.waiting[2][0]) for thread in waiting]
    return {"syncthreads_count": sum, "syncthreads_and": all, "syncthreads_or": any}[operation](votes)


_typing_errors: dict[tuple, str | None] = {}


def known_typing_error(kernel: Any, arguments: Sequence[Any]) -> str | None:
    """`ptx.typing_error`, asked once for each kernel and argument types."""
    try:
        key = (getattr(kernel, "py_func", kernel), str(ptx.numba_types(arguments)))
    except (ImportError, ValueError):  # nobody to ask, or no type to ask about
        return None
    if key not in _typing_errors:
        _typing_errors[key] = ptx.typing_error(kernel, arguments)
    return _typing_errors[key]
