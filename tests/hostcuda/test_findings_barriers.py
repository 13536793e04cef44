# ruff: noqa: E501  (messages are compared as they are)
"""Threads that do not meet where they should: each mistake with a minimal kernel and its message."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_findings import findings, place, says

from miniflow.hostcuda import check
from miniflow.hostcuda import host as cuda


@pytest.fixture(autouse=True)
def _without_typing(monkeypatch: pytest.MonkeyPatch) -> None:
    """These kernels are wrong in other ways than numba.cuda sees."""
    monkeypatch.setattr(check, "cached_typing_error", lambda *_: "")


STANDS = "    a barrier stands where all threads of the block pass: move it out of the branch or loop, and guard only the work"


# Barriers


@cuda.jit
def barrier_in_a_branch(x):
    i = cuda.threadIdx.x
    if i < 2:
        cuda.syncthreads()
    x[i] = 1.0


def test_a_barrier_that_some_threads_go_around():
    says(
        findings(barrier_in_a_branch, [np.zeros(4)], 1, 4),
        f"divergent barrier: {place(barrier_in_a_branch, 'syncthreads')}: thread (0, 0, 0) of block (0, 0, 0) waits in "
        "cuda.syncthreads, while thread (2, 0, 0) went around it and has reached the kernel's end",
        STANDS,
    )


@cuda.jit
def two_barriers(x):
    if cuda.threadIdx.x < 2:
        cuda.syncthreads()  # left
    else:
        cuda.syncthreads()  # right
    x[cuda.threadIdx.x] = 1.0


def test_threads_at_different_barriers():
    right = place(two_barriers, "# right")
    says(
        findings(two_barriers, [np.zeros(4)], 1, 4),
        f"divergent barrier: {place(two_barriers, '# left')}: thread (0, 0, 0) of block (0, 0, 0) waits in cuda.syncthreads, "
        f"while thread (2, 0, 0) waits in cuda.syncthreads at {right}",
        STANDS,
    )


@cuda.jit(device=True)
def meet():
    cuda.syncthreads()


@cuda.jit
def two_calls(x):
    if cuda.threadIdx.x < 2:
        meet()  # left call
    else:
        meet()  # right call
    x[cuda.threadIdx.x] = 1.0


def test_threads_in_one_barrier_by_different_calls():
    barrier = place(meet, "cuda.syncthreads")
    left, right = (place(two_calls, text).partition(":")[2] for text in ("# left", "# right"))
    says(
        findings(two_calls, [np.zeros(4)], 1, 4),
        f"divergent barrier: {barrier}: thread (0, 0, 0) of block (0, 0, 0) waits in cuda.syncthreads (called at line {left}), "
        f"while thread (2, 0, 0) waits in cuda.syncthreads (called at line {right}) at {barrier}",
        STANDS,
    )


@cuda.jit
def barrier_in_a_loop_of_threads(x):
    for _ in range(cuda.threadIdx.x):
        cuda.syncthreads()
    x[cuda.threadIdx.x] = 1.0


def test_a_barrier_in_a_loop_whose_length_differs():
    error = findings(barrier_in_a_loop_of_threads, [np.zeros(3)], 1, 3)
    assert "thread (1, 0, 0) of block (0, 0, 0) waits in cuda.syncthreads, while thread (0, 0, 0) went around" in str(
        error
    )


@cuda.jit
def grid_sync_in_a_branch(x):
    grid = cuda.cg.this_grid()
    if cuda.grid(1) < 1:
        grid.sync()
    x[cuda.grid(1)] = 1.0


def test_a_grid_barrier_that_some_threads_go_around():
    error = findings(grid_sync_in_a_branch, [np.zeros(4)], 2, 2)
    assert "thread (0, 0, 0) of block (0, 0, 0) waits in cuda.grid.sync, while thread (1, 0, 0) went around" in str(
        error
    )


@cuda.jit
def grid_sync_in_one_block(x):
    grid = cuda.cg.this_grid()
    if cuda.blockIdx.x == 1:
        grid.sync()
    x[cuda.grid(1)] = 1.0


def test_a_grid_barrier_that_a_block_goes_around():
    says(
        findings(grid_sync_in_one_block, [np.zeros(4)], 2, 2),
        f"divergent barrier: {place(grid_sync_in_one_block, 'grid.sync')}: thread (0, 0, 0) of block (1, 0, 0) waits in "
        "cuda.grid.sync, while thread (0, 0, 0) of block (0, 0, 0) went around it and has reached the kernel's end",
        STANDS.replace("of the block", "of the grid"),
    )


# Warps


@cuda.jit
def shuffle_in_a_branch(x):
    i = cuda.threadIdx.x
    value = x[i]
    if i < 16:
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, 8)
    cuda.syncthreads()
    x[i] = value


def test_a_mask_that_names_a_lane_that_does_not_come():
    says(
        findings(shuffle_in_a_branch, [np.zeros(32)], 1, 32),
        f"warp: {place(shuffle_in_a_branch, 'shfl_down')}: thread (0, 0, 0) of block (0, 0, 0) waits in cuda.shfl_down_sync "
        f"for lane 16, which its mask 0xffffffff names, but that waits at {place(shuffle_in_a_branch, 'syncthreads')} in "
        "cuda.syncthreads",
        "    all lanes of a mask must make the same call: move it out of the branch, or name only the lanes in it",
    )


@cuda.jit
def shuffle_from_nobody(x):
    i = cuda.threadIdx.x
    x[i] = cuda.shfl_down_sync(0xFFFFFFFF, x[i], 1)


def test_a_shuffle_from_a_lane_that_does_not_exist():
    says(
        findings(shuffle_from_nobody, [np.zeros(20)], 1, 20),
        f"warp: {place(shuffle_from_nobody, 'shfl_down')}: thread (19, 0, 0) of block (0, 0, 0) takes the value of lane 20 in "
        "cuda.shfl_down_sync, but that lane does not exist: the warp has 20 threads",
        "    let all 32 lanes call it, with a neutral value where they have no element; else its result is undefined",
    )


@cuda.jit
def shuffle_from_a_finished_lane(x, y):
    i = cuda.threadIdx.x
    if i >= 24:
        return
    y[i] = cuda.shfl_down_sync(0xFFFFFFFF, x[i], 16)


def test_a_shuffle_from_a_lane_that_has_finished():
    error = findings(shuffle_from_a_finished_lane, [np.zeros(32), np.zeros(32)], 1, 32)
    assert len(error.findings) == 1 and error.findings[0].count == 8
    assert "takes the value of lane 24 in cuda.shfl_down_sync, but that lane has finished" in str(error)


@cuda.jit
def mask_without_itself(x):
    x[cuda.threadIdx.x] = cuda.ballot_sync(0x0000FFFE, True)


def test_a_mask_that_does_not_name_its_own_lane():
    error = findings(mask_without_itself, [np.zeros(16, np.uint32)], 1, 16)
    says(
        error,
        f"warp: {place(mask_without_itself, 'ballot')}: thread (0, 0, 0) of block (0, 0, 0) calls cuda.ballot_sync with mask "
        "0x0000fffe, which does not name its own lane 0",
        "    a lane that calls must be in the mask: build it with cuda.ballot_sync, or let only the named lanes call",
    )
